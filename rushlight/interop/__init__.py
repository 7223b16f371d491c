"""Checkpoints and other libraries' tensors, in and out."""

from rushlight.interop.safetensors import load_state_dict_file, save_state_dict_file
