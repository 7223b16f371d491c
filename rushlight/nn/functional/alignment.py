"""Connectionist temporal classification: the likelihood of a sequence over all its alignments."""

from rushlight import eager
from rushlight.eager.casting import casts
from rushlight.nn.functional.shared import _reduced, _reduction, floats

NEVER = -1e30  # the logarithm of a probability of 0, which can be added to


def _row(length):
    """The length of a single sequence, in any form, as lengths of a batch of one."""
    if isinstance(length, eager.Tensor):
        return length.reshape(1)
    return [length] if isinstance(length, int) else length


def _lengths(values, name, count, most):
    lengths = values.tolist() if isinstance(values, eager.Tensor) else list(values)
    if len(lengths) != count:
        raise RuntimeError(
            f"[ctc_loss] {name} must be of size batch_size, {count}, got {len(lengths)}"
        )
    if most is not None and max(lengths, default=0) > most:
        raise RuntimeError(
            f"[ctc_loss] Expected {name} to have value at most {most}, but got value {max(lengths)}"
        )
    return [int(n) for n in lengths]


@casts("float32")
def ctc_loss(
    log_probs,
    targets,
    input_lengths,
    target_lengths,
    blank=0,
    reduction="mean",
    zero_infinity=False,
):
    """The negative logarithm of the probability of targets, summed over their alignments.

    log_probs (T, N, C), or (T, C) of one sequence: logarithms of probabilities. targets (N, S), or
    all of them in one row. input_lengths, target_lengths: N numbers, as tensors or lists. 'mean'
    divides each loss by its target's length first. zero_infinity: losses of targets that do not
    fit are 0, with their gradients.
    """
    reduction = _reduction(reduction)
    single = floats("ctc_loss", log_probs).dim() == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.reshape(1, -1)
        input_lengths, target_lengths = _row(input_lengths), _row(target_lengths)
    steps, count, classes = log_probs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"[ctc_loss] blank must be in label range, got {blank} of {classes}")
    frames = _lengths(input_lengths, "input_lengths", count, steps)
    sizes = _lengths(
        target_lengths, "target_lengths", count, None if targets.dim() == 1 else targets.shape[1]
    )
    longest = max(sizes, default=0)
    rows, at = [], 0
    numbers = targets.tolist()
    for i, size in enumerate(sizes):
        row = numbers[at : at + size] if targets.dim() == 1 else numbers[i][:size]
        at += size
        rows.append(row + [blank] * (longest - size))
    # blanks around every label: 2 S + 1 states
    labels = [[blank] + [x for label in row for x in (label, blank)] for row in rows]
    skips = [
        [i > 1 and i % 2 == 1 and row[i] != row[i - 2] for i in range(len(row))] for row in labels
    ]
    device, states = log_probs.device, 2 * longest + 1
    known = {"device": device}
    label = eager.tensor(labels, dtype=eager.int64, **known).reshape(count, states)
    skip = eager.tensor(skips, dtype=eager.bool, **known).reshape(count, states)
    frame = eager.tensor(frames, dtype=eager.int64, **known)
    last = eager.tensor([2 * n for n in sizes], dtype=eager.int64, **known).unsqueeze(1)
    place = eager.arange(states, **known)
    seen = log_probs.clamp(min=NEVER).gather(2, label.expand(steps, count, states))
    never = eager.full((count, 2), NEVER, dtype=log_probs.dtype, **known)
    alpha = eager.where(place < 2, seen[0], NEVER) if steps else seen.sum(0) * 0 + NEVER
    for t in range(1, steps):
        padded = eager.cat([never, alpha], 1)
        before, skipped = padded[:, 1:-1], eager.where(skip, padded[:, :-2], NEVER)
        moved = eager.logsumexp(eager.stack([alpha, before, skipped]), 0) + seen[t]
        alpha = eager.where((frame > t).unsqueeze(1), moved, alpha)
    ends = eager.where((place == last) | (place == last - 1), alpha, NEVER)
    loss = -eager.logsumexp(ends, 1)
    # PyTorch's gradient is that by what a log_softmax takes: probabilities less their shares. The
    # first part is added here, with no value of its own.
    used = eager.arange(steps, **known).unsqueeze(1) < frame
    own = eager.where(used.unsqueeze(2), log_probs.exp(), 0)
    loss = loss + (own - own.detach()).sum((0, 2))
    lost = loss.detach() > -NEVER / 2
    loss = eager.where(lost, 0.0 if zero_infinity else float("inf"), loss)
    if reduction == "mean":
        loss = (loss / eager.tensor(sizes, dtype=loss.dtype, **known).clamp(min=1)).mean()
        return loss
    loss = _reduced(loss, reduction)
    return loss.squeeze(0) if single and reduction == "none" else loss
