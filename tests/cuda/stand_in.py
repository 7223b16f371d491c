"""What the tests of the GPU path run on without a GPU: a stand-in for the driver, and kernels of
the CPU's library in the place of the GPU's. Import it before anything names a device; the process
uses the stand-in from then on.
"""

import ctypes
import os

from rushlight import _core

driver = ctypes.CDLL(os.environ["RUSHLIGHT_CUDA_DRIVER"])
driver.fake_log.restype = ctypes.c_char_p


def calls(clear=True):
    """The driver calls since the last look, as lines; what the launch thread has still in hand is
    made first."""
    _core.cuda_launch_thread()
    return driver.fake_log(clear).decode().splitlines()


def record(key, entry=None, image=None, **changes):
    """(record, images) of a kernel that the stand-in runs by the CPU's function of that key."""
    found = entry or _core.kernel_find(key)
    if found is None:
        return None
    buffers = found["inputs"] + found["outputs"]
    axes = found["outer"] + found["inner"]
    numbers = axes * (2 + buffers) + 1
    params = [f"p{b}" for b in range(buffers)]
    params += [f"n{i}:i64" for i in range(numbers)]
    params += [f"s{j}:i64" for j in range(found["numbers"])] + ["err"]
    text = f"RLFAKE cpu {found['pointer']} {buffers} {numbers} {found['numbers']} 1"
    launch = {"cubin": 0, "entry": key, "warps": 4, "shared": 0, "params": params}
    launch = {**launch, "grid": ["n0", "1", "1"], **changes}
    same = ("outer", "inner", "inputs", "outputs", "numbers", "cost", "origin")
    made = {"key": key, **{name: found[name] for name in same}}
    made["serial"] = found["serial"] & 1 << 30
    made["variants"] = [{"when": [], "work": [], "launches": [launch]}]
    return made, [(image or text).encode() + b"\0"]


def build(key, capability):
    """A builder for rushlight.runtime.cuda.kernels."""
    return record(key)


def install():
    """The device is opened, with these kernels."""
    from rushlight.runtime.cuda import kernels

    _core.resolve_device("cuda")
    kernels.set_builder(build)


def raises(kind, text, call):
    """The message of the error that `call` raises; it must contain `text`."""
    try:
        call()
    except kind as error:
        assert text in str(error), f"{text!r} is not in {str(error)!r}"
        return str(error)
    raise AssertionError(f"no {kind.__name__} with {text!r}")


def main(space):
    """Runs every function check_* of a program."""
    checks = [f for name, f in space.items() if name.startswith("check_")]
    for check in checks:
        check()
    print(f"{len(checks)} checks passed")
