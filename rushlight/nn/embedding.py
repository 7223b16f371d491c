"""Embedding and EmbeddingBag: a table of vectors looked up by integer ids.

Takes int64 or int32 ids of any shape, returns their rows: shape ids.shape + (embedding_dim,).
"""

from rushlight import eager
from rushlight.nn import functional as F
from rushlight.nn import init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter


class Embedding(Module):
    """weight: (num_embeddings, embedding_dim), starts normal(0, 1).

    padding_idx: a row that starts as zeros and gets no gradient; negative counts from the end.
    max_norm: rows are brought to that norm (norm_type) when they are looked up. scale_grad_by_freq:
    gradients are divided by how often a row was looked up. Sparse gradients are not supported
    (NotImplementedError). IndexError for an id outside the table.
    """

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        padding_idx=None,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        sparse=False,
        _weight=None,
        _freeze=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if sparse:
            raise NotImplementedError("[Embedding] sparse gradients are not supported")
        if padding_idx is not None:
            if padding_idx >= num_embeddings or padding_idx < -num_embeddings:
                raise AssertionError("[Embedding] Padding_idx must be within num_embeddings rows")
            padding_idx %= num_embeddings
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            _weight = eager.empty((num_embeddings, embedding_dim), device=device, dtype=dtype)
            self.weight = Parameter(_weight, requires_grad=not _freeze)
            self.reset_parameters()
        else:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError(
                    f"[Embedding] the weight has shape {list(_weight.shape)}, num_embeddings and "
                    f"embedding_dim say {[num_embeddings, embedding_dim]}"
                )
            self.weight = Parameter(_weight, requires_grad=not _freeze)

    def reset_parameters(self):
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with eager.no_grad():
                self.weight[self.padding_idx].fill_(0)

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, padding_idx=None, **options):
        """A layer over a given 2-D table, whose memory it shares. freeze: the table gets no
        gradient.
        """
        if embeddings.dim() != 2:
            raise AssertionError(f"[Embedding] a table has 2 dims, got {list(embeddings.shape)}")
        rows, columns = embeddings.shape
        return cls(
            rows, columns, padding_idx=padding_idx, _weight=embeddings, _freeze=freeze, **options
        )

    def forward(self, input):
        return F.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self):
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        for name, usual in (
            ("padding_idx", None),
            ("max_norm", None),
            ("norm_type", 2),
            ("scale_grad_by_freq", False),
        ):
            value = getattr(self, name)
            if value != usual:
                text += f", {name}={value}"
        return text + (", sparse=True" if self.sparse else "")


class EmbeddingBag(Module):
    """Sums, means or maxima of a table's rows, a bag of ids at a time.

    forward(input, offsets=None, per_sample_weights=None): ids (bags, ids), or 1-D with where each
    bag begins. mode: 'sum', 'mean' or 'max'. Other options as Embedding's.
    """

    def __init__(
        self,
        num_embeddings,
        embedding_dim,
        max_norm=None,
        norm_type=2.0,
        scale_grad_by_freq=False,
        mode="mean",
        sparse=False,
        _weight=None,
        include_last_offset=False,
        padding_idx=None,
        device=None,
        dtype=None,
    ):
        super().__init__()
        if sparse:
            raise NotImplementedError("[EmbeddingBag] sparse gradients are not supported")
        if padding_idx is not None:
            if padding_idx >= num_embeddings or padding_idx < -num_embeddings:
                raise AssertionError(
                    "[EmbeddingBag] padding_idx must be within num_embeddings rows"
                )
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.mode, self.sparse = scale_grad_by_freq, mode, sparse
        self.include_last_offset, self.padding_idx = include_last_offset, padding_idx
        if _weight is None:
            shape = (num_embeddings, embedding_dim)
            self.weight = Parameter(eager.empty(shape, device=device, dtype=dtype))
            self.reset_parameters()
        else:
            if list(_weight.shape) != [num_embeddings, embedding_dim]:
                raise AssertionError(
                    f"[EmbeddingBag] the weight has shape {list(_weight.shape)}, num_embeddings "
                    f"and embedding_dim say {[num_embeddings, embedding_dim]}"
                )
            self.weight = Parameter(_weight)

    reset_parameters = Embedding.reset_parameters

    @classmethod
    def from_pretrained(cls, embeddings, freeze=True, **options):
        """A layer over a given 2-D table, whose memory it shares. freeze: the table gets no
        gradient.
        """
        if embeddings.dim() != 2:
            raise ValueError(f"[EmbeddingBag] a table has 2 dims, got {list(embeddings.shape)}")
        bag = cls(*embeddings.shape, _weight=embeddings, **options)
        bag.weight.requires_grad = not freeze
        return bag

    def forward(self, input, offsets=None, per_sample_weights=None):
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self):
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += f", scale_grad_by_freq={self.scale_grad_by_freq}"
        text += f", mode={self.mode!r}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"
