"""The pipeline: a Python function of tensors -> one native call. Read this first; docs/pipeline.md
has the picture.

Eager mode needs none of it: there each operator call makes its own way down (docs/native.md, "One
call, on its way down"). Here a function's calls are seen together before the first of them runs.
`compile_fx` is the backend that a captured graph is given to; `compile_function` and
`compile_training` are the same stages one after another, for a function that is traced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rushlight import fx
from rushlight.aot_autograd import differentiate
from rushlight.compiled import compiled
from rushlight.decomposition import decompose
from rushlight.dynamo import entry
from rushlight.dynamo.backends import register_backend
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


def compile(
    fn: Any = None, *, check: bool | int = False, backend: Any = "inductor", **options: Any
):
    """`fn` (a function, method or module) captured as graphs that `backend` compiles; see
    `rushlight.dynamo.entry.compile` for fullgraph, dynamic, mode, options and disable.

    check: the first calls of each graph (3, or as many as given) run in eager mode beside the
    compiled code, and CompilerBug names the first node that differs, with the difference in
    units of the last place against float64.
    """
    if fn is None:
        return partial(compile, check=check, backend=backend, **options)
    if check:
        if backend != "inductor":
            raise ValueError('[compile] check= compares the backend "inductor" with eager mode')
        backend = partial(compile_fx, check=3 if check is True else int(check))
    return entry.compile(fn, backend=backend, **options)


def compile_fx(gm: Callable, example_inputs: Sequence[Any], *, check: int = 0) -> Callable:
    """The backend "inductor": a captured graph -> a callable on inputs like the examples (tensors,
    fakes, numbers, symbolic sizes) with gm's results, writes and gradients.

    Graphs are compiled at the first call that needs them, one for each set of inputs that require
    a gradient. What cannot be compiled runs as it is, with a recorded reason.
    """
    return compiled(gm, example_inputs, check)


register_backend("inductor", compile_fx)
__all__ = ["compile", "compile_function", "compile_fx", "compile_training"]
