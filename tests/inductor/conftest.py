import pytest

from rushlight import config


@pytest.fixture(autouse=True, scope="session")
def artifacts(tmp_path_factory):
    """A cache folder of the tests' own, so that every code is built once a run."""
    with config.changed(cache_dir=str(tmp_path_factory.mktemp("artifacts"))):
        yield
