"""Fourier transforms, spectra of pieces and windows, as the oracle."""

import pytest

import rushlight as rl

from .both import both_do, close, randn

TRANSFORMS = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
SEVERAL = (
    "fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2",
    "fftn", "ifftn", "rfftn", "irfftn", "hfftn", "ihfftn",
)  # fmt: skip


def pairs(x):
    """Complex numbers of the oracle as pairs of reals."""
    import torch

    return torch.view_as_real(x.resolve_conj())


def alike(ours, theirs, context=""):
    assert ours.is_complex() == theirs.is_complex(), context
    if ours.is_complex():
        ours, theirs = rl.view_as_real(ours), pairs(theirs)
    close(ours, theirs, 1e-4, 1e-4, context)


def operands(lib):
    """(real [3, 4], complex [4, 5], integers [2, 3], a transposed real one)."""
    a = [[0.5, -1.0, 2.0, 0.25], [1.5, 0.0, -2.0, 3.0], [1.0, 1.0, -0.5, 0.75]]
    x = lib.tensor(a, dtype=lib.float64)
    z = lib.complex(lib.arange(20.0).view(4, 5) % 7, lib.arange(20.0).view(4, 5) % 3)
    return x, z, lib.tensor([[1, 2, 3], [4, -5, 6]]), lib.tensor(a).t()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_one_dim(name, oracle):
    for more in ({}, {"n": 3}, {"n": 7, "dim": 0}, {"norm": "ortho"}, {"norm": "forward"},
                 {"n": 0}, {"dim": 2}, {"norm": "x"}, {"n": 1}):  # fmt: skip
        for ours, theirs in zip(operands(rl), operands(oracle)):
            call = lambda x: getattr((rl if isinstance(x, rl.Tensor) else oracle).fft, name)(
                x, **more
            )
            both_do(call, (ours,), (theirs,), alike, (name, more))


@pytest.mark.parametrize("name", SEVERAL)
def test_transforms_of_several_dims(name, oracle):
    for more in ({}, {"s": (3, 3)}, {"dim": (0,)}, {"dim": (-1, -2), "norm": "ortho"},
                 {"s": (-1, 6)}, {"s": (2,), "dim": (0, 1)}, {"dim": (0, 0)}, {"dim": ()},
                 {"s": (1, 2, 3)}, {"norm": "forward"}):  # fmt: skip
        for ours, theirs in zip(operands(rl), operands(oracle)):
            call = lambda x: getattr((rl if isinstance(x, rl.Tensor) else oracle).fft, name)(
                x, **more
            )
            both_do(call, (ours,), (theirs,), alike, (name, more))


@pytest.mark.parametrize("name", [*TRANSFORMS, "fftn", "rfftn", "irfftn", "hfftn", "ihfftn"])
def test_first_and_second_gradients(name, oracle):
    """The gradient of a norm of the spectrum, and the gradient of a norm of that."""
    found = []
    for lib in (rl, oracle):
        real, z, _, _ = operands(lib)
        made = []
        for x in (real, z.to(lib.complex128)):
            if x.is_complex() and name in ("rfft", "ihfft", "rfftn", "ihfftn"):
                continue
            x = x.clone().requires_grad_()
            y = getattr(lib.fft, name)(x)
            (g,) = lib.autograd.grad((y.abs() ** 4).sum(), x, create_graph=True)
            (h,) = lib.autograd.grad((g.abs() ** 2).sum(), x)
            made += [g.detach(), h]
        found.append(made)
    for ours, theirs in zip(*found, strict=True):
        if ours.is_complex():
            ours, theirs = rl.view_as_real(ours), pairs(theirs)
        close(ours, theirs, 1e-8, 1e-6, name)


def test_frequencies_and_shifts(oracle):
    for call in (
        lambda lib: lib.fft.fftfreq(5), lambda lib: lib.fft.fftfreq(6, 0.1, dtype=lib.float64),
        lambda lib: lib.fft.rfftfreq(7, 2.0), lambda lib: lib.fft.fftfreq(0),
        lambda lib: lib.fft.fftshift(lib.arange(12.0).view(3, 4)),
        lambda lib: lib.fft.ifftshift(lib.arange(15).view(3, 5), dim=1),
        lambda lib: lib.fft.fftshift(lib.arange(12.0).view(3, 4), (0, -1)),
    ):  # fmt: skip
        close(call(rl), call(oracle))


def test_half_types_and_complex_input_of_rfft_are_refused(oracle):
    for lib in (rl, oracle):
        with pytest.raises(RuntimeError, match="[Uu]nsupported"):
            lib.fft.fft(lib.ones(3, dtype=lib.float16))
        with pytest.raises(RuntimeError, match="real"):
            lib.fft.rfft(lib.ones(3, dtype=lib.complex64))


def test_a_meta_tensor_gives_its_layout():
    x = rl.empty(3, 8, device="meta")
    y = rl.fft.rfft(x)
    assert (tuple(y.shape), y.dtype, y.device.type) == ((3, 5), rl.complex64, "meta")


def test_without_numpy_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "numpy.fft", None)
    with pytest.raises(ImportError, match="pip install numpy"):
        rl.fft.fft(rl.ones(4))


def test_transforms_in_a_compiled_function():
    x = rl.arange(32.0).view(4, 8)
    f = rl.compile(lambda x: rl.fft.rfft(x * 2).abs().sum())
    assert f(x).item() == pytest.approx(rl.fft.rfft(x * 2).abs().sum().item())


@pytest.mark.parametrize(
    "more",
    [
        {}, {"hop_length": 5, "win_length": 12}, {"center": False}, {"normalized": True},
        {"onesided": False}, {"pad_mode": "constant"}, {"pad_mode": "replicate"},
        {"return_complex": False}, {"hop_length": 0}, {"win_length": 17}, {"pad_mode": "circular"},
        {"hop_length": 4, "window": 16}, {"win_length": 10, "window": 10}, {"window": 9},
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:A window was not provided", "ignore:.*return_complex=False")
def test_stft_and_its_inverse(more, oracle):
    pair = randn(oracle, 2, 60)
    window = more.get("window")

    def options(lib):
        given = {"return_complex": True, **more}
        return given if window is None else {**given, "window": lib.hann_window(window)}

    lib_of = lambda x: rl if isinstance(x, rl.Tensor) else oracle
    there = lambda x: lib_of(x).stft(x, 16, **options(lib_of(x)))
    both_do(there, (pair[0],), (pair[1],), alike, more)
    both_do(there, (pair[0][0],), (pair[1][0],), alike, more)

    def back(x):
        lib = lib_of(x)
        given = options(lib)
        given.pop("pad_mode", None)
        onesided = given.get("onesided")
        spectrum = there(x)
        given["return_complex"] = False
        return lib.istft(spectrum, 16, **given, **({"length": 56} if onesided is None else {}))

    both_do(back, (pair[0],), (pair[1],), alike, more)


def test_gradient_of_a_spectrogram(oracle):
    found = []
    for lib, x in zip((rl, oracle), randn(oracle, 64, dtype="float64", requires_grad=True)):
        window = lib.hann_window(16, dtype=lib.float64)
        spectra = lib.stft(x, 16, 4, window=window, return_complex=True)
        back = lib.istft(spectra, 16, 4, window=window)
        ((spectra.abs() ** 2).sum() + (back**3).sum()).backward()
        found.append(x.grad)
    close(*found, 1e-9, 1e-9)


WINDOWS = {
    "bartlett": {}, "blackman": {}, "cosine": {}, "exponential": {"tau": 2.5},
    "gaussian": {"std": 3.0}, "general_cosine": {"a": [0.46, 0.23, 0.31]},
    "general_hamming": {"alpha": 0.5}, "hamming": {},
    "hann": {}, "kaiser": {"beta": 8.0}, "nuttall": {},
}  # fmt: skip


@pytest.mark.parametrize("name", WINDOWS)
def test_windows(name, oracle):
    for m in (0, 1, 2, 9, 10):
        for more in ({}, {"sym": False}):
            call = lambda lib: getattr(lib.signal.windows, name)(m, **WINDOWS[name], **more)
            close(call(rl), call(oracle), 1e-5, 1e-6, (name, m, more))
    for lib in (rl, oracle):
        with pytest.raises(ValueError, match="non-negative"):
            getattr(lib.signal.windows, name)(-1, **WINDOWS[name])
        with pytest.raises(ValueError, match="float32 or float64|expects float"):
            getattr(lib.signal.windows, name)(4, **WINDOWS[name], dtype=lib.int64)


def test_kaiser_window_function(oracle):
    for given in ((10,), (10, False), (7, True, 3.0), (1,), (0,)):
        close(rl.kaiser_window(*given), oracle.kaiser_window(*given), 1e-5, 1e-6)
