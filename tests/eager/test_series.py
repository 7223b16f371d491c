"""Functions over other operators against the oracle: values, gradients, kinds of errors."""

import numpy as np
import pytest

import rushlight as rl

from .both import close, kind

R = np.random.default_rng(11)
A, B, V = R.standard_normal((3, 4)), R.standard_normal((3, 4)), R.standard_normal(5)

CASES = {
    "cross": lambda lib, t: lib.cross(t(A), t(B)),
    "cross along": lambda lib, t: t(A).cross(t(B), dim=0),
    "cov": lambda lib, t: lib.cov(t(A)),
    "cov, uncorrected": lambda lib, t: t(A).cov(correction=0),
    "cov of a row": lambda lib, t: lib.cov(t(V)),
    "cov weighted": lambda lib, t: lib.cov(t(A), fweights=lib.tensor([1, 2, 3, 1])),
    "cov importance": lambda lib, t: lib.cov(
        t(A), aweights=lib.tensor([0.5, 2.0, 3.0, 1.0], dtype=lib.float64)
    ),
    "cov both": lambda lib, t: lib.cov(
        t(A),
        fweights=lib.tensor([1, 2, 3, 1]),
        aweights=lib.tensor([0.5, 2.0, 3.0, 1.0], dtype=lib.float64),
    ),
    "corrcoef": lambda lib, t: lib.corrcoef(t(A)),
    "corrcoef of a row": lambda lib, t: lib.corrcoef(t(V)),
    "trapezoid": lambda lib, t: lib.trapezoid(t(A)),
    "trapezoid dx": lambda lib, t: lib.trapz(t(A), dx=0.5, dim=0),
    "trapezoid x": lambda lib, t: lib.trapezoid(t(A), t(B[0])),
    "trapezoid x of all": lambda lib, t: lib.trapezoid(t(A), t(B), dim=0),
    "cumulative": lambda lib, t: lib.cumulative_trapezoid(t(A), dim=0),
    "cumulative x": lambda lib, t: lib.cumulative_trapezoid(t(A), t(B)),
    "vander": lambda lib, t: lib.vander(t(V).detach()),
    "vander up": lambda lib, t: lib.vander(t(V).detach(), 3, increasing=True),
    "vander ints": lambda lib, t: lib.vander(lib.arange(4)),
    "combinations": lambda lib, t: lib.combinations(t(V)),
    "combinations again": lambda lib, t: lib.combinations(t(V), 3, with_replacement=True),
    "combinations of too many": lambda lib, t: lib.combinations(t(V), 7),
    "diagonal_scatter": lambda lib, t: lib.diagonal_scatter(t(A), t(V)[:3], 1),
    "pdist": lambda lib, t: lib.pdist(t(A)),
    "pdist 1": lambda lib, t: lib.pdist(t(A), 1.0),
    "pdist of one": lambda lib, t: lib.pdist(t(A[:1])),
    "asarray": lambda lib, t: lib.asarray([1.0, 2.0]) + lib.asarray(V[:2], dtype=lib.float32),
    "frombuffer": lambda lib, t: lib.frombuffer(bytearray(range(16)), dtype=lib.int32, offset=4),
    "frombuffer counted": lambda lib, t: lib.frombuffer(
        bytearray(range(16)), dtype=lib.int16, count=3
    ),
    "unravel": lambda lib, t: lib.stack(lib.unravel_index(lib.tensor([5, 0, 23]), (2, 3, 4))),
    **{
        f"{name} {n} {more}": lambda lib, t, name=name, n=n, more=more: getattr(lib, name)(
            n, **more
        )
        for name in ("hann_window", "hamming_window", "blackman_window", "bartlett_window")
        for n in (0, 1, 2, 7)
        for more in ({}, {"periodic": False})
    },
}
RAISES = {
    "cross of no threes": lambda lib: lib.cross(lib.ones(2), lib.ones(2)),
    "cov of a cube": lambda lib: lib.cov(lib.ones(2, 2, 2)),
    "cov of bools": lambda lib: lib.cov(lib.ones(2, 2, dtype=lib.bool)),
    "cov of too few weights": lambda lib: lib.cov(lib.ones(2, 3), fweights=lib.tensor([1])),
    "trapezoid of other places": lambda lib: lib.trapezoid(lib.ones(2, 3), lib.ones(4)),
    "a window below nothing": lambda lib: lib.hann_window(-1),
    "a window of ints": lambda lib: lib.hann_window(3, dtype=lib.int64),
    "unravel of floats": lambda lib: lib.unravel_index(lib.ones(2), (2, 3)),
    "combinations of a table": lambda lib: lib.combinations(lib.ones(2, 2)),
    "vander of a table": lambda lib: lib.vander(lib.ones(2, 2)),
    "diagonal_scatter of another size": lambda lib: lib.ones(2, 2).diagonal_scatter(lib.ones(3)),
    "pdist of a row": lambda lib: lib.pdist(lib.ones(3)),
    "frombuffer of nothing": lambda lib: lib.frombuffer(b"", dtype=lib.int32),
    "frombuffer of a part": lambda lib: lib.frombuffer(bytearray(5), dtype=lib.int32),
    "asarray without a copy": lambda lib: lib.asarray([1, 2], copy=False),
}


@pytest.mark.filterwarnings("ignore:Using torch.cross:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, oracle):
    found = []
    for lib in (rl, oracle):
        leaves = []

        def leaf(array, lib=lib, leaves=leaves):
            leaves.append(lib.tensor(array, requires_grad=True))
            return leaves[-1]

        made = CASES[name](lib, leaf)
        if made.requires_grad and made.numel():
            (made * made.detach().cos()).sum().backward()
        found.append((made, [x.grad for x in leaves]))
    close(found[0][0], found[1][0], rtol=1e-6, atol=1e-7)
    for ours, theirs in zip(found[0][1], found[1][1], strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            close(ours, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", RAISES)
def test_refusals(name, oracle):
    with pytest.raises(Exception) as theirs:
        RAISES[name](oracle)
    with pytest.raises(kind(theirs.type)):
        RAISES[name](rl)
