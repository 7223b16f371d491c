"""Every test starts and ends with gradients on, whatever another left behind."""

import sys

import pytest

from rushlight import _core


@pytest.fixture(autouse=True)
def modes():
    before = _core.mode()
    yield
    _core.set_mode(before)
    if "torch" in sys.modules:
        sys.modules["torch"].set_grad_enabled(True)
