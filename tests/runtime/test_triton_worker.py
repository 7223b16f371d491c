"""Compiling for a GPU in a process beside the one that uses it."""

import pytest

from rushlight.errors import CompilerBug
from rushlight.runtime import triton
from rushlight.runtime.cuda import opening
from rushlight.runtime.triton_worker import Worker

pytestmark = pytest.mark.skipif(triton.version() is None, reason="needs the package triton")


class Source:
    """What the compiler asks of loops.triton.Source."""

    def __new__(cls, name, body):
        from rushlight.loops.triton import Source as Real

        text = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        text += f"def {name}(p0, p1):\n    i = tl.program_id(0) * 128 + tl.arange(0, 128)\n{body}"
        params = (("p0", "*fp32", "p0", True), ("p1", "*fp32", "p1", True))
        return Real(name, text, params, "1", 4)


def good(name="double"):
    return Source(name, "    tl.store(p1 + i, tl.load(p0 + i) * 2.0)\n")


@pytest.fixture
def worker():
    made = Worker()
    yield made
    made.stop()


def test_the_worker_gives_what_compiling_here_gives(worker):
    (there,) = worker.compile([good()], 90, False)
    (here,) = triton.compile_here([good()], 90, False)
    assert there.cubin == here.cubin and there.stages == here.stages and there.entry == "double"
    process = worker.process
    assert len(worker.compile([good("one"), good("two")], 80, False)) == 2
    assert worker.process is process  # it stays


def test_what_triton_refuses_is_raised_here(worker):
    with pytest.raises(CompilerBug, match="Triton refused"):
        worker.compile([Source("bad", "    tl.store(p1 + i, tl.no_such_thing(p0))\n")], 90, False)
    assert len(worker.compile([good()], 90, False)) == 1  # and it goes on


def test_a_worker_that_dies_is_told_and_replaced(worker):
    worker.compile([good()], 90, False)
    worker.process.kill()
    worker.process.wait()
    worker.compile([good()], 90, False)  # a new one
    worker.process.stdin.close()  # it ends by itself
    worker.process.wait()
    assert len(worker.compile([good()], 90, False)) == 1


def test_a_process_that_uses_a_gpu_compiles_beside_itself(monkeypatch):
    from rushlight.runtime import triton_worker

    asked = []

    class Told:
        def compile(self, sources, capability, debug):
            asked.append([s.name for s in sources])
            return triton.compile_here(sources, capability, debug)

    monkeypatch.setattr(triton_worker, "worker", Told())
    triton.compile_fresh([good()], 90, False)
    assert asked == []
    monkeypatch.setattr(opening, "opened", True)
    triton.compile_fresh([good()], 90, False)
    assert asked == [["double"]]
