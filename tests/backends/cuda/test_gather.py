"""Arrays come together wherever they are in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda.runtime import gather as module
from engine.backends.cuda.runtime.gather import gather

Array = NDArray[Any]
SHAPE = (8, 5, 4)  # 160 bytes


def arrays_at(places: Sequence[int], kind: type = np.uint8) -> tuple[list[Array], Array]:
    """Return arrays at these bytes of a block, and the block, with room for all at its end."""
    size = int(np.prod(SHAPE)) * np.dtype(kind).itemsize
    end = max(places) + size
    block = np.random.default_rng(0).integers(0, 256, end + len(places) * size + 64, np.uint8)
    end += -end % 16
    arrays = [block[each : each + size].view(kind).reshape(SHAPE) for each in places]
    return arrays, block[end : end + len(places) * size].view(kind)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32])
@pytest.mark.parametrize(
    ("places", "is_possible"),
    [
        ([320, 0, 0, 0, 0], False),
        ([0, 640, 1280, 1920, 2560], True),
        ([2560, 1920, 1280, 640, 0], True),
        ([0, 640, 1280, 1920, 48, 688, 1328, 1968], True),  # twice
        ([4, 648, 1292, 1936, 4000], False),
        ([0, 5120, 640, 2560, 4096, 1280], False),
        ([640, 640, 640, 640, 640], True),  # one buffer again and again
    ],
    ids=str,
)
def test_arrays_at_equal_distances_get_to_their_places(
    places: list[int], is_possible: bool, kind: type
) -> None:
    arrays, out = arrays_at(places, kind)
    expected = np.concatenate([each.reshape(-1) for each in arrays])
    out[:] = 0
    assert gather(arrays, out) == is_possible
    np.testing.assert_array_equal(out, expected if is_possible else 0)


@pytest.mark.parametrize("place", [320, 1600, 3999])
def test_nothing_is_done_around_the_target(place: int) -> None:
    block = np.random.default_rng(0).integers(0, 256, 5000, np.uint8)
    before = block.copy()
    arrays = [block[each : each + 160].reshape(SHAPE) for each in range(0, 4800, 960)]
    assert not gather(arrays, block[place : place + 5 * 160])
    np.testing.assert_array_equal(block, before)


def test_arrays_may_lie_as_far_apart_as_memory_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_RUN", 1)
    small, large = np.ones(160, np.uint8), np.full(1 << 24, 2, np.uint8)  # of heap and mmap
    arrays = [each[:160].reshape(SHAPE) for each in (small, large)]
    for size in (1 << 10, 1 << 25):
        out = np.zeros(size, np.uint8)[: 2 * 160]
        if gather(arrays, out):
            np.testing.assert_array_equal(out, np.repeat([1, 2], 160))
