"""Which kernels of PyTorch's `scaled_dot_product_attention` a program allows: remembered and
answered. There is one way of computing it here for each device, so that none of them changes the
result; a program that allows none is refused, as PyTorch refuses it.
"""

ENABLED = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}


def functions():
    """`flash_sdp_enabled()`, `enable_flash_sdp(enabled)`, ... of `backends.cuda`."""
    made = {}
    for name in ENABLED:
        made[f"{name}_sdp_enabled"] = lambda name=name: ENABLED[name]
        made[f"enable_{name}_sdp"] = lambda on, name=name: ENABLED.update({name: bool(on)})
    return made
