"""Refuse networks whose activations leave the range of float16, naming the layer.

A float16 program checks the output of every op once, for a synthetic picture, when it is compiled.
Real pictures may go further: a value beyond the range becomes infinity and soon NaN. The kernels
that read the last tensors notice that and set a flag, which is copied back with the results. Only
then are the outputs of that run compared with float32: a value that overflows there as well is what
the network computes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.ops.target import Target
from engine.errors import EngineError
from engine.plan.build import Plan
from engine.plan.ops import Chain, Op

LARGEST = 65504  # float16
_ENDLESS = 3e38  # the maximum over an empty window, and infinity
_CELLS = (64, 16, 4, 1)  # pixels, for structure of every size


def is_possible(plan: Plan, target: Target) -> bool:
    """Return whether any op of the program writes float16."""
    return any(target.bytes_of(op.out) == 2 for op in plan.ops)


def picture(plan: Plan) -> Array:
    """Return one sequence of synthetic images with structure of all sizes."""
    channels, height, width = plan.source.shape.sides
    random = np.random.default_rng(0)
    made = np.zeros((plan.steps, channels, height, width), np.float32)
    for cell in _CELLS:
        shape = plan.steps, channels, -(-height // cell), -(-width // cell)
        coarse = random.random(shape, np.float32)
        made += coarse.repeat(cell, 2)[:, :, :height].repeat(cell, 3)[..., :width]
    made /= len(_CELLS)
    made[..., width // 2 :] = made[..., width // 2 :] > 0.5
    return made


def suspect(lowered: Lowered, largest: Mapping[Op, float]) -> Op | None:
    """Return the first op whose float16 outputs are not finite, by the `largest` of each."""
    endless = (op for op, value in largest.items() if not np.isfinite(value))
    return next((op for op in endless if lowered.target.bytes_of(op.out) == 2), None)


def refuse(plan: Plan, op: Op, values: Mapping[Op, float]) -> None:
    """Raise unless float32 overflows here too; name the first link of a chain out of range.

    `values` holds the float32 magnitudes of ops, and is empty if they could not be computed.
    """
    links = op.links if isinstance(op, Chain) else (op,)
    op = next((link for link in links if values.get(link, 0.0) > LARGEST), links[-1])
    value = values.get(op)
    if value is not None and not value < _ENDLESS:
        return
    if value is None:
        reach = f"activations leave the range of float16 ({LARGEST})"
    elif value > LARGEST:
        reach = f"activations reach {value:.0f}, beyond float16 ({LARGEST})"
    else:
        reach = f"weights or sums are beyond float16 ({LARGEST})"
    raise EngineError(f"{plan.title_of(op)}: {reach}; use float32 or tf32")
