"""The functional API: what the modules compute, as functions of tensors.

Each function takes PyTorch's arguments in PyTorch's order and is an operator itself or a few
operators.
"""

from rushlight.nn.functional.activation import (
    celu,
    celu_,
    elu,
    elu_,
    gelu,
    glu,
    gumbel_softmax,
    hardshrink,
    hardsigmoid,
    hardswish,
    hardtanh,
    hardtanh_,
    leaky_relu,
    leaky_relu_,
    log_softmax,
    logsigmoid,
    mish,
    prelu,
    relu,
    relu6,
    relu_,
    rrelu,
    rrelu_,
    selu,
    selu_,
    sigmoid,
    silu,
    softmax,
    softmin,
    softplus,
    softshrink,
    softsign,
    tanh,
    tanhshrink,
    threshold,
    threshold_,
)
from rushlight.nn.functional.alignment import ctc_loss
from rushlight.nn.functional.attention import scaled_dot_product_attention
from rushlight.nn.functional.channels import batch_norm, group_norm, instance_norm
from rushlight.nn.functional.classification import (
    cross_entropy,
    multi_margin_loss,
    multilabel_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
)
from rushlight.nn.functional.convolution import (
    conv1d,
    conv2d,
    conv3d,
    conv_tbc,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
)
from rushlight.nn.functional.dropping import (
    alpha_dropout,
    dropout,
    dropout1d,
    dropout2d,
    dropout3d,
    feature_alpha_dropout,
)
from rushlight.nn.functional.fractional import (
    fractional_max_pool2d,
    fractional_max_pool2d_with_indices,
    fractional_max_pool3d,
    fractional_max_pool3d_with_indices,
)
from rushlight.nn.functional.loss import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
    triplet_margin_with_distance_loss,
)
from rushlight.nn.functional.multihead import multi_head_attention_forward
from rushlight.nn.functional.normalization import (
    channel_windows,
    cosine_similarity,
    layer_norm,
    local_response_norm,
    normalize,
    pairwise_distance,
    rms_norm,
)
from rushlight.nn.functional.pooling import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices,
    adaptive_max_pool2d,
    adaptive_max_pool2d_with_indices,
    adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    lp_pool1d,
    lp_pool2d,
    lp_pool3d,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool2d_with_indices,
    max_pool3d,
    max_pool3d_with_indices,
    max_unpool1d,
    max_unpool2d,
    max_unpool3d,
)
from rushlight.nn.functional.resampling import (
    fold,
    interpolate,
    unfold,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)
from rushlight.nn.functional.shape import (
    bilinear,
    channel_shuffle,
    pad,
    pixel_shuffle,
    pixel_unshuffle,
)
from rushlight.nn.functional.shared import _reduction, kernel
from rushlight.nn.functional.tables import embedding, embedding_bag, one_hot
from rushlight.nn.functional.warping import affine_grid, grid_sample

linear = kernel("linear")


def pdist(input, p=2.0):
    """The p-norm of the difference of every pair of rows of a matrix, in order."""
    from rushlight.eager.series import pdist

    return pdist(input, p)
