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


def install_compiler():
    """Groups of compiled graphs become code for the CPU, which the stand-in runs. Their programs
    are not kept for other processes; what would keep them is returned."""
    from rushlight.inductor import device_code, recall

    device_code.build_groups = built
    keep, recall.keep = recall.keep, lambda *_: None
    return keep


def built(groups, capability):
    """In the place of `device_code.build_groups`: the same loops, compiled for the CPU."""
    from rushlight.inductor import codegen, device_code, device_loops
    from rushlight.runtime import cache, native

    assert capability == 90
    codes, chosen = device_code.write_groups(groups)
    kernels, known = {}, {}  # equal groups share one
    for group, low in groups:
        if group.index not in chosen:  # Triton has no form for it: it runs as its operators
            continue
        at = chosen[group.index]
        if at in known:
            kernels[group.index] = known[at]
            continue
        k = low.kernel
        text = codegen.generate([("kernel_0", k, None)])
        library = cache.load(text, native.isa(), graph=k.name)
        LOADED.append(library)
        entry = {
            "pointer": cache.pointer(library, "kernel_0"),
            "inputs": len(low.reads),
            "outputs": len(low.results),
            "outer": len(k.outer),
            "inner": len(k.inner),
            "numbers": len(k.numbers),
            "cost": low.cost,
            "origin": low.origin,
            "serial": low.serial,
        }
        made, images = record(k.name, entry=entry)
        numbers = device_loops.numbers_of(group, low)
        if numbers is not None and numbers.known:  # what Triton's variant would ask
            real = codes[at].record["variants"][0]
            made["variants"][0]["when"] = real["when"]
        kernels[group.index] = known[at] = made, images
    return device_code.Built(codes, kernels)


LOADED = []


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
