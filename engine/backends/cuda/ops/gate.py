"""The gate of a squeeze-and-excite block: two small dense layers on the means of a map."""

from __future__ import annotations

import numpy as np

from engine.backends.cuda.ops import average_pool
from engine.backends.cuda.ops.gpu import KINDS, Arrays, Gpu, Target, padded_hidden, runs
from engine.plan import ops

_THREADS, _ROWS = 256, 4  # of kernels/gate.cu
_SHARE = 8  # packs of channels that a block scales at least: whole cache lines
_SCALED = 2  # packs of the map that a thread scales before more blocks do


def _weights(target: Target, op: ops.Gate, constants: Arrays) -> Arrays:
    """Rows of weights padded with zeros to whole packs."""
    kind = np.float16 if target.precision == "float16" else np.float32
    values = 16 // target.value_bytes
    made = {}
    for name in ("squeeze", "expand"):
        matrix = constants[name][:, :, 0, 0]
        padding = -matrix.shape[1] % values
        made[name] = np.pad(matrix, ((0, 0), (0, padding))).astype(kind)
    return {**constants, **made}


def _workspace(target: Target, op: ops.Gate) -> int:
    floats = average_pool.most_pieces(target, op.src) * padded_hidden(op)
    return 4 * target.rows(op.src) * floats


@runs(ops.Gate, prepare=_weights, workspace=_workspace)
def gate(gpu: Gpu, op: ops.Gate) -> None:
    values = 16 // gpu.target.value_bytes
    rows, processors = gpu.rows(op.out), gpu.target.multiprocessors
    hidden, filters = op.squeeze.shape[0], op.out.shape.channels
    sums, multiply = gpu.annotations.partial_sums, gpu.annotations.multiply
    if sums is not None:
        pieces = sums.pieces
    else:
        pitch = -(-op.src.shape.channels // values) * values
        parts, chunks = average_pool.sum_parts(
            gpu, op.src, (gpu.array(op, "squeeze"), pitch, hidden)
        )
        pieces = parts * chunks
    packs = -(-hidden // values)
    lanes = min(1 << (packs - 1).bit_length(), 32)  # threads that share a row of weights
    if multiply is None:
        at_once = _ROWS * _THREADS // lanes
        share = -(-filters // max(1, min(processors // rows, -(-filters // at_once))))
        scaling, spreads = (0, 0, 0, 0, 0), 1
    else:
        map_, scaled, kind = multiply.src, multiply.out, multiply.activation
        scaling = (gpu[map_], gpu[scaled], gpu.pitch(map_), gpu.pitch(scaled), KINDS[kind])
        share = _SHARE * values
        while rows * -(-filters // share) > processors and share < _THREADS * values:
            share *= 2
        needed = -(-map_.shape.area * share // values // (_THREADS * _SCALED))
        spreads = max(1, min(processors // (rows * -(-filters // share)), needed))
    shares = -(-filters // share)
    memory = values * packs + max(4 * _THREADS, padded_hidden(op), share)
    gpu.launch_grid(
        "gate",
        (rows * shares * spreads, 1, 1),
        _THREADS,
        *(gpu.workspace, gpu.array(op, "squeeze_bias")),
        *(gpu.array(op, "expand"), gpu.array(op, "expand_bias"), gpu[op.out]),
        *(rows, op.src.shape.area, pieces, hidden, filters, gpu.pitch(op.out)),
        *(shares, share, lanes, KINDS[op.squeeze_activation], KINDS[op.activation]),
        *(*scaling, spreads),
        shared=4 * memory,
    )
