"""Eager mode on a GPU: opening the device, and kernels for calls there.

The kernel of a call is looked up under the CPU's kernel key: in a pack of precompiled ones, else it
is built on first use, with a reason. What has none runs on the host: copies of its operands go
there and its results come back, with a reason too.
"""

from rushlight.errors import CompilerBug, Unsupported
from rushlight.ops import TABLE, flash
from rushlight.ops.declare import HALVES
from rushlight.reasons import refuse
from rushlight.runtime.cuda import kernels, libraries, opening

HINT = "Prebuild the kernels for this GPU: rushlight prebuild."


def open_device(type):
    """The hook of core: called once, when a device of this type is first named."""
    if type != "cuda":
        raise RuntimeError(f"device {type!r} is not available: there is no runtime for it")
    try:
        opening.open_cuda()
    except RuntimeError as error:
        raise RuntimeError(f"device 'cuda' is not available: {reason(str(error))}") from None
    if kernels.builder is None:
        kernels.set_builder(build)


def reason(text):
    return text.removeprefix("CUDA is not available: ")


def build(key, capability):
    """(record, images) of a kernel that no pack has; None, with a reason, where it cannot be
    built.
    """
    op, kernel = kernel_of(key)
    whole = key.split(".")[0] in flash.SPELLED  # a template does it on whole operands
    if kernel is None and not whole:
        return None
    try:
        from rushlight.loops import triton_attention, triton_forms
        from rushlight.runtime import triton
    except ImportError as error:  # an installation without the compiler's parts
        refuse("eager.host_fallback", key, str(error), HINT)
        return None
    try:
        if whole:
            record, sources = triton_attention.record(key, capability)
        else:
            record, sources = triton_forms.record(kernel, key=key, cost=op.cost, origin=op.where)
        made = triton.build(record, sources, capability)
    except (Unsupported, CompilerBug, NotImplementedError) as error:
        refuse("eager.host_fallback", key, str(error).splitlines()[0], HINT)
        return None
    refuse("eager.compiled_kernel", key, f"no pack has it for sm_{capability}", HINT)
    return made


def kernel_of(key):
    """(operator, loop IR) of a kernel key; (None, None) for what is no precompiled kernel."""
    from rushlight.loops.library import kernel_of as lowered

    op = TABLE.get(key.split(".")[0])
    if op is None or op.kind not in ("scalar", "rows"):
        return None, None
    best = key.split(".")[1]
    for pattern in op.patterns if best in op.domain else ():
        for variant in op.variants:
            kernel = lowered(op, best, pattern, variant, "cuda")
            if kernel.name == key:
                return op, kernel
    return None, None


def kernel_for(key, device):
    """What a Recipe takes for a call on `device` ("cuda:0"): the GPU's kernel, or the key of the
    CPU's kernel, which core runs on the host.
    """
    found = kernels.find(key, int(device.split(":")[1]))
    if found is None and kernels.builder is None:
        refuse("eager.host_fallback", key, "no pack has a kernel for it", HINT)
    return key if found is None else found


def whole_kernel(op, a):
    """The kernel of a library call that a template does on its whole operands; None where there is
    none."""
    if op.name not in flash.SPELLED or a["query"].dtype not in HALVES:
        return None
    mode = "bias" if a["bias"] is not None else "causal" if a["is_causal"] else ""
    sizes = a["query"].shape[-1], a["value"].shape[-1]
    if max(sizes) > flash.LARGEST or (a["bias"] is not None and a["is_causal"]):
        return None
    key = flash.key_of(op.name, a["query"].dtype, *sizes, mode)
    return kernels.find(key, int(a.device.split(":")[1]))


def told_of_host(op, a):
    """Records that a library call runs on the host, where it does."""
    library = {"convolution": "cudnn", None: "cublaslt"}.get(op.routine)
    if library is None:
        refuse("eager.host_fallback", op.name, "it has no GPU routine")
    elif missing := libraries.missing(library):
        refuse("eager.host_fallback", op.name, missing)
