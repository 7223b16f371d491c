"""`vmap`: a function of single samples as one of batches, by a loop over them.

PyTorch's gives every operator a batched form and so runs once; this runs the function for each
sample and stacks what it gives: the same results, without the speed.
"""

import functools

from rushlight import eager
from rushlight.eager.modes import is_compiling
from rushlight.nn.module import Module
from rushlight.utils._pytree import tree_flatten, tree_unflatten

Tensor = eager.Tensor
RANDOMNESS = ("error", "different", "same")


def known_randomness(value):
    """RuntimeError for anything but 'error', 'different' and 'same'."""
    if value not in RANDOMNESS:
        raise RuntimeError(f"[vmap] randomness is 'error', 'different' or 'same', got {value}")


def dims_of(dims, tree, refuse):
    """`dims` (an int or None for a whole subtree, or nested like the tree) for each leaf."""
    leaves, spec = tree_flatten(tree)
    if dims is None or isinstance(dims, int):
        return [dims] * len(leaves)
    tables = isinstance(dims, dict) and isinstance(tree, dict)  # of whatever kind
    if spec.type is None or not (tables or type(dims) is type(tree)):
        refuse()
    if isinstance(tree, dict):
        if set(dims) != set(tree):
            refuse()
        pairs = [(dims[key], tree[key]) for key in tree]
    else:
        if not isinstance(tree, (list, tuple)) or len(dims) != len(tree):
            refuse()
        pairs = list(zip(dims, tree, strict=True))
    return [d for one, part in pairs for d in dims_of(one, part, refuse)]


def taken(name, in_dims, leaves, dims):
    """(the dim of each leaf from the front, the batch's size)."""
    places, sizes = [], []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            places.append(None)
            continue
        if not isinstance(x, Tensor):
            raise ValueError(
                f"[vmap] {name}: in_dims={in_dims} maps dim {d} of an input of {type(x)}; only "
                "tensors have dims: give None for it"
            )
        if not -x.dim() <= d < x.dim():
            raise ValueError(
                f"[vmap] {name}: in_dims={in_dims} maps dim {d} of an input that has {x.dim()}"
            )
        places.append(d % x.dim())
        sizes.append(x.shape[d])
    if not sizes:
        raise ValueError(
            f"vmap({name}, in_dims={in_dims}, ...)(<inputs>): at least one input is to be mapped"
        )
    if any(n != sizes[0] for n in sizes):
        raise ValueError(f"[vmap] the mapped dims have to be of one size, got {sizes}")
    return places, sizes[0]


def unmapped(leaves, places):
    """The tensors that all samples share."""
    return [x for x, d in zip(leaves, places, strict=True) if d is None and isinstance(x, Tensor)]


def stacked(name, rows, d):
    """One output of all samples, as one tensor."""
    if d is None:
        if any(isinstance(x, Tensor) and x is not rows[0] for x in rows):
            raise ValueError(f"[vmap] {name} gave a mapped value where out_dims is None")
        return rows[0]
    for x in rows:
        if not isinstance(x, Tensor):
            raise ValueError(
                f"[vmap] {name} has to give tensors, got {type(x)}: out_dims=None lets other "
                "values through"
            )
    rank = rows[0].dim() + 1
    if not -rank <= d < rank:
        raise IndexError(
            f"vmap({name}, ...): out_dim={d} is out of range for an output of {rank - 1} dims"
        )
    return eager.stack(rows, d % rank)


def emptied(x, d):
    """An output of no samples."""
    shape = list(x.shape)
    shape.insert(d % (x.dim() + 1), 0)
    return x.new_empty(shape)


def vmap(func, in_dims=0, out_dims=0, randomness="error", *, chunk_size=None):
    """`func` for each sample of a batch: a loop, whose results are stacked.

    in_dims: which dim of each input counts samples: one int for all, or nested like the inputs;
    None, and every named argument: the same for all. out_dims: where the samples go in each output,
    in the same way; None: an output that is one object for all samples. randomness: 'error'
    (RuntimeError if func draws), 'different' or 'same' numbers for the samples. chunk_size has no
    meaning in a loop. Nests, and may be differentiated. ValueError for dims that do not fit;
    RuntimeError for a write to an argument that all samples share, or a module's buffer.
    """
    known_randomness(randomness)
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"[vmap] chunk_size is positive or None, got {chunk_size}")
    name = getattr(func, "__name__", type(func).__name__)
    if not isinstance(in_dims, (int, tuple)):
        raise ValueError(
            f"[vmap] {name}: in_dims is an int or a tuple of the inputs' structure, got "
            f"{type(in_dims)}"
        )

    def refuse_inputs():
        raise ValueError(f"[vmap] {name}: in_dims={in_dims} has another structure than the inputs")

    def refuse_outputs():
        raise ValueError(
            f"[vmap] {name}: out_dims={out_dims} has another structure than the outputs"
        )

    def batched(*args, **kwargs):
        leaves, spec = tree_flatten(args)
        dims = dims_of(in_dims, args, refuse_inputs)
        places, count = taken(name, in_dims, leaves, dims)
        shape = None

        def sample(i):
            pairs = zip(leaves, places, strict=True)
            return called([x if d is None else x.select(d, i) for x, d in pairs])

        def called(parts):
            made = func(*tree_unflatten(parts, spec), **kwargs)
            outs, found = tree_flatten(made)
            return outs, found, made

        stream = None
        if randomness == "same" or (randomness == "error" and not is_compiling()):
            stream = eager.randomness.default_generator
        start = None if stream is None else stream.position()
        shared = [] if is_compiling() else unmapped(leaves, places)
        if isinstance(func, Module) and not is_compiling():
            shared += func.buffers()
        versions = [x._version for x in shared]
        columns = []
        for i in range(count):
            if randomness == "same":
                stream.move_to(start)
            outs, shape, made = sample(i)
            if randomness == "error" and stream is not None and stream.position() != start:
                raise RuntimeError(
                    "[vmap] a random operation inside: say randomness='same' or 'different', or "
                    "draw the numbers outside"
                )
            if [x._version for x in shared] != versions:
                raise RuntimeError(
                    f"vmap({name}, ...): the function writes in place to an argument that is not "
                    "mapped (in_dim None) or to a buffer of the module, which each sample would "
                    "repeat"
                )
            columns.append(outs)
        if count == 0:  # the shapes are those of a sample of zeros
            with eager.no_grad():
                outs, shape, made = called(
                    [
                        x if d is None else eager.zeros_like(x.sum(d)).to(x.dtype)
                        for x, d in zip(leaves, places, strict=True)
                    ]
                )
        if isinstance(made, Tensor) and not isinstance(out_dims, int) and out_dims is not None:
            ends = out_dims if isinstance(out_dims, tuple) and len(out_dims) == 1 else None
            ends = refuse_outputs() if ends is None else list(ends)
        else:
            ends = dims_of(out_dims, made, refuse_outputs)
        if count == 0:
            found = [x if d is None else emptied(x, d) for x, d in zip(outs, ends, strict=True)]
        else:
            rows = zip(*columns, strict=True)
            found = [stacked(name, row, d) for row, d in zip(rows, ends, strict=True)]
        return tree_unflatten(found, shape)

    return functools.wraps(func)(batched) if hasattr(func, "__name__") else batched
