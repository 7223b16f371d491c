"""The mean of the losses that many ranks reported, some of which had nothing to report.

    python examples/loss_aggregation.py                    on the GPU if there is one
    python examples/loss_aggregation.py --device cpu
    python examples/loss_aggregation.py --strict           the second way may not wait

The first way asks each loss whether it counts: `if` on a tensor makes Python wait until the GPU has
computed it, once for each question. The second way asks nothing: what does not count becomes zero
where it lies, and the GPU is told to add. Both give the same mean; the program prints where Python
waited, and for how long.
"""

import argparse
from collections import Counter

import rushlight as torch

EMPTY = 5  # every fifth rank had no tokens


def reports(ranks, device):
    """losses[ranks], NaN where a rank diverged, and counts[ranks] of tokens (0: it had none)."""
    torch.manual_seed(0)
    losses = torch.rand(ranks, device=device) + 1.0
    counts = torch.arange(ranks, device=device) % EMPTY * 128
    losses[3] = float("nan")
    return losses, counts


def mean_by_branching(losses, counts):
    total, tokens = 0.0, 0.0
    for loss, count in zip(losses, counts):
        if count == 0:  # the host waits
            continue
        if not torch.isfinite(loss):  # and again
            continue
        total = total + loss * count
        tokens = tokens + count
    return total / tokens


def mean_by_masking(losses, counts):
    counted = (counts > 0) & torch.isfinite(losses)
    weights = torch.where(counted, counts, 0)
    total = torch.where(counted, losses, 0.0) * weights
    return total.sum() / weights.sum()


def told(name, waits):
    lines = Counter((w.line, w.what) for w in waits)
    spent = sum(w.milliseconds for w in waits)
    print(f"{name}: Python waited {len(waits)} times, {spent:.3f} ms")
    for (line, what), count in lines.most_common():
        print(f"    {count:4} x {what:6} at {line}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--strict", action="store_true")
    given = parser.parse_args(argv)
    losses, counts = reports(given.ranks, given.device)
    torch.cuda.take_waits()

    first = mean_by_branching(losses, counts)
    told("branching in Python", torch.cuda.take_waits())

    with torch.cuda.sync_debug("error" if given.strict else "default"):
        second = mean_by_masking(losses, counts)
    told("masking on the device", torch.cuda.take_waits())

    a, b = first.item(), second.item()
    print(f"the mean: {a:.6f} and {b:.6f}")
    if abs(a - b) > 1e-5 * abs(a):
        raise SystemExit("the two ways disagree")


if __name__ == "__main__":
    main()
