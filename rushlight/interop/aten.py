"""What stands for ATen's operators: for each overload a function of its arguments, in ATen's order,
on Rushlight's tensors.

Most are Rushlight's operators of the same schema; `SPECIAL` has those whose arguments differ. A
function may raise where an argument asks for what ours lacks: torch runs that node then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import rushlight.nn.functional as F
from rushlight import _core, sym
from rushlight.eager import factories
from rushlight.errors import Unsupported
from rushlight.ops.convolution import each, exact
from rushlight.ops.declare import FACTORIES
from rushlight.ops.indexing import indexed_shape
from rushlight.ops.pooling import geometry
from rushlight.ops.values import TABLE

# Not taken apart by torch's table of decompositions: ours are one kernel each, or, for attention,
# torch's backward needs what only its own forward gives.
KEPT = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_softmax_backward_data",
    "_log_softmax_backward_data",
    "embedding_dense_backward",
    "native_batch_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_layer_norm_backward",
    "upsample_bicubic2d",
    "upsample_bilinear2d",
    "upsample_nearest2d",
)
DTYPES = frozenset("float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split())
# Scores of an attention up to which two products and a softmax are taken for torch's fused kernel,
# which never stores them.
SCORES = 1 << 20


def name_of(target: Any) -> str:
    """An operator's name without its overload's."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    return str(schema.name.partition("::")[2])


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def value_of(torch: Any, a: Any) -> Any:
    """An argument that is no tensor: torch's dtypes become ours."""
    return getattr(_core, dtype_name(a)) if isinstance(a, torch.dtype) else a


def op(name: str, *args: Any, **named: Any) -> Any:
    """One of ours, by its name in the table of operators."""
    return TABLE[name].native(*args, **named)


def kind(x: Any) -> str:
    """The name of a dtype: a recorder's values have it as text."""
    return str(getattr(x.dtype, "name", x.dtype))


def translation(target: Any) -> Callable | None:
    """Ours for one of ATen's overloads: a function of its arguments as ATen orders them."""
    base, overload = name_of(target), target._schema.overload_name
    special = SPECIAL.get(f"{base}.{overload}") or SPECIAL.get(base)
    if special is not None:
        return special
    same = BY_SCHEMA.get((base, overload)) or BY_SCHEMA.get((base, None))
    if same is not None and same.native is not None and accepts(same, target):
        return same.native  # type: ignore[no-any-return]
    return None


def accepts(ours: Any, target: Any) -> bool:
    """Whether the overload's arguments are the operator's first ones, in their order."""
    theirs = [a.name for a in target._schema.arguments if not a.kwarg_only]
    mine = [p.name for p in ours.parameters]
    same = all(a == b or {a, b} <= {"self", "input"} for a, b in zip(theirs, mine))
    return same and len(theirs) <= len(mine)


def by_schema() -> dict[tuple[str, str | None], Any]:
    found: dict[tuple[str, str | None], Any] = {}
    for one in TABLE.values():
        base, _, overload = one.schema.text.partition("(")[0].partition(".")
        found.setdefault((base, overload), one)
        found.setdefault((base, None), one)
    return found


def to_copy(x: Any, dtype: Any = None, memory_format: Any = None, **rest: Any) -> Any:
    return TABLE["to"].native(x, dtype=dtype) if dtype not in (None, x.dtype) else x.clone()


def clone(x: Any, memory_format: Any = None) -> Any:
    return x.clone()


def full_like(x: Any, value: Any, dtype: Any = None, **rest: Any) -> Any:
    return factories.full(tuple(x.shape), value, dtype=dtype or x.dtype, device=beside(x))


def beside(x: Any) -> Any:
    """Where to make what goes with x. A graph that is recorded makes all on its device."""
    return None if FACTORIES else x.device


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None, **rest: Any) -> Any:
    start, end = (0, start) if end is None else (start, end)
    if not any(isinstance(n, sym.Sym) for n in (start, end, step)):
        return factories.arange(start, end, step, dtype=dtype, device=rest.get("device"))
    device = factories.device_of(rest.get("device"))
    count = -(-(end - start) // step)
    return factories.created("steps", device, (count,), start, step, dtype=dtype or _core.int64)


def full(size: Any, value: Any, dtype: Any = None, **rest: Any) -> Any:
    return factories.full(tuple(size), value, dtype=dtype)


def unset(size: Any, *order: Any, dtype: Any = None, **rest: Any) -> Any:
    """Memory whose numbers nobody may rely on; where it is read, something was written before."""
    return factories.full(tuple(size), 0 if dtype else 0.0, dtype=dtype)


def unset_beside(x: Any, size: Any, *order: Any, dtype: Any = None, **rest: Any) -> Any:
    return factories.full(tuple(size), 0, dtype=dtype or x.dtype, device=beside(x))


def scalar_tensor(value: Any, dtype: Any = None, **rest: Any) -> Any:
    return factories.full((), value, dtype=dtype or _core.float32)


# ---- places


def index(x: Any, indices: Sequence[Any]) -> Any:
    places, dims = given(x, indices)
    return op("index", x, places, dims)


def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    masks = [i for i in indices if i is not None and kind(i) == "bool"]
    if masks and len(indices) == 1 and values.numel() == 1 and not accumulate:
        mask = masks[0].reshape((*masks[0].shape, *(1,) * (x.dim() - masks[0].dim())))
        return op("where", mask, values.reshape(()), x)
    places, dims = given(x, indices)
    shape = indexed_shape(tuple(x.shape), places, dims, "index_put")
    if values.numel() != 1 and tuple(values.shape) != shape:
        values = values.expand(shape)
    return op("index_write", x, places, values, dims, accumulate)


def given(x: Any, indices: Sequence[Any]) -> tuple[tuple, tuple]:
    """The indices that there are, and their dims."""
    found = [(dim, i) for dim, i in enumerate(indices) if i is not None]
    if any(kind(i) in ("bool", "uint8") for _, i in found):
        raise Unsupported("index", "by a mask: how many it picks is known when it has run")
    return tuple(i for _, i in found), tuple(dim for dim, _ in found)


def embedding(
    weight: Any, indices: Any, padding: int = -1, scale: bool = False, sparse: bool = False
) -> Any:
    return op("embedding", weight, indices, padding)


def embedding_backward(g: Any, indices: Any, rows: int, padding: int, scale: bool) -> Any:
    if scale:
        raise Unsupported("embedding_dense_backward", "scale_grad_by_freq")
    return op("embedding_backward", g, indices, rows, padding)


# ---- normalisation


def over_channels(v: Any, x: Any) -> Any:
    return v.reshape((1, -1, *(1,) * (x.dim() - 2)))


def both(weight: Any, bias: Any) -> tuple:
    """A scale and a shift, or neither: the kernels take no other form."""
    if weight is None and bias is not None:
        return full_like(bias, 1.0), bias
    return weight, full_like(weight, 0.0) if bias is None and weight is not None else bias


def batch_norm_eval(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: Any, eps: Any
) -> Any:
    empty = factories.full((0,), 0.0, dtype=x.dtype)
    return F.batch_norm(x, mean, var, weight, bias, False, momentum, eps), empty, empty


def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> Any:
    """(y, mean, 1 / deviation, and the running statistics after the batch)."""
    if not training:
        return (*batch_norm_eval(x, weight, bias, mean, var, momentum, eps), mean, var)
    y, mu, spread, rstd = op("batch_norm_rows", x, *both(weight, bias), eps)
    n = math.prod(x.shape) // x.shape[1]
    return y, mu, rstd, *op("running_step", mean, var, mu, spread, momentum, n / max(n - 1, 1))


def batch_norm_without(
    x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> Any:
    y, mu, _, rstd = op("batch_norm_rows", x, *both(weight, bias), eps)
    return y, mu, rstd


def batch_norm_backward(
    g: Any, x: Any, weight: Any, mean: Any, var: Any, mu: Any, rstd: Any, training: bool,
    eps: float, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    if training:
        return op("batch_norm_backward", g, x, mu, rstd, weight)
    rstd = (var + eps).rsqrt()
    dims = (0, *range(2, x.dim()))
    scale = rstd if weight is None else rstd * weight
    slope = (g * (x - over_channels(mean, x))).sum(dims) * rstd if wanted[1] else None
    return g * over_channels(scale, x), slope, g.sum(dims) if wanted[2] else None


def native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return op("native_layer_norm", x, tuple(shape), weight, bias, eps)


def layer_norm_backward(
    g: Any, x: Any, shape: Any, mu: Any, rstd: Any, weight: Any, bias: Any, wanted: Sequence[bool]
) -> Any:
    dx = op("layer_norm_backward", g, x, shape, mu, rstd, weight) if wanted[0] else None
    if not (wanted[1] or wanted[2]):
        return dx, None, None
    dweight, dbias = op("layer_norm_backward_weight", g, x, shape, mu, rstd)
    return dx, dweight.reshape(shape), dbias.reshape(shape)


def group_norm(
    x: Any, weight: Any, bias: Any, n: int, c: int, pixels: int, groups: int, eps: float
) -> Any:
    return op("native_group_norm", x, *both(weight, bias), n, c, pixels, groups, eps)


def group_norm_backward(
    g: Any, x: Any, mu: Any, rstd: Any, weight: Any, n: int, c: int, pixels: int, groups: int,
    wanted: Sequence[bool],
) -> Any:  # fmt: skip
    wide = (n, groups, c // groups, pixels)
    g4, x4 = g.reshape(wide), x.reshape(wide)
    w = None if weight is None else weight.reshape((groups, c // groups, 1))
    dx = op("group_norm_backward", g4, x4, mu, rstd, w).reshape(tuple(x.shape))
    around = (n, groups, 1, 1)
    slopes = op("group_norm_backward_weight", g4, x4, mu.reshape(around), rstd.reshape(around))
    return dx, *(s.reshape((c,)) for s in slopes)


def weight_norm_backward(dw: Any, v: Any, g: Any, norms: Any, dim: int) -> Any:
    """Slopes of v and g, where w is v / |v| * g."""
    others = tuple(d for d in range(v.dim()) if d != dim % v.dim())
    along = (dw * v).sum(others, True)
    return g / norms * (dw - v * (along / (norms * norms))), along / norms


# ---- convolutions and pools


def convolution(
    x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int,
) -> Any:  # fmt: skip
    """One number for all dims, where a list has no more."""
    nd = w.dim() - 2
    lists = ("stride", stride), ("padding", padding), ("dilation", dilation)
    numbers = (each(n, nd, name, "convolution") for name, n in lists)
    more = each(output_padding, nd, "output_padding", "convolution")
    return op("convolution", x, w, bias, *numbers, transposed, more, groups)


def convolution_backward(
    g: Any, x: Any, w: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    nd, kernel, name = w.dim() - 2, tuple(w.shape[2:]), "convolution_backward"
    stride, dilation = each(stride, nd, "stride", name), each(dilation, nd, "dilation", name)
    padding = each(padding, nd, "padding", name)
    dx = dw = None
    if transposed:
        sizes = tuple(g.shape[2:]), tuple(x.shape[2:])
        around = exact(padding, *sizes, kernel, stride, dilation)
        if wanted[0]:
            dx = op("convolution_forward", g, w, stride, around, dilation, groups)
        if wanted[1]:
            dw = op("convolution_weights", g, x, kernel, stride, around, dilation, groups)
    else:
        size = tuple(x.shape[2:])
        if wanted[0]:
            dx = op("convolution_data", g, w, size, stride, padding, dilation, groups)
        if wanted[1]:
            dw = op("convolution_weights", x, g, kernel, stride, padding, dilation, groups)
    return dx, dw, g.sum((0, *range(2, nd + 2))) if wanted[2] else None


def max_pool_backward(
    g: Any, x: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool, places: Any
) -> Any:
    return op("pool_scatter", g, places, tuple(x.shape), 2, True)


def avg_pool_backward(
    g: Any, x: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, counts_padding: bool,
    divisor: int | None,
) -> Any:  # fmt: skip
    described = SimpleNamespace(rank=x.dim(), shape=tuple(x.shape))
    numbers, _ = geometry("avg_pool2d", 2, described, kernel, stride, padding, 1, ceil)
    numbers = (*numbers, int(counts_padding), divisor or 0)
    return op("pool_mean_backward", g, tuple(x.shape), 2, False, numbers)


def adaptive_pool_backward(g: Any, x: Any) -> Any:
    if tuple(g.shape[-2:]) == (1, 1):
        return (g / (x.shape[-1] * x.shape[-2])).expand(tuple(x.shape)).clone()
    return op("pool_mean_backward", g, tuple(x.shape), 2, True, (0,) * 10)


def upsample(mode: str, aligns: bool) -> tuple[Callable, Callable]:
    """An image at another size, and its backward."""

    def scales(rest: tuple) -> tuple[bool, Any]:
        aligned, rest = (rest[0], rest[1:]) if aligns else (False, rest)
        return aligned, tuple(rest) if any(s is not None for s in rest) else None

    def forward(x: Any, size: Any, *rest: Any) -> Any:
        return op("resample", x, tuple(size), mode, *scales(rest))

    def backward(g: Any, size: Any, before: Any, *rest: Any) -> Any:
        return op("resample_backward", g, tuple(before[2:]), mode, *scales(rest))

    return forward, backward


# ---- attention


def scores_of(
    q: Any, k: Any, v: Any, dropout: float, is_causal: bool, mask: Any, scale: float | None
) -> tuple:
    """(scores, bias, mask, limit, scale): what `attention_weights` takes."""
    if dropout:
        raise Unsupported("attention", "dropout inside")
    if math.prod(q.shape[:-1]) * k.shape[-2] > SCORES:
        raise Unsupported("attention", f"over {SCORES} scores are better never stored")
    if q.shape[-3] != k.shape[-3]:
        raise Unsupported("attention", "heads that share keys")
    limit = None
    if is_causal:
        limit = arange(q.shape[-2], device=beside(q)).reshape((1, 1, q.shape[-2], 1))
    boolean = mask is not None and kind(mask) == "bool"
    bias = None if boolean or mask is None else mask.to(q.dtype)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = q @ k.transpose(-2, -1)
    return scores, bias, mask if boolean else None, limit, scale


def attention(
    q: Any, k: Any, v: Any, dropout: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    """(output, the logarithm of each row's sum of exponentials)."""
    scores, bias, mask, limit, scale = scores_of(q, k, v, dropout, is_causal, attn_mask, scale)
    out = op("attention_weights", scores, bias, mask, limit, scale, -1) @ v
    scores = scores.float() * scale
    scores = scores if bias is None else scores + bias
    scores = scores if mask is None else op("where", mask, scores, -math.inf)
    if limit is not None:
        seen = arange(k.shape[-2], device=beside(q)) <= limit
        scores = op("where", seen, scores, -math.inf)
    return out, scores.logsumexp(-1)


def attention_backward(
    g: Any, q: Any, k: Any, v: Any, out: Any, sums: Any, dropout: float, is_causal: bool, *,
    attn_mask: Any = None, scale: float | None = None,
) -> Any:  # fmt: skip
    scores, bias, mask, limit, scale = scores_of(q, k, v, dropout, is_causal, attn_mask, scale)
    weights = op("attention_weights", scores, bias, mask, limit, scale, -1)
    slope = op("attention_weights_backward", g @ v.transpose(-2, -1), weights, scale, -1)
    return slope @ k, slope.transpose(-2, -1) @ q, weights.transpose(-2, -1) @ g


# ---- the table


def max_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    return tuple(x.max(dim, keepdim))


def min_dim(x: Any, dim: int, keepdim: bool = False) -> Any:
    return tuple(x.min(dim, keepdim))


def as_shape(x: Any, size: Any) -> Any:
    return x.reshape(tuple(size))


def copy(x: Any, y: Any, non_blocking: bool = False) -> Any:
    return to_copy(y, x.dtype).expand(tuple(x.shape)).clone()


def cast_back(made: Any, dtype: Any) -> Any:
    return made if made.dtype is dtype else made.to(dtype)


bilinear, bilinear_backward = upsample("linear", True)
bicubic, bicubic_backward = upsample("cubic", True)
nearest, nearest_backward = upsample("nearest", False)

SPECIAL: dict[str, Callable] = {
    "_softmax": lambda x, dim, half: (x.float() if half else x).softmax(dim),
    "_log_softmax": lambda x, dim, half: (x.float() if half else x).log_softmax(dim),
    "_softmax_backward_data": lambda g, y, dim, dtype: cast_back(
        op("softmax_backward", g, y, dim), dtype
    ),
    "_log_softmax_backward_data": lambda g, y, dim, dtype: cast_back(
        op("log_softmax_backward", g, y, dim), dtype
    ),
    "_to_copy": to_copy,
    "clone": clone,
    "alias": lambda x: x,
    "detach": lambda x: x,
    "copy": copy,
    "lift_fresh_copy": lambda x: x.clone(),
    "arange": arange,
    "full": full,
    "full_like": full_like,
    "empty": unset,
    "empty_strided": unset,
    "empty_permuted": unset,
    "empty_like": lambda x, **rest: full_like(x, 0, **rest),
    "new_empty": unset_beside,
    "new_empty_strided": unset_beside,
    "zeros_like": lambda x, **rest: full_like(x, 0, **rest),
    "ones_like": lambda x, **rest: full_like(x, 1, **rest),
    "scalar_tensor": scalar_tensor,
    "fill.Scalar": full_like,
    "embedding": embedding,
    "embedding_dense_backward": embedding_backward,
    "index.Tensor": index,
    "_unsafe_index.Tensor": index,
    "index_put": index_put,
    "_unsafe_index_put": index_put,
    "_native_batch_norm_legit_no_training": batch_norm_eval,
    "_native_batch_norm_legit_functional": batch_norm,
    "_native_batch_norm_legit.no_stats": batch_norm_without,
    "native_batch_norm_backward": batch_norm_backward,
    "native_layer_norm": native_layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "native_group_norm": group_norm,
    "native_group_norm_backward": group_norm_backward,
    "convolution": convolution,
    "convolution_backward": convolution_backward,
    "_weight_norm_interface_backward": weight_norm_backward,
    "max_pool2d_with_indices_backward": max_pool_backward,
    "avg_pool2d_backward": avg_pool_backward,
    "_adaptive_avg_pool2d": lambda x, size: op("adaptive_avg_pool2d", x, tuple(size)),
    "_adaptive_avg_pool2d_backward": adaptive_pool_backward,
    "upsample_bilinear2d": bilinear,
    "upsample_bilinear2d_backward": bilinear_backward,
    "upsample_bicubic2d": bicubic,
    "upsample_bicubic2d_backward": bicubic_backward,
    "upsample_nearest2d": nearest,
    "upsample_nearest2d_backward": nearest_backward,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention_backward,
    "max.dim": max_dim,
    "min.dim": min_dim,
    "_unsafe_view": as_shape,
    "view": as_shape,
    "reshape": as_shape,
    "relu": lambda x: x.relu(),
    "cat": lambda tensors, dim=0: op("cat", tuple(tensors), dim),
    "split_with_sizes": lambda x, sizes, dim=0: tuple(x.split(list(sizes), dim)),
    "split.Tensor": lambda x, size, dim=0: tuple(x.split(size, dim)),
    "unbind": lambda x, dim=0: tuple(x.unbind(dim)),
    "constant_pad_nd": lambda x, pad, value=0: F.pad(x, tuple(pad), value=value),
}
BY_SCHEMA = by_schema()
