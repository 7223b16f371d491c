"""A line search for the strong Wolfe conditions (Nocedal and Wright, algorithms 3.5 and 3.6).

Takes a function of the step length; returns a length at which the loss has fallen enough and the
slope is flat enough, or the best that was found.
"""

import math

SUFFICIENT, FLAT = 1e-4, 0.9  # of the first slope: c1 and c2
SHORTEST = 1e-9  # of a bracket


def cubic_minimum(a, b, least, most):
    """Where the cubic through two points (length, loss, slope) is least, within the bounds."""
    (x, f, s), (y, g, t) = sorted((a, b))
    if x == y:
        return (least + most) / 2
    d = s + t - 3 * (f - g) / (x - y)
    square = d * d - s * t
    if square < 0:
        return (least + most) / 2
    root = math.sqrt(square)
    at = y - (y - x) * ((t + root - d) / (t - s + 2 * root)) if t - s + 2 * root else math.nan
    return min(max(at, least), most) if math.isfinite(at) else (least + most) / 2


def strong_wolfe(at, length, loss, gradient, slope, most):
    """(length, loss, gradient). at(length): (loss, gradient, slope). most: evaluations."""
    start = (0.0, loss, gradient, slope)
    fell = lambda p: p[1] <= loss + SUFFICIENT * p[0] * slope
    flat = lambda p: abs(p[3]) <= -FLAT * slope
    point = lambda p: (p[0], p[1], p[3])
    before, made = start, 0
    here = (length, *at(length))
    made += 1
    while True:  # forward, until a minimum lies between two points
        if not math.isfinite(here[1]) or not fell(here) or (made > 1 and here[1] >= before[1]):
            low, high = before, here
            break
        if flat(here):
            return here[:3]
        if here[3] >= 0:
            low, high = here, before
            break
        if made >= most:
            return here[:3]
        least, furthest = here[0] + 0.01 * (here[0] - before[0]), here[0] * 10
        next_length = cubic_minimum(point(before), point(here), least, furthest)
        before, here = here, (next_length, *at(next_length))
        made += 1
    stalled = False
    while made < most:  # inwards; `low` is the best point that fell enough
        width = abs(high[0] - low[0])
        if width * max(abs(slope), 1.0) < SHORTEST:
            break
        ends = sorted((low[0], high[0]))
        if math.isfinite(high[1]):
            next_length = cubic_minimum(point(low), point(high), *ends)
        else:
            next_length = sum(ends) / 2
        edge = 0.1 * width
        near = min(ends[1] - next_length, next_length - ends[0]) < edge
        if near and (stalled or not ends[0] < next_length < ends[1]):
            low_side = abs(next_length - ends[0]) < abs(next_length - ends[1])
            next_length = ends[0] + edge if low_side else ends[1] - edge
            near = False
        stalled = near
        here = (next_length, *at(next_length))
        made += 1
        if not math.isfinite(here[1]) or not fell(here) or here[1] >= low[1]:
            high = here
            continue
        if flat(here):
            return here[:3]
        if here[3] * (high[0] - low[0]) >= 0:
            high = low
        low = here
    return low[:3]
