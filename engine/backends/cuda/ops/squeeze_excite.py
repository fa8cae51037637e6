"""The gate of a squeeze-and-excite block: two small dense layers on the means of a map."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.backends.cuda.ops import pooling
from engine.backends.cuda.ops.arguments import KINDS
from engine.backends.cuda.ops.gpu import Arrays, Gpu, Target, padded_hidden, runs
from engine.backends.cuda.ops.target import most_shared_bytes
from engine.plan import ops

_THREADS, _ROWS = 256, 4  # GATE_THREADS, GATE_ROWS of the kernel
_MOST_VALUES = 8  # in a pack of 16 bytes
_SHARE = 8  # least packs of channels that a block scales: whole cache lines
_SCALED = 2  # packs that a thread scales, more once every multiprocessor has a block


def fits(target: Target, op: ops.Gate) -> bool:
    """Return whether a block can hold the outputs of the first layer and one sum of each."""
    hidden = op.squeeze.shape[0]
    held = -(-hidden // _MOST_VALUES) * _MOST_VALUES
    return held + max(4 * _THREADS, padded_hidden(op)) <= _most_floats(target)


def _most_floats(target: Target) -> int:
    return most_shared_bytes(target.capability) // 4


def _weights(target: Target, op: ops.Gate, constants: Arrays) -> Arrays:
    """Return rows of weights padded with zeros to whole packs."""
    kind = np.float16 if target.precision == "float16" else np.float32
    values = target.pack
    made = {}
    for name in ("squeeze", "expand"):
        matrix = constants[name][:, :, 0, 0]
        padding = -matrix.shape[1] % values
        made[name] = np.pad(matrix, ((0, 0), (0, padding))).astype(kind)
    return {**constants, **made}


def _workspace(target: Target, op: ops.Gate) -> int:
    floats = pooling.most_pieces(target, op.src) * padded_hidden(op)
    return 4 * target.rows(op.src) * floats


@runs(ops.Gate, prepare=_weights, workspace=_workspace)
def gate(gpu: Gpu, op: ops.Gate) -> None:
    values = gpu.target.pack
    hidden = op.squeeze.shape[0]
    packs = -(-hidden // values)
    lanes = min(1 << (packs - 1).bit_length(), 32)  # threads that share a row of weights
    room = _most_floats(gpu.target) - values * packs
    shape = _scaled_grid(gpu, op) if gpu.annotations.multiply else _grid(gpu, op, lanes, room)
    memory = values * packs + max(4 * _THREADS, padded_hidden(op), shape.share)
    sums = gpu.annotations.partial_sums  # else nothing has enqueued them
    pieces = sums.pieces if sums else pooling.sum_parts(gpu, op.src, op)
    grid = gpu.rows(op.out) * shape.shares * shape.spreads, 1, 1
    gpu.launch_grid(
        *("gate", grid, _THREADS, gpu.arguments(op)),
        shared=4 * memory,
        squeezed=gpu.workspace,
        pieces=pieces,
        hidden=hidden,
        shares=shape.shares,
        share=shape.share,
        expand_lanes=lanes,
        kind=KINDS[op.squeeze_activation],
        last=KINDS[op.activation],
        spreads=shape.spreads,
        **_product(gpu),
    )


class _Grid(NamedTuple):
    """The division of a row's channels, and then of its pixels, among blocks."""

    share: int  # channels of a block
    shares: int
    spreads: int = 1


def _grid(gpu: Gpu, op: ops.Gate, lanes: int, room: int) -> _Grid:
    """Return a grid whose blocks have room for the factors of their channels: `room` floats."""
    rows, filters = gpu.rows(op.out), op.out.shape.channels
    at_once = _ROWS * _THREADS // lanes
    most = min(gpu.target.multiprocessors // rows, -(-filters // at_once))
    share = min(-(-filters // max(1, most)), room)
    return _Grid(share, -(-filters // share))


def _scaled_grid(gpu: Gpu, op: ops.Gate) -> _Grid:
    """Return a grid whose blocks multiply the map as well, in whole cache lines of channels."""
    multiply, multiprocessors = gpu.annotations.multiply, gpu.target.multiprocessors
    assert multiply is not None
    rows, filters = gpu.rows(op.out), op.out.shape.channels
    values = gpu.target.pack
    share = _SHARE * values
    while rows * -(-filters // share) > multiprocessors and share < _THREADS * values:
        share *= 2
    shares = -(-filters // share)
    needed = -(-multiply.src.shape.area * share // values // (_THREADS * _SCALED))
    return _Grid(share, shares, max(1, min(multiprocessors // (rows * shares), needed)))


def _product(gpu: Gpu) -> dict[str, int]:
    multiply = gpu.annotations.multiply
    if multiply is None:
        return dict.fromkeys(("map", "scaled", "map_pitch", "scaled_pitch", "scaled_kind"), 0)
    return {
        "map": gpu[multiply.src],
        "scaled": gpu[multiply.out],
        "map_pitch": gpu.pitch(multiply.src),
        "scaled_pitch": gpu.pitch(multiply.out),
        "scaled_kind": KINDS[multiply.activation],
    }
