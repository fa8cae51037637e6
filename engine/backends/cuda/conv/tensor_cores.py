"""Precision modes, weight splitting, shared memory and launch of tensor-core convolutions."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends.cuda.conv import kernel_args
from engine.backends.cuda.conv.algorithm import ScaledConv2d
from engine.backends.cuda.driver.tiles import EXACT_HALVES, MODES, Tile, reads_halves
from engine.backends.cuda.ops.gpu import Arrays, Gpu
from engine.backends.cuda.ops.target import Target, is_narrow
from engine.plan import int8, ops

TURING, AMPERE, HOPPER = (7, 5), (8, 0), (9, 0)
EIGHT = 8  # filters whose results a lane of an sm90 kernel stores at once
SIXTEEN = 16  # the same if results are int8
# The activations of `activate_common` in kernels/common.cuh.
COMMON = frozenset({"linear", "leaky", "relu", "mish", "swish", "logistic"})


def mode_of(target: Target, op: ops.Conv2d) -> int:
    """Return the MODE of the kernels: how a convolution multiplies."""
    if op.src in target.scales:
        return MODES["int8"]
    if target.bytes_of(op.src) == 2:
        return EXACT_HALVES if is_narrow(op) else MODES["float16"]
    return MODES["tf32" if target.precision == "tf32" else "float32"]


def tile_fields(target: Target, op: ops.Conv2d) -> dict[str, Any]:
    """Return the fields of a tile that say what a kernel reads, fuses and writes."""
    return {
        "mode": mode_of(target, op),
        "out_bytes": target.bytes_of(op.out),
        "pool_area": kernel_args.pool_area(op),
        "yolo": kernel_args.yolo_mode(op),
        "is_scaled": isinstance(op, ScaledConv2d),
    }


def has_tensor_cores(target: Target, op: ops.Conv2d) -> bool:
    """Return whether mma.sync of this card knows the precision that the convolution reads."""
    return target.capability >= (TURING if target.bytes_of(op.src) <= 2 else AMPERE)


def whole_eights(filters: int) -> int:
    return -(-filters // EIGHT) * EIGHT


def parts(mode: int) -> int:
    """Return how many values hold a weight: high and low parts where one is not exact."""
    return 2 if mode in (MODES["float32"], EXACT_HALVES) else 1


def constants_of(target: Target, op: ops.Conv2d, constants: Arrays) -> Arrays:
    """Return the constants; for int8 the rounded weights, and scales before biases."""
    if op.src not in target.scales:
        return constants
    weight, scales = int8.quantise_weights(constants["weight"])
    factor = int8.factors(target.scales[op.src], scales)
    bias = np.broadcast_to(constants.get("bias", np.float32(0)), factor.shape)
    return {"weight": weight, "bias": np.stack([factor, bias], axis=1)}


def round_to_tf32(
    values: NDArray[np.float32], out: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """Round to 10 bits of mantissa, ties away from zero, as cvt.rna does."""
    rounded = np.empty(values.shape, np.float32) if out is None else out
    bits = rounded.view(np.uint32)
    np.add(np.ascontiguousarray(values, np.float32).view(np.uint32), 0x1000, out=bits)
    bits &= np.uint32(0xFFFFE000)
    return rounded


def factors(values: NDArray[np.float32], mode: int) -> NDArray[np.generic]:
    """Return weights as the tensor cores take them, all high parts before all low parts."""
    if mode == MODES["int8"]:
        return values.astype(np.int8)
    if mode == MODES["tf32"]:
        return round_to_tf32(values)
    if reads_halves(mode):
        halves = values.astype(np.float16)
        if parts(mode) == 1:
            return halves
        return np.concatenate([halves, (values - halves).astype(np.float16)])
    both = np.empty((2 * len(values), *values.shape[1:]), np.float32)
    high, low = both[: len(values)], both[len(values) :]
    round_to_tf32(values, high)
    np.subtract(values, high, out=low)
    round_to_tf32(low, low)
    return both


def launch(
    gpu: Gpu, tile: Tile, blocks: int, *arguments: ctypes.Structure, cluster: int = 1
) -> None:
    """Enqueue a tile's kernel, which from Hopper on may start before the previous one ends."""
    gpu.kernels.tile(tile).launch(
        (blocks, 1, 1),
        tile.threads,
        arguments,
        stream=gpu.stream.handle,
        cluster=cluster,
        early=gpu.target.capability >= HOPPER,
        all_shared=gpu.target.capability >= HOPPER and gpu.is_single,
    )
