"""Where the running interpreter's environment keeps oneDNN: prints CMake list lines, or nothing.

Takes nothing. Prints `include=DIR`, `library=FILE` and `license=FILE` for what the distributions
onednn-cpu-gomp and onednn-devel-cpu-gomp have installed. Their files land outside site-packages
(PREFIX/lib, PREFIX/include; under build isolation PREFIX is the overlay), so the records of the
distributions are asked, not sysconfig.
"""

from importlib.metadata import PackageNotFoundError, files
from pathlib import Path


def installed(distribution: str) -> list[Path]:
    try:
        return [Path(str(f.locate())).resolve() for f in files(distribution) or []]
    except PackageNotFoundError:
        return []


def main() -> None:
    library = installed("onednn-cpu-gomp")
    headers = installed("onednn-devel-cpu-gomp")
    for file in headers:
        if file.parts[-3:] == ("oneapi", "dnnl", "dnnl.h") and file.exists():
            print(f"include={file.parents[2]}")
            break
    for file in library:
        if file.name == "libdnnl.so.3" and file.exists():
            print(f"library={file}")
            break
    for file in library:
        if file.parent.name == "onednn" and file.name in ("LICENSE", "THIRD-PARTY-PROGRAMS"):
            print(f"license={file}")


if __name__ == "__main__":
    main()
