"""Gather and scatter through a table."""
from . import promotion
from .declare import ALL, FLOATS, RUN, rows
from .layouts import into_table, table
from .samples import call, t
from .values import put, take


@rows("embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1) -> Tensor", layout=table(), method=False,
      structural=("padding_idx",),
      promote=promotion.numeric.of("weight"), others={"indices": "int64"}, domain=ALL, cost=1,
      samples=(call(t(5, 3), t(4, dtype="int64", low=0, high=5)), call(t(5, 40), t(2, 2, dtype="int64", low=0, high=5))))
def embedding(weight, indices, padding_idx):
    return take.embedding(weight, indices)


@embedding.derivative
def _(g, weight, indices, padding_idx):
    return embedding_backward(g, indices, weight.shape[0], padding_idx), None


@rows("embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx=-1) -> Tensor",
      layout=into_table("num_weights"), promote=promotion.numeric.of("grad_output"), others={"indices": "int64"},
      domain=FLOATS, variants=({}, {"padding_idx": RUN}), method=False, function=False,
      samples=(call(t(4, 3), t(4, dtype="int64", low=0, high=5), 5),))
def embedding_backward(dy, indices, num_weights, padding_idx):
    from .pointwise import eq, where
    kept = where(eq(indices, padding_idx), 0 * dy, dy)
    return put.embedding_backward(kept, indices)


@embedding_backward.derivative
def _(g, dy, indices, padding_idx):
    from .pointwise import eq, where
    from .views import unsqueeze
    return where(unsqueeze(eq(indices, padding_idx), indices.rank), 0.0, embedding(g, indices, padding_idx)), None


