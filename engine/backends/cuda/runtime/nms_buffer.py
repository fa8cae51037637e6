"""What suppression on the device leaves: the memory that it comes back in, and boxes made of it.

A header, a counter for each row, the first NEAR survivors of every row, then those that follow
them, which seldom exist and come only when they do. There is room for MOST_SCORES of a row; where
more compete the counter is CROWDED, and the caller has to do with candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.runtime.detection_buffer import HEADER_WORDS, WORD
from engine.vision.boxes import Boxes, Suppression

MOST_SCORES = 1024  # as in kernels/suppress.cu
THREADS = 128  # SUPPRESS_THREADS
MOST_LISTED = 1 << 30  # scores of a batch: list_scores counts them in 32 bits
NEAR = 96
CROWDED = 0xFFFFFFFF
_KEPT_WORDS = 8  # x, y, w, h, objectness, score, class as 64 bits
_LIST_BYTES = 8 + 16 + 4  # of a score: key, box, objectness

# Suppression of kernels/suppress.cu
HOW = np.dtype(
    [
        ("threshold", np.float32),
        ("has_penalty", np.int32),
        ("across_classes", np.int32),
        ("nothing", np.int32),
        ("exponent", np.float64),
    ]
)
_GREEDY_EXPONENT = 0.6


@lru_cache(maxsize=64)
def how(suppression: Suppression) -> bytes:
    """The bytes of HOW; the threshold is one of numbers here, not None."""
    assert suppression.threshold is not None
    has_penalty = suppression.kind in ("greedynms", "diounms")
    exponent = suppression.beta if suppression.kind == "diounms" else _GREEDY_EXPONENT
    fields = suppression.threshold, has_penalty, suppression.across_classes, 0, exponent
    return np.array(fields, HOW).tobytes()


@dataclass(frozen=True)
class Keep:
    """Extents of that memory for so many rows; without any nothing is kept."""

    rows: int

    @property
    def counters(self) -> int:
        """One for each row, and what fills them up to 16 bytes."""
        return -(-self.rows // 4) * 4

    @property
    def near_words(self) -> int:
        """What comes back unasked."""
        if self.rows == 0:
            return 0
        return HEADER_WORDS + self.counters + self.rows * NEAR * _KEPT_WORDS

    @property
    def words(self) -> int:
        return self.near_words + self.rows * (MOST_SCORES - NEAR) * _KEPT_WORDS

    def words_of(self, rows: int) -> int:
        """What comes back unasked of so many rows."""
        return HEADER_WORDS + self.counters + rows * NEAR * _KEPT_WORDS

    @property
    def list_bytes(self) -> int:
        """For the lists that are sorted, behind their lengths."""
        return self.counters * WORD + self.rows * MOST_SCORES * _LIST_BYTES

    def lists(self, pointer: int) -> tuple[int, int, int, int]:
        """Pointers to lengths, keys, boxes, objectness in a block of list_bytes."""
        boxes = pointer + self.counters * WORD
        keys = boxes + self.rows * MOST_SCORES * 16
        return pointer, keys, boxes, keys + self.rows * MOST_SCORES * 8

    def counts(self, words: Array, rows: int) -> list[int]:
        """Of each row how many are left, or CROWDED."""
        counts: list[int] = words[HEADER_WORDS : HEADER_WORDS + rows].tolist()
        return counts

    def boxes(self, words: Array, counts: Sequence[int]) -> list[Boxes]:
        """Of each row, from the words that came back; all of them where a row has many."""
        rows = len(counts)
        first = HEADER_WORDS + self.counters
        near = words[first : first + rows * NEAR * _KEPT_WORDS].reshape(rows, NEAR, -1)
        if max(counts) > NEAR:
            far = words[self.near_words :].reshape(self.rows, -1, _KEPT_WORDS)
            near = np.concatenate([near, far[:rows]], axis=1)
        found = near[:, : max(counts)].copy()  # the words are a slot's, which others want
        return [Survivors(found, row, count) for row, count in enumerate(counts)]


class Survivors(Boxes):
    """Boxes as they came back; columns are for whoever asks, and then of one picture alone."""

    _count: int
    _found: tuple[Array, int] | None  # that of every row, and which is ours; until it is asked for
    _kept: Array  # from then on

    def __init__(self, found: Array, row: int, count: int) -> None:
        own = self.__dict__  # past what a frozen class asks for each: thousands in a second
        own["_found"], own["_count"] = (found, row), count

    def __len__(self) -> int:
        return self._count

    @property
    def xywh(self) -> Array:
        return self._values[:, :4]

    @property
    def scores(self) -> Array:
        return self._values[:, 5]

    @property
    def class_ids(self) -> Array:
        return self._lines.view(np.int64)[:, 3]

    @property
    def objectness(self) -> Array:
        return self._values[:, 4]

    @property
    def _lines(self) -> Array:
        found = self._found
        if found is not None:  # in this order: other threads may ask, too
            self.__dict__["_kept"] = found[0][found[1], : self._count].copy()
            self.__dict__["_found"] = None
        return self._kept

    @property
    def _values(self) -> Array:
        return self._lines.view(np.float32)
