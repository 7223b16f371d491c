"""`rushlight.cuda`: the names that scripts ask first. This version runs on the CPU only."""


def is_available():
    """Whether a CUDA device can be used: no, in this version."""
    return False


def device_count():
    return 0


def synchronize(device=None):
    raise RuntimeError("rushlight.cuda: this version runs on the CPU only")


def manual_seed_all(seed):
    """Seeds every CUDA device: there is none, so nothing happens."""


def __getattr__(name):
    if name == "amp":
        from importlib import import_module

        return import_module("rushlight.cuda.amp")
    raise AttributeError(f"module 'rushlight.cuda' has no attribute {name!r}")
