"""Forward-mode derivatives under PyTorch's names, by the tape: what a tensor's tangent is, is asked
when it is unpacked.

`make_dual(x, t)` gives a tensor like x that the tape follows, and remembers t. `unpack_dual(y)`
differentiates y's vjp with respect to its cotangent, which gives the Jacobian times the tangents.
So every operator inside needs a second derivative, and code under `no_grad` has no tangent.
"""

from collections import namedtuple

from rushlight.eager import Tensor, zeros_like
from rushlight.eager.functions import grad
from rushlight.eager.modes import enable_grad

UnpackedDualTensor = namedtuple("UnpackedDualTensor", ("primal", "tangent"))
LEVELS: list[list] = []  # for each open level the pairs (dual, tangent)


def enter_dual_level():
    """Open a level; RuntimeError where one is open, as in PyTorch."""
    if LEVELS:
        raise RuntimeError(
            "[enter_dual_level] a dual level is open already, and levels cannot be nested: exit "
            "it first"
        )
    LEVELS.append([])
    return 0


def exit_dual_level(*, level=None):
    """Close the level: its duals have no tangents any more."""
    if not LEVELS:
        raise RuntimeError("[exit_dual_level] no dual level is open")
    LEVELS.pop()


class dual_level:
    """A block in which duals have tangents."""

    def __enter__(self):
        return enter_dual_level()

    def __exit__(self, *_):
        exit_dual_level()


def make_dual(tensor, tangent, *, level=None):
    """A tensor of the same values with a tangent of the same shape and dtype."""
    if not LEVELS:
        raise RuntimeError("[make_dual] no dual level is open: call it inside `with dual_level():`")
    for what, x in (("Primal", tensor), ("Tangent", tangent)):
        if not (isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())):
            raise ValueError(
                f"[make_dual] the {what.lower()} has to be a floating or complex tensor, not "
                f"{getattr(x, 'dtype', type(x))}"
            )
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            f"[make_dual] the tangent has shape {list(tangent.shape)}, the tensor "
            f"{list(tensor.shape)}: they have to be equal"
        )
    if tensor.dtype is not tangent.dtype:
        raise RuntimeError(f"[make_dual] the tangent is {tangent.dtype}, the tensor {tensor.dtype}")
    with enable_grad():
        dual = tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().requires_grad_()
    LEVELS[-1].append((dual, tangent))
    return dual


def unpack_dual(tensor, *, level=None):
    """(primal, tangent) of a tensor; no tangent where it depends on no dual of the open level."""
    if not LEVELS:
        return UnpackedDualTensor(tensor, None)
    duals = [d for d, _ in LEVELS[-1]]
    for dual, tangent in LEVELS[-1]:
        if dual is tensor:
            return UnpackedDualTensor(tensor.detach(), tangent)
    if not tensor.requires_grad or not duals:
        return UnpackedDualTensor(tensor, None)
    with enable_grad():
        seed = zeros_like(tensor.detach()).requires_grad_()
        found = grad(tensor, duals, seed, create_graph=True, retain_graph=True, allow_unused=True)
        pairs = [(f, t) for f, (_, t) in zip(found, LEVELS[-1]) if f is not None]
        if not pairs:
            return UnpackedDualTensor(tensor, None)
        tangent = None
        moved = [(f, t) for f, t in pairs if f.requires_grad]
        if moved:
            outs, seeds = [f for f, _ in moved], [t for _, t in moved]
            (tangent,) = grad(
                outs, [seed], seeds, create_graph=True, retain_graph=True, allow_unused=True
            )
    if tangent is None:  # constant where it is differentiated
        tangent = zeros_like(tensor.detach())
    return UnpackedDualTensor(tensor.detach(), tangent)


__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]
