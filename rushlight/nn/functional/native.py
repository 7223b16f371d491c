"""Functions of this room that stand in `rushlight` too, under ATen's names and with its arguments:
weights before statistics, reductions as numbers (0 'none', 1 'mean', 2 'sum'; PyTorch's schemas say
1 where it is left out, its functions take 0, and so do these), flags for libraries that are not
asked.
"""

from rushlight import eager
from rushlight.eager.sampling import place
from rushlight.nn.functional import alignment, channels, dropping, loss, shape, tables, warping
from rushlight.nn.functional.activation import celu_, rrelu_, selu_, threshold_  # noqa: F401
from rushlight.nn.functional.convolution import conv_tbc  # noqa: F401
from rushlight.nn.functional.normalization import rms_norm  # noqa: F401
from rushlight.nn.functional.pooling import max_pool1d_with_indices  # noqa: F401
from rushlight.nn.functional.shape import (  # noqa: F401
    bilinear,
    channel_shuffle,
    pixel_shuffle,
    pixel_unshuffle,
)

REDUCTIONS = ("none", "mean", "sum")
INTERPOLATIONS, PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
BAGS = ("sum", "mean", "max")


def named(number, names, operator, what):
    """The name behind ATen's number."""
    if not 0 <= number < len(names):
        raise RuntimeError(f"[{operator}] {what} {number} is none of 0 to {len(names) - 1}")
    return names[number]


# ---- norms


def batch_norm(
    input, weight, bias, running_mean, running_var, training, momentum, eps, cudnn_enabled
):
    """`nn.functional.batch_norm`."""
    statistics = running_mean, running_var
    return channels.batch_norm(input, *statistics, weight, bias, training, momentum, eps)


def instance_norm(
    input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, cudnn_enabled
):
    """`nn.functional.instance_norm`."""
    statistics = running_mean, running_var
    return channels.instance_norm(input, *statistics, weight, bias, use_input_stats, momentum, eps)


def native_batch_norm(
    input, weight, bias, running_mean, running_var, training, momentum, eps, *, out=None
):
    """(batch norm, mean, 1 / sqrt(variance + eps)); the last two of the batch, and empty where it
    does not train.
    """
    statistics = running_mean, running_var
    made = channels.batch_norm(input, *statistics, weight, bias, training, momentum, eps)
    if training:
        with eager.no_grad():
            dims = [d for d in range(input.dim()) if d != 1]
            mean = input.mean(dims)
            inverse = (input.var(dims, unbiased=False) + eps).rsqrt()
    else:
        mean = inverse = input.new_empty((0,))
    found = made, mean, inverse
    return found if out is None else tuple(x.clone(out=to) for x, to in zip(found, out))


# ---- losses


def kl_div(input, target, reduction=0, *, log_target=False):
    """`nn.functional.kl_div`."""
    name = named(reduction, REDUCTIONS, "kl_div", "reduction")
    values = loss.kl_div(input, target, reduction="none", log_target=log_target)
    return loss._reduced(values, name)


def binary_cross_entropy_with_logits(input, target, weight=None, pos_weight=None, reduction=0):
    """`nn.functional.binary_cross_entropy_with_logits`."""
    name = named(reduction, REDUCTIONS, "binary_cross_entropy_with_logits", "reduction")
    function = loss.binary_cross_entropy_with_logits
    return function(input, target, weight, reduction=name, pos_weight=pos_weight)


def cosine_embedding_loss(input1, input2, target, margin=0.0, reduction=0):
    """`nn.functional.cosine_embedding_loss`."""
    name = named(reduction, REDUCTIONS, "cosine_embedding_loss", "reduction")
    return loss.cosine_embedding_loss(input1, input2, target, margin, reduction=name)


def hinge_embedding_loss(input, target, margin=1.0, reduction=0):
    """`nn.functional.hinge_embedding_loss`."""
    name = named(reduction, REDUCTIONS, "hinge_embedding_loss", "reduction")
    return loss.hinge_embedding_loss(input, target, margin, reduction=name)


def margin_ranking_loss(input1, input2, target, margin=0.0, reduction=0):
    """`nn.functional.margin_ranking_loss`."""
    name = named(reduction, REDUCTIONS, "margin_ranking_loss", "reduction")
    return loss.margin_ranking_loss(input1, input2, target, margin, reduction=name)


def poisson_nll_loss(input, target, log_input, full, eps, reduction):
    """`nn.functional.poisson_nll_loss`."""
    name = named(reduction, REDUCTIONS, "poisson_nll_loss", "reduction")
    return loss.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=name)


def triplet_margin_loss(
    anchor, positive, negative, margin=1.0, p=2.0, eps=1e-6, swap=False, reduction=0
):
    """`nn.functional.triplet_margin_loss`."""
    name = named(reduction, REDUCTIONS, "triplet_margin_loss", "reduction")
    options = margin, p, eps, swap
    return loss.triplet_margin_loss(anchor, positive, negative, *options, reduction=name)


def ctc_loss(
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    blank=0,
    reduction=0,
    zero_infinity=False,
):
    """`nn.functional.ctc_loss`."""
    name = named(reduction, REDUCTIONS, "ctc_loss", "reduction")
    lengths = input_lengths, target_lengths
    return alignment.ctc_loss(log_probs, targets, *lengths, blank, name, zero_infinity)


# ---- tables, images, dropout


def embedding_bag(
    weight,
    indices,
    offsets,
    scale_grad_by_freq=False,
    mode=0,
    sparse=False,
    per_sample_weights=None,
    include_last_offset=False,
    padding_idx=None,
):
    """(bags, the bag of each id, the ids a bag, the largest ids): `nn.functional.embedding_bag`
    with what its backward would need, which nobody needs here: the last three are empty.
    """
    name = named(mode, BAGS, "embedding_bag", "mode")
    bags = tables.embedding_bag(
        indices, weight, offsets, None, 2, scale_grad_by_freq, name, sparse, per_sample_weights,
        include_last_offset, padding_idx,
    )  # fmt: skip
    nothing = eager.zeros(0, dtype=eager.int64, device=place(indices))  # type: ignore[attr-defined]
    return bags, nothing, nothing, nothing


def embedding_renorm_(weight, indices, max_norm, norm_type):
    """Rows that are looked up and longer than max_norm are shortened to it, in place."""
    tables._renormalise(weight, indices, max_norm, norm_type)
    return weight


def native_channel_shuffle(input, groups):
    """`nn.functional.channel_shuffle`."""
    return shape.channel_shuffle(input, groups)


def grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners):
    """`nn.functional.grid_sample`, images or volumes."""
    mode = named(interpolation_mode, INTERPOLATIONS, "grid_sampler", "interpolation_mode")
    padding = named(padding_mode, PADDINGS, "grid_sampler", "padding_mode")
    return warping.grid_sample(input, grid, mode, padding, align_corners)


def grid_sampler_2d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sampler of images (N, C, H, W)."""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 4)


def grid_sampler_3d(input, grid, interpolation_mode, padding_mode, align_corners):
    """grid_sampler of volumes (N, C, D, H, W)."""
    return _sampled(input, grid, interpolation_mode, padding_mode, align_corners, 5)


def _sampled(input, grid, interpolation_mode, padding_mode, align_corners, dims):
    if input.dim() != dims:
        raise RuntimeError(
            f"[grid_sampler_{dims - 2}d] expected {dims}D input, got {list(input.shape)}"
        )
    return grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def affine_grid_generator(theta, size, align_corners):
    """`nn.functional.affine_grid`."""
    return warping.affine_grid(theta, size, align_corners)


def native_dropout(input, p, train=True):
    """(dropout, which elements were kept): zeros with probability p, the others scaled by
    1 / (1 - p). train None or True: it drops.
    """
    if train is False:
        return input.clone(), eager.ones_like(input, dtype=eager.bool)  # type: ignore[attr-defined]
    kept = dropping.dropout(eager.ones_like(input), p, True) != 0
    scale = 0.0 if p == 1 else 1.0 / (1.0 - p)
    return input * kept * scale, kept
