"""Spectra of pieces of signals: the short-time Fourier transform and its inverse."""

from rushlight import _core
from rushlight.ops import TABLE

from . import factories, transforms

Tensor = _core.Tensor


def op(name):
    return TABLE[name].native


def padded(x, by, mode):
    """The last dim with `by` elements more on both sides."""
    if mode == "constant":
        return op("constant_pad_nd")(x, (by, by), 0.0)
    n = x.shape[-1]
    if mode == "reflect" and by >= n:
        raise RuntimeError(
            f"[stft] reflecting {by} values at both ends of dim {x.dim() - 1} needs more than that "
            f"many, got shape {list(x.shape)}"
        )
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"[stft] Unrecognised padding mode {mode}")
    places = factories.arange(-by, n + by, device=x.device)
    if mode == "reflect":
        places = (n - 1) - ((n - 1) - places.abs()).abs()
    elif mode == "replicate":
        places = places.clamp(0, n - 1)
    else:
        places = places % n
    return op("index_select")(x, x.dim() - 1, places)


def window_of(name, window, n_fft, win_length, like):
    """The window, ones where none is given, in the middle of n_fft places; None for all ones."""
    if window is not None and (window.dim() != 1 or window.shape[0] != win_length):
        raise RuntimeError(
            f"[{name}] the window is a vector of win_length={win_length} values, got shape "
            f"{list(window.shape)}"
        )
    if window is None:
        if win_length == n_fft:
            return None
        real = transforms.real_of(like.dtype)
        window = factories.ones(win_length, dtype=real, device=like.device)
    left = (n_fft - win_length) // 2
    if left or win_length < n_fft:
        window = op("constant_pad_nd")(window, (left, n_fft - win_length - left), 0.0)
    return window


def lengths(name, n_fft, hop_length, win_length):
    hop = n_fft // 4 if hop_length is None else hop_length
    win = n_fft if win_length is None else win_length
    if hop <= 0:
        raise RuntimeError(f"[{name}] hop_length is positive, got {hop}")
    if not 0 < win <= n_fft:
        raise RuntimeError(
            f"[{name}] win_length lies between 1 and n_fft={n_fft}, got {win}"
        )
    return hop, win


def stft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect",
    normalized=False, onesided=None, return_complex=None, align_to_window=None,
):  # fmt: skip
    """Spectra of overlapping pieces of signals [*, time]: [*, frequency, piece], complex, or with a
    last dim of 2 where `return_complex` is False.

    Pieces of n_fft elements begin hop_length (n_fft // 4) apart; each is multiplied by the window
    (ones). center: piece t is centred at t * hop_length, with the signal padded by `pad_mode`.
    """
    x = input
    if not (x.is_floating_point() or x.dtype.is_complex):
        raise RuntimeError(f"[stft] expected floating point or complex values, got {x.dtype}")
    if x.dtype.name in ("float16", "bfloat16"):
        raise RuntimeError(f"[stft] Unsupported dtype {x.dtype.name}")
    if not 1 <= x.dim() <= 2:
        raise RuntimeError(
            f"[stft] takes a signal or a batch of them (1 or 2 dims), got {list(x.shape)}"
        )
    if center and align_to_window:
        raise RuntimeError("[stft] align_to_window goes with center=False")
    is_complex = x.dtype.is_complex or window is not None and window.dtype.is_complex
    if return_complex is None and not is_complex:
        raise RuntimeError(
            "[stft] for a real signal say return_complex=True (or False, the older form)"
        )
    alone = x.dim() == 1
    x = x.unsqueeze(0) if alone else x
    if center:
        x = padded(x, n_fft // 2, pad_mode)
    n = x.shape[-1]
    if not 0 < n_fft <= n:
        raise RuntimeError(f"[stft] n_fft lies between 1 and {n - 1}, got {n_fft}")
    hop, win = lengths("stft", n_fft, hop_length, win_length)
    onesided = not is_complex if onesided is None else onesided
    if onesided and is_complex:
        raise RuntimeError(
            "[stft] with a complex signal or window both sides differ: onesided=False"
        )
    weights = window_of("stft", window, n_fft, win, x)
    if align_to_window:
        left = (n_fft - win) // 2
        x = op("constant_pad_nd")(x, (left, n_fft - win - left), 0.0)
    pieces = op("unfold")(x, -1, n_fft, hop)  # [batch, piece, n_fft]
    pieces = pieces if weights is None else pieces * weights
    last = pieces.dim() - 1
    made = transforms.half(pieces, last) if onesided else transforms.whole(pieces, (last,), True)
    made = made * n_fft**-0.5 if normalized else made
    made = op("transpose")(made, -1, -2)
    made = made.squeeze(0) if alone else made
    return op("view_as_real")(made) if return_complex is False else made


def istft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False,
    onesided=None, length=None, return_complex=False,
):  # fmt: skip
    """The signal [*, time] of spectra [*, frequency, piece] that `stft` made: overlapping pieces
    are weighted by the window, added, and divided by the sum of its squares.
    """
    x = input
    if not x.dtype.is_complex:
        raise RuntimeError(
            "[istft] takes what stft gives with return_complex=True: a complex tensor"
        )
    if not x.numel():
        raise RuntimeError(f"[istft] input tensor cannot be empty, got {list(x.shape)}")
    if not 2 <= x.dim() <= 3:
        raise RuntimeError(f"[istft] expected a tensor of 2 or 3 dims, got {list(x.shape)}")
    hop, win = lengths("istft", n_fft, hop_length, win_length)
    onesided = x.shape[-2] != n_fft if onesided is None else onesided
    bins = n_fft // 2 + 1 if onesided else n_fft
    if x.shape[-2] != bins:
        raise RuntimeError(
            f"[istft] dim -2 holds {'n_fft / 2 + 1' if onesided else 'n_fft'} frequencies when "
            f"onesided={'True' if onesided else 'False'}, got {x.shape[-2]}"
        )
    if return_complex and onesided:
        raise RuntimeError("[istft] cannot have onesided input if complex output is requested")
    alone = x.dim() == 2
    x = op("transpose")(x.unsqueeze(0) if alone else x, -1, -2)  # [batch, piece, frequency]
    pieces = (
        transforms.back(x, 2, n_fft) if onesided else transforms.whole(x, (2,), False)
    )
    if not onesided and not return_complex:
        pieces = op("select")(op("view_as_real")(pieces), -1, 0)
    pieces = pieces * (n_fft**-0.5 if normalized else 1.0 / n_fft)
    weights = window_of("istft", window, n_fft, win, x)
    if weights is None:
        weights = factories.ones(n_fft, dtype=transforms.real_of(x.dtype), device=x.device)
    count = x.shape[1]
    total = n_fft + hop * (count - 1)
    starts = factories.arange(count, device=x.device).unsqueeze(1) * hop
    places = (starts + factories.arange(n_fft, device=x.device)).reshape(-1)
    signal = laid_over(pieces * weights, places, total)
    envelope = laid_over((weights * weights).expand(1, count, n_fft), places, total)
    start = n_fft // 2 if center else 0
    end = total - start if center and length is None else total
    end = start + length if length is not None else end
    signal, envelope = signal[..., start:end], envelope[..., start:end]
    if bool((envelope.abs() < 1e-11).any()) or not envelope.numel():
        raise RuntimeError(
            "[istft] window overlap add min: 1, where the sum of the windows' squares is 0"
        )
    signal = signal / envelope
    missing = 0 if length is None else length - signal.shape[-1]
    if missing > 0:
        signal = op("constant_pad_nd")(signal, (0, missing), 0.0)
    return signal.squeeze(0) if alone else signal


def laid_over(pieces, places, total):
    """Pieces [batch, piece, n] added at their places in [batch, total]."""
    batch = pieces.shape[0]
    zeros = factories.zeros(batch, total, dtype=pieces.dtype, device=pieces.device)
    return op("index_add")(zeros, 1, places, pieces.reshape(batch, -1))


__all__ = ["istft", "stft"]
