"""A function of operators -> a graph: it runs once on proxies, which record every call.

    graph = fx.trace(lambda x, b: torch.gelu(x + b), x, b)

Inputs are tensors, fakes or layouts (sizes may be symbolic). Python around the calls runs now
and leaves nothing behind (its random numbers too are drawn now); what would need a value that only
a run of the graph has is refused, and so is writing in place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from rushlight import sym
from rushlight.errors import Unsupported, UserError, user_line
from rushlight.ops.declare import Arguments, Op
from rushlight.ops.layouts import Layout
from rushlight.ops.recording import Call, Recorder, Symbol
from rushlight.ops.values import METHODS, TABLE, Value
from rushlight.reasons import refuse
from rushlight.trace import short_path

from .graph import (
    ATTRIBUTE,
    CALL,
    OUTPUT,
    PLACEHOLDER,
    Graph,
    Names,
    Node,
    Origin,
    Var,
    map_variables,
)
from .interpreter import run


class Proxy(Symbol):
    """A recorded result, as a user's function sees it: methods and operators of a tensor, and no
    value."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        op = TABLE.get(name)
        if name.endswith("_") and not name.startswith("_") and name[:-1] in TABLE:
            return self.refuse_write
        if op is None or not op.method or name.startswith("__"):
            if name in METHODS and not name.startswith("__"):
                return super().__getattr__(name)
            raise AttributeError(f"a tensor being traced has no attribute {name!r}")

        def method(*args: Any, **kwargs: Any) -> Any:
            return op(self, *gathered(op, args), **kwargs)

        return method

    def refuse_value(self, *_: Any) -> Any:
        line = user_line()
        refuse(
            "capture.data_dependent",
            repr(self),
            "its value is asked for while a graph is traced",
            "write the choice with where(), or trace the parts before and after it",
            line,
        )
        raise Unsupported(
            "fx.trace",
            f"the value of {self.layout} is known only when the graph runs",
            "Write a choice with where(), or trace the parts before and after it.",
        )

    def refuse_write(self, *_: Any) -> Any:
        line = user_line()
        why = "it is written to in place while a graph is traced"
        refuse(
            "capture.unsupported", repr(self), why, "Use the form that returns a new tensor.", line
        )
        raise Unsupported(
            "fx.trace",
            f"{self.layout} is written to in place",
            "Use the form that returns a new tensor; graphs are functional.",
        )

    __iadd__ = __isub__ = __imul__ = __itruediv__ = __ipow__ = __imatmul__ = refuse_write
    __iand__ = __ior__ = __ixor__ = __setitem__ = refuse_write

    __bool__ = __int__ = __float__ = __index__ = item = tolist = numpy = refuse_value

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __len__(self) -> int:
        if not self.rank:
            raise TypeError("len() of a 0-d tensor")
        return int(self.shape[0])

    def __getitem__(self, key: Any) -> Any:
        return index(self, key if isinstance(key, tuple) else (key,))

    def detach(self) -> Any:
        return TABLE["alias"](self)

    def contiguous(self) -> Any:
        return self if self.layout.contiguous else TABLE["clone"](self, memory_format="contiguous")

    def stride(self, dim: int | None = None) -> Any:
        return self.layout.strides if dim is None else self.layout.strides[dim]

    @property
    def T(self) -> Any:
        return TABLE["permute"](self, tuple(reversed(range(self.rank))))

    requires_grad = False
    is_cuda = False


def slot_of(name: str, swap: bool) -> Callable:
    def method(self: Any, *other: Any) -> Any:
        if other and not isinstance(other[0], (bool, int, float, sym.Sym, Value)):
            if not hasattr(other[0], "data_ptr"):
                return NotImplemented
        return TABLE[name](*other, self) if swap else TABLE[name](self, *other)

    return method


for _slot, _name in (  # the number slots that definitions of operators do without
    ("mod", "remainder"),
    ("floordiv", "floor_divide"),
    ("and", "bitwise_and"),
    ("or", "bitwise_or"),
    ("xor", "bitwise_xor"),
    ("lshift", "bitwise_left_shift"),
    ("rshift", "bitwise_right_shift"),
    ("invert", "bitwise_not"),
):
    setattr(Proxy, f"__{_slot}__", slot_of(_name, False))
    if _slot != "invert":
        setattr(Proxy, f"__r{_slot}__", slot_of(_name, True))


def gathered(op: Op, args: tuple) -> tuple:
    """`x.view(2, 3)` as `x.view((2, 3))`: ints where the operator takes a list of them."""
    if len(args) > 1 and len(op.parameters) == 2 and op.parameters[1].type.endswith("[]"):
        return (args,)
    one = len(args) == 1 and len(op.parameters) > 1 and op.parameters[1].type.endswith("[]")
    return ((args[0],),) if one and isinstance(args[0], (int, sym.Sym)) else args


def index(x: Any, keys: tuple) -> Any:
    """Basic indexing as views: ints, slices, None, Ellipsis; then what tensors of int64 select."""
    found, indices, dims = indexed(x, keys)
    if indices:
        return TABLE["index"](found, indices, dims)
    return TABLE["alias"](x) if found is x else found  # a tensor of its own, as in eager mode


def indexed(x: Any, keys: tuple) -> tuple[Any, list, tuple[int, ...]]:
    """(the view of x by all keys that are no tensors, the tensors, the dims that they index)."""
    count = sum(k is not None and k is not Ellipsis for k in keys)
    if not any(k is Ellipsis for k in keys):
        keys = (*keys, Ellipsis)
    dim, indices, dims = 0, list[Any](), list[int]()
    for k in keys:
        if k is Ellipsis:
            dim += x.rank - (dim + count)
            continue
        if k is None:
            x = TABLE["unsqueeze"](x, dim)
            dim += 1
            continue
        count -= 1
        if isinstance(k, slice):
            if k != slice(None):
                x = TABLE["slice"](x, dim, k.start, k.stop, 1 if k.step is None else k.step)
            dim += 1
        elif isinstance(k, (int, sym.Sym)):
            x = TABLE["select"](x, dim, k)
        elif getattr(k.dtype if hasattr(k, "dtype") else None, "name", None) == "int64" or (
            isinstance(k, Value) and k.dtype == "int64"
        ):
            indices.append(k)
            dims.append(dim)
            dim += 1
        else:
            raise Unsupported(
                "fx.trace", f"indexing by {type(k).__name__}", "Use where(), take or embedding."
            )
    return x, indices, tuple(dims)


class Tracer(Recorder):
    """A recorder whose symbols are proxies, and which keeps tensors that a function closes over
    as constants."""

    def __init__(self, expand: Callable = lambda op, a: False) -> None:
        super().__init__(expand, lambda: short(user_line()))
        self.constants: dict[str, Any] = {}
        self.lifted: dict[int, Proxy] = {}

    def symbol(self, layout: Layout) -> Proxy:
        return Proxy(layout, self)

    def call(self, op: Op, a: Arguments) -> Any:
        if any(not isinstance(v, Value) for v in a.tensors):
            a = a.map(lambda _, v: self.constant(v) if hasattr(v, "data_ptr") else v)
        return super().call(op, a)

    def constant(self, tensor: Any) -> Proxy:
        """The tensor itself is kept, so that the graph sees later changes of it."""
        found = self.lifted.get(id(tensor))
        if found is None:
            name = f"constant_{len(self.constants)}"
            self.constants[name] = tensor
            found = self.lifted[id(tensor)] = Proxy(layout_of(tensor), self, name)
        return found


def short(line: Any) -> str:
    return "" if line is None else f"{short_path(line.file)}:{line.line}"


def layout_of(x: Any) -> Layout:
    """Of a layout, a value with one, or a tensor. TypeError for anything else."""
    if isinstance(x, Layout):
        return x
    if isinstance(getattr(x, "layout", None), Layout):
        return x.layout
    if hasattr(x, "data_ptr"):
        return Layout(tuple(x.shape), tuple(x.stride()), x.dtype.name, 0, str(x.device))
    raise TypeError(
        f"[fx.trace] expected a tensor, a fake or a layout, got {type(x).__name__}: give other "
        "arguments to the function with a lambda"
    )


def trace(fn: Callable, *inputs: Any, name: str | None = None) -> Graph:
    """The graph of fn(*inputs). Raises Unsupported where the function asks for a value,
    TypeError for a result that is not made of traced tensors."""
    tracer = Tracer()
    proxies = [Proxy(layout_of(x), tracer) for x in inputs]
    names = parameter_names(fn, len(proxies))
    with tracer:
        result = fn(*proxies)
    title = str(name or getattr(fn, "__name__", "graph"))
    return from_recording(
        tracer, list(zip(names, proxies)), result, title if title.isidentifier() else "graph"
    )


def parameter_names(fn: Callable, count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[str] = []
    for p in parameters:
        if p.kind == p.VAR_POSITIONAL:
            names += [f"{p.name}_{i}" for i in range(count - len(names))]
        names.append(p.name)
    return (names + [f"input_{i}" for i in range(len(names), count)])[:count]


def from_recording(
    tracer: Tracer,
    inputs: Iterable[tuple[str, Symbol]],
    result: Any,
    title: str,
    env: sym.ShapeEnv | None = None,
    numbers: tuple[str, ...] = (),
) -> Graph:
    """Recorded calls -> a graph with deterministic names: an operator's own, numbered from the
    second on."""
    inputs = list(inputs)
    env = env or environment([x.layout for _, x in inputs])
    names, known, nodes = Names(env.hints), {}, []
    for name, symbol in inputs:
        var = known[id(symbol)] = Var(names.fresh(name), symbol.layout)
        nodes.append(Node(PLACEHOLDER, var.name, (), (var,)))
    for symbol in tracer.lifted.values():
        var = known[id(symbol)] = Var(names.fresh(symbol.name), symbol.layout)
        nodes.append(Node(ATTRIBUTE, symbol.name, (), (var,)))

    def look(v: Any) -> Any:
        if isinstance(v, (list, tuple)):
            return tuple(map(look, v))
        if not isinstance(v, Value):
            return v
        if id(v) not in known:
            raise UserError("fx.trace", f"{v!r} was not made by this trace", kind=TypeError)
        return known[id(v)]

    for call in tracer.calls:
        nodes.append(node_of(call, look, names, known))
    if not all(isinstance(v, Value) or v is None for v in flat(result)):
        raise UserError(
            title,
            f"the function returns {type(result).__name__}, which no call in it made",
            kind=TypeError,
        )
    nodes.append(Node(OUTPUT, "output", (look(result),)))
    return Graph(title, tuple(nodes), env, dict(tracer.constants), numbers=numbers)


def node_of(call: Call, look: Callable, names: Names, known: dict) -> Node:
    op: Any = call.op
    bound: Any = call.arguments
    if isinstance(op, str):
        raise Unsupported("fx.trace", f"a recorded {op!r} has no place in a graph")
    base = names.fresh(op.name)
    outs = []
    for i, out in enumerate(call.outs):
        var = known[id(out)] = Var(base if len(call.outs) == 1 else f"{base}[{i}]", out.layout)
        outs.append(var)
    links = [Origin("", call.where)] if call.where else []
    links += [Origin(what, where) for what, where in call.parents]
    return Node(CALL, op, tuple(map(look, bound.values)), tuple(outs), tuple(links))


def flat(v: Any) -> list:
    return [x for y in v for x in flat(y)] if isinstance(v, (list, tuple)) else [v]


def environment(layouts: Iterable[Layout]) -> sym.ShapeEnv:
    """The environment of the layouts' symbolic sizes; an empty one where all are ints."""
    for layout in layouts:
        for n in (*layout.shape, *layout.strides):
            if isinstance(n, sym.Sym):
                return n.env
    return sym.ShapeEnv()


def retrace(
    graph: Graph,
    function: Callable | None = None,
    *,
    step: Callable | None = None,
    expand: Callable = lambda op, a: False,
) -> Graph:
    """The graph made anew by running it on proxies. `expand(op, arguments)` says which operators
    give way to their definitions; `step(node, arguments)` may make a node's results in another
    way; `function(*proxies)` replaces the whole run. New nodes keep the origins of the node that
    they come from.
    """
    tracer = Tracer(expand)
    proxies = [(v.name, Proxy(v.layout, tracer)) for v in graph.inputs]
    lines = [""]
    tracer.where = lambda: lines[0]

    def follow(node: Node, arguments: tuple) -> Any:
        lines[0] = node.where
        tracer.parents[:] = [(o.what, o.where) for o in node.origins if o.what]
        return (step or recall)(node, arguments)

    def recall(node: Node, arguments: tuple) -> Any:
        return tracer.call(node.op, Arguments(node.op, arguments))

    constants = {name: tracer.constant(t) for name, t in graph.constants.items()}
    with tracer:
        values = [p for _, p in proxies]
        result = (
            function(*values)
            if function
            else run(graph.with_nodes(graph.nodes, constants=constants), *values, step=follow)
        )
    tracer.parents.clear()
    return from_recording(tracer, proxies, result, graph.name, graph.env, graph.numbers)


def substitute(graph: Graph, table: dict[Var, Var]) -> Graph:
    """Every use of a key reads its value instead; chains are followed."""

    def end(v: Var) -> Var:
        while v in table:
            v = table[v]
        return v

    return graph.with_nodes(
        Node(n.kind, n.target, map_variables(n.arguments, end), n.outs, n.origins)
        for n in graph.nodes
    )
