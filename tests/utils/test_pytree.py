"""Trees of containers."""

from collections import OrderedDict, namedtuple

import pytest

from rushlight.utils import _pytree as pytree

Point = namedtuple("Point", "x y")
TREE = {"a": [1, (2, None)], "b": Point(3, OrderedDict(c=4)), "d": []}


def test_a_tree_is_its_leaves_and_its_structure():
    leaves, spec = pytree.tree_flatten(TREE)
    assert leaves == [1, 2, None, 3, 4] and spec.num_leaves == 5
    again = pytree.tree_unflatten(leaves, spec)
    assert again == TREE and type(again["b"]) is Point and type(again["b"].y) is OrderedDict
    with pytest.raises(ValueError, match="4 leaves"):
        pytree.tree_unflatten(leaves[:4], spec)


def test_maps():
    assert pytree.tree_map(lambda x: x and -x, TREE)["b"] == Point(-3, OrderedDict(c=-4))
    assert pytree.tree_map(lambda a, b: a + b, [1, (2,)], [10, (20,)]) == [11, (22,)]
    assert pytree.tree_map_only(int, str, (1, "a", 2.0)) == ("1", "a", 2.0)
    assert pytree.tree_leaves([(1, 2), 3], is_leaf=lambda x: isinstance(x, tuple)) == [(1, 2), 3]
    assert pytree.tree_any(lambda x: x is None, TREE)
    assert not pytree.tree_all(lambda x: x is None, TREE)
    with pytest.raises(ValueError, match="structure"):
        pytree.tree_map(max, [1], (1,))


def test_classes_that_are_registered_are_containers():
    class Pair:
        def __init__(self, a, b):
            self.both = a, b

    pytree.register_pytree_node(Pair, lambda p: (list(p.both), None), lambda xs, _: Pair(*xs))
    try:
        assert pytree.tree_map(lambda x: x + 1, Pair(1, 2)).both == (2, 3)
        with pytest.raises(ValueError, match="registered"):
            pytree.register_pytree_node(Pair, None, None)
    finally:
        del pytree._KINDS[Pair]
