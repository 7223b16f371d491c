"""Grids, sampling by them, and CTC: what is known of them, and the oracle."""

import numpy as np
import pytest

import rushlight as rl
from rushlight.nn import functional as F

MODES = [("bilinear", 4), ("nearest", 4), ("bicubic", 4), ("bilinear", 5), ("nearest", 5)]


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.uniform(-1.4, 1.4, s) for s in shapes]


def test_the_identity_map_reads_the_image_itself():
    x = rl.randn(2, 3, 4, 5)
    theta = rl.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(2, 2, 3)
    for align in (True, False):
        for mode in ("bilinear", "nearest", "bicubic"):
            grid = F.affine_grid(theta, (2, 3, 4, 5), align_corners=align)
            made = F.grid_sample(x, grid, mode=mode, align_corners=align)
            assert rl.allclose(made, x, atol=1e-5)


@pytest.mark.oracle
@pytest.mark.parametrize("align", [True, False])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode,rank", MODES)
def test_grid_sample_is_the_oracle_s(oracle, mode, rank, padding, align):
    sizes = (4, 5) if rank == 4 else (3, 4, 5)
    out = (3, 6) if rank == 4 else (2, 3, 2)
    image, grid, g = arrays((2, 3, *sizes), (2, *out, len(sizes)), (2, 3, *out))
    found = []
    for module in (rl, oracle):
        x, p = (module.tensor(a, requires_grad=True) for a in (image, grid))
        y = module.nn.functional.grid_sample(x, p, mode, padding, align)
        y.backward(module.tensor(g))
        found.append(
            [y.detach().numpy(), x.grad.numpy()] + ([] if mode == "nearest" else [p.grad.numpy()])
        )
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore:Since version 1.3.0:UserWarning")
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (2, 1, 1, 3), (2, 3, 2, 4, 5)])
def test_affine_grid_is_the_oracle_s(oracle, size):
    (theta,) = arrays((2, len(size) - 2, len(size) - 1))
    for align in (True, False):
        a, b = (m.nn.functional.affine_grid(m.tensor(theta), size, align) for m in (rl, oracle))
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


def test_refusals_of_grids():
    x = rl.randn(1, 2, 3, 3)
    with pytest.raises(ValueError, match="expected mode"):
        F.grid_sample(x, rl.zeros(1, 2, 2, 2), mode="cubic", align_corners=False)
    with pytest.raises(RuntimeError, match="2 coordinates"):
        F.grid_sample(x, rl.zeros(1, 2, 2, 3), align_corners=False)
    with pytest.raises(RuntimeError, match="same batch size"):
        F.grid_sample(x, rl.zeros(2, 2, 2, 2), align_corners=False)
    with pytest.raises(ValueError, match="affine matrices"):
        F.affine_grid(rl.zeros(1, 3, 3), (1, 1, 2, 2), align_corners=False)


# ---- CTC


def test_ctc_of_one_label_in_two_frames():
    """Frames a-, -a and aa: the probabilities of three alignments."""
    p = rl.tensor([[[0.6, 0.4]], [[0.3, 0.7]]])
    loss = F.ctc_loss(p.log(), rl.tensor([[1]]), [2], [1], reduction="none")
    assert loss.item() == pytest.approx(-np.log(0.4 * 0.3 + 0.6 * 0.7 + 0.4 * 0.7), rel=1e-6)
    with pytest.raises(RuntimeError, match="at most 2"):
        F.ctc_loss(p.log(), rl.tensor([[1]]), [3], [1])


@pytest.mark.oracle
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_ctc_is_the_oracle_s(oracle, reduction):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((7, 3, 5))
    targets = np.array([[1, 2, 2, 4], [3, 3, 0, 0], [1, 2, 3, 4]])
    cases = [
        (targets, [7, 6, 5], [4, 2, 3], 0, False),
        (np.array([1, 2, 2, 4, 3, 3]), [7, 6, 5], [4, 2, 0], 0, False),
        (targets, [4, 6, 5], [4, 2, 3], 0, True),  # the first does not fit: two labels are equal
        (np.array([[1, 2], [3, 3], [0, 1]]), [7, 7, 7], [2, 2, 2], 4, False),
    ]
    for target, frames, sizes, blank, zero in cases:
        found = []
        for m in (rl, oracle):
            a = m.tensor(x, requires_grad=True)
            lengths = m.tensor(frames), m.tensor(sizes)
            loss = m.nn.functional.ctc_loss(
                a.log_softmax(-1), m.tensor(target), *lengths, blank, reduction, zero
            )
            loss.sum().backward()
            found.append((loss.detach().numpy(), a.grad.numpy()))
        for a, b in zip(*found):
            np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.oracle
def test_ctc_of_one_sequence_is_the_oracle_s(oracle):
    x = np.random.default_rng(0).standard_normal((7, 5))
    for m in (rl, oracle):
        a = m.tensor(x).log_softmax(-1)
        loss = m.nn.CTCLoss(reduction="none")(a, m.tensor([1, 2]), m.tensor(7), m.tensor(2))
        assert tuple(loss.shape) == ()
        if m is rl:
            mine = loss.item()
    assert mine == pytest.approx(loss.item(), rel=1e-9)
