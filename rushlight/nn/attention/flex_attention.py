"""Attention whose scores and masks are functions of positions, under PyTorch's names.

`score_mod(score, batch, head, query, key)` and `mask_mod(batch, head, query, key)` are called once,
with tensors of positions that broadcast to [B, H, T, S] instead of one position at a time: the same
for functions of operators and of tensors that they index. All scores are computed; a BlockMask says
which count, and saves no work.
"""

import math

from rushlight import eager
from rushlight.eager import Tensor

BLOCK = _DEFAULT_SPARSE_BLOCK_SIZE = 128


def noop_mask(batch, head, q_idx, kv_idx):
    """Every query sees every key."""
    return batch.new_ones(1, dtype=eager.bool)  # type: ignore[attr-defined]


def identity(score, *_):
    return score


def positions(B, H, T, S, device):
    """(batch, head, query, key) as tensors that broadcast to [B, H, T, S]."""
    place = lambda n, shape: eager.arange(n, device=device).view(shape)
    return (
        place(B, (B, 1, 1, 1)), place(H, (1, H, 1, 1)), place(T, (1, 1, T, 1)),
        place(S, (1, 1, 1, S)),
    )  # fmt: skip


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device="cpu"):
    """mod_fn's answers as one tensor [B, H, Q_LEN, KV_LEN]: bools of a mask, floats of scores."""
    B, H = B or 1, H or 1
    where = positions(B, H, Q_LEN, KV_LEN, device)
    shape = (B, H, Q_LEN, KV_LEN)
    if takes_score(mod_fn):
        zeros = eager.zeros(shape, device=device)
        return mod_fn(zeros, *where).expand(shape)
    return mod_fn(*where).expand(shape)


def takes_score(function):
    import inspect

    names = inspect.signature(function).parameters.values()
    return sum(p.default is p.empty and p.kind < p.VAR_POSITIONAL for p in names) == 5


def and_masks(*mask_mods):
    """The mask that holds where all hold."""
    return joined(mask_mods, lambda a, b: a & b)


def or_masks(*mask_mods):
    """The mask that holds where some mask holds."""
    return joined(mask_mods, lambda a, b: a | b)


def joined(mods, by):
    if not all(callable(m) for m in mods):
        raise RuntimeError(f"[flex_attention] mask_mods are callable, got {mods}")

    def mask_mod(b, h, q_idx, kv_idx):
        made = None
        for m in mods:
            found = m(b, h, q_idx, kv_idx)
            made = found if made is None else by(made, found)
        return made

    return mask_mod


class BlockMask:
    """Which query sees which key: `mask_mod`, and for blocks of BLOCK_SIZE whether any pair in them
    does.
    """

    def __init__(self, mask, mask_mod, sizes, block):
        self.mask, self.mask_mod, self.BLOCK_SIZE = mask, mask_mod, block
        self.seq_lengths = sizes

    @property
    def shape(self):
        return (*self.mask.shape[:2], *self.seq_lengths)

    def to_dense(self):
        """[B, H, blocks of queries, blocks of keys] int32: 1 where a block has a pair that is seen.
        """
        (q, k), mask = self.BLOCK_SIZE, self.mask
        T, S = mask.shape[-2:]
        fill = (0, -S % k, 0, -T % q)
        whole = eager.constant_pad_nd(mask.int(), fill, 0)  # type: ignore[attr-defined]
        B, H, T, S = whole.shape
        return whole.view(B, H, T // q, q, S // k, k).amax((3, 5))

    def sparsity(self):
        """The share of blocks that nothing sees, in percent."""
        blocks = self.to_dense()
        return 100 * (1 - blocks.sum().item() / blocks.numel())

    def numel(self):
        return math.prod(self.shape)

    def to(self, device):
        return BlockMask(self.mask.to(device), self.mask_mod, self.seq_lengths, self.BLOCK_SIZE)

    def __getitem__(self, index):
        return BlockMask(
            self.mask[index].reshape(-1, *self.mask.shape[1:]) if not isinstance(index, tuple)
            else self.mask[index], self.mask_mod, self.seq_lengths, self.BLOCK_SIZE,
        )  # fmt: skip

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(
    mask_mod, B, H, Q_LEN, KV_LEN, device="cpu", BLOCK_SIZE=BLOCK, _compile=False
):
    """The BlockMask of a function of (batch, head, query, key). B, H: None where it depends on
    neither.
    """
    block = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    mask = create_mask(mask_mod, B, H, Q_LEN, KV_LEN, device)
    return BlockMask(mask, mask_mod, (Q_LEN, KV_LEN), block)


def flex_attention(
    query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False,
    return_lse=False, kernel_options=None, *, return_aux=None,
):  # fmt: skip
    """softmax(score_mod(query key^T * scale)) value, where block_mask lets a query see a key.

    query [B, Hq, T, E], key [B, Hkv, S, E], value [B, Hkv, S, V]: [B, Hq, T, V], and with
    return_lse the logarithms of the sums of exp of the scores, [B, Hq, T]. A query that sees no key
    gives zeros.
    """
    for x in (query, key, value):
        if not isinstance(x, Tensor) and not hasattr(x, "shape"):
            raise ValueError(f"expected query, key and value to be tensors, got {type(x)}")
        if len(x.shape) != 4:
            raise NotImplementedError(
                "[flex_attention] query, key and value have 4 dims (4D): batch, head, position, "
                "feature"
            )
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(
            f"[flex_attention] query, key and value have the same dtype, got {query.dtype}, "
            f"{key.dtype} and {value.dtype}"
        )
    B, H, T, E = query.shape
    S = key.shape[-2]
    if key.shape[1] != H:
        if not enable_gqa:
            raise ValueError(
                f"[flex_attention] {H} heads of queries and {key.shape[1]} of keys: the same "
                "number of heads, unless enable_gqa=True"
            )
        if H % key.shape[1]:
            raise ValueError(
                f"[flex_attention] grouped queries: {H} heads of queries are no multiple of "
                f"{key.shape[1]} heads of keys"
            )
        key = key.repeat_interleave(H // key.shape[1], 1)
        value = value.repeat_interleave(H // value.shape[1], 1)
    scale = 1.0 / math.sqrt(E) if scale is None else scale
    wide = eager.float64 if query.dtype == eager.float64 else eager.float32  # type: ignore[attr-defined]
    scores = (query @ key.transpose(-2, -1)).to(wide) * scale
    if score_mod is not None:
        scores = score_mod(scores, *positions(B, H, T, S, query.device)).to(wide)
    if block_mask is not None:
        mask = block_mask.mask
        if mask.shape[-2:] != (T, S):
            mask = mask[..., :T, :S]
        scores = scores.masked_fill(~mask, -math.inf)
    lse = scores.logsumexp(-1)
    nothing = lse == -math.inf
    weights = (scores - lse.masked_fill(nothing, 0.0).unsqueeze(-1)).exp()
    made = weights.to(query.dtype) @ value
    if return_aux is not None:
        return made, AuxOutput(lse if return_aux.lse else None)
    return (made, lse) if return_lse else made


class AuxRequest:
    """What `flex_attention` gives beside the result: lse, the logarithms of sums of exp."""

    def __init__(self, lse=False, max_scores=False):
        if max_scores:
            raise NotImplementedError("[flex_attention] max_scores is not there")
        self.lse, self.max_scores = lse, max_scores


class AuxOutput:
    """What was asked for by an AuxRequest."""

    def __init__(self, lse=None, max_scores=None):
        self.lse, self.max_scores = lse, max_scores


_mask_mod_signature = _score_mod_signature = object
