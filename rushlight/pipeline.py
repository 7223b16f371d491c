"""The pipeline: a Python function of tensors -> one native call. Read this first; docs/pipeline.md
has the picture.

Eager mode needs none of it: there each operator call makes its own way down (docs/native.md, "One
call, on its way down"). Here a function's calls are seen together before the first of them runs.
Capture by bytecode and guards (dynamo) will stand before the first line; until then a function is
traced with proxies, so its Python runs once, at compile time.
"""

from rushlight import fx
from rushlight.aot_autograd import differentiate
from rushlight.decomposition import decompose
from rushlight.inductor.pipeline import compile_graph


def compile_function(fn, *examples):
    """`fn` compiled for tensors like the examples (shape, strides, dtype); call the result with
    such tensors.

    Its results equal eager's: to the bit for float32, float64 and integers outside library calls.
    It records no gradients.
    """
    graph = fx.trace(fn, *examples)  # operator calls on proxies, each with the user's line
    graph = decompose(graph)  # compositions become the operators they are made of
    return compile_graph(graph)  # fusion -> loop IR -> memory plan -> C++ -> one native program


def compile_training(fn, *examples, wanted=None):
    """(forward, backward): forward(*inputs) gives (*outputs, *saved), backward(*saved, *cotangents)
    the gradients of the `wanted` inputs (positions; all floating ones by default)."""
    graph = decompose(fx.trace(fn, *examples))
    pair = differentiate(
        graph, wanted
    )  # the same derivative rules as the eager tape's, applied to the graph
    return compile_graph(decompose(pair.forward)), compile_graph(decompose(pair.backward))
