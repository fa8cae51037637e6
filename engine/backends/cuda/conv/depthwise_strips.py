"""Depthwise convolutions of many outputs: a thread goes down a strip of the map.

It reads each value once, where depthwise.py reads it again for each line of the kernel, and needs
many strips to occupy the device.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.backends.cuda.conv import depthwise, geometry
from engine.backends.cuda.ops.gpu import Gpu, Squeezing, Target
from engine.plan import ops

STRIP = 4  # outputs, of kernels/depthwise_strips.cu
_THREADS = 128  # STRIP_THREADS
_ACTIVATIONS = frozenset({"linear", "leaky", "relu", "relu6", "swish"})  # of activate_strip()
_RESIDENT = 512  # threads of a multiprocessor: with twice as many, none is idle for long
_LEAST_BAND = 13  # lines: each band begins with lines that only its first outputs need
_MOST_GRID = 65535


@dataclass(frozen=True)
class _Launch:
    band: int  # lines that a thread goes down
    bands: int  # of a row
    parts: int  # blocks for those of a row
    chunks: int  # of packs of channels
    wide: int  # packs of a chunk: a power of two


def supports(target: Target, op: ops.Conv2d) -> bool:
    tensors = {op.src, op.out, *([op.residual] if op.residual else [])}
    is_packed = not (tensors & target.misaligned or op.out.shape.channels % _values(target))
    is_plain = op.activation in _ACTIVATIONS and op.last_activation == "linear"
    is_known = depthwise.supports(target, op) and depthwise.is_fixed(op)
    return is_known and is_packed and is_plain and op.out.shape.size > 0


def workspace(target: Target, op: ops.Conv2d) -> int:
    return 0


prepare = depthwise.prepare


def squeezing(target: Target, op: ops.Conv2d, gate: ops.Gate) -> Squeezing | None:
    """As of depthwise."""
    launch = _launch(target, op)
    left = Squeezing(gate, launch.parts, launch.chunks)
    return left if left.floats <= depthwise.MOST_SQUEEZED else None


def enqueue(gpu: Gpu, op: ops.Conv2d) -> None:
    launch, rows, left = _launch(gpu.target, op), gpu.rows(op.out), gpu.squeezing
    lanes = launch.wide * _values(gpu.target) // 2
    if left is not None:
        groups, bands, parts = rows, launch.bands, left.parts
        squeeze = (gpu.array(left.gate, "squeeze"), op.out.shape.channels)
        squeezed = (*squeeze, left.gate.squeeze.shape[0], gpu.workspace)
    else:
        groups, bands = 1, rows * launch.bands
        parts = _blocks(bands, op, lanes)
        squeezed = (0, 0, 0, 0)
    pointer, pitch = geometry.residual(gpu, op)
    gpu.launch_grid(
        f"depthwise_strips_{op.kernel[0]}_{op.stride[0]}",
        (launch.chunks, min(parts, _MOST_GRID), min(groups, _MOST_GRID)),
        _THREADS,
        *(gpu[op.src], gpu.array(op, "weight"), gpu.array(op, "bias"), pointer, gpu[op.out]),
        *(bands, launch.band, op.out.shape.channels, *geometry.maps(op)),
        *(gpu.pitch(op.src), pitch, gpu.pitch(op.out), *op.padding[:2], lanes.bit_length() - 1),
        *(geometry.kinds(op)[0], groups, parts, *squeezed),
    )


def _values(target: Target) -> int:
    return 16 // target.value_bytes


def _blocks(bands: int, op: ops.Conv2d, lanes: int) -> int:
    return -(-bands * -(-op.out.shape.width // STRIP) // (_THREADS // lanes))


def _launch(target: Target, op: ops.Conv2d) -> _Launch:
    """By the rows that the program is for, not those of a run: the same sums for any company."""
    out, packs = op.out.shape, op.out.shape.channels // _values(target)
    wide = depthwise.wide_of(packs)
    chunks, lanes = -(-packs // wide), wide * _values(target) // 2
    threads = target.rows(op.out) * chunks * lanes * -(-out.width // STRIP)
    wanted = -(-2 * _RESIDENT * target.multiprocessors // threads)
    band = max(-(-out.height // wanted), min(_LEAST_BAND, out.height))
    bands = -(-out.height // band)
    return _Launch(band, bands, _blocks(bands, op, lanes), chunks, wide)
