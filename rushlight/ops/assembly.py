"""Assembled outputs: (view of the output, what is written through it), in order. The last write wins."""
from . import promotion
from .declare import assemble
from .layouts import concatenated, like_first, like_size, positive, stacked
from .samples import call, t
from .views import select, slice


@assemble("cat(Tensor[] tensors, int dim=0) -> Tensor", layout=concatenated(), method=False,
          samples=(call([t(2, 3), t(4, 3)], 0), call([t(2, 3), t(2, 1), t(2, 2)], 1), call([t(2, 3), t(2, 3, dtype="float64")], -1)))
def cat(tensors, dim):
    start = 0
    for x in tensors:
        stop = start + x.shape[dim]
        yield (lambda out, start=start, stop=stop: slice(out, dim, start, stop, 1)), x
        start = stop


@cat.derivative
def _(g, tensors, dim):
    start, parts = 0, []
    for x in tensors:
        parts.append(slice(g, dim, start, start + x.shape[dim], 1))
        start = start + x.shape[dim]
    return (parts,)


@assemble("stack(Tensor[] tensors, int dim=0) -> Tensor", layout=stacked(), method=False,
          samples=(call([t(2, 3), t(2, 3)], 0), call([t(3), t(3), t(3)], -1), call([t(2), t(2, dtype="float64")], 1)))
def stack(tensors, dim):
    dim = positive((dim,), tensors[0].rank + 1)[0]
    for i, x in enumerate(tensors):
        yield (lambda out, i=i: select(out, dim, i)), x


@stack.derivative
def _(g, tensors, dim):
    dim = positive((dim,), tensors[0].rank + 1)[0]
    return ([select(g, dim, i) for i in range(len(tensors))],)


@assemble("select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index) -> Tensor",
          layout=like_size("input_sizes"), promote=promotion.numeric, method=False, function=False,
          samples=(call(t(4), (3, 4), 0, 1),))
def select_backward(dy, input_sizes, dim, index):
    yield (lambda out: out), 0
    yield (lambda out: select(out, dim, index)), dy


@select_backward.derivative
def _(g, dim, index):
    return select(g, dim, index)


@assemble("slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt? start, SymInt? end, SymInt step) -> Tensor",
          layout=like_size("input_sizes"), promote=promotion.numeric, method=False, function=False,
          samples=(call(t(2, 4), (6, 4), 0, 1, 5, 2),))
def slice_backward(dy, input_sizes, dim, start, end, step):
    yield (lambda out: out), 0
    yield (lambda out: slice(out, dim, start, end, step)), dy


@slice_backward.derivative
def _(g, dim, start, end, step):
    return slice(g, dim, start, end, step)


@assemble("select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", layout=like_first(),
          promote=promotion.numeric.of("self"), samples=(call(t(3, 4), t(4), 0, 1), call(t(3, 4), t(3), 1, -1)))
def select_scatter(x, src, dim, index):
    yield (lambda out: out), x
    yield (lambda out: select(out, dim, index)), src


@select_scatter.derivative
def _(g, src, dim, index):
    return select_scatter(g, 0 * src, dim, index), select(g, dim, index)


@assemble("slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
          layout=like_first(), promote=promotion.numeric.of("self"),
          samples=(call(t(6, 4), t(2, 4), 0, 1, 5, 2), call(t(6, 4), t(6, 2), 1, 2), call(t(6, 4), t(2, 4), 0, -3, -1)))
def slice_scatter(x, src, dim, start, end, step):
    yield (lambda out: out), x
    yield (lambda out: slice(out, dim, start, end, step)), src


@slice_scatter.derivative
def _(g, src, dim, start, end, step):
    return slice_scatter(g, 0 * src, dim, start, end, step), slice(g, dim, start, end, step)
