"""Where a value of a frame comes from: the path that a guard walks and that code can load again.

    arg        a parameter of the frame          attr       getattr(parent, key)
    global     a name in a dict of globals       dict_attr  vars(parent)[key]
    const      a fixed object                    item       parent[key] of a dict
    func       the function that is called          index      parent[key] of a tuple or list
    closure    content of a function's cell      default, kwdefault   a function's defaults
    grad       parent.grad                       type, len  type(parent), len(parent)

One source is one object: children are kept by their parents, so that equal paths are identical.
"""

from __future__ import annotations

from typing import Any


class Source:
    __slots__ = ("children", "key", "op", "parent", "spelled")

    def __init__(self, op: str, parent: Source | None, key: Any, spelled: str | None) -> None:
        self.op, self.parent, self.key, self.spelled = op, parent, key, spelled
        self.children: dict[Any, Source] = {}

    @property
    def name(self) -> str:
        """As the program would write it; made where it is first asked for."""
        if self.spelled is None:
            assert self.parent is not None
            self.spelled = self.parent.spell(self.op, self.key)
        return self.spelled

    def child(self, op: str, key: Any = None) -> Source:
        """The source one step further."""
        index = (op, type(key), key)
        try:
            found = self.children.get(index)
        except TypeError:  # the key has no hash
            index = (op, type(key), id(key))
            found = self.children.get(index)
        if found is None:
            found = self.children[index] = Source(op, self, key, None)
        return found

    def is_fixed(self) -> bool:
        """Whether no program is expected to change it: a constant, or what is reached through a
        global of Rushlight's own modules."""
        root = self
        while root.parent is not None:
            root = root.parent
        if root.op != "global":
            return self.op == "const"
        return str(root.key[0].get("__name__")).partition(".")[0] == "rushlight"

    def spell(self, op: str, key: Any) -> str:
        base = self.name
        if op in ("attr", "dict_attr"):
            return f"{base}.{key}"
        if op in ("item", "index"):
            plain = isinstance(key, (str, int, float, bool, bytes, type(None), tuple))
            return f"{base}[{key!r}]" if plain else f"{base}[<{type(key).__name__}>]"
        if op == "default":
            return f"{base}.__defaults__[{key}]"
        if op == "kwdefault":
            return f"{base}.__kwdefaults__[{key!r}]"
        if op == "closure":
            return f"{base}.__closure__[{key}].cell_contents"
        if op == "call":
            return f"{getattr(key, '__name__', 'call')}({base})"
        return f"{base}.grad" if op == "grad" else f"{op}({base})"

    def __repr__(self) -> str:
        return self.name


class Roots:
    """The root sources of one capture."""

    def __init__(self) -> None:
        self.known: dict[Any, Source] = {}

    def make(self, op: str, index: Any, key: Any, name: str) -> Source:
        found = self.known.get((op, index))
        if found is None:
            found = self.known[op, index] = Source(op, None, key, name)
        return found

    def arg(self, i: int, name: str) -> Source:
        return self.make("arg", i, i, name)

    def variable(self, namespace: dict, name: str) -> Source:
        return self.make("global", (id(namespace), name), (namespace, name), name)

    def const(self, value: Any) -> Source:
        name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        return self.make("const", id(value), value, str(name or type(value).__name__))

    def free(self, i: int, name: str) -> Source:
        """The content of the frame's own free variable."""
        function = self.make("func", None, None, "function")
        source = function.child("closure", i)
        source.spelled = name
        return source


def fetch(source: Source, arguments: tuple, memo: dict | None = None) -> Any:
    """The value that a source names now. Raises what the steps raise."""
    memo = {} if memo is None else memo
    if source in memo:
        return memo[source]
    parent = fetch(source.parent, arguments, memo) if source.parent is not None else None
    memo[source] = value = STEPS[source.op](parent, source.key, arguments)
    return value


def variable(_: Any, key: tuple, __: tuple) -> Any:
    namespace, name = key
    return namespace[name]


STEPS: dict[str, Any] = {
    "arg": lambda p, k, arguments: arguments[k],
    "global": variable,
    "builtin": variable,
    "const": lambda p, k, a: k,
    "attr": lambda p, k, a: getattr(p, k),
    "dict_attr": lambda p, k, a: p.__dict__[k],
    "type": lambda p, k, a: type(p),
    "item": lambda p, k, a: p[k],
    "index": lambda p, k, a: p[k],
    "default": lambda p, k, a: p.__defaults__[k],
    "kwdefault": lambda p, k, a: p.__kwdefaults__[k],
    "closure": lambda p, k, a: p.__closure__[k].cell_contents,
    "grad": lambda p, k, a: p.grad,
    "len": lambda p, k, a: len(p),
    "call": lambda p, k, a: k(p),
}


def branching(sources: Any) -> set:
    """The sources from which more than one of the paths goes on."""
    children: dict[Any, set] = {}
    for s in sources:
        while s.parent is not None:
            known = children.setdefault(s.parent, set())
            if s in known:
                break
            known.add(s)
            s = s.parent
    return {s for s, those in children.items() if len(those) > 1 and s.parent is not None}
