"""docs/security.md: each promise names its tests, and the tests exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs/security.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`(?:tests/)?([\w/]*test_\w+)(\.py)?`")
DEFINED = re.compile(r"(?m)^ *(?:async )?def (test_\w+)\(")


def promises():
    """Return the rows of the tables whose last column says what tests them."""
    is_promise = False
    for line in TEXT.splitlines():
        if not line.startswith("|"):
            is_promise = False
        elif line.endswith("| tested by |"):
            is_promise = True
        elif is_promise and not line.startswith("| ---"):
            yield line


def test_each_promise_names_a_test():
    rows = list(promises())
    assert len(rows) > 20
    assert [row for row in rows if not NAMED.search(row.split(" | ")[-1])] == []


def test_each_named_test_exists():
    files = list((ROOT / "tests").rglob("test_*.py"))
    known = {path.stem for path in files}
    for path in files:
        known.update(DEFINED.findall(path.read_text(encoding="utf-8")))
    named = {found[1].rpartition("/")[2] for found in NAMED.finditer(TEXT)}
    assert len(named) > 30
    assert named - known == set()
