"""Complex tensors: their parts as views, and a complex tensor from two real ones.

These three are all that knows how a complex number lies in memory (two reals side by side). Every other operator on complex
tensors is worked out on the parts (`rushlight/eager/complexes.py`), so its gradient is PyTorch's: for a real result the
derivative by the real part plus i times that by the imaginary part."""
from dataclasses import dataclass

from rushlight import dtypes

from . import promotion
from .declare import affine_view, assemble, composition
from .layouts import Layout, ShapeError, broadcast
from .pointwise import abs, eq, sign, where
from .samples import call, t
from .views import select


@affine_view("view_as_real(Tensor(a) self) -> Tensor(a)", view="view_as_real", samples=(
    call(t(2, 3, dtype="complex64")), call(t(4, 3, dtype="complex128", order=(1, 0))), call(t(dtype="complex64")),
    call(t(5, dtype="complex64", step=2))))
def view_as_real(x):
    """[..., 2]: the real and the imaginary parts."""
    if not dtypes.is_complex(x.dtype):
        raise RuntimeError(f"[view_as_real] takes a complex tensor, got {x.dtype}")
    strides = (*(2 * s for s in x.strides), 1)
    return Layout((*x.shape, 2), strides, dtypes.real_of(x.dtype), 2 * x.offset, x.device)


@view_as_real.derivative
def _(g):
    return complex(select(g, -1, 0), select(g, -1, 1))


@affine_view("view_as_complex(Tensor(a) self) -> Tensor(a)", view="view_as_complex", samples=(
    call(t(3, 2)), call(t(4, 3, 2, dtype="float64")), call(t(2)), call(t(4, 3, 2, order=(1, 0, 2)))))
def view_as_complex(x):
    if x.dtype not in ("float32", "float64"):
        raise RuntimeError(f"[view_as_complex] view_as_complex is only supported for float32 and float64 tensors, got {x.dtype}")
    if not x.rank or x.shape[-1] != 2 or x.strides[-1] != 1 or any(s % 2 for s in x.strides[:-1]):
        raise ShapeError(
            "[view_as_complex] pairs of numbers are needed: a last dim of size 2 and stride 1, even strides "
            f"elsewhere, got shape {list(x.shape)} and strides {list(x.strides)}"
        )
    return Layout(x.shape[:-1], tuple(s // 2 for s in x.strides[:-1]), dtypes.complex_of(x.dtype), x.offset // 2, x.device)


@view_as_complex.derivative
def _(g):
    return view_as_real(g)


@dataclass(frozen=True)
class Pairing(promotion.Promotion):
    """Two reals of one dtype make a complex number of the same precision."""
    def __call__(self, a):
        found = {v.dtype for _, v in a.operands()}
        if len(found) > 1 or not found <= {"float16", "float32", "float64"}:
            raise RuntimeError(f"[{a.op_name}] Expected object of scalar type float32 or float64, both of one, got {' and '.join(sorted(found))}")
        best, = found
        if best == "float16":
            raise NotImplementedError(f"[{a.op_name}] complex numbers of half precision are not supported")
        return best, dtypes.complex_of(best)


def part(i):
    return lambda out: select(view_as_real(out), -1, i)


@assemble("complex(Tensor real, Tensor imag) -> Tensor", layout=broadcast(), promote=Pairing(), method=False, samples=(
    call(t(2, 3), t(2, 3)), call(t(3, 1), t(4)), call(t(4, 3, order=(1, 0)), t(4, 3, order=(1, 0))), call(t(dtype="float64"), t(dtype="float64"))))
def complex(real, imag):
    yield part(0), real
    yield part(1), imag


@complex.derivative
def _(g):
    g = view_as_real(g)
    return select(g, -1, 0), select(g, -1, 1)


@composition("conj_physical(Tensor self) -> Tensor", method=False, samples=(call(t(2, 3, dtype="complex64")), call(t(3))))
def conj_physical(x):
    return complex(part(0)(x), -part(1)(x)) if dtypes.is_complex(x.dtype) else x


@composition("sgn(Tensor self) -> Tensor", samples=(call(t(2, 3)), call(t(4, dtype="int64")), call(t(2, 3, dtype="complex64"))))
def sgn(x):
    """The sign; of a complex number it over its size, 0 at 0."""
    if not dtypes.is_complex(x.dtype):
        return sign(x)
    size = abs(x)
    return x / where(eq(size, 0), 1.0, size)


__all__ = ["complex", "conj_physical", "sgn", "view_as_complex", "view_as_real"]
