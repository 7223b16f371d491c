"""MultiheadAttention: queries look at keys and take a weighted mean of values, in several heads.

Takes query (T, N, width), key and value (S, N, width), or (N, T, width) with batch_first, or
without N. Returns the same shape as query, and the attention weights if asked for.
"""

from rushlight import eager
from rushlight.nn import init
from rushlight.nn.functional.multihead import attended
from rushlight.nn.linear import Linear
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that PyTorch's printed models show for the output projection."""


class MultiheadAttention(Module):
    """embed_dim: width of query and result, divided among num_heads (AssertionError if it cannot
    be).

    dropout: of attention weights while training. kdim, vdim: widths of key and value if others.
    add_bias_kv: one more key and value that are learnt (bias_k, bias_v). add_zero_attn: one more of
    zeros.
    """

    def __init__(
        self,
        embed_dim,
        num_heads,
        dropout=0.0,
        bias=True,
        add_bias_kv=False,
        add_zero_attn=False,
        kdim=None,
        vdim=None,
        batch_first=False,
        device=None,
        dtype=None,
    ):
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"[MultiheadAttention] embed_dim and num_heads are positive, got {embed_dim} and "
                f"{num_heads}"
            )
        super().__init__()
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self.num_heads = num_heads
        self.dropout = dropout
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError(
                f"[MultiheadAttention] embed_dim={embed_dim} is not divisible by "
                f"num_heads={num_heads}"
            )

        def weight(*shape):
            return Parameter(eager.empty(shape, device=device, dtype=dtype))

        joint = self.kdim == embed_dim and self.vdim == embed_dim
        apart = {"q_proj_weight": embed_dim, "k_proj_weight": self.kdim, "v_proj_weight": self.vdim}
        if joint:
            self.in_proj_weight = weight(3 * embed_dim, embed_dim)
            for name in apart:
                self.register_parameter(name, None)
        else:
            for name, width in apart.items():
                self.register_parameter(name, weight(embed_dim, width))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", weight(3 * embed_dim) if bias else None)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, weight(1, 1, embed_dim) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._qkv_same_embed_dim = joint
        self.out_proj = NonDynamicallyQuantizableLinear(
            embed_dim, embed_dim, bias=bias, device=device, dtype=dtype
        )
        self._reset_parameters()

    def _reset_parameters(self):
        for name, parameter in self._parameters.items():
            if parameter is None or name == "in_proj_bias":
                continue
            if name in ("bias_k", "bias_v"):
                init.xavier_normal_(parameter)
            else:
                init.xavier_uniform_(parameter)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """(result, weights or None).

        key_padding_mask: (N, S); attn_mask: (T, S) or (N * heads, T, S). In a bool mask True means
        "do not look"; a floating mask is added to the scores. is_causal says that attn_mask is the
        causal one. weights: (N, T, S), or (N, heads, T, S) without average_attn_weights.
        """
        if is_causal and attn_mask is None:
            raise RuntimeError(
                "[MultiheadAttention] is_causal=True is a hint about attn_mask, which is missing: "
                "Transformer.generate_square_subsequent_mask makes it"
            )
        batched = query.dim() == 3
        one = query is key and key is value
        if not batched:
            query, key, value = (x.unsqueeze(0) for x in (query, key, value))
        elif not self.batch_first:
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        apart = None
        if not self._qkv_same_embed_dim:
            apart = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
        out, weights = attended(
            query, key, value, one, self.num_heads, self.in_proj_weight, apart, self.in_proj_bias,
            self.bias_k, self.bias_v, self.add_zero_attn, self.dropout if self.training else 0.0,
            self.out_proj.weight, self.out_proj.bias, key_padding_mask, need_weights, attn_mask,
            average=average_attn_weights,
        )  # fmt: skip
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return out if self.batch_first else out.transpose(0, 1), weights
