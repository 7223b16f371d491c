"""`_foreach_*` against torch, and the small relatives: `_check`, `svd_lowrank`."""

import pytest

import rushlight as rl

NAMES = ("_foreach_add", "_foreach_sqrt_", "_foreach_lerp", "_foreach_addcdiv_", "_foreach_norm",
         "_foreach_maximum", "_foreach_pow", "_foreach_copy_", "_foreach_zero_",
         "_foreach_clamp_min_", "_foreach_max")  # fmt: skip


def arguments(library, name):
    def row(start):
        return [library.arange(start, start + n, dtype=library.float32) for n in (2, 3)]

    more = {
        "add": (row(3.0),), "lerp": (row(3.0), 0.25), "addcdiv_": (row(3.0), row(5.0), [1.0, 2.0]),
        "norm": (1,), "maximum": (2.5,), "pow": ([2.0, 3.0],), "copy_": (row(7.0),),
        "clamp_min_": (1.5,),
    }  # fmt: skip
    return (row(1.0), *more.get(name.removeprefix("_foreach_"), ()))


@pytest.mark.parametrize("name", NAMES)
def test_lists_of_tensors(oracle, name):
    found = []
    for library in (rl, oracle):
        given = arguments(library, name)
        result = getattr(library, name)(*given)
        assert not name.endswith("_") or result[0] is given[0][0]
        found.append([t.tolist() for t in result])
    assert [pytest.approx(x) for x in found[0]] == found[1]


def test_refusals():
    assert not hasattr(rl, "_foreach_nothing") and not hasattr(rl, "_foreach_norm_")
    with pytest.raises(RuntimeError, match="one entry a tensor"):
        rl._foreach_add([rl.ones(1)], [rl.ones(1), rl.ones(1)])
    with pytest.raises(RuntimeError, match="at least one tensor"):
        rl._foreach_add([], 1)
    rl._check(True)
    with pytest.raises(RuntimeError, match="two"):
        rl._check(False, lambda: "two")
    with pytest.raises(ValueError):
        rl._check_value(False)
    with pytest.raises(TypeError):
        rl._check(1)


def test_low_rank():
    rl.manual_seed(0)
    for shape in ((20, 8), (8, 20)):
        whole = rl.randn(shape[0], 3) @ rl.randn(3, shape[1])
        u, s, v = rl.svd_lowrank(whole, q=4)
        assert rl.allclose(u @ rl.diag(s) @ v.mT, whole, atol=1e-4)
        assert (u.shape, s.shape, v.shape) == ((shape[0], 4), (4,), (shape[1], 4))
    u, s, v = rl.pca_lowrank(whole + 5, q=3)
    centred = whole - whole.mean(dim=0, keepdim=True)
    assert rl.allclose(u @ rl.diag(s) @ v.mT, centred, atol=1e-4)
    with pytest.raises(ValueError):
        rl.pca_lowrank(whole, q=30)
