"""Which vocabulary a node speaks: an operator's definition decides, and ATen's list of core
operators.

primitive   a bottom form: its definition is itself (exp, add, a fold), or it has none (views,
library calls, assemblies) core        in the Core ATen opset, and defined by others (gelu,
native_layer_norm) other       everything else: compositions, backwards, operators of our own
"""

from __future__ import annotations

from rushlight.fx.graph import Graph, Node
from rushlight.ops.declare import Arguments
from rushlight.ops.recording import Recorder, Symbol
from rushlight.ops.values import Value

PRIMITIVE, CORE, OTHER = "primitive", "core", "other"
CORE_ATEN = frozenset(
    """
    _adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _cdist_forward
    _embedding_bag _fft_r2c _local_scalar_dense _log_softmax _native_batch_norm_legit
    _native_batch_norm_legit_no_training _pdist_forward _softmax _to_copy abs acos acosh
    adaptive_avg_pool1d add addmm alias amax amin any arange argmax argmin as_strided asin asinh
    atan atan2 atanh avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d bitwise_and bitwise_not
    bitwise_or bitwise_xor bmm cat ceil clamp clone col2im constant_pad_nd convolution
    convolution_backward copy cos cosh cumsum diagonal div elu embedding embedding_dense_backward
    empty empty_strided eq erf exp expand expm1 fill flip floor fmod full full_like gather ge gelu
    grid_sampler_2d gt hardtanh index index_put index_select isinf isnan le leaky_relu log log10
    log1p log2 logical_and logical_not logical_or logical_xor lt masked_scatter max
    max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices maximum mean
    min minimum mm mul native_dropout native_group_norm native_group_norm_backward
    native_layer_norm native_layer_norm_backward ne neg nonzero permute pow prod rand randn
    randperm reciprocal reflection_pad1d reflection_pad2d reflection_pad3d relu remainder repeat
    replication_pad2d replication_pad3d resize_ round rsqrt scalar_tensor scatter scatter_add
    scatter_reduce select select_scatter sigmoid sign sin sinh slice slice_scatter sort
    split_with_sizes sqrt squeeze sub sum sym_numel sym_size sym_storage_offset sym_stride tan
    tanh topk trunc unsqueeze upsample_bilinear2d upsample_nearest2d var view where
    """.split()
)


def vocabulary(node: Node) -> str:
    """`primitive`, `core` or `other`."""
    if is_primitive(node):
        return PRIMITIVE
    return CORE if node.op.schema.base in CORE_ATEN else OTHER


def is_primitive(node: Node) -> bool:
    """Whether the node's own definition, followed to the bottom, is the node itself."""
    op = node.op
    if op.kind in ("view", "library", "assemble"):
        return True
    if op.kind == "composition":
        return False
    if op.bottom or op.layout.loops_only:
        return op.bottom
    recorder = Recorder(expand=lambda inner, a: inner is not op)
    fresh = node.call.map(lambda _, v: Symbol(v.layout, recorder) if isinstance(v, Value) else v)
    with recorder:
        op.define(Arguments(op, fresh.values))
    return any(call.op is op for call in recorder.calls)


def histogram(graph: Graph) -> dict[str, int]:
    """How many calls of a graph speak each vocabulary."""
    found = {PRIMITIVE: 0, CORE: 0, OTHER: 0}
    for node in graph.calls:
        found[vocabulary(node)] += 1
    return found
