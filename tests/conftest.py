"""What every test may use: the oracle (torch, if installed), and an account of its absence."""

import importlib.util
import os
from importlib.metadata import PackageNotFoundError, version

import pytest

# Two OpenMP runtimes in one process (torch brings its own): idle threads must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

# Programs that tests start import the very package under test: the installed one, not a source tree
# without native files in the folder where they start; or the tree itself, after `make dev`.
os.environ["PYTHONSAFEPATH"] = "1"
if (found := importlib.util.find_spec("rushlight")) and found.origin:
    place = os.path.dirname(os.path.dirname(found.origin))
    if os.path.basename(place) != "site-packages":
        paths = [place, *filter(None, [os.environ.get("PYTHONPATH")])]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)

REQUIRED = os.environ.get("RUSHLIGHT_REQUIRE_ORACLE", "") not in ("", "0")
NO_ORACLE = "the oracle (torch) is not installed"


def oracle_version() -> str | None:
    """torch's version without importing it, or None."""
    if importlib.util.find_spec("torch") is None:
        return None
    try:
        return version("torch")
    except PackageNotFoundError:
        return "of unknown version"


def pytest_report_header(config: pytest.Config) -> str:
    found = oracle_version()
    return f"oracle: torch {found}" if found else f"oracle: none, {NO_ORACLE}"


def pytest_sessionstart(session: pytest.Session) -> None:
    if REQUIRED and oracle_version() is None:
        pytest.exit(f"{NO_ORACLE}, and RUSHLIGHT_REQUIRE_ORACLE is set", returncode=1)


@pytest.fixture(scope="session")
def oracle():
    """The module torch; the test is skipped, and counted, where it is not installed."""
    if oracle_version() is None:
        pytest.skip(NO_ORACLE)
    import torch

    return torch


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("oracle") is not None and oracle_version() is None:
        pytest.skip(NO_ORACLE)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "oracle" in getattr(item, "fixturenames", ()):
            item.add_marker("oracle")


def pytest_terminal_summary(terminalreporter) -> None:
    """One line that says what the absence of torch cost."""
    skipped = [
        r
        for r in terminalreporter.stats.get("skipped", ())
        if isinstance(r.longrepr, tuple) and "torch" in str(r.longrepr[2])
    ]
    if skipped:
        files = sorted({r.nodeid.split("::")[0] for r in skipped})
        terminalreporter.write_line(
            f"not compared with torch, because {NO_ORACLE}: {len(skipped)} tests in "
            f"{', '.join(files)} (make test WITH_ORACLE=1 runs them)",
            yellow=True,
        )
