"""`rushlight.library`, `futures` and `hub`: operators of a program's own, values that come later,
models by address."""

import copy
import os
import pickle
import threading

import pytest

import rushlight as rl
from rushlight import futures, hub, library


def scale(name="mine::scale"):
    @library.custom_op(name, mutates_args=())
    def function(x: rl.Tensor, by: float = 2.0) -> rl.Tensor:
        return rl.tensor((x.detach().numpy() * by).tolist())

    return function


def test_an_operator_of_ones_own():
    op = scale()
    assert "Tensor x" in op.schema and op.schema.endswith("-> Tensor")
    x = rl.ones(2, requires_grad=True)
    assert op(x, by=3.0).tolist() == [3.0, 3.0] and op(rl.ones(1)).tolist() == [2.0]
    with pytest.raises(RuntimeError, match="no derivative is registered"):
        op(x).sum().backward()
    library.register_autograd(
        "mine::scale",
        lambda ctx, g: (g * ctx.by, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
    )
    op(x, 4.0).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]
    with pytest.raises(ValueError, match="annotation"):
        library.custom_op("mine::bad", lambda x: x, mutates_args=())
    with pytest.raises(ValueError, match="namespace::name"):
        scale("bad")
    with pytest.raises(RuntimeError, match="not defined"):
        library.register_kernel("mine::nothing", "cpu", print)


def test_an_operator_by_schema():
    mine = library.Library("schema", "DEF")
    mine.define("twice(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="no kernel for cpu"):
        library.OPERATORS["schema::twice"](rl.ones(1))
    mine.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
    x = rl.ones(1, requires_grad=True)
    library.OPERATORS["schema::twice"](x).sum().backward()  # recorded as its operators
    assert x.grad.tolist() == [2.0]
    library.impl("schema::twice", "cpu", lambda x: x * 20)
    assert library.OPERATORS["schema::twice"](rl.ones(1)).tolist() == [20.0]
    library.register_fake("schema::twice", lambda x: rl.empty_like(x))
    assert library.OPERATORS["schema::twice"](rl.empty(3, device="meta")).shape == (3,)
    with pytest.raises(RuntimeError, match="defined already"):
        mine.define("twice(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="cannot be replaced"):
        library.Library("aten", "IMPL", "CPU").impl("add", print)


def test_a_compiled_function_calls_it():
    op = scale("mine::compiled")
    compiled = rl.compile(lambda x: op(x + 1, 3.0) * 2)
    assert compiled(rl.ones(2)).tolist() == [12.0, 12.0]


def test_futures():
    first, told = futures.Future(), []
    after = first.then(lambda f: f.value() + 1)
    first.add_done_callback(lambda f: told.append(f.value()))
    with pytest.raises(RuntimeError, match="not done"):
        first.value()
    threading.Timer(0.01, first.set_result, (1,)).start()
    assert after.wait() == 2 and told == [1] and first.done()
    with pytest.raises(RuntimeError, match="already"):
        first.set_result(2)
    bad = futures.Future()
    bad.set_exception(KeyError("no"))
    with pytest.raises(KeyError):
        futures.wait_all([first, bad])
    assert futures.wait_all([first, after]) == [1, 2] and futures.collect_all([]).wait() == []


def test_a_callback_that_raises_stops_no_other(capfd):
    first, told = futures.Future(), []

    def bad(_):
        raise ValueError("of the callback")

    first.add_done_callback(bad)
    after = first.then(lambda f: f.value() + 1)
    first.set_result(1)
    assert after.done() and after.wait() == 2
    first.add_done_callback(bad)
    first.add_done_callback(lambda f: told.append(f.value()))
    assert told == [1] and capfd.readouterr().err.count("ValueError: of the callback") == 2


def test_an_operator_is_one_thing():
    """Models that hold one are copied and pickled."""
    op = scale("mine::one")
    assert copy.copy(op) is op and copy.deepcopy({"op": op})["op"] is op
    assert pickle.loads(pickle.dumps(op)) is op


def test_models_by_address(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_directory", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    assert hub.get_dir() == str(tmp_path / "hub")
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "inside.py").write_text("SIZE = 3\n")
    (repository / "hubconf.py").write_text(
        'dependencies = ["json"]\nimport inside\n\ndef net(n=1):\n    "A net."\n'
        "    return inside.SIZE * n\n"
    )
    assert hub.load(str(repository), "net", n=2, source="local") == 6
    with pytest.raises(RuntimeError, match="no entry point"):
        hub.load(str(repository), "other", source="local")
    with pytest.raises(ValueError, match="owner/name"):
        hub.load("nothing", "net")
    rl.save({"w": rl.ones(2)}, tmp_path / "w-0000.pt")
    address = (tmp_path / "w-0000.pt").as_uri()
    assert hub.load_state_dict_from_url(address, progress=False)["w"].tolist() == [1.0, 1.0]
    (fetched,) = (tmp_path / "hub" / "checkpoints").iterdir()
    os.umask(umask := os.umask(0))
    assert fetched.stat().st_mode & 0o777 == 0o666 & ~umask
    with pytest.raises(RuntimeError, match="begins with '0000'"):
        hub.load_state_dict_from_url(address, file_name="a-0000.pt", check_hash=True)
