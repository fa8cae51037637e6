"""Show the tables in docstrings as lists; an extension of Griffe, which reads the docstrings.

A table is what a person reads in a terminal: a name, two or more spaces, what it means.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ROW = re.compile(r"(?P<name>[\w.`]+(?:, [\w.`]+)*)(?: {2,}| (?=a |the ))(?P<text>\S.*)")


class TablesAsLists(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = "\n\n".join(map(_as_list, obj.docstring.value.split("\n\n")))


def _as_list(paragraph: str) -> str:
    lines = paragraph.splitlines()
    rows = [ROW.fullmatch(line) for line in lines]
    others = [line for row, line in zip(rows, lines, strict=True) if not row]
    if not rows[0] or any(line[:4].strip() for line in others):
        return paragraph
    if sum(bool(row and "  " in row[0]) for row in rows) < 2:
        return paragraph
    return "\n".join(
        f"- `{row['name']}`: {row['text']}" if row else f"  {line.strip()}"
        for row, line in zip(rows, lines, strict=True)
    )
