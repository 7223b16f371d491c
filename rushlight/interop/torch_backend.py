"""`torch.compile(model, backend="rushlight")`: torch captures and differentiates, Rushlight
compiles.

Takes the forward and backward graphs that torch's AOTAutograd hands a backend, in Core ATen's
vocabulary; gives callables on torch's tensors. Runs of nodes that Rushlight has operators for
become one compiled graph each, on torch's memory without copies; what is left stays torch's own
calls, with a recorded reason. torch finds the backend by its entry point, without importing us
first.

Invariant: every result has the shape, strides and dtype that torch expects of it, or torch makes
it.
"""

from __future__ import annotations

import math
import operator
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rushlight import _core, config
from rushlight.eager import factories
from rushlight.errors import Unsupported
from rushlight.interop.aten import (
    DTYPES,
    KEPT,
    dtype_name,
    name_of,
    translation,
    value_of,
)
from rushlight.interop.aten import kind as dtype_kind
from rushlight.interop.torch_draws import draw_masks_first, is_random, keep_order
from rushlight.interop.torch_places import Cpu, Loans, expected_of, fits, place_of, tensors_of
from rushlight.interop.torch_sizes import evaluable, evaluate, hint, layouts, places
from rushlight.ops.declare import HALVES
from rushlight.reasons import refuse

# Their results depend on how an operand lies in memory, which inside a part is ours to choose.
OF_MEMORY = frozenset("as_strided as_strided_copy as_strided_scatter".split())


# From the first version with a partitioner and an attention of this form, up to the next major one.
OLDEST, NEWER = (2, 6), (3, 0)


class Report(NamedTuple):
    """One graph that was handed over: nodes that run as our operators, those left to torch by
    name, and the compiled graphs."""

    kind: str  # forward, backward or inference
    ours: int
    left: dict[str, int]
    parts: int


REPORTS: list[Report] = []  # of this process, in the order of compiling


def rushlight(gm: Any, example_inputs: Sequence[Any], **options: Any) -> Callable:
    """The backend, as torch calls it: see torch's documentation of custom backends. RuntimeError
    for a torch that it does not know."""
    import torch

    check_version(torch.__version__)
    try:
        from functorch.compile import make_boxed_func, min_cut_rematerialization_partition  # noqa: F401

        table = decompositions()
        from torch._C import _from_dlpack, _to_dlpack  # noqa: F401  what later stages take
        from torch._dynamo.backends.common import aot_autograd
        from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner  # noqa: F401
        from torch.fx.passes.operator_support import OperatorSupportBase  # noqa: F401
    except ImportError as error:
        raise RuntimeError(f"{unknown(torch.__version__)}: {error}") from error

    def compiler(kind: str) -> Callable:
        return lambda graph, inputs: compile_part(torch, graph, kind)

    made: Callable = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=table,
    )(gm, example_inputs)
    return made


def decompositions() -> dict:
    """torch's table of what its operators are made of, without those that ours has whole."""
    import torch
    from torch._decomp import core_aten_decompositions

    table: dict = core_aten_decompositions()
    for name in KEPT:
        op = getattr(torch.ops.aten, name, None)
        for overload in op.overloads() if op is not None else ():
            table.pop(getattr(op, overload), None)
    return table


def check_version(version: str) -> None:
    """RuntimeError for versions of torch that are older or newer than the backend knows."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or not OLDEST <= tuple(map(int, found.groups())) < NEWER:
        raise RuntimeError(unknown(version))


def unknown(version: str) -> str:
    first, end = (".".join(map(str, v)) for v in (OLDEST, NEWER))
    return f"[torch_backend] the backend is for torch {first} up to {end}; this is {version}"


def compile_part(torch: Any, gm: Any, kind: str) -> Callable:
    """One graph of AOTAutograd's, its supported runs of nodes compiled."""
    from functorch.compile import make_boxed_func

    place = place_of(torch, gm)
    if place is None:
        REPORTS.append(Report(kind, 0, dict(calls_of(gm)), 0))
        return make_boxed_func(gm.forward)  # type: ignore[no-any-return]
    left: Counter[str] = Counter()
    draw_masks_first(torch, gm)
    keep_order(torch, gm)
    name_plain_views(torch, gm)
    fused, ours, parts = compiled_runs(torch, gm, kind, place, {}, left)
    left.pop("getitem", None)
    place.finish()
    REPORTS.append(Report(kind, ours, dict(left), parts))
    return make_boxed_func(fused.forward)  # type: ignore[no-any-return]


def calls_of(gm: Any) -> Counter[str]:
    """A graph's calls of operators, by name."""
    calls = (n.target for n in gm.graph.nodes if n.op == "call_function")
    return Counter(name_of(target) for target in calls if target is not operator.getitem)


def compiled_runs(
    torch: Any, gm: Any, kind: str, place: Cpu, known: dict[Any, str], left: Counter[str]
) -> tuple[Any, int, int]:
    """The graph with its supported runs compiled, how many nodes those have, and how many they are;
    `left` counts the others. `known`: nodes, and why they are not ours (empty where they are)."""
    from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
    from torch.fx.passes.operator_support import OperatorSupportBase

    told: set[Any] = set()

    class Support(OperatorSupportBase):  # type: ignore[misc]
        def is_node_supported(self, submodules: Any, node: Any) -> bool:
            if node.op != "call_function":
                return False
            why = refusal(torch, node, place, known)
            if why and node not in told:
                told.add(node)
                left[name_of(node.target)] += 1
                refuse("fallback.no_definition", name_of(node.target), why)
            return not why

    partitioner = CapabilityBasedPartitioner(
        gm, Support(), allows_single_node_partition=True, non_compute_ops=[]
    )
    fused = partitioner.fuse_partitions(partitioner.propose_partitions())
    ours = parts = 0
    children: list[tuple[str, Any]] = list(fused.named_children())
    for name, module in children:
        if not name.startswith("fused_"):
            continue
        calls = [n for n in module.graph.nodes if n.op == "call_function"]
        name_givers(fused, name, module)
        try:
            part = Part(torch, module, f"{kind}_{name}", place)
            delattr(fused, name)  # torch would take a module there, and nothing else
            fused.__dict__[name] = part
            ours, parts = ours + sum(n.target is not operator.getitem for n in calls), parts + 1
        except Exception as error:  # noqa: BLE001  (torch runs it then)
            if config.flags.strict:
                raise
            found = failing(torch, module, place)
            if found:  # the rest of the part stays ours
                inner = compiled_runs(torch, module, f"{kind}_{name}", place, found, left)
                setattr(fused, name, inner[0])
                ours, parts = ours + inner[1], parts + inner[2]
                continue
            refuse("fallback.graph", name, f"{type(error).__name__}: {error}",
                   "torch runs this part itself.")  # fmt: skip
            left.update(name_of(n.target) for n in calls)
    fused.recompile()
    return fused, ours, parts


def name_givers(fused: Any, name: str, module: Any) -> None:
    """Marks the inputs of a part that calls of torch's give, with the names of these."""
    calls = fused.graph.find_nodes(op="call_module", target=name)
    inputs = module.graph.find_nodes(op="placeholder")
    for given, node in zip(calls[0].args, inputs):
        while given.target is operator.getitem:
            given = given.args[0]
        if given.op == "call_function":
            node.meta["giver"] = str(given.target)
        elif given.op == "placeholder" and "giver" in given.meta:
            node.meta["giver"] = given.meta["giver"]


def failing(torch: Any, module: Any, place: Cpu) -> dict[Any, str]:
    """The nodes of a part that should be torch's, run one by one on tensors of zeros, and why: the
    first that fails, and before it those that leave the device. Tensors without data do not tell
    all: a kernel's body is looked at when it first runs."""
    known: dict[Any, Any] = {}
    found: dict[Any, str] = {}
    zeros = Zeros(place.name)

    def look(a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            return known[a]
        if isinstance(a, (tuple, list)):
            return tuple(map(look, a))
        return hint(a) if isinstance(a, torch.SymInt) else value_of(torch, a)

    with place.compiling():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                value = node.meta["val"]
                known[node] = hint(value) if isinstance(value, torch.SymInt) else zeros.like(value)
            elif node.target is operator.getitem:
                known[node] = known[node.args[0]][node.args[1]]
            elif node.op == "call_function":
                named = {k: look(v) for k, v in node.kwargs.items() if k not in IGNORED}
                before = place.on_host()
                try:
                    known[node] = function_of(torch, node)(*map(look, node.args), **named)
                except Exception as error:  # noqa: BLE001  (whatever it is, torch runs the node)
                    return {**found, node: f"{type(error).__name__}: {error}"}
                if place.on_host() > before:
                    found[node] = "ours would leave the device"
    return found


def name_plain_views(torch: Any, gm: Any) -> None:
    """An `as_strided` that takes all of a memory in its order is a reshape, and putting a value
    there is one too: then nothing depends on how an operand lies. Pools to one pixel make them."""
    for node in list(gm.graph.nodes):
        name = name_of(node.target) if node.op == "call_function" else ""
        if name not in ("as_strided", "as_strided_scatter") or node.kwargs:
            continue
        x = node.args[0].meta["val"]
        size, stride, *offset = node.args[2:] if name == "as_strided_scatter" else node.args[1:]
        begin = x.storage_offset()
        at = begin if offset in ([], [None]) else offset[0]
        if not all(type(n) is int for n in (*size, *stride, *x.shape, *x.stride(), begin, at)):
            continue
        whole = math.prod(size) == math.prod(x.shape) and at == begin
        if not (whole and in_order(x.shape, x.stride()) and in_order(size, stride)):
            continue
        put = name == "as_strided_scatter"
        value, shape = (node.args[1], x.shape) if put else (node.args[0], size)
        with gm.graph.inserting_before(node):
            view = gm.graph.call_function(torch.ops.aten.reshape.default, (value, list(shape)))
        view.meta.update(node.meta)
        node.replace_all_uses_with(view)
        gm.graph.erase_node(node)
    gm.recompile()


def in_order(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements lie one after the other, the last dim's first."""
    expected = 1
    for n, s in zip(reversed(shape), reversed(stride)):
        if n != 1 and s != expected:
            return False
        expected *= n
    return expected > 0


def refusal(torch: Any, node: Any, place: Cpu, known: dict[Any, str]) -> str:
    """Why a node is not ours; empty where it is. `known`: of nodes that were asked about."""
    if node not in known:
        known[node] = refused(torch, node, place, known)
    return known[node]


def refused(torch: Any, node: Any, place: Cpu, known: dict[Any, str]) -> str:
    if node.target is operator.getitem:
        whole = refusal(torch, node.args[0], place, known)
        return "part of a result that is torch's" if whole else ""
    base = name_of(node.target)
    if not str(getattr(node.target, "_schema", "")).startswith("aten::"):
        return "no operator of ATen's"
    if is_random(torch, node):
        return "random numbers are torch's own"
    if base in OF_MEMORY:
        return "it reads memory as torch lays it out"
    if translation(node.target) is None:
        return "no operator of ours"
    if why := place.refusal(node, base):
        return why
    values = [n.meta.get("val") for n in (*node.all_input_nodes, node)]
    for value in values:
        for one in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(one, (torch.SymFloat, torch.SymBool)) or one is node.meta.get("val"):
                if not isinstance(one, torch.Tensor):
                    return "no tensor"
            if isinstance(one, torch.Tensor):
                if one.device != place.device:
                    return f"a tensor on {one.device}, the graph's parts are on {place.name}"
                if one.layout != torch.strided:
                    return f"layout {one.layout}"
                if dtype_name(one.dtype) not in DTYPES:
                    return f"dtype {one.dtype}"
                if type(one).__name__ not in ("FakeTensor", "Tensor", "Parameter"):
                    return f"a {type(one).__name__}"
    return trial(torch, node)


def trial(torch: Any, node: Any) -> str:
    """Ours on tensors without data (the meta device): what is wrong with the result, or empty."""

    zeros = Zeros("meta")

    def look(a: Any) -> Any:
        if isinstance(a, torch.fx.Node):
            return look(a.meta["val"])
        if isinstance(a, (tuple, list)):
            return tuple(map(look, a))
        if isinstance(a, torch.Tensor):
            return zeros.like(a)
        return hint(a) if isinstance(a, torch.SymInt) else value_of(torch, a)

    why = ""
    operands = [x for n in node.all_input_nodes for x in tensors_of(torch, n)]
    half = any(dtype_name(x.dtype) in HALVES for x in operands)
    # Wide: in float32. torch keeps statistics of half types so, or in other dtypes than ours.
    for wide in (False, True) if half else (False,):
        node.meta["wide"] = wide
        try:
            named = {k: look(v) for k, v in node.kwargs.items() if k not in IGNORED}
            got = function_of(torch, node)(*map(look, node.args), **named)
        except Exception as error:  # noqa: BLE001  (torch runs the node then)
            told = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
            return why or told
        found = otherwise(torch, node, got)
        if not found:
            return ""
        why = why or found
    return why


def otherwise(torch: Any, node: Any, got: Any) -> str:
    """What is wrong with the results of ours that somebody reads; empty: nothing."""
    expected = node.meta["val"]
    many = isinstance(expected, (tuple, list))
    read = {u.args[1] if u.target is operator.getitem else None for u in node.users}
    for k, (x, y) in enumerate(zip(got if many else (got,), expected if many else (expected,))):
        if isinstance(y, torch.Tensor) and not (many and None not in read and k not in read):
            shape = tuple(map(hint, y.shape))
            same = x is not None and tuple(x.shape) == shape and x.dtype.name == dtype_name(y.dtype)
            if x is None:
                return "ours gives no such result"
            if not same and 0 not in shape:
                theirs = f"{dtype_name(y.dtype)}{list(shape)}"
                return f"ours gives {x.dtype.name}{list(x.shape)}, torch's {theirs}"
    return ""


def function_of(torch: Any, node: Any) -> Callable:
    """What stands for a node: the translation of its operator, or that on float32, with results
    of the dtypes that torch expects."""
    plain: Any = translation(node.target)
    if not node.meta.get("wide"):
        return plain  # type: ignore[no-any-return]
    value = node.meta["val"]
    values = value if isinstance(value, (tuple, list)) else (value,)
    dtypes = [
        getattr(_core, dtype_name(v.dtype)) if isinstance(v, torch.Tensor) else None for v in values
    ]

    def widened(*args: Any, **named: Any) -> Any:
        made = plain(*map(wider, args), **{k: wider(v) for k, v in named.items()})
        if not isinstance(made, (tuple, list)):
            return narrowed(made, dtypes[0])
        return tuple(map(narrowed, made, dtypes))

    return widened


def wider(x: Any) -> Any:
    return x.to(_core.float32) if hasattr(x, "shape") and dtype_kind(x) in HALVES else x


def narrowed(x: Any, dtype: Any) -> Any:
    floats = x is not None and dtype is not None and dtype_kind(x) == "float32"
    return x.to(dtype) if floats and dtype.name in HALVES else x


# ---- one compiled part


class Part:
    """A run of supported nodes as one compiled graph, called with torch's tensors."""

    def __init__(self, torch: Any, module: Any, name: str, place: Cpu) -> None:
        self.torch, self.__name__, self.place = torch, name, place
        self.module, self.nodes = module, list(module.graph.nodes)
        inputs = [n for n in self.nodes if n.op == "placeholder"]
        values = [n.meta["val"] for n in inputs]
        self.unlike = [i for i, n in enumerate(inputs) if may_be_unlike(torch, n)]
        self.tensors = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
        self.sizes = {n: v for n, v in zip(inputs, values) if not isinstance(v, torch.Tensor)}
        fakes = [values[i] for i in self.tensors]
        givers = [inputs[i].meta.get("giver") for i in self.tensors]
        self.given = [(k, fakes[k], giver) for k, giver in enumerate(givers) if giver]
        self.places = places(fakes)  # empty where no size varies
        output = next(n for n in self.nodes if n.op == "output").args[0]
        self.single = not isinstance(output, (tuple, list))
        outputs = [output] if self.single else list(output)
        self.outputs = [n.meta["val"] for n in outputs]
        self.expected = [expected_of(x, hint) for x in self.outputs]
        self.known: dict[tuple, list] = {}  # what is expected, for values of the sizes
        calls = [n for n in self.nodes if n.op == "call_function"]
        self.functions: dict[Any, Any] = {
            n: function_of(torch, n) for n in calls if n.target is not operator.getitem
        }
        products = {name_of(n.target) for n in self.functions} & PRODUCTS
        self.loans = Loans(any(x.dtype == torch.float32 for x in fakes) and bool(products))
        if place.name != "cpu" and not fakes:
            raise Unsupported("torch_backend", f"nothing says that it computes on {place.name}")
        with place.compiling():
            self.compile(fakes)

    def compile(self, fakes: list) -> None:
        """Compiles it, on tensors of zeros, so that what fails fails here."""
        zeros = Zeros(self.place.name)
        examples: list[Any] = [zeros.like(x) for x in fakes]
        described = examples
        if self.places:
            seen = {name: hint(fakes[i].shape[d]) for name, (i, d) in self.places.items()}
            for size in self.sizes.values():
                evaluate(size, seen)  # Unsupported where no input has it
            self.given = [g for g in self.given if evaluable(g[1], seen)]
            described = layouts(fakes, [dtype_name(x.dtype) for x in fakes], self.place.name)
        elif self.sizes:
            raise Unsupported("torch_backend", "numbers without a tensor of their size")
        self.run = inductor()(self.call, described)
        self.check(self.run(*examples))
        before = self.place.on_host()
        if before:  # it, or its compiling, once: then it tells
            self.run(*examples)
        if self.place.on_host() > before:
            raise Unsupported("torch_backend", f"a part of it would leave {self.place.name}")
        if any(form == self.call for form in getattr(self.run, "forms", {}).values()):
            raise Unsupported("torch_backend", "the compiler runs it in eager mode")

    def call(self, *inputs: Any) -> Any:
        """The nodes in order, on our tensors or on a recorder's values. Numbers are worked out
        from the tensors' sizes."""
        given, known = iter(inputs), {}
        values = {name: inputs[i].shape[d] for name, (i, d) in self.places.items()}

        def look(a: Any) -> Any:
            if isinstance(a, self.torch.fx.Node):
                return known[a]
            if isinstance(a, (tuple, list)):
                return tuple(map(look, a))
            if isinstance(a, self.torch.SymInt):
                return evaluate(a, values)
            return value_of(self.torch, a)

        for node in self.nodes:
            if node in self.sizes:
                known[node] = evaluate(self.sizes[node], values)
            elif node.op == "placeholder":
                known[node] = next(given)
            elif node.op == "output":
                result = look(node.args[0])
                return (result,) if self.single else tuple(result)
            elif node.target is operator.getitem:
                known[node] = look(node.args[0])[node.args[1]]
            else:
                named = {k: look(v) for k, v in node.kwargs.items() if k not in IGNORED}
                known[node] = self.functions[node](*map(look, node.args), **named)
        raise AssertionError("a graph without an output")

    def check(self, results: Sequence[Any]) -> None:
        """Raises Unsupported where our operators give another shape or dtype than torch's."""
        for i, (x, e) in enumerate(zip(results, self.expected)):
            if not fits(x, e):
                raise Unsupported(
                    "interop",
                    f"result {i} of {self.__name__} is {x.dtype.name}{list(x.shape)}, torch "
                    f"expects {dtype_name(e.dtype)}{list(e.shape)}",
                )

    def __call__(self, *inputs: Any) -> Any:
        if self.unlike:
            mine = list(inputs)
            for i in self.unlike:
                mine[i] = as_memory(self.torch, mine[i])
            inputs = tuple(mine)
        if self.sizes:
            inputs = tuple(inputs[i] for i in self.tensors)
        if self.given:
            inputs = self.as_described(inputs)
        expected = self.expected_now(inputs) if self.places else self.expected
        made = self.place.run(self.run, inputs, expected, self.loans)
        return made[0] if self.single else tuple(made)

    def as_described(self, inputs: tuple) -> tuple:
        """The inputs, those that calls of torch's gave as their fake functions said. RuntimeError
        for another shape or dtype; other strides are put right."""
        values = {n: x.shape[d] for n, (i, d) in self.places.items() if (x := inputs[i]).dim() > d}
        made = list(inputs)
        for k, fake, giver in self.given:
            x, known = inputs[k], evaluable(fake, values)
            shape = tuple(evaluate(n, values) if known else n for n in fake.shape)
            alike = x.dim() == len(shape) and not (known and tuple(x.shape) != shape)
            if not alike or x.dtype != fake.dtype:
                raise RuntimeError(
                    f"[torch_backend] {giver} gave {dtype_name(x.dtype)}{list(x.shape)}, its fake "
                    f"(meta) function says {dtype_name(fake.dtype)}{list(shape)}"
                )
            stride = tuple(evaluate(n, values) for n in fake.stride()) if known else x.stride()
            if x.stride() != stride:
                if all(a == b or n == 1 for n, a, b in zip(shape, x.stride(), stride)):
                    made[k] = x.as_strided(shape, stride)
                else:
                    new = self.torch.empty_strided(shape, stride, dtype=x.dtype, device=x.device)
                    made[k] = new.copy_(x)
        return tuple(made)

    def expected_now(self, inputs: tuple) -> list:
        """What torch expects for these inputs' sizes."""
        sizes = tuple(inputs[i].shape[d] for i, d in self.places.values())
        found = self.known.get(sizes)
        if found is None:
            values = dict(zip(self.places, sizes))
            found = [expected_of(x, lambda n: evaluate(n, values)) for x in self.outputs]
            self.known[sizes] = found
        return found


def may_be_unlike(torch: Any, node: Any) -> bool:
    """Whether a tensor that comes in may have other numbers than its memory. torch guards this of
    what a program hands over, not of the slopes that a backward begins with."""
    value = node.meta["val"]
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return False
    return value.is_neg() or node.name.startswith("tangents_")


def as_memory(torch: Any, x: Any) -> Any:
    """A tensor whose memory says all: of a view whose numbers stand negated (the imaginary part of
    a conjugate), or of zeros without memory, a copy. DLPack carries neither mark."""
    if not x.is_neg() and not x._is_zerotensor():
        return x
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).copy_(x)


def inductor() -> Callable:
    """The backend "inductor", which stands above this room: the pipeline registers it when it
    loads, and the package loads the pipeline when its `compile` is asked for."""
    from rushlight.dynamo.backends import BACKENDS, resolve

    if "inductor" not in BACKENDS:
        getattr(sys.modules["rushlight"], "compile")  # noqa: B009  (what is asked for is loaded)
    return resolve("inductor")  # type: ignore[no-any-return]


# What says where a result goes: a graph's parts are on one device, and strides are put right at
# their ends.
IGNORED = ("layout", "device", "pin_memory", "non_blocking")
# Whose rounding hangs on switches of torch's.
PRODUCTS = frozenset("mm bmm addmm baddbmm addmv mv dot convolution convolution_backward".split())


class Zeros:
    """Tensors of ours with the layouts of torch's fakes, whose numbers do not matter: all of a
    dtype are one memory."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.held: dict[str, Any] = {}

    def like(self, value: Any) -> Any:
        if not hasattr(value, "stride"):
            return value
        name = dtype_name(value.dtype)
        shape, strides = tuple(map(hint, value.shape)), tuple(map(hint, value.stride()))
        size = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides))
        flat = self.held.get(name)
        if flat is None or flat.numel() < size:
            dtype = getattr(_core, name)
            flat = self.held[name] = factories.zeros((size,), dtype=dtype, device=self.device)
        return flat.as_strided(shape, strides)
