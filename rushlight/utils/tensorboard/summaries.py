"""Values of a summary, as messages: numbers, texts, images and histograms.

Field numbers are those of TensorBoard's `summary.proto`.
"""

import bisect
import struct
import zlib

from rushlight import eager
from rushlight.utils.tensorboard import records as r

STRING = 7  # the dtype of a tensor of texts


def number(x, what):
    """A Python number of a number, a tensor or an array of one element; AssertionError for more."""
    x = x.detach() if isinstance(x, eager.Tensor) else x
    if getattr(x, "shape", None):
        elements = 1
        for n in x.shape:
            elements *= n
        assert elements == 1, f"[tensorboard] {what} must be one number, got shape {tuple(x.shape)}"
    return float(x.item() if hasattr(x, "item") else x)


def scalar(tag, x):
    return r.blob(1, tag) + r.single(2, number(x, tag))


def plugin(name, content=b""):
    return r.blob(9, r.blob(1, r.blob(1, name) + (r.blob(2, content) if content else b"")))


def text(tag, words):
    shape = r.blob(2, r.integer(1, 1))
    tensor = r.integer(1, STRING) + r.blob(2, shape) + r.blob(8, words)
    return r.blob(1, f"{tag}/text_summary") + plugin("text") + r.blob(8, tensor)


def tensor_of(x):
    """A tensor of a tensor, an array or a list, on the CPU."""
    return eager.as_tensor(x).detach().to("cpu")


def image(tag, x, dataformats="CHW"):
    """x: an image, (C, H, W) by default, of floats in [0, 1] or of uint8; C is 1, 3 or 4."""
    pixels = pixels_of(x, dataformats)
    height, width, channels = pixels.shape
    content = png(pixels)
    message = r.integer(1, height) + r.integer(2, width) + r.integer(3, channels)
    return r.blob(1, tag) + r.blob(4, message + r.blob(4, content))


def pixels_of(x, dataformats):
    """uint8 pixels (H, W, C) of an image, or of several side by side where there is an N."""
    x, letters = tensor_of(x), dataformats.upper()
    if len(letters) != x.dim() or set(letters) - set("NCHW") or len(set(letters)) != len(letters):
        raise AssertionError(
            f"[tensorboard] dataformats {dataformats!r} does not fit shape {tuple(x.shape)}"
        )
    if x.dtype != eager.uint8:
        x = (x.float() * 255).clamp(0, 255).to(eager.uint8)
    if "C" not in letters:
        x, letters = x.unsqueeze(0), f"C{letters}"
    if "N" in letters:
        x = x.permute([letters.index(n) for n in "NCHW"])
        count = len(x)
        columns = min(8, count)
        rows = -(-count // columns)
        _, c, h, w = x.shape
        grid = eager.zeros((c, rows * h, columns * w), dtype=eager.uint8)
        for i in range(count):
            top, left = i // columns * h, i % columns * w
            grid[:, top : top + h, left : left + w] = x[i]
        x, letters = grid, "CHW"
    x = x.permute([letters.index(n) for n in "HWC"])
    return x.expand(*x.shape[:2], 3) if x.shape[2] == 1 else x


def png(pixels):
    """uint8 pixels (H, W, C) as a PNG file."""
    height, width, channels = pixels.shape
    kind = {3: 2, 4: 6}[channels]
    data = bytes(memoryview(pixels.contiguous().view(-1)))
    line = width * channels
    lines = b"".join(b"\0" + data[i : i + line] for i in range(0, len(data), line))

    def chunk(name, content):
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(lines))
        + chunk(b"IEND", b"")
    )


def limits():
    """TensorBoard's bucket limits: each 1.1 times the last, on both sides of 0."""
    made, x = [], 1e-12
    while x < 1e20:
        made.append(x)
        x *= 1.1
    return [-x for x in reversed(made)] + [0.0] + made


_LIMITS: list = []


def edges_of(x, bins):
    """The edges of the buckets: TensorBoard's own, as many of equal width as `bins` says, or those
    that are given."""
    if isinstance(bins, str):
        if not _LIMITS:
            _LIMITS.extend(limits())
        return _LIMITS
    if isinstance(bins, int):
        low, high = float(x.min()), float(x.max())
        width = (high - low or 1.0) / bins
        return [low + width * i for i in range(bins + 1)]
    return [float(b) for b in bins]


def histogram(tag, values, bins="tensorflow"):
    x = tensor_of(values).reshape(-1).double()
    if not x.numel():
        raise ValueError(f"[tensorboard] the histogram {tag!r} has no values")
    edges = edges_of(x, bins)
    counts = [0] * (len(edges) - 1)
    for v in x.tolist():  # the last bucket takes its upper edge, as numpy's histogram does
        place = bisect.bisect_right(edges, v) - 1
        if v == edges[-1]:
            place = len(counts) - 1
        if 0 <= place < len(counts):
            counts[place] += 1
    used = [i for i, n in enumerate(counts) if n]
    if not used:
        raise ValueError(f"[tensorboard] no value of the histogram {tag!r} is in its buckets")
    first, last = used[0], used[-1] + 1
    kept, upper = counts[first:last], edges[first + 1 : last + 1]
    if first == 0:  # an empty bucket shows where the first one begins
        kept, upper = [0, *kept], [edges[0], *upper]
    else:
        kept, upper = [0, *kept], [edges[first], *upper]
    message = r.double(1, float(x.min())) + r.double(2, float(x.max()))
    message += r.double(3, x.numel()) + r.double(4, float(x.sum()))
    message += r.double(5, float((x * x).sum())) + r.doubles(6, upper) + r.doubles(7, kept)
    return r.blob(1, tag) + r.blob(5, message)
