"""Random numbers: Philox streams. Every draw reserves its counter range in program order, so a seed
gives the same bits in eager and compiled code, on every device. The streams differ from PyTorch's.
"""

import os
import struct
from math import prod

from rushlight import _core
from rushlight.errors import Unsupported
from rushlight.ops import TABLE
from rushlight.ops.recording import STREAMS


class Generator:
    """A stream: a seed and how much of it has been used.

    `get_state()` gives 16 bytes (a uint8 tensor), `set_state` takes them.
    """

    def __init__(self, device="cpu"):
        self.place = str(device)
        if self.place != "cpu":
            self.place = str(_core.resolve_device(self.place))  # tells where it is not available
        self._seed, self.offset = 0, 0
        self.seed()

    @property
    def device(self):
        """Where it was made for. The numbers of a seed are the same everywhere."""
        from .methods import device

        return device(self.place)

    def manual_seed(self, seed):
        """Start the stream again; negative seeds wrap as in PyTorch. Returns the generator."""
        seed = int(seed)
        if not -(2**63) <= seed < 2**64:
            raise RuntimeError(f"[manual_seed] the seed must fit in 64 bits, got {seed}")
        self._seed, self.offset = (seed + 2**63) % 2**64 - 2**63, 0
        return self

    def seed(self):
        """Start the stream at a seed from the system, which is returned."""
        return self.manual_seed(int.from_bytes(os.urandom(7), "little")).initial_seed()

    def clone_state(self):
        """Another generator at the same place of the same stream."""
        other = Generator(self.place)
        other.move_to(self.position())
        return other

    def initial_seed(self):
        """The seed that the stream started at, not negative."""
        return self._seed % 2**64

    def reserve(self, count):
        """(seed, first counter) for `count` numbers."""
        if STREAMS:  # a graph is being recorded: its calls will draw, each anew
            if self is not default_generator:
                raise Unsupported(
                    "compile", "a generator of its own in a graph", "Use the default generator."
                )
            return STREAMS[-1](count)
        start = self.offset
        self.offset += max(int(count), 1)
        return self._seed, start

    def position(self):
        """Where the stream stands; `move_to` takes it."""
        return self._seed, self.offset

    def move_to(self, position):
        self._seed, self.offset = position

    def get_state(self):
        state = list(struct.pack("<qq", self._seed, self.offset))
        return _core.tensor(state, _core.uint8, "cpu")

    def set_state(self, state):
        """What get_state gave, of this generator or another. Returns the generator."""
        if not isinstance(state, _core.Tensor) or state.dtype is not _core.uint8:
            raise TypeError("[set_state] expected a uint8 tensor, as get_state gives")
        data = bytes(state.tolist())
        if len(data) != 16:
            raise RuntimeError(f"[set_state] expected 16 bytes of state, got {len(data)}")
        self._seed, self.offset = struct.unpack("<qq", data)
        return self


default_generator = Generator()


def manual_seed(seed):
    """Start the default stream at `seed`; returns the default generator."""
    return default_generator.manual_seed(seed)


def initial_seed():
    """The seed of the default stream."""
    return default_generator.initial_seed()


def seed():
    """A new seed from the system for the default stream; returns it."""
    return default_generator.seed()


def get_rng_state():
    """Where the default stream stands: a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(state):
    """Put the default stream where `get_rng_state` found it."""
    default_generator.set_state(state)


def filled(operator, out, generator=None):
    """`out` overwritten with one number an element from the stream. Meta tensors draw nothing."""
    if isinstance(out, _core.Tensor) and out.device.type == "meta":
        return out
    where = (generator or default_generator).reserve(prod(out.shape))
    return TABLE[operator].native.inplace(out, *where)


def dropout(input, p=0.5, train=True):
    """Each element is zeroed with probability p, the others scaled by 1 / (1 - p); the mask is not
    kept, the counter is.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"[dropout] a probability lies between 0 and 1, got {p}")
    if not train or p == 0:
        return input
    if p == 1:
        return input * 0
    return TABLE["counted_dropout"].native(
        input, float(p), *default_generator.reserve(prod(input.shape))
    )
