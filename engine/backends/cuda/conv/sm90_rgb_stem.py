"""A network's first layer on Hopper: windows of a picture's lines overlap where they lie.

Two pixels of a picture are 16 bytes, which is how far apart rows of a product begin. Where windows
are one pixel apart two of them are a row, with the filters of the second as further columns.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda.conv import geometry, tensor_cores
from engine.backends.cuda.conv.divisor import Divisor
from engine.backends.cuda.conv.sm90_splitk import ALL_SHARED, OF_EACH_BLOCK
from engine.backends.cuda.conv.tensor_cores import COMMON, HOPPER
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.scaled_conv import ScaledConv2d
from engine.plan import ops

_COLOURS, _ROOM = 3, 4  # channels of a picture, and values that a pixel has room for
_ROW_PIXELS = 2  # from one row of a product to the next
_WINDOWS = 64  # rows of a product
_STEP_PIXELS = 4  # of a line, multiplied at once
_MOST_STEPS = 2
_LINES = 8  # of windows, of a block
_GROUPS = 2  # of 128 threads
_GATHERED = 32  # columns that a lane's neighbours store together
_MOST_COLUMNS = 128
_MOST_BLOCKS = {True: 2, False: 3}  # on a multiprocessor, by whether sums of two lines are held
_PIECE_BYTES = 8


class Problem(ctypes.Structure):
    """The struct of the same name in kernels/conv/sm90/sm90_rgb_stem.cu."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("bias", "input", "weight", "out")),
        *(
            (name, ctypes.c_int)
            for name in (
                *("height", "width", "pitch", "is_wide", "grid_h", "grid_w"),
                *("out_h", "out_w", "out_pitch", "across", "blocks", "top", "left"),
            )
        ),
        *((name, Divisor) for name in ("by_across", "by_down")),
    )


@dataclass(frozen=True)
class RgbStemTile:
    """Lines of windows by all filters."""

    filters: int
    taps: tuple[int, int]
    stride: tuple[int, int]
    parts: int  # of a weight
    cells: int
    kind: int
    mode: int = 0
    kernel: str = "sm90_rgb_stem"

    @property
    def pair(self) -> int:
        """Windows of a row of the product."""
        return _ROW_PIXELS // self.stride[1]

    @property
    def columns(self) -> int:
        return self.filters * self.pair

    @property
    def steps(self) -> int:
        """Of a line of a row's windows."""
        pixels = self.taps[1] + (self.pair - 1) * self.stride[1]
        return -(-pixels // _STEP_PIXELS)

    @property
    def weight_bytes(self) -> int:
        return self.taps[0] * self.steps * self.parts * self.columns * 32

    @property
    def threads(self) -> int:
        return 128 * _GROUPS

    @property
    def shared_bytes(self) -> int:
        pixels = _ROW_PIXELS * (_WINDOWS - 1) + _STEP_PIXELS * self.steps
        lines = (_LINES - 1) * self.stride[0] + self.taps[0]
        return self.weight_bytes + lines * -(-pixels * 8 // 16) * 16 + 4 * self.columns + 16

    @property
    def blocks(self) -> int:
        most = ALL_SHARED // (self.shared_bytes + OF_EACH_BLOCK)
        return max(1, min(most, _MOST_BLOCKS[self.cells > 1 or self.columns > 64]))

    @property
    def defines(self) -> Mapping[str, int]:
        return {
            "BN": self.columns,
            "PAIR": self.pair,
            "TAPS_Y": self.taps[0],
            "STEPS": self.steps,
            "PARTS": self.parts,
            "POOLED": self.cells,
            "STRIDE_Y": self.stride[0],
            "LINES": _LINES,
            "BLOCKS": self.blocks,
            "KIND": self.kind,
            "OUT_BYTES": 2,
        }

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.columns, self.mode)}


def tile(target: Target, op: ops.Conv2d) -> RgbStemTile:
    kind, _ = geometry.kinds(op)
    parts = tensor_cores.parts(tensor_cores.mode_of(target, op))
    filters = op.weight.shape[0]
    return RgbStemTile(filters, op.kernel, op.stride, parts, geometry.cells(op), kind)


def supports(target: Target, op: ops.Conv2d) -> bool:
    if target.capability != HOPPER or target.bytes_of(op.src) != 2 or target.bytes_of(op.out) != 2:
        return False
    if op.src.shape.channels != _COLOURS or op.groups > 1 or op.signed:
        return False
    if op.stride[1] not in (1, _ROW_PIXELS) or op.dilation != (1, 1):
        return False
    pooled = all(isinstance(step, ops.Activate | ops.MaxPool) for step in op.tail)
    if isinstance(op, ScaledConv2d) or not pooled or op.last_activation != "linear":
        return False
    if op.activation not in COMMON or op.out in target.misaligned:
        return False
    made = tile(target, op)
    stored = made.filters if made.cells > 1 else made.columns
    if made.filters % tensor_cores.EIGHT or stored % _GATHERED or made.columns > _MOST_COLUMNS:
        return False
    room = tensor_cores.most_shared_bytes(target.capability)
    return made.steps <= _MOST_STEPS and made.shared_bytes <= room


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


def prepare(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Weights step by step, eights of columns side by side, and a bias for each column."""
    made = tile(target, op)
    filters, taps_y, taps_x = made.filters, *made.taps
    lines = np.zeros((taps_y, made.steps * _STEP_PIXELS, _ROOM, made.columns), np.float32)
    weight = constants["weight"].transpose(2, 3, 1, 0)
    for window in range(made.pair):
        columns = slice(window * filters, (window + 1) * filters)
        lines[:, window : window + taps_x, :_COLOURS, columns] = weight
    halves = _halves(lines, made.parts).reshape(
        made.parts,
        taps_y,
        made.steps,
        2,
        tensor_cores.EIGHT,
        made.columns // tensor_cores.EIGHT,
        tensor_cores.EIGHT,
    )
    bias = constants.get("bias", np.zeros(filters, np.float32))
    return {
        "weight": np.ascontiguousarray(halves.transpose(1, 2, 0, 3, 5, 6, 4)),
        "bias": np.tile(bias, made.pair),
    }


def _halves(values: NDArray[np.float32], parts: int) -> NDArray[np.generic]:
    high = values.astype(np.float16)
    return high if parts == 1 else np.stack([high, (values - high).astype(np.float16)])


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    made = tile(gpu.target, op)
    src, grid, out = op.src.shape, op.grid, op.out.shape
    rows_of_product = -(-grid.width // made.pair)
    across, down = -(-rows_of_product // _WINDOWS), -(-grid.height // _LINES)
    blocks = gpu.rows(op.out) * across * down
    pointer, pitch = gpu[op.src], gpu.pitch(op.src)
    is_wide = pointer % _PIECE_BYTES == 0 and pitch % _ROOM == 0
    top, left, _, _ = op.padding
    problem = Problem(
        *(gpu.array(op, "bias"), pointer, gpu.array(op, "weight"), gpu[op.out]),
        *(src.height, src.width, pitch, int(is_wide), grid.height, grid.width),
        *(out.height, out.width, gpu.pitch(op.out), across, blocks, top, left),
        *map(Divisor.of, (across, down)),
    )
    gpu.tile(made, made.shared_bytes).launch(
        (min(blocks, gpu.target.multiprocessors * made.blocks), 1, 1),
        made.threads,
        [problem],
        stream=gpu.stream.handle,
        early=True,
    )
