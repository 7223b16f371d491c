"""Tensors in memory that child processes share: what `share_memory_` moves them to.

Invariant: the memory is an anonymous shared mapping, kept by the tensors on it; a process that is
forked afterwards writes to the same. One that is spawned gets a copy with the pickled tensor.
"""

import mmap
import weakref

from rushlight import _core

MAPPINGS: dict[int, weakref.ref] = {}  # address -> mapping


def share_memory_(self):
    """Its elements, moved to memory that processes forked from now on share; itself. Tensors on a
    GPU, and those that are there, stay.
    """
    if self.is_cuda or is_shared(self) or not self.numel():
        return self
    mapping = mmap.mmap(-1, max(1, self.numel() * self.element_size()))
    with_grad = self.detach()
    size, strides = tuple(self.shape), tuple(self.stride())
    flat = _core.from_buffer(mapping, self.dtype, (self.numel(),), 0)
    dense = sorted(range(self.dim()), key=lambda d: -strides[d])  # in the order of its own memory
    place, step = {}, 1
    for d in reversed(dense):
        place[d], step = step, step * size[d]
    made = flat.as_strided(size, tuple(place[d] for d in range(self.dim())))
    made.copy_(with_grad)
    MAPPINGS[flat.data_ptr()] = weakref.ref(mapping)
    self.data = made
    return self


def is_shared(self):
    """Whether it lies in memory that `share_memory_` made, or on a GPU."""
    if self.is_cuda:
        return True
    address = self.data_ptr()
    for begin, mapping in list(MAPPINGS.items()):
        found = mapping()
        if found is None:
            del MAPPINGS[begin]
        elif begin <= address < begin + len(found):
            return True
    return False
