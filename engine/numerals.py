"""Numbers that strangers write."""

from __future__ import annotations

_MOST_DIGITS = 18  # Python refuses to read thousands


def whole_number(text: str) -> int | None:
    """The number that ASCII digits alone stand for; nothing for anything else."""
    is_one = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_one else None
