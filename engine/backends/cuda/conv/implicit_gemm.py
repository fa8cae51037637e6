"""Implicit GEMM with mma.sync, on any card from Turing on, in every precision.

float32 runs as three multiplications of split operands (two tf32 values each), more exact than
Sgemm. Groups too narrow for the tensor cores are bundled: several become one, with zeros between
them. All tile shapes give the same result; the fastest depends on the layer, so each is an
algorithm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import kernel_args, tensor_cores
from engine.backends.cuda.conv.algorithm import Algorithm, ScaledConv2d
from engine.backends.cuda.conv.tensor_cores import AMPERE, COMMON, HOPPER, TURING
from engine.backends.cuda.driver import tiles
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.target import BLOCK_RESERVED, most_shared_bytes
from engine.plan import ops

# rows, columns, rows and columns of a warp, stages, blocks on an SM
_TILES = (
    (128, 128, 64, 32, 3, 1),
    (128, 64, 64, 32, 3, 2),
    (64, 64, 32, 32, 4, 3),
    (64, 32, 32, 16, 6, 3),
)
_SPLIT_FLOAT_TILES = (
    (64, 64, 32, 32, 3, 2),
    (64, 32, 32, 16, 4, 2),
    (128, 32, 32, 32, 3, 2),
    (32, 64, 16, 32, 3, 3),
)
_SPLITS = (1, 2, 4, 8)
_MOST_BLOCKS = 512  # of a split grid; a larger one fills the device without a split
_LEAST_STEPS = 4  # slices of k for each block of a split
_LEAST_FILTERS = 32  # per bundle, if all groups together have that many
_SHORT_DEPTH = 512  # bytes of k; if k is longer, an empty half of the last slice matters little

# Half-precision multiply-adds of an SM per cycle that mma.sync reaches.
_RATES = {TURING: 400, AMPERE: 800, (8, 6): 240, (8, 9): 240, HOPPER: 550}
# Cards on which three tf32 multiplications are faster than one in float32.
_FAST_TF32 = (AMPERE, HOPPER)


Args = kernel_args.struct("implicit_gemm.cu", "KernelArgs", Output=kernel_args.Output)


@dataclass(frozen=True)
class MmaTile(tiles.Tile):
    """A thread block computes rows x columns outputs, in slices of `depth` values of k."""

    rows: Annotated[int, "BM"]
    columns: Annotated[int, "BN"]
    warp_rows: Annotated[int, "WM"]
    warp_columns: Annotated[int, "WN"]
    depth: Annotated[int, "BK"]
    stages: Annotated[int, "STAGES"]
    blocks: Annotated[int, "BLOCKS"]  # resident on one SM
    mode: int
    out_bytes: Annotated[int, "OUT_BYTES"]
    pool_area: Annotated[int, "CELLS"] = 1
    yolo: Annotated[int, "YOLO"] = 0  # kernel_args.yolo_mode
    is_scaled: Annotated[bool, "IS_SCALED"] = False
    kernel: str = "implicit_gemm"

    @property
    def warps(self) -> int:
        return self.rows // self.warp_rows * (self.columns // self.warp_columns)

    @property
    def threads(self) -> int:
        return 32 * self.warps

    @property
    def stage_bytes(self) -> int:
        weights = self.columns * tensor_cores.parts(self.mode)
        return (self.rows + weights) * self.depth * self.value_bytes

    @property
    def shared_bytes(self) -> int:
        """The bytes of the ring of stages; in the epilogue it holds the sums of all warps."""
        sums = self.warp_rows * (self.warp_columns + kernel_args.CORNER_PADDING) * 4
        return max(self.stages * self.stage_bytes, self.warps * sums)


@dataclass(frozen=True)
class Bundles:
    """The groups of a convolution, `size` of them made into one."""

    size: int
    count: int
    channels: int  # per bundle
    filters: int
    depth: int  # values of a slice of k: 128 bytes, or 64 where that leaves much less of it empty
    steps: int  # slices


def bundles(target: Target, op: ops.Conv2d) -> Bundles:
    """Return the smallest bundles that 16-byte copies and a tile can take."""
    channels, filters = op.weight.shape[1], kernel_args.filters_of_group(op)
    value_bytes = target.bytes_of(op.src)
    sizes = (
        size
        for size in range(1, op.groups + 1)
        if op.groups % size == 0 and size * channels * value_bytes % 16 == 0
    )
    size = next((each for each in sizes if each * filters >= _LEAST_FILTERS), op.groups)
    values = op.kernel[0] * op.kernel[1] * size * channels
    length = values * value_bytes
    is_short = length <= _SHORT_DEPTH and 0 < length % 128 <= 64
    depth = (64 if is_short else 128) // value_bytes
    sizes_of = size, op.groups // size, size * channels, size * filters
    return Bundles(*sizes_of, depth, -(-values // depth))


@dataclass(frozen=True)
class ImplicitGemm(Algorithm):
    """One tile shape, with k divided among `split` blocks."""

    family = "implicit_gemm"
    pool = yolo = scale = reads_float = writes_float = exact = int8 = writes_int8 = True
    priority = 8

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int
    blocks: int
    split: int
    split_float: bool  # whether it is for float32, where each operand has two parts

    @property
    def name(self) -> str:
        return f"implicit_gemm_{self.rows}x{self.columns}x{self.stages}_split{self.split}"

    def supports(self, target: Target, op: ops.Conv2d) -> bool:
        is_split_float = tensor_cores.mode_of(target, op) == tiles.MODES["float32"]
        if self.split_float != is_split_float or not _can_copy(target, op):
            return False
        if self.tile(target, op).shared_bytes > most_shared_bytes(target.capability):
            return False
        if self.columns > 32 and self.columns >= 2 * bundles(target, op).filters:
            return False
        if self.split == 1:
            return True
        blocks = self._tiles(target, op) * self.split
        return blocks <= _MOST_BLOCKS and bundles(target, op).steps >= _LEAST_STEPS * self.split

    def tile(self, target: Target, op: ops.Conv2d) -> MmaTile:
        own = {"depth": bundles(target, op).depth, **tensor_cores.tile_fields(target, op)}
        tile = MmaTile.of(self, **own)
        return tile if target.capability >= AMPERE else replace(tile, stages=2)  # copies block

    def workspace(self, target: Target, op: ops.Conv2d) -> int:
        sums = self._tiles(target, op) * self.split * self.rows * self.columns
        return 4 * sums if self.split > 1 else 0

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        """Return (bundles, filters, k) with k = (tap, channel), zero-padded to whole tiles."""
        each = bundles(target, op)
        lines = self._tiles_n(target, op) * self.columns
        constants = tensor_cores.constants_of(target, op, constants)
        dense = _bundled(constants["weight"], each)
        depth = each.steps * each.depth
        missing = ((0, 0), (0, lines - each.filters), (0, depth - dense.shape[2]))
        padded = np.pad(dense, missing) if np.any(missing) else dense
        made = {
            "weight": tensor_cores.factors(padded, tensor_cores.mode_of(target, op)),
            "bias": kernel_args.biases(op, constants, groups=each.count, lines=lines),
        }
        if self.split > 1:
            made["arrivals"] = np.zeros(self._tiles(target, op), np.int32)
        return made

    def enqueue(self, gpu: Gpu, op: ops.Conv2d) -> None:
        tile, each = self.tile(gpu.target, op), bundles(gpu.target, op)
        tiles_n = self._tiles_n(gpu.target, op)
        taps, next_channel = divmod(tile.depth, each.channels)
        next_y, next_x = divmod(taps, op.kernel[1])
        known = gpu.arguments(op)
        arguments = Args.of(
            known,
            output=kernel_args.output(gpu, op, known, filters=each.filters),
            parts=gpu.workspace,
            arrivals=gpu.array(op, "arrivals"),
            groups=each.count,
            group_channels=each.channels,
            filters=each.filters,
            steps=each.steps,
            next_y=next_y,
            next_x=next_x,
            next_channel=next_channel,
            split=self.split,
            tiles_n=tiles_n,
        )
        tiles_m = -(-gpu.pixels(op.out) * tile.pool_area // tile.rows)
        tensor_cores.launch(gpu, tile, tiles_m * tiles_n * each.count * self.split, arguments)

    def estimate(self, target: Target, op: ops.Conv2d) -> float:
        """Rank the tiles by a rough model of one SM."""
        tile = self.tile(target, op)
        half_rate = _RATES.get(target.capability, _RATES[AMPERE])
        rate = half_rate / (1, 2, 6, 2, 0.5)[tile.mode]
        most = -(-self._tiles(target, op) * self.split // target.multiprocessors)
        fitting = most_shared_bytes(target.capability) // (tile.shared_bytes + BLOCK_RESERVED)
        resident = max(1, min(tile.blocks, fitting))
        at_once = min(most, resident)
        products = at_once * tile.rows * tile.columns * tile.depth / rate
        cycles = max(products, at_once * tile.stage_bytes / 45, 450)
        block = 4000 + bundles(target, op).steps / self.split * cycles
        block += at_once * tile.rows * tile.columns / 8
        if self.split > 1:
            block += 1500 + tile.rows * tile.columns * self.split / 8
        return -(-most // resident) * block

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        if target.precision == "float32" and target.capability not in _FAST_TF32:
            return None
        return self.estimate(target, op)

    def _tiles_n(self, target: Target, op: ops.Conv2d) -> int:
        """Return the number of tiles for the filters of a bundle."""
        return -(-bundles(target, op).filters // self.columns)

    def _tiles(self, target: Target, op: ops.Conv2d) -> int:
        pixels = target.rows(op.out) * op.out.shape.area * kernel_args.pool_area(op)
        tiles_m = -(-pixels // self.rows)
        return tiles_m * self._tiles_n(target, op) * bundles(target, op).count


def _can_copy(target: Target, op: ops.Conv2d) -> bool:
    """Return whether windows can be copied 16 bytes at a time, and the epilogue is known."""
    if not tensor_cores.has_tensor_cores(target, op) or op.signed or op.is_depthwise:
        return False
    is_int8 = op.src in target.scales
    if not is_int8 and not {op.activation, op.last_activation} <= COMMON:
        return False
    if op.src in target.misaligned:
        return False
    if isinstance(op, ScaledConv2d) and (is_int8 or op.factor in target.misaligned):
        return False
    return op.src.shape.channels * target.bytes_of(op.src) % 16 == 0


def _bundled(weight: Array, each: Bundles) -> Array:
    """Return (filters, channels, y, x) as (bundles, filters, k), with zeros between groups."""
    _, channels, taps_y, taps_x = weight.shape
    filters = each.filters // each.size
    groups = weight.reshape(each.count, each.size, filters, channels, taps_y, taps_x)
    dense = np.zeros(
        (each.count, each.size, filters, taps_y, taps_x, each.size, channels), np.float32
    )
    for group in range(each.size):
        dense[:, group, ..., group, :] = groups[:, group].transpose(0, 1, 3, 4, 2)
    return dense.reshape(each.count, each.filters, -1)


ALGORITHMS = tuple(
    ImplicitGemm(*shape, split, split_float)
    for split_float, shapes in ((False, _TILES), (True, _SPLIT_FLOAT_TILES))
    for shape in shapes
    for split in _SPLITS
)
