"""Small public functions, against PyTorch's."""

import itertools

import pytest

import rushlight

NAMES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64".split()
FLOATS, INTEGERS = NAMES[6:], NAMES[1:6]


def both(oracle, name):
    return getattr(rushlight, name), getattr(oracle, name)


@pytest.mark.parametrize("name", FLOATS)
def test_limits_of_floating_types(oracle, name):
    ours, theirs = (library.finfo(d) for library, d in zip((rushlight, oracle), both(oracle, name)))
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal", "resolution", "dtype"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert repr(ours) == repr(theirs) and ours == rushlight.finfo(getattr(rushlight, name))
    if name == "float32":
        assert rushlight.finfo() == ours


@pytest.mark.parametrize("name", INTEGERS)
def test_limits_of_integer_types(oracle, name):
    ours, theirs = (library.iinfo(d) for library, d in zip((rushlight, oracle), both(oracle, name)))
    for field in ("bits", "max", "min", "dtype"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert str(ours.max) in repr(ours)


def test_limits_of_other_types():
    for call in (
        lambda: rushlight.finfo(rushlight.int32),
        lambda: rushlight.iinfo(rushlight.float32),
        lambda: rushlight.iinfo(rushlight.bool),
        lambda: rushlight.finfo(3),
    ):
        with pytest.raises(TypeError):
            call()


def test_types_that_meet(oracle):
    for a, b in itertools.product(NAMES, NAMES):
        (x, y), (p, q) = both(oracle, a), both(oracle, b)
        assert str(rushlight.promote_types(x, p))[10:] == str(oracle.promote_types(y, q))[6:]
        assert rushlight.can_cast(x, p) == oracle.can_cast(y, q), (a, b)


def test_types_of_results(oracle):
    def values(library):
        tensors = [
            library.ones(shape, dtype=getattr(library, n)) for n in NAMES for shape in ((), 2)
        ]
        return tensors + [True, 3, 1.5]

    for (a, x), (b, y) in itertools.product(zip(values(rushlight), values(oracle)), repeat=2):
        want = oracle.result_type(x, y)
        assert str(rushlight.result_type(a, b))[10:] == str(want)[6:], (x, y)
    with pytest.raises(TypeError):
        rushlight.result_type("a", 1)


def test_what_something_is():
    x = rushlight.ones(2, 3)
    assert rushlight.is_tensor(x) and not rushlight.is_tensor(3)
    assert rushlight.is_storage(x.untyped_storage()) and not rushlight.is_storage(x)
    assert rushlight.is_floating_point(x) and not rushlight.is_floating_point(x.long())
    assert not rushlight.is_complex(x) and rushlight.numel(x) == 6
    assert rushlight.is_nonzero(rushlight.tensor([2])) and not rushlight.is_nonzero(
        rushlight.tensor(0.0)
    )
    for bad in (x, x[:0]):
        with pytest.raises(RuntimeError, match="ambiguous"):
            rushlight.is_nonzero(bad)
    with pytest.raises(TypeError):
        rushlight.is_nonzero(3)
    assert rushlight.typename(x) == "rushlight.FloatTensor"
    assert rushlight.typename(x.bfloat16()) == "rushlight.BFloat16Tensor"
    assert rushlight.typename(rushlight.nn.Linear) == "rushlight.nn.linear.Linear"
    assert rushlight.typename(3) == "int"


@pytest.mark.parametrize("name", ["float64", "bfloat16", "float32"])
def test_the_default_dtype(oracle, name):
    def made(library):
        x = library.arange(3)
        results = (
            library.tensor([1.5]),
            library.tensor(1),
            library.ones(2),
            library.rand(2),
            library.full((2,), 1.5),
            library.linspace(0, 1, 3),
            x / 2,
            x * 0.5,
            library.exp(x),
            x.float() * 0.5,
            library.tensor(True) / 2,
        )
        return [str(v.dtype).split(".")[1] for v in results], repr(library.tensor([1.5]))

    for library in (rushlight, oracle):
        library.set_default_dtype(getattr(library, name))
    try:
        assert rushlight.get_default_dtype() is getattr(rushlight, name)
        assert made(rushlight) == made(oracle)
    finally:
        for library in (rushlight, oracle):
            library.set_default_dtype(library.float32)
    assert made(rushlight) == made(oracle)
    for bad in (rushlight.int32, "float32", None):
        with pytest.raises(TypeError):
            rushlight.set_default_dtype(bad)


@pytest.mark.parametrize(
    "options",
    [
        {"precision": 2},
        {"threshold": 5, "edgeitems": 2},
        {"linewidth": 40},
        {"sci_mode": True},
        {"profile": "short"},
        {"profile": "full"},
    ],
    ids=str,
)
def test_printing(oracle, options):
    def printed(library):
        library.set_printoptions(**options)
        try:
            return [
                repr(library.linspace(0, 1, 30)),
                repr(library.arange(2000)),
                repr(library.linspace(-3, 3, 12).reshape(3, 4)),
            ]
        finally:
            library.set_printoptions(profile="default")

    assert printed(rushlight) == printed(oracle)
    with pytest.raises(ValueError, match="profile"):
        rushlight.set_printoptions(profile="x")


def test_switches():
    assert not rushlight.are_deterministic_algorithms_enabled()
    rushlight.use_deterministic_algorithms(True, warn_only=True)
    assert rushlight.are_deterministic_algorithms_enabled()
    assert rushlight.is_deterministic_algorithms_warn_only_enabled()
    rushlight.use_deterministic_algorithms(False)
    assert rushlight.get_float32_matmul_precision() == "highest"
    rushlight.set_float32_matmul_precision("high")
    assert rushlight.get_float32_matmul_precision() == "high"
    with pytest.warns(UserWarning, match="not one of|nothing is changed"):
        rushlight.set_float32_matmul_precision("x")
    rushlight.set_float32_matmul_precision("highest")
    assert rushlight.get_num_interop_threads() == 1 and not rushlight.set_flush_denormal(True)
    assert rushlight.get_default_device() == rushlight.device("cpu")
    rushlight.set_default_device("cpu")
    with pytest.raises(RuntimeError, match="not available"):
        rushlight.set_default_device("cuda")
    with rushlight.inference_mode():
        assert rushlight.is_inference_mode_enabled()
    assert not rushlight.is_inference_mode_enabled()
    assert rushlight.inf == float("inf") and rushlight.newaxis is None and rushlight.pi > 3.14


def test_switches_of_the_past(oracle):
    for lib in (rushlight, oracle):
        for mode, level in (("warn", 1), (2, 2), ("default", 0)):
            lib.set_deterministic_debug_mode(mode)
            assert lib.get_deterministic_debug_mode() == level
        with pytest.raises(RuntimeError, match="expected one of|`warn` and `error`"):
            lib.set_deterministic_debug_mode("x")
        lib.set_warn_always(True)
        assert lib.is_warn_always_enabled()
        lib.set_warn_always(False)
    try:
        rushlight.set_default_tensor_type(rushlight.DoubleTensor)
        assert rushlight.ones(1).dtype is rushlight.float64
        rushlight.set_default_tensor_type("torch.FloatTensor")
        assert rushlight.ones(1).dtype is rushlight.float32
        with pytest.raises(TypeError, match="floating"):
            rushlight.set_default_tensor_type("torch.LongTensor")
    finally:
        rushlight.set_default_dtype(rushlight.float32)


def test_autocast_of_the_past():
    assert rushlight.get_autocast_gpu_dtype() is rushlight.float16
    assert not rushlight.is_autocast_cpu_enabled()
    with rushlight.autocast("cpu", rushlight.float16):
        assert rushlight.is_autocast_cpu_enabled()
        assert rushlight.get_autocast_cpu_dtype() is rushlight.float16
    rushlight.set_autocast_cpu_dtype(rushlight.float16)
    assert rushlight.get_autocast_cpu_dtype() is rushlight.float16
    rushlight.set_autocast_cpu_dtype(rushlight.bfloat16)
    assert rushlight.autocast_increment_nesting() == 1
    assert rushlight.autocast_decrement_nesting() == 0


SIZES = ["max(1, 2.5)", "max(3, 2)", "min(1, 2.0)", "int(2.7)", "int(-2.7)", "float(2)",
         "not(True)", "sum([1, 2, 3])", "ite(True, 1, 2)", "sqrt(4)"]  # fmt: skip


@pytest.mark.parametrize("call", SIZES)
def test_arithmetic_on_sizes(oracle, call):
    ours, theirs = (eval(f"lib.sym_{call}", {"lib": lib}) for lib in (rushlight, oracle))
    assert ours == theirs and type(ours) is type(theirs)


def test_arithmetic_on_sizes_that_vary():
    def function(x):
        n = x.shape[0]
        return x * rushlight.sym_max(n, 3) + rushlight.sym_min(n, 2.5) + rushlight.sym_float(n)

    compiled = rushlight.compile(function, backend="eager", fullgraph=True, dynamic=True)
    for n in (2, 5, 6):
        x = rushlight.ones(n)
        assert compiled(x).tolist() == function(x).tolist()
    assert not isinstance(3, rushlight.SymInt) and not isinstance(3.0, rushlight.SymFloat)


def test_the_device_beside_the_cpu(oracle):
    ours, theirs = rushlight.accelerator, oracle.accelerator
    if ours.is_available() or theirs.is_available():
        pytest.skip("there is one")
    assert ours.current_accelerator() is theirs.current_accelerator() is None
    assert ours.device_count() == theirs.device_count() == 0
    for name in ("current_device_index", "synchronize", "current_stream"):
        for lib in (ours, theirs):
            with pytest.raises(RuntimeError, match="accelerator.* is available"):
                getattr(lib, name)()
    with ours.device_index(None):
        pass
    cpu = rushlight.get_device_module("cpu")
    assert cpu is rushlight.cpu and cpu.device_count() == 1 and cpu.current_device() == "cpu"
    assert rushlight.get_device_module() is cpu and rushlight.get_device_module("cuda").__name__
    with pytest.raises(RuntimeError):
        rushlight.get_device_module("foo")
