"""How a file's name is written inside a one-line message."""

from __future__ import annotations

from pathlib import Path

_LONGEST = 200


def shown(name: str | Path) -> str:
    """Return `name` printable anywhere: controls and stray bytes escaped, the middle cut out."""
    printable = "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in str(name)
    )
    if len(printable) <= _LONGEST:
        return printable
    half = _LONGEST // 2
    return f"{printable[:half]}…{printable[-half:]}"
