"""The Transformer (Vaswani et al., 2017): layers, stacks of layers, and both stacks together.

They take (length, batch, width), or (batch, length, width) with batch_first, or (length, width).
Masks are MultiheadAttention's: bool (True: do not look) or added to the scores; padding masks are
(batch, length).
"""

import copy

from rushlight import eager
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.attention import MultiheadAttention
from rushlight.nn.containers import ModuleList
from rushlight.nn.dropout import Dropout
from rushlight.nn.linear import Linear
from rushlight.nn.module import Module
from rushlight.nn.normalization import LayerNorm


def generate_square_subsequent_mask(sz, device=None, dtype=None):
    """(sz, sz): 0 on and below the diagonal, -inf above it."""
    rows = eager.arange(sz, device=device)
    above = rows.unsqueeze(0) > rows.unsqueeze(1)
    return eager.zeros((sz, sz), dtype=dtype, device=device).masked_fill(above, float("-inf"))


def _activation(given):
    if given == "relu":
        return F.relu
    if given == "gelu":
        return F.gelu
    if isinstance(given, str):
        raise RuntimeError(f"[Transformer] activation is relu or gelu, got {given}")
    return given


def _copies(layer, count):
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


def _causal(mask, is_causal, length):
    """Whether a mask is the causal one: as told, or by looking."""
    if is_causal is not None or mask is None:
        return bool(is_causal)
    if tuple(mask.shape[-2:]) != (length, length) or mask.dim() != 2:
        return False
    own = generate_square_subsequent_mask(length)
    blocked = mask if mask.dtype == eager.bool else mask == float("-inf")  # type: ignore[attr-defined]
    same = blocked == (own == float("-inf"))
    if mask.is_floating_point():
        same = same & (blocked | (mask == 0))
    return bool(same.to(eager.int64).amin().item()) if length else False  # type: ignore[attr-defined]


class _Layer(Module):
    """What both kinds of layers share: the feed-forward block and attention as a block."""

    def _feed_forward(self, x):
        return self.linear2(self.dropout(self.activation(self.linear1(x))))

    @staticmethod
    def _attend(attention, x, memory, mask, padding, is_causal):
        return attention(
            x,
            memory,
            memory,
            attn_mask=mask,
            key_padding_mask=padding,
            is_causal=is_causal,
            need_weights=False,
        )[0]

    def __setstate__(self, state):
        super().__setstate__(state)
        if not hasattr(self, "activation"):
            self.activation = F.relu


class TransformerEncoderLayer(_Layer):
    """Self-attention and two linear layers of width dim_feedforward, each with a residual path.

    activation: 'relu', 'gelu' or a function. norm_first: LayerNorm before each block, else after.
    """

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **made
        )
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
        self.dropout1 = Dropout(dropout)
        self.dropout2 = Dropout(dropout)
        self.activation = _activation(activation)

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        def attend(x):
            y = self._attend(self.self_attn, x, x, src_mask, src_key_padding_mask, is_causal)
            return self.dropout1(y)

        def think(x):
            return self.dropout2(self._feed_forward(x))

        x = src
        if self.norm_first:
            x = x + attend(self.norm1(x))
            return x + think(self.norm2(x))
        x = self.norm1(x + attend(x))
        return self.norm2(x + think(x))


class TransformerDecoderLayer(_Layer):
    """An encoder layer that also looks at ``memory``, an encoder's result."""

    def __init__(
        self,
        d_model,
        nhead,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        for name in ("self_attn", "multihead_attn"):
            attention = MultiheadAttention(
                d_model, nhead, dropout=dropout, batch_first=batch_first, bias=bias, **made
            )
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **made)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **made)
        self.norm_first = norm_first
        for name in ("norm1", "norm2", "norm3"):
            setattr(self, name, LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made))
        for name in ("dropout1", "dropout2", "dropout3"):
            setattr(self, name, Dropout(dropout))
        self.activation = _activation(activation)

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=False,
        memory_is_causal=False,
    ):
        def attend(x):
            y = self._attend(self.self_attn, x, x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)
            return self.dropout1(y)

        def remember(x):
            y = self._attend(
                self.multihead_attn,
                x,
                memory,
                memory_mask,
                memory_key_padding_mask,
                memory_is_causal,
            )
            return self.dropout2(y)

        def think(x):
            return self.dropout3(self._feed_forward(x))

        x = tgt
        if self.norm_first:
            x = x + attend(self.norm1(x))
            x = x + remember(self.norm2(x))
            return x + think(self.norm3(x))
        x = self.norm1(x + attend(x))
        x = self.norm2(x + remember(x))
        return self.norm3(x + think(x))


def _length(x, batch_first):
    """The length of sequences: (length, width), (length, batch, width) or batch first."""
    return x.shape[1 if x.dim() == 3 and batch_first else 0]


class TransformerEncoder(Module):
    """num_layers copies of a layer, and a norm of the result if given.

    enable_nested_tensor and mask_check are accepted: they choose among PyTorch's implementations.
    """

    def __init__(
        self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True
    ):
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        is_causal = _causal(mask, is_causal, _length(src, first))
        for layer in self.layers:
            src = layer(
                src,
                src_mask=mask,
                is_causal=is_causal,
                src_key_padding_mask=src_key_padding_mask,
            )
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """num_layers copies of a layer, and a norm of the result if given."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt,
        memory,
        tgt_mask=None,
        memory_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        first = self.layers[0].self_attn.batch_first if len(self.layers) else False
        tgt_is_causal = _causal(tgt_mask, tgt_is_causal, _length(tgt, first))
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=tgt_is_causal,
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """An encoder of ``src`` and a decoder of ``tgt`` that looks at its result.

    custom_encoder, custom_decoder: modules to take their places. Weights of more than one dim start
    Xavier-uniform.
    """

    def __init__(
        self,
        d_model=512,
        nhead=8,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=2048,
        dropout=0.1,
        activation=F.relu,
        custom_encoder=None,
        custom_decoder=None,
        layer_norm_eps=1e-5,
        batch_first=False,
        norm_first=False,
        bias=True,
        device=None,
        dtype=None,
    ):
        super().__init__()
        made = {"device": device, "dtype": dtype}
        layer = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first)
        for name, custom, kind, stack, count in (
            (
                "encoder",
                custom_encoder,
                TransformerEncoderLayer,
                TransformerEncoder,
                num_encoder_layers,
            ),
            (
                "decoder",
                custom_decoder,
                TransformerDecoderLayer,
                TransformerDecoder,
                num_decoder_layers,
            ),
        ):
            if custom is None:
                norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **made)
                custom = stack(kind(*layer, norm_first, bias, **made), count, norm)
            setattr(self, name, custom)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self):
        for parameter in self.parameters():
            if parameter.dim() > 1:
                init.xavier_uniform_(parameter)

    generate_square_subsequent_mask = staticmethod(generate_square_subsequent_mask)

    def forward(
        self,
        src,
        tgt,
        src_mask=None,
        tgt_mask=None,
        memory_mask=None,
        src_key_padding_mask=None,
        tgt_key_padding_mask=None,
        memory_key_padding_mask=None,
        src_is_causal=None,
        tgt_is_causal=None,
        memory_is_causal=False,
    ):
        if src.dim() == 3:
            batch = 0 if self.batch_first else 1
            if src.shape[batch] != tgt.shape[batch]:
                raise RuntimeError("[Transformer] src and tgt are batches of one size")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("[Transformer] src and tgt have d_model features")
        memory = self.encoder(
            src,
            mask=src_mask,
            src_key_padding_mask=src_key_padding_mask,
            is_causal=src_is_causal,
        )
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )
