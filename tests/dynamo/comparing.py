"""Pictures of results, and whether two are the same: NaN == NaN, -0.0 != 0.0, dtype and shape
included, strides not."""

import math


def freeze(v):
    """Plain-Python picture of a result (tensors become dicts)."""
    if hasattr(v, "tolist") and hasattr(v, "dtype") and hasattr(v, "shape"):
        d = v.detach() if getattr(v, "requires_grad", False) else v
        return {
            "dtype": str(v.dtype).split(".")[-1],
            "shape": [int(s) for s in v.shape],
            "data": d.tolist(),
        }
    if isinstance(v, (list, tuple)):
        return [freeze(i) for i in v]
    if isinstance(v, dict):
        return {"dict": [[freeze(k), freeze(w)] for k, w in v.items()]}
    if isinstance(v, bool) or v is None or isinstance(v, str):
        return v
    if isinstance(v, int) or hasattr(v, "__index__"):
        return int(v)
    return v


def _num_same(a, b, tol):
    if isinstance(a, complex) or isinstance(b, complex):
        return _num_same(a.real, b.real, tol) and _num_same(a.imag, b.imag, tol)
    if isinstance(a, bool) or isinstance(b, bool):
        return type(a) is type(b) and a == b
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    a, b = float(a), float(b)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if a == 0 and b == 0:
        return math.copysign(1, a) == math.copysign(1, b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= tol * max(1e-38, abs(a), abs(b))


def same(a, b, tol=1e-5):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tol) for x, y in zip(a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], tol) for k in a)
    num = (int, float, complex)
    if isinstance(a, num) and isinstance(b, num):
        return _num_same(a, b, tol)
    return a == b
