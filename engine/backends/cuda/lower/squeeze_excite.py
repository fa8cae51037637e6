"""Gates, and what one shares with the ops around it, so that fewer kernels run and read the map.

A depthwise convolution leaves its sums, multiplied with the weights of the first layer of the gate
behind it: they lie in the workspace, which is the gate's, and nothing else runs between the two. A
gate scales the map, where that is the next op.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from engine.backends.cuda import conv
from engine.backends.cuda.conv import depthwise
from engine.backends.cuda.ops import average_pool
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.gpu import KINDS, Arrays, Gpu, Squeezing, Target, padded_hidden, runs
from engine.plan import ops
from engine.plan.build import Plan
from engine.plan.ops import Op

_THREADS, _ROWS = 256, 4  # of kernels/gate.cu
_SHARE = 8  # packs of channels that a gate's block scales at least: whole lines of the cache
_SCALED = 2  # packs of the map that a thread scales before more blocks do
_MOST_SCALED = 3 << 18  # values of all rows: larger maps are scaled faster by a kernel of their own


def behind(plan: Plan) -> dict[ops.Conv2d, ops.Gate]:
    """By convolution the gate that comes next and reads what it makes."""
    return {
        op: gate
        for op, gate in pairwise(plan.ops)
        if isinstance(op, ops.Conv2d) and isinstance(gate, ops.Gate) and gate.src == op.out
    }


def left_by(choice: Choice, target: Target, op: ops.Conv2d, gate: ops.Gate) -> Squeezing | None:
    """What an algorithm leaves for the gate."""
    own, algorithm = target.of(op), conv.LEAVES_SUMS.get(str(choice))
    if algorithm is None or own.value_bytes != target.of(gate).value_bytes:
        return None
    left: Squeezing | None = algorithm.squeezing(own, op, gate)
    return left


def squeezing(plan: Plan, target: Target) -> dict[Op, Squeezing]:
    """By convolution and by gate: what the one leaves and the other has."""
    found: dict[Op, Squeezing] = {}
    for op, gate in behind(plan).items():
        if left := left_by(conv.choose(target, op), target, op, gate):
            found |= {op: left, gate: left}
    return found


def scaling(plan: Plan, target: Target) -> dict[Op, ops.Multiply]:
    """By gate: what multiplies a map by its factors, which it does as well."""
    return {
        gate: op
        for gate, op in pairwise(plan.ops)
        if isinstance(gate, ops.Gate) and isinstance(op, ops.Multiply) and _scales(target, gate, op)
    }


def _scales(target: Target, gate: ops.Gate, op: ops.Multiply) -> bool:
    """Whether a gate can, and does so faster."""
    own, out = target.of(gate), op.out.shape
    if op.factor != gate.out or op.src.shape != out or own != target.of(op):
        return False
    if gate.src.shape.area != out.area:  # the map that is scaled need not be the one summed up
        return False
    touched = {op.src, op.out, gate.out}
    is_packed = not (touched & own.misaligned or out.channels % (16 // own.value_bytes))
    is_small = target.rows(op.out) * out.size <= _MOST_SCALED
    return is_packed and is_small and not touched & own.floats


def _gate_weights(target: Target, op: ops.Gate, constants: Arrays) -> Arrays:
    """Rows of weights padded with zeros to whole packs."""
    kind = np.float16 if target.precision == "float16" else np.float32
    values = 16 // target.value_bytes
    made = {}
    for name in ("squeeze", "expand"):
        matrix = constants[name][:, :, 0, 0]
        padding = -matrix.shape[1] % values
        made[name] = np.pad(matrix, ((0, 0), (0, padding))).astype(kind)
    return {**constants, **made}


def _gate_workspace(target: Target, op: ops.Gate) -> int:
    floats = average_pool.most_pieces(target, op.src) * padded_hidden(op)
    return 4 * target.rows(op.src) * max(floats, depthwise.MOST_SQUEEZED)


@runs(ops.Gate, prepare=_gate_weights, workspace=_gate_workspace)
def gate(gpu: Gpu, op: ops.Gate) -> None:
    values = 16 // gpu.target.value_bytes
    rows, processors = gpu.rows(op.out), gpu.target.multiprocessors
    hidden, filters = op.squeeze.shape[0], op.out.shape.channels
    if gpu.squeezing is not None:
        pieces = gpu.squeezing.pieces
    else:
        pitch = -(-op.src.shape.channels // values) * values
        parts, chunks = average_pool.sum_parts(
            gpu, op.src, (gpu.array(op, "squeeze"), pitch, hidden)
        )
        pieces = parts * chunks
    packs = -(-hidden // values)
    lanes = min(1 << (packs - 1).bit_length(), 32)  # threads that share a row of weights
    if gpu.scaling is None:
        at_once = _ROWS * _THREADS // lanes
        share = -(-filters // max(1, min(processors // rows, -(-filters // at_once))))
        scaling, spreads = (0, 0, 0, 0, 0), 1
    else:
        map_, scaled, kind = gpu.scaling.src, gpu.scaling.out, gpu.scaling.activation
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
