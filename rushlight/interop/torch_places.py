"""Where a graph of torch's has its tensors, and what it takes to compute there: torch's tensors as
ours and back, on one memory.

On the CPU that is DLPack both ways. On CUDA both libraries use the device's one context; a compiled
part is queued on the stream that is torch's current one in the calling thread, so nobody waits for
anybody. What is left at a call's end lies in memory of torch's allocator (so that `record_stream`,
its counts and its "out of memory" are torch's), what lives only inside in ours, whose blocks belong
to that stream too.

Invariant: which allocations of a part become results is learned from a call and held to at each
later one; a result that lies elsewhere is shared by DLPack.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from rushlight import _core
from rushlight.errors import OutOfMemoryError
from rushlight.interop.aten import dtype_name
from rushlight.reasons import refuse

LEARNED = 4  # times that the allocations of a part are learned, before all are torch's


class Expected(NamedTuple):
    """A result as torch expects it; `bytes`: of its memory."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any
    bytes: int


def expected_of(x: Any, size: Callable) -> Expected:
    shape, stride = tuple(map(size, x.shape)), tuple(map(size, x.stride()))
    span = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, stride))
    return Expected(shape, stride, x.dtype, span * x.dtype.itemsize)


class no_grad:  # noqa: N801
    """Nothing is recorded on our tape."""

    def __enter__(self) -> None:
        self.before = _core.mode()
        _core.set_grad_enabled(False)

    def __exit__(self, *error: Any) -> None:
        _core.set_mode(self.before)


class Cpu:
    """Tensors on the CPU."""

    name = "cpu"

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch, self.device = torch, device
        self.to_dlpack, self.from_dlpack = torch._C._to_dlpack, torch._C._from_dlpack

    def refusal(self, node: Any, base: str) -> str:
        """Why an operator that ours has is torch's on this device; empty: it is ours."""
        return ""

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Around what runs our operators while a graph is compiled."""
        with no_grad():
            yield

    def on_host(self) -> int:
        """How many calls so far left the device."""
        return 0

    def finish(self) -> None:
        """After a graph is compiled: its examples' memory is given back."""

    def run(
        self, part: Callable, inputs: Sequence[Any], expected: Sequence[Expected], loans: Loans
    ) -> list:
        """A compiled part on torch's tensors; its results are torch's."""
        to, ours = self.to_dlpack, _core.from_dlpack
        with no_grad():
            results = part(*[ours(to(x)) for x in inputs])
        return [self.shared(x, e) for x, e in zip(results, expected)]

    def shared(self, x: Any, e: Expected) -> Any:
        """A result in our memory as torch's, with the strides that it expects."""
        return self.laid(self.from_dlpack(x.__dlpack__()), e)

    def laid(self, y: Any, e: Expected) -> Any:
        if y.stride() == e.stride:
            return y
        if y.numel() <= 1:
            return y.as_strided(e.shape, e.stride)
        made = self.torch.empty_strided(e.shape, e.stride, dtype=e.dtype, device=self.device)
        return made.copy_(y)


# Added up with atomics, in an order that varies: torch's where it is told to be deterministic.
ATOMIC = frozenset(
    "embedding_dense_backward index_put _unsafe_index_put max_pool2d_with_indices_backward "
    "scatter_add scatter_reduce index_add gather_backward".split()
)


class Cuda(Cpu):
    """Tensors on one CUDA device. RuntimeError, in a sentence, where we cannot use it."""

    def __init__(self, torch: Any, device: Any) -> None:
        super().__init__(torch, device)
        self.index, self.name = device.index, f"cuda:{device.index}"
        self.stream_of = torch._C._cuda_getCurrentRawStream
        _core.resolve_device(self.name)

    def refusal(self, node: Any, base: str) -> str:
        if base in ATOMIC and self.torch.are_deterministic_algorithms_enabled():
            return "the order of its sums varies, and torch is told to be deterministic"
        return ""

    @contextmanager
    def compiling(self) -> Iterator[None]:
        before = self.rounding(*self.wanted_rounding())
        _core.cuda_enter(self.index, self.stream_of(self.index))
        try:
            with no_grad():
                yield
        finally:
            _core.cuda_leave(())
            self.rounding(*before)

    def wanted_rounding(self) -> tuple[bool, bool]:
        """Whether products and convolutions may take TF32: torch's older switches, or where a
        program uses the newer ones (and torch refuses to answer by the older), those."""
        backends = self.torch.backends
        try:
            return backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32
        except RuntimeError:
            products, images = backends.cuda.matmul, backends.cudnn.conv
            return products.fp32_precision == "tf32", images.fp32_precision == "tf32"

    def rounding(self, products: bool, images: bool) -> tuple[bool, bool]:
        """Sets both of ours, and gives what they were."""
        return _core.cuda_tf32("matmul", products), _core.cuda_tf32("cudnn", images)

    def finish(self) -> None:
        _core.cuda_memory_empty(self.index)

    def on_host(self) -> int:
        counts = _core.cuda_counts()
        return int(counts["fallback"] + counts["waits"])

    def run(
        self, part: Callable, inputs: Sequence[Any], expected: Sequence[Expected], loans: Loans
    ) -> list:
        to, ours = self.to_dlpack, _core.from_dlpack
        given = [ours(to(x)) for x in inputs]
        try:
            return self.queued(part, given, expected, loans)
        except OutOfMemoryError:
            # The graph writes to nothing but its results: what torch keeps for later is given
            # back, and it runs again.
            self.torch.cuda.empty_cache()
            _core.cuda_memory_empty(self.index)
        try:
            return self.queued(part, given, expected, loans)
        except OutOfMemoryError as error:
            raise self.torch.cuda.OutOfMemoryError(str(error)) from error

    def queued(
        self, part: Callable, given: list, expected: Sequence[Expected], loans: Loans
    ) -> list:
        make = partial(self.memory, expected, loans.places)
        before = self.rounding(*self.wanted_rounding()) if loans.rounds else None
        results: Sequence[Any] = ()
        _core.cuda_enter(self.index, self.stream_of(self.index), make, loans.wanted)
        try:
            with no_grad():
                results = part(*given)
        finally:
            owners = _core.cuda_leave(results)
            if before is not None:
                self.rounding(*before)
        made = [self.result(x, o, e) for x, o, e in zip(results, owners, expected)]
        if loans.wanted is None:
            loans.learn(results, expected)
        elif None in owners:
            loans.compare(owners)
        return made

    def memory(
        self, expected: Sequence[Expected], places: dict[int, int], size: int, number: int
    ) -> tuple[int, Any]:
        """Torch's memory for an allocation of ours: at once the result that it becomes, where that
        is known; else raw."""
        k = places.get(number)
        if k is not None and expected[k].bytes == size:
            e = expected[k]
            x = self.torch.empty_strided(e.shape, e.stride, dtype=e.dtype, device=self.device)
            return x.data_ptr(), x
        x = self.torch.empty(size, dtype=self.torch.uint8, device=self.device)
        return x.data_ptr(), Raw(x)

    def result(self, x: Any, owner: Any, e: Expected) -> Any:
        if owner is None:
            if x.numel():
                return self.laid(self.from_dlpack(x.__dlpack__(stream=-1)), e)
            return self.torch.empty_strided(e.shape, e.stride, dtype=e.dtype, device=self.device)
        stride = x.stride()
        if type(owner) is not Raw:
            if stride == e.stride or x.numel() <= 1:
                return owner
            return self.laid(owner.as_strided(tuple(x.shape), stride), e)
        y = self.torch.empty(0, dtype=e.dtype, device=self.device)
        storage = owner.tensor.untyped_storage()
        return self.laid(y.set_(storage, x.storage_offset(), tuple(x.shape), stride), e)


class Raw:
    """Bytes of torch's whose use is not known yet."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class Loans:
    """Which allocations of a part's calls torch makes. `wanted`: a byte for each, None while they
    are not known; `places`: the allocations that are one result and nothing else."""

    def __init__(self, rounds: bool = False) -> None:
        self.rounds = rounds  # whether the part has products of float32
        self.wanted: bytes | None = None
        self.places: dict[int, int] = {}
        self.numbers: tuple[int, ...] = ()  # of each result; -1: it lies in other memory
        self.learned = 0

    def learn(self, results: Sequence[Any], expected: Sequence[Expected]) -> None:
        """From a call in which torch made all of them."""
        numbers = tuple(map(_core.cuda_lent_number, results))
        shared = Counter(numbers)
        self.places = {
            n: k
            for k, (n, x, e) in enumerate(zip(numbers, results, expected))
            if n >= 0 and shared[n] == 1 and x.stride() == e.stride and not x.storage_offset()
        }
        self.numbers, self.learned = numbers, self.learned + 1
        if self.learned <= LEARNED:
            self.wanted = bytes(n in shared for n in range(max(numbers, default=-1) + 1))

    def compare(self, owners: Sequence[Any]) -> None:
        """Where a result that torch's memory was for lies elsewhere, the next call is learned
        from."""
        if any(o is None and n >= 0 for o, n in zip(owners, self.numbers)):
            self.wanted = None


PLACES: dict[Any, Cpu] = {}  # by torch's device


def place_of(torch: Any, gm: Any) -> Cpu | None:
    """The device on which the parts of a graph compute: the CUDA device that most of its tensors
    are on, else the CPU. None, with the reason, where we cannot use that device."""
    found = Counter(x.device for n in gm.graph.nodes for x in tensors_of(torch, n))
    devices = [d for d, _ in found.most_common() if d.type == "cuda"]
    device = devices[0] if devices else torch.device("cpu")
    place = PLACES.get(device)
    if place is None:
        try:
            place = PLACES[device] = (Cuda if devices else Cpu)(torch, device)
        except RuntimeError as error:
            refuse("fallback.graph", str(device), str(error), "torch runs the graph itself.")
    return place


def tensors_of(torch: Any, node: Any) -> Iterator[Any]:
    """What a node gives, as torch describes it."""
    value = node.meta.get("val")
    for x in value if isinstance(value, (tuple, list)) else (value,):
        if isinstance(x, torch.Tensor):
            yield x


def fits(x: Any, e: Expected) -> bool:
    """Whether a result of ours is what torch expects, but for its strides."""
    return tuple(x.shape) == e.shape and x.dtype.name == dtype_name(e.dtype)
