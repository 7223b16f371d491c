"""Where the vendor's libraries lie: in the packages' folders, then where the loader looks."""

from __future__ import annotations

import glob
import importlib.util
import os

NAMES = {
    "cublaslt": ("libcublasLt.so.13", "libcublasLt.so.12"),
    "cudnn": ("libcudnn.so.9",),
}


def folders() -> list[str]:
    """The library folders of the packages nvidia-*."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    places = list(spec.submodule_search_locations or ()) if spec else []
    return sorted(
        f for place in places for f in glob.glob(os.path.join(place, "**/lib"), recursive=True)
    )


def find(name: str) -> str | None:
    """The path of a library, what RUSHLIGHT_<NAME> says, or None: the loader's own search."""
    if given := os.environ.get(f"RUSHLIGHT_{name.upper()}"):
        return given
    found = folders()
    for file in NAMES[name]:
        for folder in found:
            path = os.path.join(folder, file)
            if os.path.exists(path):
                return path
    return None
