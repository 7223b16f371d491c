"""Nested tuples, lists and dictionaries as trees, under the names of PyTorch's module.

Leaves are whatever is no container of a known kind: tuple, namedtuple, list, dict, OrderedDict,
defaultdict, deque; `register_pytree_node` makes more known.
"""

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any, NamedTuple

Kind = namedtuple("Kind", "flatten_fn unflatten_fn keyed", defaults=(None,))
Context = Any


class MappingKey(NamedTuple):
    """A step of a path: into a mapping."""

    key: Any

    def __str__(self):
        return f"[{self.key!r}]"

    def get(self, tree):
        return tree[self.key]


class SequenceKey(NamedTuple):
    """Into a sequence."""

    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"

    def get(self, tree):
        return tree[self.idx]


class GetAttrKey(NamedTuple):
    """To an attribute."""

    name: str

    def __str__(self):
        return f".{self.name}"

    def get(self, tree):
        return getattr(tree, self.name)


def keystr(path):
    """A path as text, as one would write it behind a name."""
    return "".join(map(str, path))


def _dict_flatten(d):
    return list(d.values()), list(d)


def _dict_flatten_with_keys(d):
    return [(MappingKey(key), value) for key, value in d.items()], list(d)


def _dict_unflatten(values, context):
    return dict(zip(context, values, strict=True))


def _named(tree):
    return isinstance(tree, tuple) and hasattr(type(tree), "_fields")


_KINDS = {
    tuple: Kind(lambda x: (list(x), None), lambda xs, _: tuple(xs)),
    list: Kind(lambda x: (x, None), lambda xs, _: list(xs)),
    dict: Kind(_dict_flatten, _dict_unflatten),
    OrderedDict: Kind(
        lambda x: (list(x.values()), list(x)), lambda xs, k: OrderedDict(zip(k, xs, strict=True))
    ),
    defaultdict: Kind(
        lambda x: (list(x.values()), (x.default_factory, list(x))),
        lambda xs, k: defaultdict(k[0], zip(k[1], xs, strict=True)),
    ),
    deque: Kind(lambda x: (list(x), x.maxlen), lambda xs, n: deque(xs, n)),
    namedtuple: Kind(lambda x: (list(x), type(x)), lambda xs, cls: cls(*xs)),
}


class TreeSpec(NamedTuple):
    """The structure of a tree without its leaves; type None: a leaf."""

    type: Any
    context: Any
    children_specs: tuple

    @property
    def num_leaves(self):
        if self.type is None:
            return 1
        return sum(child.num_leaves for child in self.children_specs)


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __new__(cls):
        return super().__new__(cls, None, None, ())


LEAF = LeafSpec()
PyTree = Any
SUPPORTED_NODES = _KINDS


def register_pytree_node(cls, flatten_fn, unflatten_fn, *, flatten_with_keys_fn=None, **names):
    """Objects of cls are containers: flatten_fn gives (children, context), unflatten_fn makes one
    of children and context, flatten_with_keys_fn gives ([(key, child), ...], context). ValueError
    for a class that is known."""
    if cls in _KINDS:
        raise ValueError(f"[pytree] {cls} is registered already")
    _KINDS[cls] = Kind(flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _kind(tree):
    return namedtuple if _named(tree) and type(tree) not in _KINDS else type(tree)


def tree_flatten(tree, is_leaf=None):
    """The leaves, from left to right, and the structure."""
    leaves = []
    return leaves, _flatten(tree, leaves, is_leaf)


def _flatten(tree, leaves, is_leaf):
    kind = _kind(tree)
    if kind not in _KINDS or (is_leaf is not None and is_leaf(tree)):
        leaves.append(tree)
        return LEAF
    children, context = _KINDS[kind].flatten_fn(tree)
    return TreeSpec(kind, context, tuple(_flatten(c, leaves, is_leaf) for c in children))


def tree_unflatten(leaves, treespec):
    """The tree of leaves and a structure; ValueError where their numbers differ."""
    leaves = list(leaves)
    if len(leaves) != treespec.num_leaves:
        raise ValueError(
            f"[pytree] {len(leaves)} leaves for a structure with {treespec.num_leaves}"
        )
    return _unflatten(iter(leaves), treespec)


def _unflatten(leaves, spec):
    if spec.type is None:
        return next(leaves)
    children = [_unflatten(leaves, child) for child in spec.children_specs]
    return _KINDS[spec.type].unflatten_fn(children, spec.context)


def tree_leaves(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree, is_leaf=None):
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree, is_leaf=None):
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func, tree, *rests, is_leaf=None):
    """A tree of func's results; further trees of the same structure give further arguments."""
    leaves, spec = tree_flatten(tree, is_leaf)
    others = []
    for rest in rests:
        more, other = tree_flatten(rest, is_leaf)
        if other != spec:
            raise ValueError("[pytree] the trees differ in structure")
        others.append(more)
    return tree_unflatten([func(*one) for one in zip(leaves, *others, strict=True)], spec)


def tree_map_(func, tree, *rests, is_leaf=None):
    """As tree_map, for what func does; gives the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def tree_map_only(kinds, func, tree, is_leaf=None):
    """As tree_map, on leaves of these types (or those of which a function says so)."""
    fits = kinds if callable(kinds) and not isinstance(kinds, type) else None

    def one(leaf):
        chosen = fits(leaf) if fits else isinstance(leaf, kinds)
        return func(leaf) if chosen else leaf

    return tree_map(one, tree, is_leaf=is_leaf)


def tree_flatten_with_path(tree, is_leaf=None):
    """([(path, leaf), ...], spec): a path is a tuple of keys. ValueError for a registered class
    without flatten_with_keys_fn."""
    pairs = []
    _walk((), tree, pairs, is_leaf)
    return pairs, tree_structure(tree, is_leaf)


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """func(path, leaf, ...) of every leaf of trees of one structure."""
    pairs, spec = tree_flatten_with_path(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    rows = zip(*zip(*pairs), *others, strict=True) if pairs else ()
    return tree_unflatten([func(*row) for row in rows], spec)


def _walk(path, tree, pairs, is_leaf):
    kind = _kind(tree)
    if kind not in _KINDS or (is_leaf is not None and is_leaf(tree)):
        pairs.append((path, tree))
        return
    if isinstance(tree, dict) and _KINDS[kind].keyed is None:
        children = _dict_flatten_with_keys(tree)[0]
    elif kind is namedtuple:
        children = [(GetAttrKey(n), x) for n, x in zip(tree._fields, tree, strict=True)]
    elif kind in (tuple, list, deque):
        children = [(SequenceKey(i), x) for i, x in enumerate(tree)]
    elif _KINDS[kind].keyed is not None:
        children = _KINDS[kind].keyed(tree)[0]
    else:
        raise ValueError(f"[pytree] {kind} has no flatten_with_keys_fn")
    for key, child in children:
        _walk((*path, key), child, pairs, is_leaf)


def tree_all(predicate, tree, is_leaf=None):
    return all(map(predicate, tree_leaves(tree, is_leaf)))


def tree_any(predicate, tree, is_leaf=None):
    return any(map(predicate, tree_leaves(tree, is_leaf)))


def _is_leaf(tree, is_leaf=None):
    return _kind(tree) not in _KINDS or (is_leaf is not None and is_leaf(tree))


_get_node_type = _kind
