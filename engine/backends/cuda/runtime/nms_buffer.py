"""The buffer of boxes that survive NMS on the card, and its conversion to boxes.

It holds a header, a counter for each row, the first NEAR survivors of each row, then the others,
which are copied only if there are any. The card itself writes all that precedes them to host
memory. At most MOST_SCORES scores of a row compete; with more, or with one that is not finite, the
counter is CROWDED, and the caller suppresses candidates on the host.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.runtime.detection_buffer import HEADER_WORDS, WORD
from engine.concurrency.cached_property import cached_property
from engine.vision.boxes import Boxes, Suppression

MOST_SCORES = 1024  # as in kernels/vision/nms.cu
THREADS = 128  # SUPPRESS_THREADS
MOST_LISTED = 1 << 30  # scores of a batch: list_scores counts them in 32 bits
NEAR = 96
CROWDED = 0xFFFFFFFF
_KEPT_WORDS = 8  # x, y, w, h, objectness, score, class as 64 bits
_LIST_BYTES = 8 + 16 + 4  # for each score: key, box, objectness

# Suppression of kernels/vision/nms.cu
HOW = np.dtype(
    [
        ("threshold", np.float32),
        ("has_penalty", np.int32),
        ("across_classes", np.int32),
        ("nothing", np.int32),
        ("exponent", np.float64),
        ("near", np.uint64),  # where the host wants them, which differs from slot to slot
    ]
)
_GREEDY_EXPONENT = 0.6


@lru_cache(maxsize=64)
def how(suppression: Suppression) -> bytes:
    """Return the settings of NMS as the kernel reads them; the threshold must be a number."""
    assert suppression.threshold is not None
    has_penalty = suppression.kind in ("greedynms", "diounms")
    exponent = suppression.beta if suppression.kind == "diounms" else _GREEDY_EXPONENT
    fields = suppression.threshold, has_penalty, suppression.across_classes, 0, exponent, 0
    return np.array(fields, HOW).tobytes()


@dataclass(frozen=True)
class Keep:
    """The layout of the buffer for a number of rows; zero rows take no memory."""

    rows: int

    @cached_property
    def counters(self) -> int:
        """Number of counters: one for each row, padded to 16 bytes."""
        return -(-self.rows // 4) * 4

    @property
    def near_words(self) -> int:
        """Words that a full run leaves in host memory."""
        if self.rows == 0:
            return 0
        return HEADER_WORDS + self.counters + self.rows * NEAR * _KEPT_WORDS

    @property
    def words(self) -> int:
        return self.near_words + self.rows * (MOST_SCORES - NEAR) * _KEPT_WORDS

    @property
    def list_bytes(self) -> int:
        """Bytes of the lengths and the lists to sort."""
        return self.counters * WORD + self.rows * MOST_SCORES * _LIST_BYTES

    def lists(self, pointer: int) -> dict[str, int]:
        """Return pointers into a block of list_bytes, by the parameters of the kernels."""
        boxes = pointer + self.counters * WORD
        keys = boxes + self.rows * MOST_SCORES * 16
        objectness = keys + self.rows * MOST_SCORES * 8
        return {"lengths": pointer, "keys": keys, "boxes": boxes, "objectness": objectness}

    def counts(self, words: Array, rows: int) -> list[int]:
        """Return the number of survivors of each row, or CROWDED."""
        if rows == 1:
            return [words.item(HEADER_WORDS)]
        counts: list[int] = words[HEADER_WORDS : HEADER_WORDS + rows].tolist()
        return counts

    def boxes(self, words: Array, counts: Sequence[int]) -> list[Boxes]:
        """Return the boxes of each row; `words` must hold them all if a row has more than NEAR."""
        rows, most = len(counts), counts[0]
        first = HEADER_WORDS + self.counters
        if rows == 1 and most <= NEAR:  # the latency of a single call counts
            return [Survivors(words[first : first + most * _KEPT_WORDS].copy(), None, most)]
        most = max(counts)
        near = words[first : first + rows * NEAR * _KEPT_WORDS].reshape(rows, NEAR, -1)
        if most > NEAR:
            far = words[self.near_words :].reshape(self.rows, -1, _KEPT_WORDS)
            near = np.concatenate([near, far[:rows]], axis=1)
        found = near[:, :most].copy()  # the words belong to a slot that will be reused
        return [Survivors(found, row, count) for row, count in enumerate(counts)]


class Survivors(Boxes):
    """Boxes of one row, copied out of the shared words when first accessed."""

    _count: int
    # Words of all rows and our row, or of ours alone and None, until first access.
    _found: tuple[Array, int | None] | None
    _kept: Array  # from first access on

    def __init__(self, found: Array, row: int | None, count: int) -> None:
        own = self.__dict__  # bypasses the slow frozen __init__: thousands a second
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
        if found is not None:  # in this order: other threads may access it, too
            words, row = found
            own = words if row is None else words[row, : self._count].copy()
            self.__dict__["_kept"] = own.reshape(self._count, _KEPT_WORDS)
            self.__dict__["_found"] = None
        return self._kept

    @property
    def _values(self) -> Array:
        return self._lines.view(np.float32)
