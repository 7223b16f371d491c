"""docs/operators.md says what the declarations say."""

import os
from pathlib import Path

from rushlight.ops.documentation import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def test_the_page_is_current():
    if os.environ.get("REFRESH_GOLDEN"):
        PAGE.write_text(page())
    assert PAGE.read_text() == page(), (
        "run: REFRESH_GOLDEN=1 pytest tests/ops/test_documentation.py"
    )
