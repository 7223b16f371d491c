"""Sample descriptions -> real arguments: the same numbers for Rushlight, the oracle and fakes."""

import zlib

import numpy as np

import rushlight as rl
from rushlight.ops import TABLE
from rushlight.ops.layouts import Layout
from rushlight.ops.samples import t

CASES = [(op, sample) for op in TABLE.values() for sample in op.samples]
OURS = {
    "select_backward",
    "slice_backward",
    "embedding_backward",
    "softmax_backward",
    "log_softmax_backward",
    "index",
    "index_write",
    "index_backward",
    "gather_backward",
    "nonzero_counted",
    "masked_select_counted",
    "masked_select_backward",
    "bincount_counted",
    "histc_range",
}  # ATen's take other arguments
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6, "float64": 1e-12}


def name(case):
    op, sample = case
    return f"{op.name}({sample})".replace(" ", "")


def array(x: t, seed, widen=False):
    """A numpy array with the sample's sizes, order of dims and step. bfloat16 comes as float32
    (numpy has none).
    """
    rng = np.random.default_rng([7, seed])
    dtype = (
        "float64"
        if widen and x.dtype in TOLERANCE
        else {"bfloat16": "float32"}.get(x.dtype, x.dtype)
    )
    shape = list(x.shape)
    if x.step > 1:
        shape[-1] = shape[-1] * x.step
    order = x.order or tuple(range(len(shape)))
    dense = [shape[d] for d in order]
    if dtype == "bool":
        data = rng.integers(0, 2, dense).astype(bool)
    elif dtype.startswith(("int", "uint")):
        low, high = int(x.low), int(x.high) + (1 if x.low == -2.0 else 0)
        data = rng.integers(max(low, 0) if dtype == "uint8" else low, max(high, 1), dense).astype(
            dtype
        )
    elif dtype.startswith("complex"):
        real, imag = rng.uniform(x.low, x.high, (2, *dense))
        data = np.asarray(real + 1j * imag, "complex128" if widen else dtype)
    else:
        data = rng.uniform(x.low, x.high, dense).astype(dtype)
    data = data.transpose(np.argsort(order)) if x.order else data
    return data[..., :: x.step] if x.step > 1 else data


def ours(x: t, seed, widen=False):
    out = rl.from_numpy(array(x, seed, widen))
    return out.to(rl.bfloat16) if x.dtype == "bfloat16" and not widen else out


def theirs(torch):
    def make(x: t, seed, widen=False):
        out = torch.from_numpy(array(x, seed, widen))
        return out.to(torch.bfloat16) if x.dtype == "bfloat16" and not widen else out

    return make


def layout(x: rl.Tensor):
    return Layout(tuple(x.shape), tuple(x.stride()), x.dtype.name)


def arguments(op, sample, make, **options):
    """The sample's bound arguments with tensors made by `make(description, seed)`."""
    base = zlib.crc32(op.name.encode()) % 1000

    def build(v, seed):
        if isinstance(v, t):
            return make(v, base + seed, **options)
        if isinstance(v, list):
            return [build(x, 100 * seed + i) for i, x in enumerate(v)]
        return v

    bound = op.bind(sample.args, sample.kwargs)
    return [build(v, i) for i, v in enumerate(bound.values)]


def call(op, values, **more):
    """The native operator on bound values; keyword-only parameters by name."""
    args = [native_dtype(v, p) for v, p in zip(values, op.parameters) if not p.keyword_only]
    kwargs = {p.name: native_dtype(v, p) for v, p in zip(values, op.parameters) if p.keyword_only}
    return op.native(*args, **kwargs, **more)


def native_dtype(v, p):
    return getattr(rl, v) if isinstance(v, str) and p.kind.startswith("dtype") else v


def many(out):
    return tuple(out) if isinstance(out, (tuple, list)) else (out,)


def oracle_call(torch, op, values):
    """The ATen operator of the same name, or None where there is none."""
    packet = getattr(torch.ops.aten, op.schema.base, None)
    if (
        packet is None
        or op.schema.name.split(".")[-1] in ("counter", "like", "sized", "input", "weight")
        or op.name in OURS
    ):
        return None
    given, changed = {}, {}
    for p, v in zip(op.parameters, values):
        at_default = type(v) is type(p.default) and v == p.default
        if isinstance(v, str) and p.kind.startswith("dtype"):
            v = getattr(torch, v)
        if p.type == "MemoryFormat?":
            v = {None: None, "contiguous": torch.contiguous_format}[v]
        if isinstance(v, tuple):
            v = list(v)
        given[p.name] = v
        if not at_default:
            changed[p.name] = v
    try:
        return packet(**given)
    except RuntimeError as error:  # overloads differ by what is left out
        unmatched = isinstance(error, NotImplementedError) or any(
            m in str(error) for m in ("failed to match any", "Expected a value")
        )
        if not unmatched or given.keys() == changed.keys():
            raise
        return packet(**changed)


def numpy(x):
    """A float64 or integer array of our tensor."""
    x = x.detach()
    return x.to(rl.float64).numpy() if x.dtype.is_floating_point else x.numpy()


def close(got, want, dtype, what, factor=1):
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape, (what, got.shape, want.shape)
    if np.iscomplexobj(got) or np.iscomplexobj(want):
        parts = "float32" if dtype == "complex64" else "float64"
        close(got.real, want.real, parts, what, factor)
        return close(got.imag, want.imag, parts, what, factor)
    if dtype not in TOLERANCE:
        assert np.array_equal(got, want), (what, got, want)
        return
    got, want = got.astype("float64"), want.astype("float64")
    bound = factor * TOLERANCE[dtype] * np.maximum(1, np.abs(want))
    with np.errstate(invalid="ignore"):
        bad = ~((np.abs(got - want) <= bound) | (got == want) | (np.isnan(got) & np.isnan(want)))
    assert not bad.any(), (what, got[bad][:5], want[bad][:5])
