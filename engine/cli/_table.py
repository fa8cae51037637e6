"""Text tables: columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Cell = str | int | float


def align(
    rows: Sequence[Sequence[Cell]], *, headings: Sequence[str] | None = None
) -> Iterator[str]:
    """Yield the rows as lines, with numbers and the headings above them aligned right."""
    texts = [[_text(cell) for cell in row] for row in rows]
    if headings is not None:
        texts.insert(0, list(headings))
        rows = [rows[0], *rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row, line in zip(rows, texts, strict=True):
        cells = (
            text.ljust(width) if isinstance(cell, str) else text.rjust(width)
            for cell, text, width in zip(row, line, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _text(cell: Cell) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
