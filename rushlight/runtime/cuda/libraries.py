"""The vendor's libraries: where they lie (in the packages' folders, then where the loader looks),
and whether they work.
"""

from __future__ import annotations

import functools
import glob
import importlib.util
import os

from rushlight import _core

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


def places(name: str) -> tuple[str, ...]:
    """What to open, the best first. Where RUSHLIGHT_<NAME> names a library, only that."""
    if given := os.environ.get(f"RUSHLIGHT_{name.upper()}"):
        return (given,)
    found = folders()
    paths = (os.path.join(folder, file) for file in NAMES[name] for folder in found)
    return (*filter(os.path.exists, paths), *NAMES[name])


@functools.cache
def look() -> None:
    """Tells the core where they lie; it opens one when it is first needed."""
    for name in NAMES:
        _core.cuda_library_look_for(name, places(name))


def missing(name: str) -> str:
    """Why "cublaslt" or "cudnn" cannot be used, in words; empty: it can."""
    look()
    return _core.cuda_library_missing(name)
