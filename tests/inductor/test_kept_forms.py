"""Forms found again: a captured graph whose form was kept is neither functionalised nor derived,
and what its key tells apart."""

import pytest

import rushlight as rl
from rushlight import compiled, config, forms, kept_forms
from rushlight.inductor import recall
from rushlight.ops.values import TABLE
from rushlight.pipeline import compile_fx
from rushlight.runtime import cache
from rushlight.trace import collect

from ..graphs import same


@pytest.fixture(autouse=True)
def folder(tmp_path):
    with config.changed(cache_dir=str(tmp_path / "artifacts")):
        yield tmp_path / "artifacts"


@pytest.fixture
def names(monkeypatch):
    """The name of each form that is asked for from here on."""
    asked = []
    name_of = kept_forms.name_of

    def told(*args):
        asked.append(name_of(*args))
        return asked[-1]

    monkeypatch.setattr(kept_forms, "name_of", told)
    return asked


@pytest.fixture
def made(monkeypatch):
    """What is called from here on of all that makes graphs from the captured one."""
    called = []

    def watch(room, name):
        function = getattr(room, name)

        def told(*args, **kwargs):
            called.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(room, name, told)

    watch(compiled, "functionalise")
    watch(forms, "differentiate")
    watch(forms, "decompose")
    return called


def trained(fn, *inputs):
    """Results, gradients and inputs after a call."""
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    outs = rl.compile(fn, fullgraph=True)(*given)
    outs = outs if isinstance(outs, tuple) else (outs,)
    learning = [x for x in given if x.requires_grad]
    total = sum((o * o).sum() for o in outs if o.requires_grad) if learning else None
    return [*outs, *(rl.autograd.grad(total, learning) if learning else ()), *given]


def norm(a, w):
    return rl.gelu(rl.layer_norm(a @ w, (16,))) * 3.5, (a @ w).relu().sum(0)


def written(a, w):
    w = w * 2
    w[1:] += a[0, :15].view(15, 1)
    return w.T, a[:, :4], w


def input_written(a, w):
    a.add_(w.sum())
    return a[1:], a @ w


@pytest.mark.parametrize("fn", [norm, written, input_written])
@pytest.mark.parametrize("grad", [False, True])
def test_a_form_is_found_and_gives_the_bits_of_the_one_that_was_made(fn, grad, made):
    a, w = rl.randn(8, 16), rl.randn(16, 16).requires_grad_(grad)
    first = trained(fn, a, w)
    assert made[0] == "functionalise" and ("differentiate" in made) == grad
    made.clear()
    same(trained(fn, a, w), first)
    assert not made


def test_derivatives_of_gradients_derive_the_graph_anew(made):
    def fn(x):
        return (x.sin() * x).exp()

    def run():
        x = rl.linspace(0.1, 1, 7).requires_grad_()
        (first,) = rl.autograd.grad(rl.compile(fn)(x).sum(), x, create_graph=True)
        return [first, *rl.autograd.grad(first.sum(), x)]

    plain = rl.linspace(0.1, 1, 7)
    want = rl.autograd.grad(fn(plain.requires_grad_()).sum(), plain)
    first = run()
    made.clear()
    found = run()
    assert "differentiate" in made
    same(found, first)
    assert rl.allclose(found[0], want[0])


def test_what_a_found_form_does_not_hold_is_made_in_the_modes_that_it_was_found_in():
    def fn(a, w):
        return a @ w + 1

    a, w = rl.randn(8, 16), rl.randn(16, 16)
    for _ in range(2):
        found = compile_fx(captured(fn, a, w), [a, w])
        with rl.autocast("cpu", rl.bfloat16):
            (out,) = found(a, w)
    (form,) = found.forms.values()
    assert "made" not in vars(form) and out.dtype is rl.bfloat16
    text = str(form.made.graph)
    assert "bf16" in text and not rl.is_autocast_enabled("cpu")
    assert str(form.compiled.text)


def captured(fn, *inputs):
    kept = []
    rl.compile(fn, backend=lambda gm, examples: kept.append(gm) or gm.forward)(*inputs)
    return kept[0]


def test_the_mode_that_a_graph_leaves_is_kept(names):
    def fn(a):
        b = a * 2
        rl.set_grad_enabled(False)
        return b

    for _ in range(2):
        a = rl.ones(3).requires_grad_()
        try:
            out = rl.compile(fn)(a)
            assert not rl.is_grad_enabled() and out.requires_grad
        finally:
            rl.set_grad_enabled(True)
        assert rl.autograd.grad(out.sum(), a)[0].tolist() == [2.0] * 3
    assert names[0] and names[0] == names[1]


# ---- what the key tells apart


def test_a_name_for_each_kind_of_call(names):
    def f(v):
        return lambda a: a * v + 1

    def call(fn, a):
        rl.compile(fn, dynamic=False)(a)
        return names[-1]

    a = rl.ones(4, 6)
    told = [call(f(v), a) for v in (0.0, -0.0, 1, 1.0, True, 2, 1e-9)]
    told += [call(f(2), x) for x in (a.T, a.double(), rl.ones(4, 7), a.clone().requires_grad_())]
    told.append(call(lambda a: a * 2 + 1, a))  # another line
    told.append(call(lambda a: [(b := a * 2 + 1), b][1].view(6, 4), a))
    with rl.autocast("cpu", rl.bfloat16):
        told.append(call(f(2), a))
    rl.set_default_dtype(rl.float64)
    try:
        told.append(call(f(2), a))
    finally:
        rl.set_default_dtype(rl.float32)
    assert None not in told and len(set(told)) == len(told)
    assert call(f(2), a) == told[5]


def test_a_dict_list_and_slice_are_told_apart(names):
    for fn in (lambda a: a[1:3], lambda a: a[1:2], lambda a: a.sum((0,)), lambda a: a.sum([1])):
        rl.compile(fn)(rl.ones(4, 4))
    assert None not in names and len(set(names)) == 4


def test_forms_that_are_not_kept(names):
    constant = rl.ones(3)

    def user(x):
        return x + 1

    rl.compiler.allow_in_graph(user)
    rl.compile(lambda a: user(a) * 2)(rl.ones(3))  # what a user's function does, no name tells
    rl.compile(lambda a: a * 2, check=True)(rl.ones(3))
    compile_fx(lambda a: a * constant, [constant])(rl.ones(3))
    with collect():
        rl.compile(lambda a: a * 2)(rl.ones(3))
    rl.compile(lambda a: a * 2, dynamic=True)(rl.ones(3))
    assert names == [None] * 5


def test_without_its_backward_program_there_is_no_form(made):
    """A backward that is derived again might not take what the kept forward saves."""

    def fn(a):
        return a.exp().sin()

    a = rl.ones(3).requires_grad_()
    for _ in range(2):
        rl.compile(fn)(a)
        assert made[:2] == ["functionalise", "differentiate"]
        made.clear()
    first = trained(fn, a)
    made.clear()
    same(trained(fn, a), first)
    assert not made


@pytest.mark.parametrize("change", ["damage", "nonsense", "other version"])
def test_a_form_that_cannot_be_read_is_made_anew(folder, names, change):
    def fn(a):
        return (a * 2).exp() + 1

    a = rl.ones(3)
    want = rl.compile(fn)(a)
    file = folder / f"{names[0]}.program"
    if change == "damage":
        content = bytearray(file.read_bytes())
        content[3] ^= 1
        file.write_bytes(content)
    else:
        import marshal

        held = marshal.loads(cache.kept(str(folder), names[0]))
        held = (held[0] + 1, *held[1:]) if change == "other version" else (*held[:2], 7, *held[3:])
        content = marshal.dumps(held)
        end = cache.end_of(content, {"graph": "forward", "name": names[0]})
        file.write_bytes(content + end)
    if change == "damage":
        with pytest.warns(RuntimeWarning, match="made anew"):
            got = rl.compile(fn)(a)
    else:
        got = rl.compile(fn)(a)
    same(got, want)


def test_an_operator_that_comes_to_be_where_it_is_asked_for_is_found_by_name():
    known = TABLE["gelu"].backward
    TABLE.pop("gelu_backward")
    try:
        assert recall.there("gelu_backward") is known
        with pytest.raises(KeyError):
            recall.there("no_such_operator_backward")
    finally:
        TABLE["gelu_backward"] = known
