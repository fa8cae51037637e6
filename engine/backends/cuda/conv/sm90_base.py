"""Tiles, weight layouts and kernel arguments that all kernels for Hopper (sm_90) share.

They load slices of k with TMA and multiply with wgmma; see kernels/conv/sm90.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any, ClassVar

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.conv import kernel_args, tensor_cores
from engine.backends.cuda.conv.algorithm import Algorithm, KeepingConv2d, adds_quarters
from engine.backends.cuda.conv.kernel_args import Divisor, KernelArgs, struct
from engine.backends.cuda.conv.tensor_cores import EIGHT, HOPPER, SIXTEEN, factors, whole_eights
from engine.backends.cuda.driver import launch
from engine.backends.cuda.driver.tiles import MODES, AnyTile, Tile
from engine.backends.cuda.kernels import wgmma
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target
from engine.backends.cuda.ops.target import most_shared_bytes
from engine.plan import ops
from engine.plan.shapes import Shape

MOST_SHARED = most_shared_bytes(HOPPER)
SM_SHARED = 228 << 10  # bytes of an SM
ALIGNMENT = 1 << 10  # of swizzled stages
BARRIERS = 16  # bytes of the two mbarriers of a stage
# Multiply-adds, bytes and epilogue results per cycle, by mode, where teams of warps take turns.
TURN_COSTS = {0: (1450, 38, 6), 1: (750, 38, 6), 4: (2900, 38, 6)}

_CHUNK = 16  # bytes that swizzling moves together
_CHUNKS_OF_BANKS = 8  # chunks across all banks of shared memory
_WARPS = 4  # of a warpgroup
_LANES_DOWN = 8  # rows of lanes in a warp
_LINE_BYTES = 128
_NEAR = 16 << 20  # bytes of a map that stays mostly in the L2 for two convolutions
_DATA_TYPES = {
    MODES["float16"]: launch.HALF,
    MODES["tf32"]: launch.TF32,
    MODES["float32"]: launch.FLOAT,
    MODES["int8"]: launch.BYTE,
}


@dataclass(frozen=True)
class Sm90Tile(Tile):
    """A thread block computes rows x columns outputs, in slices of `depth` values of k."""

    rows: Annotated[int, "BM"]
    columns: Annotated[int, "BN"]
    depth: Annotated[int, "BK"]
    stages: Annotated[int, "STAGES"]
    consumers: Annotated[int, "CONSUMERS"]  # warpgroups
    blocks: Annotated[int, "BLOCKS"]  # resident on one SM
    mode: int
    out_bytes: Annotated[int, "OUT_BYTES"]
    kinds: Annotated[tuple[int, int], "KIND", "LAST"]  # activations before and after the residual
    # Filters come in eights, with int8 in sixteens, and are aligned to 16 bytes.
    is_whole: Annotated[bool, "WHOLE"]
    residual: Annotated[int, "RESIDUAL"] = 0  # kernel_args.residual_mode
    yolo: Annotated[int, "YOLO"] = 0  # kernel_args.yolo_mode
    pool_area: Annotated[int, "CELLS"] = 1
    is_kept: Annotated[bool, "KEPT"] = False  # whether the pool's input is stored as well
    kernel: str = ""
    are_taps_inside: ClassVar[bool] = False  # whether k runs over taps within a slice of channels

    @property
    def bias_bytes(self) -> int:
        """The bytes of the biases of a tile, and of its scales with int8."""
        return self.columns * (8 if self.mode == MODES["int8"] else 4)

    @property
    def headers(self) -> Mapping[str, str]:
        return {"wgmma.cuh": wgmma.header(self.columns, self.mode)}

    @property
    def stage_bytes(self) -> int:
        weights = self.columns * (2 if self.mode == MODES["float32"] else 1)
        return (self.rows + weights) * self.depth * self.value_bytes

    def steps(self, op: ops.Conv2d) -> int:
        """Return the number of slices of k."""
        return prod(op.kernel) * -(-op.src.shape.channels // self.depth)

    def across(self, op: ops.Conv2d) -> int:
        """Return the number of tiles for all filters."""
        return -(-op.out.shape.channels // self.columns)


Args = struct("sm90_mainloop.cuh", "KernelArgs")


class Sm90Algorithm(Algorithm):
    """One tile shape of an sm90 kernel."""

    large = writes_float = True
    blocks: int  # resident on one SM

    @abstractmethod
    def tile(self, target: Target, op: ops.Conv2d) -> Sm90Tile: ...

    def tile_of(self, kind: type[AnyTile], target: Target, op: ops.Conv2d, **own: Any) -> AnyTile:
        """Return a tile of a kind for a convolution; `own` are the fields of that kind."""
        own = {"depth": depth(target, op), **own}
        return kind.of(self, **own, **epilogue_params(target, op))

    def prepare(self, target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
        tile, constants = self.tile(target, op), tensor_cores.constants_of(target, op, constants)
        if tile.mode == MODES["int8"]:
            constants = {
                name: columns_by_lanes(values, tile.columns) for name, values in constants.items()
            }
        return prepare(tile, op, constants)

    def rule_of_thumb(self, target: Target, op: ops.Conv2d) -> float | None:
        return None

    def _resident(self, target: Target) -> int:
        """Return how many blocks the device holds at once."""
        return target.multiprocessors * self.blocks


def can_run(target: Target, op: ops.Conv2d) -> bool:
    """Return whether TMA can read the input: pixels aligned to 16 bytes, and small windows."""
    if target.capability != HOPPER or op.groups > 1 or op.signed:
        return False
    if op.src in target.misaligned or op.src.shape.channels * target.bytes_of(op.src) % 16:
        return False
    scales = target.scales
    if op.src in scales and adds_quarters(op):  # not in sm90_epilogue_int8.cuh
        return False
    has_bytes = {op.src, op.out} & scales.keys()
    needs_eights = has_bytes or kept_by(op) or adds_quarters(op)
    if needs_eights and not epilogue_params(target, op)["is_whole"]:
        return False
    if has_bytes and (kept := kept_by(op)) and scales.get(kept) != scales.get(op.out):
        return False
    reach = [(k - 1) * d for k, d in zip(op.kernel, op.dilation, strict=True)]
    return (
        max(op.kernel) <= 16 and max(reach) < 128 and max(op.stride) <= 8 and max(op.padding) < 128
    )


def kept_by(op: ops.Conv2d) -> ops.Tensor | None:
    """Return the pool's input if the convolution stores it as well."""
    return op.kept if isinstance(op, KeepingConv2d) else None


def finished(op: ops.Conv2d) -> Shape:
    """Return the shape that an epilogue finishes: after a pool, before an upsampling."""
    return op.grid if op.pool is None else op.out.shape


def fills(columns: int, filters: int) -> bool:
    """Return whether the filters use at least half of a tile; the narrowest always fits."""
    return columns <= 32 or columns < 2 * filters


def depth(target: Target, op: ops.Conv2d) -> int:
    """Return the values of a slice: a swizzled row of 128 bytes, less if channels are fewer."""
    value_bytes = target.bytes_of(op.src)
    row = next((r for r in (32, 64) if op.src.shape.channels * value_bytes <= r), 128)
    return row // value_bytes


def epilogue_params(target: Target, op: ops.Conv2d) -> dict[str, Any]:
    """Return the fields of a tile that its epilogue depends on."""
    yolo = kernel_args.yolo_mode(op)
    is_aligned = not {op.out, op.residual, kept_by(op)} & target.misaligned
    is_int8 = target.precision == "int8"
    together = SIXTEEN if is_int8 or op.out in target.scales else EIGHT  # filters
    filters = whole_eights(op.out.shape.channels) if yolo else op.out.shape.channels
    return {
        "mode": MODES[target.precision],
        "out_bytes": target.bytes_of(op.out),
        "kinds": kernel_args.kinds(op),
        "is_whole": is_aligned and filters % together == 0,
        "residual": kernel_args.residual_mode(op),
        "yolo": yolo,
        "pool_area": kernel_args.pool_area(op),
        "is_kept": kept_by(op) is not None,
    }


def prepare(tile: Sm90Tile, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Return weights slice by slice, as a stage holds them, and biases."""
    given = constants.get("bias", np.zeros(op.weight.shape[0], np.float32))
    # Kernels for int8 read the biases of whole tiles.
    together = tile.columns if tile.mode == MODES["int8"] else EIGHT
    return {"weight": slices(constants["weight"], tile), "bias": _padded(given, together)}


def _padded(values: Array, multiple: int) -> Array:
    """Return weights or biases of filters, with zeros up to a multiple of filters."""
    return np.pad(values, ((0, -len(values) % multiple), *((0, 0) for _ in values.shape[1:])))


def slices(weight: Array, tile: Sm90Tile) -> Array:
    """Return (tiles, slices, parts, columns, chunks of 16 bytes), swizzled as wgmma expects."""
    filters, channels, *kernel = weight.shape
    down, deep = -(-filters // tile.columns), -(-channels // tile.depth)
    lines = np.zeros((down * tile.columns, prod(kernel), deep * tile.depth), np.float32)
    lines[:filters, :, :channels] = weight.transpose(0, 2, 3, 1).reshape(filters, -1, channels)
    chunks = tile.depth * tile.value_bytes // _CHUNK
    parts = np.ascontiguousarray(factors(lines.reshape(len(lines), -1), tile.mode))
    shape = prod(kernel), deep
    loose = parts.view(f"V{_CHUNK}").reshape(-1, down, tile.columns, *shape, chunks)
    if tile.are_taps_inside:
        loose = loose.swapaxes(3, 4)
    loose = loose.reshape(-1, down, tile.columns, prod(shape), chunks)
    rows = np.arange(tile.columns)[:, None]
    moved = np.arange(chunks) ^ rows * chunks // _CHUNKS_OF_BANKS % chunks
    swizzled = loose.transpose(1, 3, 0, 2, 4)[:, :, :, rows, moved]
    return np.ascontiguousarray(swizzled).view(parts.dtype)


def filters_by_lanes(weight: Array, filters: int, blocks: int) -> Array:
    """Return weights padded to tiles of `filters`, reordered for GEMMs with filters as rows.

    A warpgroup has `blocks` of 64 rows, and a lane two rows of each, eight apart. In the new order
    the filters of a lane are adjacent.
    """
    padded = _padded(weight, filters)
    order = np.arange(len(padded)).reshape(-1, _WARPS, _LANES_DOWN, blocks, 2)
    by_lanes: Array = padded[order.transpose(0, 3, 1, 4, 2).ravel()]
    return by_lanes


def columns_by_lanes(values: Array, columns: int) -> Array:
    """Return weights or biases padded to tiles of `columns` filters, and reordered.

    In the new order each lane's columns are neighbouring filters; see sm90_warpgroups.cuh.
    """
    at_once = 32 if columns % 64 else 64
    padded = _padded(values, columns)
    order = np.arange(len(padded)).reshape(-1, _WARPS, at_once // _LANES_DOWN, 2)
    by_lanes: Array = padded[order.transpose(0, 2, 1, 3).ravel()]
    return by_lanes


def source(gpu: Gpu, op: ops.Conv2d, tile: Sm90Tile) -> launch.Windows:
    """Return the description of the input from which a tensor map is made."""
    return launch.Windows(
        op,
        pointer=gpu[op.src],
        kind=_DATA_TYPES[tile.mode],
        value_bytes=tile.value_bytes,
        rows=gpu.rows(op.src),
        pitch=gpu.pitch(op.src),
    )


def arguments(
    gpu: Gpu, op: ops.Conv2d, tile: Sm90Tile, *, blocks: int, inbox: int = 0
) -> KernelArgs:
    """Return the arguments for a grid of `blocks`, each of which prefetches some next weights."""
    grid, tiles_n = finished(op), tile.across(op)
    step = 1 if op.pool is None else 2
    slices_of_tap = -(-op.src.shape.channels // tile.depth)
    written, residual_bytes = {op.out, op.residual}, 0
    if residual := op.residual:
        values = gpu.pixels(residual) * gpu.pitch(residual)
        residual_bytes = values * gpu.target.bytes_of(residual)
    next_weights, next_bytes = gpu.next_weights
    return Args.of(
        gpu.arguments(op),
        stride_y=op.stride[0] * step,
        stride_x=op.stride[1] * step,
        next=next_weights,
        next_bytes=next_bytes,
        next_share=-(-next_bytes // (blocks * _LINE_BYTES)) * _LINE_BYTES,
        pixels=gpu.rows(op.out) * grid.area,
        filters=whole_eights(grid.channels) if tile.is_whole else grid.channels,
        out_h=grid.height,
        out_w=grid.width,
        slices=slices_of_tap,
        steps=tile.steps(op),
        tiles_n=tiles_n,
        is_aligned=int(not written & gpu.target.misaligned),
        inbox=inbox,
        is_residual_far=int(residual_bytes > _NEAR),
        by_tiles_n=Divisor.by(tiles_n),
        by_out_h=Divisor.by(grid.height),
        by_out_w=Divisor.by(grid.width),
        by_slices=Divisor.by(slices_of_tap),
        by_kernel_x=Divisor.by(op.kernel[1]),
    )
