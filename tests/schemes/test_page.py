"""The page on adding a scheme: its example keeps the contract."""

from __future__ import annotations

import re
from pathlib import Path

from invgnn.testing import check_scheme

PAGE = Path(__file__).parents[2] / "docs" / "how-to/add-a-scheme.md"


def test_the_example_is_a_decent_scheme():
    space = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, "add-a-scheme.md", "exec", dont_inherit=True), space)  # noqa: S102 - the page's own code
    check_scheme(space["Rings"](), epochs=20)
