"""Checkpoints and other libraries' tensors and modules, in and out."""

from typing import Any

from rushlight.interop.safetensors import load_state_dict_file, save_state_dict_file


def __getattr__(name: str) -> Any:
    """`from_torch`, loaded when it is asked for."""
    if name == "from_torch":
        from rushlight.interop.torch_modules import from_torch

        return from_torch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
