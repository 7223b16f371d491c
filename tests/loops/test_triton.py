"""GPU kernels without a GPU: generated, compiled to machine code for two architectures and looked
at, and run in Triton's
interpreter against the CPU library's kernels. Skipped where Triton is not installed (it is an
extra of 190 MB)."""

import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from rushlight import trace
from rushlight.loops import library, triton_forms
from rushlight.loops.triton import emit
from rushlight.runtime import cache
from rushlight.runtime import triton as compiler

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
ACCESS = re.compile(r"\b((?:ld|st|atom|red)\.global[\w.:]*)")


@pytest.fixture(scope="module")
def kernels():
    return {k.name: (op, k) for op, k in library.kernels("cuda")}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    from rushlight import config

    monkeypatch.setattr(config.flags, "cache_dir", str(tmp_path / "cache"))


def test_every_kernel_of_the_library_has_triton(kernels):
    """Source and record for each; what the language lacks is refused, and is nothing but
    additions to small integers."""
    refused = []
    for name, (_, kernel) in kernels.items():
        try:
            record, sources = triton_forms.record(kernel)
        except NotImplementedError as error:
            refused.append(str(error))
            continue
        assert record["variants"][-1]["when"] == [], name  # something always runs
        for source in sources:
            ast.parse(source.text)
    assert all("no atomic addition of" in r or "a launch takes" in r for r in refused), refused
    assert len(refused) <= 12


def test_conditions_and_parameters_name_numbers_that_exist(kernels):
    for name in (
        "add.float32.TT",
        "sum.float32.T",
        "native_layer_norm.float32.TTT.eps:f",
        "uniform.float32.T.seed:i.offset:i",
    ):
        _, kernel = kernels[name]
        count = (len(kernel.outer) + len(kernel.inner)) * (2 + len(kernel.buffers)) + 1
        record, sources = triton_forms.record(kernel)
        words = [
            w
            for v in record["variants"]
            for w in (*v["when"], *(x for one in v["launches"] for x in one["params"]))
        ]
        assert all(int(n) < count for w in words for n in re.findall(r"\bn(\d+)", w)), name
        for source in sources:
            head = next(line for line in source.text.splitlines() if line.startswith("def "))
            assert head.count(",") + 1 == len(source.params)


def test_a_source_says_where_its_lines_come_from(kernels):
    op, kernel = kernels["gelu.float32.T.approximate=tanh"]
    source = emit(kernel, triton_forms.variants(kernel)[0].forms[0], "gelu")
    told = {line: where for line, where in source.lines.items()}
    assert told and all("ops/" in w[-1] for w in told.values())
    rows = source.text.splitlines()
    assert all("# " in rows[n - 1] for n in told)


COMPILED = [
    "add.float32.TT",
    "add.bfloat16.TT",
    "where.int64.TTT.condition:bool",
    "gelu.bfloat16.T.approximate=none",
    "sum.float32.T",
    "softmax_rows.bfloat16.T",
    "native_layer_norm.float32.TTT.eps:f",
    "cross_entropy_rows.float32.TT.target:int64",
    "embedding.float32.TT.indices:int64",
    "uniform.float32.T.seed:i.offset:i",
    "floor_divide.int64.TT",
]


@needs_triton
@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_assemble_without_spills_and_read_whole_vectors(kernels, capability):
    for name in COMPILED:
        _, kernel = kernels[name]
        record, sources = triton_forms.record(kernel)
        sources = sources[: sum(len(v["launches"]) for v in record["variants"][:2])]
        for source, image in zip(sources, compiler.compile_all(sources, capability)):
            assert image.cubin[:4] == b"\x7fELF" and image.entry == source.name
            assert compiler.resources(image.cubin)["local"] == 0, name
            if whole_vectors(kernel, source):
                accesses = Counter(ACCESS.findall(image.stages["ptx"]))
                assert any(".v4.b32" in a or ".v2.b64" in a for a in accesses), (name, accesses)


def whole_vectors(kernel, source):
    """Whether the form reads neighbours from aligned memory."""
    if source.name.startswith(("uniform", "embedding")) or source.name.endswith("_join"):
        return False
    aligned = all(even for _, kind, _, even in source.params if kind[0] == "*")
    return aligned and kernel.buffers[0].dtype in ("float32", "bfloat16", "int64")


@needs_triton
def test_every_stage_is_told(kernels):
    _, sources = triton_forms.record(kernels["add.float32.TT"][1])
    with trace.collect(
        "triton_kernels", "triton_compiler", "llvm_ir", "ptx", "gpu_machine_code"
    ) as records:
        compiler.compile_all(sources[:1], 90)
    told = {r.stage: r for r in records}
    stages = ["triton_kernels", "ttir", "ttgir", "llvm_ir", "ptx", "gpu_machine_code"]
    assert list(told) == stages
    assert "tt.func" in told["ttir"].text and "#blocked" in told["ttgir"].text
    assert "define" in told["llvm_ir"].text and "ld.global.v4.b32" in told["ptx"].text
    code = told["gpu_machine_code"]
    assert code.facts["registers"] > 0 and code.facts["stack"] == 0 and "EXIT" in code.text
    assert all(told[s].facts["ms"] > 0 for s in stages[1:])
    assert "fma" not in told["ptx"].text  # nothing is contracted


@needs_triton
def test_an_image_is_compiled_once_and_a_bad_file_is_refused(kernels, tmp_path):
    _, kernel = kernels["neg.float32.T"]
    first, images = compiler.build(*triton_forms.record(kernel), 90)
    with trace.collect() as records:
        again, same = compiler.build(*triton_forms.record(kernel), 90)
    assert (again, same) == (first, images)
    told = [r for r in records if r.stage == "gpu_machine_code"]
    assert told and all(r.facts["found"] for r in told)
    assert any(
        r.stage == "ttgir" and "tt.func" in r.text for r in records
    )  # a warm process shows the stages too
    (entry, *_) = cache.entries(ending=".cubin")
    assert entry.parts["graph"].startswith("neg_float32_T_")
    folder = tmp_path / "cache"
    for path in folder.glob("*.cubin"):
        path.write_bytes(path.read_bytes()[:-40] + b"x" * 40)
    with trace.collect() as records:
        assert compiler.build(*triton_forms.record(kernel), 90)[1] == images
    assert any(r.name.startswith("cache.refused") or "does not match" in r.text for r in records)
    assert cache.clear()[0] == len(images) and not list(cache.entries(ending=".cubin"))


@needs_triton
def test_the_ir_after_each_pass(kernels):
    _, kernel = kernels["neg.float32.T"]
    source = emit(kernel, triton_forms.variants(kernel)[0].forms[0], "neg")
    text = compiler.after_each_pass(source, 90)
    assert "TritonGPUCoalesce" in text or "tritongpu-coalesce" in text


INTERPRETED = [
    "add.float32.TT",
    "exp.float32.T",
    "tanh.float32.T",
    "uniform.float32.T.seed:i.offset:i",
    "normal.float32.T.seed:i.offset:i",
    "floor_divide.int64.TT",
    "softmax_rows.float32.T",
    "native_layer_norm.float32.TTT.eps:f",
    "argmax_rows.float32.T",
    "cross_entropy_rows.float32.TT.target:int64",
    "embedding_backward.float32.TT.indices:int64.num_weights:i",
    "sum.float32.T",
    "any_rows.bool.T",
    "clone.bfloat16.T",
    "to.float32.T.dtype=bfloat16",
]
EXACT = ("add.", "uniform.", "floor_divide.", "argmax_rows.", "any_rows.", "clone.")

CLOSE = ("exp.", "tanh.", "normal.")  # the interpreter rounds the product of a fused multiply-add


@needs_triton
@pytest.mark.slow
def test_interpreted_kernels_compute_what_the_cpu_computes():
    script = Path(__file__).with_name("triton_interpreted.py")
    done = subprocess.run(
        [sys.executable, str(script), *INTERPRETED],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) == len(INTERPRETED), done.stderr[-2000:]
    for r in results:
        assert "error" not in r, r
        assert len(r["ran"]) >= r["variants"] - 1, r
        bound = 0 if r["key"].startswith(EXACT) else 0.02 if r["key"].startswith(CLOSE) else 1
        assert r["worst"] <= bound, r


@pytest.fixture
def gpu():
    import rushlight

    if not getattr(rushlight.cuda, "is_available", bool)():
        pytest.skip("no GPU")
    rushlight.manual_seed(0)
    return rushlight


@pytest.mark.cuda
@pytest.mark.parametrize("shape", [(1000,), (65, 64), (3, 5, 7, 9), (2, 70000)])
def test_pointwise_kernels_give_the_cpus_bits_on_the_device(gpu, shape):
    x, y = gpu.randn(*shape), gpu.randn(*shape)
    for name in ("exp", "expm1", "log", "log1p", "tanh", "sigmoid", "erf", "sqrt", "round"):
        f = getattr(gpu, name)
        a, b = f(x.abs()), f(x.abs().cuda()).cpu()
        assert gpu.equal(gpu.nan_to_num(a), gpu.nan_to_num(b)), name
    assert gpu.equal(x / y, (x.cuda() / y.cuda()).cpu())
    assert gpu.equal(
        x.t() if x.dim() == 2 else x, (x.cuda().t() if x.dim() == 2 else x.cuda()).cpu()
    )
    strided = x[..., ::2] * 3
    assert gpu.equal(strided, (x.cuda()[..., ::2] * 3).cpu())


@pytest.mark.cuda
def test_random_numbers_are_the_cpus_on_the_device(gpu):
    for draw in (gpu.rand, gpu.randn):
        gpu.manual_seed(3)
        a = draw(1000)
        gpu.manual_seed(3)
        assert gpu.equal(a, draw(1000, device="cuda").cpu())


@pytest.mark.cuda
@pytest.mark.parametrize(
    "shape, dim",
    [((7, 33), 1), ((2, 70000), 1), ((4096, 40), 0), ((64, 128), 1), ((3, 5, 7, 9), 2)],
)
def test_row_kernels_on_the_device(gpu, shape, dim):
    """Each form of row kernels: short, whole, long, side by side, split."""
    x = gpu.randn(*shape)
    for name in ("sum", "mean", "softmax", "log_softmax", "amax", "argmax", "var"):
        f = getattr(gpu, name)
        a, b = f(x, dim), f(x.cuda(), dim).cpu()
        assert gpu.allclose(a, b, rtol=1e-5, atol=2e-5), name
