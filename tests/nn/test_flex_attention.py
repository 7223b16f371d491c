"""`nn.attention`: allowed kernels, masks and scores as functions of positions."""

import pytest

import rushlight as rl
from rushlight.nn.attention import SDPBackend, bias, sdpa_kernel
from rushlight.nn.attention.flex_attention import (
    AuxRequest,
    and_masks,
    create_block_mask,
    create_mask,
    flex_attention,
    or_masks,
)
from rushlight.nn.functional import scaled_dot_product_attention


def causal(b, h, q, k):
    return q >= k


def window(b, h, q, k):
    return q - k < 3


def operands(*shape):
    rl.manual_seed(0)
    return [rl.randn(*shape) for _ in range(3)]


def near(a, b):
    assert (a - b).abs().max().item() < 1e-5


def test_without_anything_it_is_attention():
    q, k, v = operands(2, 4, 6, 8)
    near(flex_attention(q, k, v), scaled_dot_product_attention(q, k, v))
    near(flex_attention(q, k, v, scale=0.3), scaled_dot_product_attention(q, k, v, scale=0.3))


def test_masks():
    q, k, v = operands(2, 4, 6, 8)
    mask = create_block_mask(causal, None, None, 6, 6)
    want = scaled_dot_product_attention(q, k, v, is_causal=True)
    near(flex_attention(q, k, v, block_mask=mask), want)
    both = create_block_mask(and_masks(causal, window), 2, 4, 6, 6, BLOCK_SIZE=2)
    dense = create_mask(and_masks(causal, window), 1, 1, 6, 6)
    near(
        flex_attention(q, k, v, block_mask=both),
        scaled_dot_product_attention(q, k, v, attn_mask=dense),
    )
    assert both.to_dense()[0, 0].tolist() == [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    assert both.sparsity() == pytest.approx(100 * 4 / 9) and both.shape == (2, 4, 6, 6)
    assert create_mask(or_masks(causal, window), 1, 1, 6, 6).all()


def test_scores_that_index_a_tensor():
    q, k, v = operands(1, 2, 5, 4)
    slopes = rl.tensor([0.5, 2.0], requires_grad=True)
    alibi = lambda score, b, h, i, j: score - slopes[h] * (i - j).abs()
    places = rl.arange(5)
    gaps = (places.view(5, 1) - places).abs()
    want = scaled_dot_product_attention(q, k, v, -slopes.detach().view(2, 1, 1) * gaps)
    made = flex_attention(q, k, v, score_mod=alibi)
    near(made, want)
    made.sum().backward()
    assert slopes.grad.abs().sum() > 0
    near(create_mask(alibi, 1, 2, 5, 5), (-slopes.detach().view(2, 1, 1) * gaps)[None])


def test_a_query_that_sees_nothing_gives_zeros():
    q, k, v = operands(1, 1, 3, 4)
    mask = create_block_mask(lambda b, h, i, j: i > 0, None, None, 3, 3)
    out, lse = flex_attention(q, k, v, block_mask=mask, return_lse=True)
    assert out[0, 0, 0].tolist() == [0, 0, 0, 0] and lse[0, 0, 0].item() == -float("inf")
    aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True))[1]
    near(aux.lse, (q @ k.mT * 0.5).logsumexp(-1))


def test_grouped_heads_and_refusals():
    q, _, _ = operands(1, 4, 3, 8)
    k, v = (x[:, :2] for x in operands(1, 4, 3, 8)[1:])
    near(
        flex_attention(q, k, v, enable_gqa=True),
        scaled_dot_product_attention(q, k, v, enable_gqa=True),
    )
    with pytest.raises(ValueError, match="same number of heads"):
        flex_attention(q, k, v)
    with pytest.raises(NotImplementedError, match="4D"):
        flex_attention(q[0], k[0], v[0])
    with pytest.raises(ValueError, match="same dtype"):
        flex_attention(q, k.double(), v)


def test_allowed_kernels_are_answered():
    cuda = rl.backends.cuda
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.FLASH_ATTENTION]):
        assert cuda.math_sdp_enabled() and cuda.flash_sdp_enabled()
        assert not cuda.mem_efficient_sdp_enabled()
        q, k, v = operands(1, 1, 3, 4)
        scaled_dot_product_attention(q, k, v)
    assert cuda.mem_efficient_sdp_enabled()
    cuda.enable_flash_sdp(False)
    assert not cuda.flash_sdp_enabled()
    cuda.enable_flash_sdp(True)
    with pytest.raises(AssertionError, match="SDPBackend"):
        with sdpa_kernel("math"):
            pass


def test_causal_masks_of_two_lengths():
    assert bias.causal_upper_left(2, 3).tolist() == [[True, False, False], [True, True, False]]
    assert bias.causal_lower_right(2, 3).tolist() == [[True, True, False], [True, True, True]]
