"""Text tables: columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Cell = str | int | float


def align(
    rows: Sequence[Sequence[Cell]], *, headings: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield the rows as lines, with numbers and their headings right-aligned."""
    texts = [[_text(cell) for cell in row] for row in rows]
    if headings is not None:
        texts.insert(0, list(headings))
        rows = [rows[0], *rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    forms: dict[tuple[bool, ...], str] = {}  # format of a line, by which cells are text
    for row, line in zip(rows, texts, strict=True):
        are_texts = tuple([isinstance(cell, str) for cell in row])
        form = forms.get(are_texts)
        if form is None:
            sides = ("-" if is_text else "" for is_text in are_texts)
            form = "  ".join(f"%{side}{width}s" for side, width in zip(sides, widths, strict=True))
            forms[are_texts] = form
        yield (form % tuple(line)).rstrip()


def _text(cell: Cell) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
