"""Softmax over many classes of very different frequency (Grave et al., 2017)."""

from collections import namedtuple

from rushlight import eager
from rushlight.nn import functional as F
from rushlight.nn.containers import ModuleList, Sequential
from rushlight.nn.linear import Linear
from rushlight.nn.module import Module

Result = namedtuple("ASMoutput", ["output", "loss"])  # type: ignore[name-match]


class AdaptiveLogSoftmaxWithLoss(Module):
    """Frequent classes, below cutoffs[0], have scores of their own (the head); those between two
    cutoffs share one score in the head and are told apart by a tail, whose inner width is that of
    the one before divided by div_value.

    forward(input (N, in_features), target (N,)): (log-probability of each target, loss, the
    negative mean), classes ordered from frequent to rare. Without N too. ValueError for cutoffs
    that do not rise strictly between 1 and n_classes - 1, RuntimeError for targets out of range.
    """

    def __init__(
        self,
        in_features,
        n_classes,
        cutoffs,
        div_value=4.0,
        head_bias=False,
        device=None,
        dtype=None,
    ):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("[AdaptiveLogSoftmaxWithLoss] cutoffs is empty")
        rising = all(a < b for a, b in zip(cutoffs, cutoffs[1:]))
        whole = all(int(c) == c for c in cutoffs)
        if not rising or not whole or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1:
            raise ValueError(
                "[AdaptiveLogSoftmaxWithLoss] cutoffs are integers from 1 to n_classes - 1, each "
                "above the one before"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        there = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **there)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            width = int(in_features // (div_value ** (i + 1)))
            inner = Linear(in_features, width, bias=False, **there)
            self.tail.append(Sequential(inner, Linear(width, high - low, bias=False, **there)))

    def reset_parameters(self):
        self.head.reset_parameters()
        for inner, outer in self.tail:
            inner.reset_parameters()
            outer.reset_parameters()

    def forward(self, input, target):
        batched = target.dim() > 0
        if target.dim() > 1:
            raise RuntimeError(
                "[AdaptiveLogSoftmaxWithLoss] the target is one class or a vector of them"
            )
        if batched and input.shape[0] != target.shape[0]:
            raise RuntimeError(
                "[AdaptiveLogSoftmaxWithLoss] input and target are batches of one size, got "
                f"{list(input.shape)} and {list(target.shape)}"
            )
        if input.dim() != target.dim() + 1:
            raise RuntimeError(
                f"[AdaptiveLogSoftmaxWithLoss] a target of {target.dim()} dims goes with an input "
                f"of {target.dim() + 1}, got {list(input.shape)}"
            )
        input = input if batched else input.unsqueeze(0)
        target = target if batched else target.unsqueeze(0)
        if bool(((target < 0) | (target >= self.n_classes)).any()):
            raise RuntimeError(
                f"[AdaptiveLogSoftmaxWithLoss] classes are 0 to {self.n_classes - 1}, the target "
                f"has {target.min().item()} to {target.max().item()}"
            )
        place, rows, found = target, [], []
        for i, low in enumerate(self.cutoffs[:-1]):
            mine = ((target >= low) & (target < self.cutoffs[i + 1])).nonzero().squeeze(1)
            if not mine.numel():
                continue
            scores = F.log_softmax(self.tail[i](input.index_select(0, mine)), 1)
            within = (target.index_select(0, mine) - low).unsqueeze(1)
            rows.append(mine)
            found.append(scores.gather(1, within).squeeze(1))
            place = place.index_fill(0, mine, self.shortlist_size + i)
        head = F.log_softmax(self.head(input), 1)
        output = head.gather(1, place.unsqueeze(1)).squeeze(1)
        if rows:
            output = output.index_add(0, eager.cat(rows), eager.cat(found))
        loss = (-output).mean()
        return Result(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input, head_output):
        """Of all classes, given the head's scores."""
        head = F.log_softmax(head_output, 1)
        parts = [head[:, : self.shortlist_size]]
        for i, tail in enumerate(self.tail):
            within = F.log_softmax(tail(input), 1)
            parts.append(within + head[:, self.shortlist_size + i].unsqueeze(1))
        return eager.cat(parts, 1)

    def log_prob(self, input):
        """(N, in_features) -> (N, n_classes): the logarithms of all probabilities."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input):
        """(N, in_features) -> (N,): the likeliest class; a tail is asked only where the head
        prefers it.
        """
        head = self.head(input)
        output = head.argmax(1)
        rare = output >= self.shortlist_size
        if not bool(rare.any()):
            return output
        rows = rare.nonzero().squeeze(1)
        full = self._get_full_log_prob(input.index_select(0, rows), head.index_select(0, rows))
        return output.index_copy(0, rows, full.argmax(1))
