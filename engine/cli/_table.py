"""Text tables: columns as wide as their widest cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

Cell = str | int | float


def align(rows: Sequence[Sequence[Cell]]) -> Iterator[str]:
    """Yield the rows as lines, with numbers aligned right and text left."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row, line in zip(rows, texts, strict=True):
        cells = (
            text.ljust(width) if isinstance(cell, str) else text.rjust(width)
            for cell, text, width in zip(row, line, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


def _text(cell: Cell) -> str:
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
