"""`rushlight.hub`: models and weights by address, under PyTorch's names.

A repository is a directory with a `hubconf.py`, whose functions are its entry points; one on GitHub
is fetched once as an archive. Downloads lie under `get_dir()`: $TORCH_HOME, or torch in
$XDG_CACHE_HOME, and there hub.
"""

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import zipfile
from urllib.parse import urlparse
from urllib.request import Request, urlopen

from rushlight.interop import checkpoint

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
           "set_dir"]  # fmt: skip

try:
    from tqdm.auto import tqdm
except ImportError:

    class tqdm:  # type: ignore[no-redef]
        """The bar of a package that is not installed: counts, and shows nothing."""

        def __init__(self, iterable=None, total=None, disable=False, **look):
            self.iterable, self.total, self.n = iterable, total, 0

        def __iter__(self):
            return iter(self.iterable)

        def update(self, n=1):
            self.n += n

        def set_description(self, text=None):
            pass

        def close(self):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            self.close()


HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")  # the beginning of the digest, in a file's name
CHUNK = 1 << 17
_directory = None


def get_dir():
    """Where downloads lie."""
    if _directory is not None:
        return _directory
    return os.path.join(_get_torch_home(), "hub")


def _get_torch_home():  # libraries ask for it under this name
    cache = os.getenv("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.getenv("TORCH_HOME", os.path.join(cache, "torch")))


def set_dir(d):
    """From now on, downloads lie in this directory."""
    global _directory
    _directory = os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Writes what is at an address to a file, all or nothing. RuntimeError where the SHA-256 of it
    does not begin with `hash_prefix`."""
    dst = os.path.expanduser(os.fspath(dst))
    digest = hashlib.sha256()
    request = Request(url, headers={"User-Agent": "torch.hub"})
    with urlopen(request) as answer, _bar(answer, progress) as bar:
        part = tempfile.NamedTemporaryFile(delete=False, dir=os.path.dirname(dst) or ".")
        try:
            with part:
                while chunk := answer.read(CHUNK):
                    part.write(chunk)
                    digest.update(chunk)
                    bar.update(len(chunk))
            found = digest.hexdigest()
            if hash_prefix and not found.startswith(hash_prefix):
                raise RuntimeError(
                    f"[hub.download_url_to_file] expected a digest that begins with "
                    f"{hash_prefix!r}, got {found!r}"
                )
            os.umask(umask := os.umask(0))  # as open() would have made it, for others to read
            os.chmod(part.name, 0o666 & ~umask)
            os.replace(part.name, dst)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(part.name)


def _bar(answer, progress):
    length = answer.headers.get("Content-Length")
    total = int(length) if length else None
    return tqdm(total=total, disable=not progress, unit="B", unit_scale=True, unit_divisor=1024)


def load_state_dict_from_url(
    url,
    model_dir=None,
    map_location=None,
    progress=True,
    check_hash=False,
    file_name=None,
    weights_only=True,
):
    """What `load` reads of a file at an address, fetched once into `model_dir` (checkpoints, under
    get_dir()). A zip that holds one checkpoint of the old format is unpacked."""
    model_dir = os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    os.makedirs(model_dir, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    file = os.path.join(model_dir, name)
    if not os.path.exists(file):
        print(f"[hub] fetching {url} into {file}", file=sys.stderr)
        known = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, file, known.group(1) if known else None, progress)
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            inside = archive.infolist()
            if len(inside) == 1 and not inside[0].filename.endswith("data.pkl"):
                file = archive.extract(inside[0], model_dir)
    return checkpoint.load(file, map_location=map_location, weights_only=weights_only)


def load(
    repo_or_dir,
    model,
    *args,
    source="github",
    trust_repo=None,
    force_reload=False,
    verbose=True,
    skip_validation=False,
    **kwargs,
):
    """What the entry point `model` of a repository returns for these arguments. `repo_or_dir`:
    "owner/name[:ref]", or a directory with source="local"."""
    with _configuration(_place(repo_or_dir, source, force_reload, verbose)) as found:
        return _entry(found, model)(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True):
    """The names of the entry points of a repository on GitHub."""
    with _configuration(_place(github, "github", force_reload, verbose)) as found:
        return [n for n in dir(found) if callable(getattr(found, n)) and not n.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None):
    """The docstring of an entry point of a repository on GitHub."""
    with _configuration(_place(github, "github", force_reload, True)) as found:
        return _entry(found, model).__doc__


def _place(repo, source, force_reload, verbose):
    """The directory of a repository; fetched where it is not there."""
    if source not in ("github", "local"):
        raise ValueError(f"[hub] source must be 'github' or 'local', got {source!r}")
    if source == "local":
        return os.path.realpath(os.path.expanduser(repo))
    whole, _, ref = repo.partition(":")
    owner, separator, name = whole.partition("/")
    if not separator or "/" in name:
        raise ValueError(f"[hub] expected 'owner/name[:ref]', got {repo!r}")
    ref = ref or "main"
    place = os.path.join(get_dir(), f"{owner}_{name}_{ref}".replace("/", "_"))
    if force_reload and os.path.isdir(place):
        shutil.rmtree(place)
    if os.path.isdir(place):
        if verbose:
            print(f"[hub] {repo} is there already: {place}", file=sys.stderr)
        return place
    os.makedirs(get_dir(), exist_ok=True)
    with tempfile.TemporaryDirectory(dir=get_dir()) as work:
        file = os.path.join(work, "archive.zip")
        download_url_to_file(f"https://github.com/{owner}/{name}/zipball/{ref}", file, None, False)
        with zipfile.ZipFile(file) as archive:
            archive.extractall(work)
            top = archive.namelist()[0].split("/")[0]
        shutil.move(os.path.join(work, top), place)
    return place


@contextlib.contextmanager
def _configuration(place):
    """The module hubconf.py of a repository, whose directory is importable meanwhile."""
    file = os.path.join(place, "hubconf.py")
    if not os.path.exists(file):
        raise FileNotFoundError(f"[hub] {file} is not there")
    sys.path.insert(0, place)
    try:
        spec = importlib.util.spec_from_file_location("hubconf", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        needed = getattr(module, "dependencies", ())
        missing = [name for name in needed if not _importable(name)]
        if missing:
            raise RuntimeError(f"[hub] missing dependencies: {', '.join(missing)}")
        yield module
    finally:
        sys.path.remove(place)


def _importable(name):
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _entry(module, name):
    found = getattr(module, name, None) if isinstance(name, str) else None
    if not callable(found):
        raise RuntimeError(f"[hub] hubconf.py has no entry point {name!r}")
    return found
