"""`rushlight prebuild`: every kernel of the library compiled for GPUs, into one pack an
architecture.

The kernels are those of the CPU's library under the same keys (`loops.library`), their images those
of `runtime.triton`; neither a GPU nor a driver is needed. Images come from the artifact cache where
it has them, so that an interrupted build goes on. One process a job compiles; results are written
in order, so that equal inputs give equal packs.
"""

import multiprocessing
import os
import re
import time
from typing import NamedTuple

from rushlight.loops import library, triton_attention, triton_forms
from rushlight.reasons import refuse
from rushlight.runtime import triton

# dtypes whose kernels get every form; others get the general ones
WHOLE = ("float32", "bfloat16", "float16")


class Summary(NamedTuple):
    path: str
    kernels: int
    images: int
    refused: tuple  # keys of kernels that cannot be said in Triton
    seconds: float
    bytes: int


def prebuild(capability, folder, only="", jobs=None, progress=None):
    """Writes `folder`/kernels_smNN.pack. `only`: a regular expression of keys; `progress(done, of)`
    is called after each kernel. Raises NoTriton."""
    from rushlight.runtime.cuda import pack

    triton.require()
    start, jobs = time.perf_counter(), jobs or os.cpu_count() or 1
    wanted = [k.name for _, k in kernels(only)]
    refused, images = [], 0
    path = os.path.join(folder, f"kernels_sm{capability}.pack")
    os.makedirs(folder, exist_ok=True)

    def records():
        nonlocal images
        for i, made in enumerate(built(wanted, only, capability, jobs)):
            if progress:
                progress(i + 1, len(wanted))
            if isinstance(made, str):
                refused.append(wanted[i])
                refuse("fallback.no_definition", wanted[i], made)
                continue
            images += len(made[1])
            yield made

    count = pack.write(path, capability, records())
    return Summary(
        path, count, images, tuple(refused), time.perf_counter() - start, os.path.getsize(path)
    )


def built(wanted, only, capability, jobs):
    """(record, images) or why there is none, of each kernel in order."""
    if jobs == 1 or len(wanted) < 2:
        begin(only, capability)
        yield from map(one, range(len(wanted)))
        return
    with multiprocessing.get_context("spawn").Pool(
        min(jobs, len(wanted)), begin, (only, capability)
    ) as pool:
        yield from pool.imap(one, range(len(wanted)), chunksize=4)


class Template(NamedTuple):
    """In the place of loop IR: a kernel that is written by hand."""

    name: str


def kernels(only):
    """(operator, loop IR or Template) of each kernel whose key matches."""
    templates = [(None, Template(key)) for key in triton_attention.keys()]
    found = [*library.kernels("cuda"), *templates]
    return [(op, k) for op, k in found if re.search(only, k.name)]


work = {}  # of this process: what `one` builds


def begin(only, capability):
    work["kernels"] = kernels(only)
    work["capability"] = capability


def one(i):
    op, kernel = work["kernels"][i]
    if op is None:
        record, sources = triton_attention.record(kernel.name, work["capability"])
        return triton.build(record, sources, work["capability"], stages=False)
    general = kernel.name.split(".")[1] not in WHOLE
    try:
        record, sources = triton_forms.record(
            kernel, general=general, key=kernel.name, cost=op.cost, origin=op.where
        )
    except NotImplementedError as error:
        return str(error)
    return triton.build(record, sources, work["capability"], stages=False)
