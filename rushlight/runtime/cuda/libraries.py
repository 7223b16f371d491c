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
CUPTI = ("libcupti.so.13", "libcupti.so.12")
TOOLKIT = "/usr/local/cuda"


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
    found, names = folders(), NAMES.get(name, CUPTI)
    if name == "cupti":
        if _core.cuda_driver_version() < 13000:  # it speaks with drivers of its own version on
            names = names[::-1]
        for home in dict.fromkeys((os.environ.get("CUDA_HOME") or TOOLKIT, TOOLKIT)):
            found += [os.path.join(home, "extras/CUPTI/lib64"), os.path.join(home, "lib64")]
    paths = (os.path.join(folder, file) for file in names for folder in found)
    return (*filter(os.path.exists, paths), *names)


@functools.cache
def look() -> None:
    """Tells the core where they lie; it opens one when it is first needed."""
    for name in NAMES:
        _core.cuda_library_look_for(name, places(name))


@functools.cache
def look_for_cupti() -> None:
    """The same of CUPTI, which only profiles need. RuntimeError where there is no driver."""
    _core.cuda_library_look_for("cupti", places("cupti"))


def missing(name: str) -> str:
    """Why "cublaslt", "cudnn" or "cupti" cannot be used, in words; empty: it can."""
    try:
        look_for_cupti() if name == "cupti" else look()
    except RuntimeError as error:
        return str(error)
    return _core.cuda_library_missing(name)
