"""The buffer that decoders write candidates into, and its conversion to darknet's order.

It holds a header, whose first word counts records, then records in the order in which threads
finished. A record is a number as unsigned, then x, y, w, h, objectness and class scores as float.
The number is its place in darknet's list: row * per_row + first + cell * anchors + anchor, where
`first` is that of the head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.ops.heads import cells
from engine.plan.build import Plan
from engine.plan.ops import Head

HEADER_WORDS = 4  # counter, non-finite flag, padding to 16 bytes
FLAG = 1  # its word in a header
WORD = 4
BEFORE_SCORES = 6  # number, x, y, w, h, objectness
COPIED_AT_ONCE = 128  # records for each picture in the first copy


@dataclass(frozen=True)
class Room:
    """The layout of the buffer for one plan and the rows of its largest run."""

    rows: int  # pictures: the time steps of all sequences
    columns: int  # number, x, y, w, h, objectness, class scores
    per_row: int
    firsts: Mapping[Head, int]

    @property
    def capacity(self) -> int:
        """One record for every cell of every picture, so that it cannot overflow."""
        return self.rows * self.per_row

    @property
    def scores(self) -> int:
        return self.capacity * (self.columns - BEFORE_SCORES)

    @property
    def words(self) -> int:
        return HEADER_WORDS + self.capacity * self.columns

    @property
    def copied_words(self) -> int:
        """Words that are copied back before the counter is known."""
        return self.words_of(COPIED_AT_ONCE * self.rows, self.rows)

    def words_of(self, records: int, rows: int) -> int:
        """Return the words of the header and of at most `records` records of these rows."""
        return HEADER_WORDS + min(records, rows * self.per_row) * self.columns

    def records(self, words: Array, count: int) -> Array:
        """Return the first `count` records of the copied words, one in each row."""
        end = HEADER_WORDS + count * self.columns
        lines: Array = words[HEADER_WORDS:end].reshape(count, self.columns)
        return lines

    def sorted_rows(self, records: Array, rows: int) -> list[Array]:
        """Return the candidates of each row of a run, float32, in darknet's order."""
        numbers = records[:, 0]
        order = numbers.argsort()
        values = records.take(order, 0)[:, 1:].view(np.float32)
        if rows == 1:
            return [values]
        starts = np.arange(1, rows, dtype=np.int64) * self.per_row
        ends = numbers[order].searchsorted(starts).tolist()
        return [values[pair] for pair in map(slice, [0, *ends], [*ends, len(values)])]


def room(plan: Plan, rows: int) -> Room | None:
    """Return the layout, or None for a network without detection layers."""
    if not plan.heads:
        return None
    counts = [cells(head) for head in plan.heads]
    starts = [0, *accumulate(counts)]
    return Room(
        rows=rows,
        columns=BEFORE_SCORES + max(head.classes for head in plan.heads),
        per_row=starts[-1],
        firsts=dict(zip(plan.heads, starts, strict=False)),
    )
