"""The kernels of the textbooks' examples, launched by themselves on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.backends.cuda.ops.arguments import KINDS
from tests.backends.cuda.host import HostKernels, build, needs_gxx

Array = NDArray[Any]

pytestmark = needs_gxx

LINEAR = KINDS["linear"]


def launch(
    kernel: str, *arguments: Array | int | None, threads: int = 8, blocks: int = 2, shared: int = 0
) -> None:
    values = [each.ctypes.data if isinstance(each, np.ndarray) else each for each in arguments]
    kernels = HostKernels(build())
    kernels.launch(kernel, (blocks, 1, 1), threads, values, stream=0, shared=shared)


@pytest.mark.parametrize("kernel", ["im2col_elements", "im2col_windows"])
def test_the_map_of_1_to_16_unfolds_into_nine_windows_of_four(kernel: str) -> None:
    src = np.arange(1, 17, dtype=np.float32)
    col = np.zeros((9, 4), np.float32)
    launch(
        kernel,
        *(src, col, 0, 9, 1, 1),  # first, pixels, groups, channels
        *(4, 4, 3, 3, 1),  # the sides of both maps, the pitch
        *(2, 2, 1, 1, 0, 0, 1, 1, 0),  # window, stride, padding, dilation, no signs
    )
    expected = [
        [1, 2, 5, 6],
        [2, 3, 6, 7],
        [3, 4, 7, 8],
        [5, 6, 9, 10],
        [6, 7, 10, 11],
        [7, 8, 11, 12],
        [9, 10, 13, 14],
        [10, 11, 14, 15],
        [11, 12, 15, 16],
    ]
    np.testing.assert_array_equal(col, expected)


def test_four_channels_unfold_a_pack_at_a_time() -> None:
    src = np.arange(4 * 16, dtype=np.float32).reshape(16, 4)
    col = np.zeros((9, 16), np.float32)
    launch(
        "im2col_elements_packed",
        *(src, col, 0, 9, 1, 4, 4, 4, 3, 3, 4, 2, 2, 1, 1, 0, 0, 1, 1, 0),
    )
    np.testing.assert_array_equal(col[0], src[[0, 1, 4, 5]].ravel())
    np.testing.assert_array_equal(col[8], src[[10, 11, 14, 15]].ravel())


def test_a_signal_of_16_under_a_mask_of_5_in_tiles_of_4() -> None:
    """A tile of 4 needs 2 cells of halo on either side; beyond the ends these are ghosts."""
    signal = np.arange(1, 17, dtype=np.float32)
    mask = np.array([3, 4, 5, 4, 3], np.float32)
    out = np.zeros(16, np.float32)
    tile, halo = 4, 4 + 5 - 1
    launch(
        "tiled",
        *(signal, mask, None, None, out),
        *(1, 1, 1, 1, 1, 16, 1, 16),  # rows, groups, channels, filters, the sides of both
        *(1, 1, 1),  # pitches
        *(1, 5, 1, 1, 0, 2, 1, 1),  # window, stride, top and left, dilation
        *(LINEAR, LINEAR, 1, tile),
        threads=tile,
        blocks=3,  # fewer than the four tiles, so that one block takes two
        shared=4 * 4 * halo,
    )
    np.testing.assert_array_equal(out, np.convolve(signal, mask, mode="same"))
    assert list(out[:2]) == [22, 38]  # with ghosts: 5+8+9, 4+10+12+12


def test_a_map_of_ones_under_ones_in_tiles_counts_its_cells() -> None:
    ones, weight, out = np.ones(25, np.float32), np.ones(9, np.float32), np.zeros(25, np.float32)
    launch(
        "tiled",
        *(ones, weight, None, None, out),
        *(1, 1, 1, 1, 5, 5, 5, 5, 1, 1, 1),
        *(3, 3, 1, 1, 1, 1, 1, 1),
        *(LINEAR, LINEAR, 2, 2),
        threads=4,
        blocks=4,
        shared=4 * 4 * 16,
    )
    edge = np.array([2, 3, 3, 3, 2])
    np.testing.assert_array_equal(out.reshape(5, 5), np.outer(edge, edge))
