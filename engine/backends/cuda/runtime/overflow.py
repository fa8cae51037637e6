"""Networks whose activations leave a half's range are refused, by the name of the layer.

Nothing of it is done in a run. A program of halves looks at every op's output once, for a made-up
picture when it is compiled: what is too large there is too large everywhere. Real pictures may go
further. Beyond its range a half is infinity, and a product or two later not a number; the kernels
that read a network's last values see that on the way and set a flag, which comes back beside the
results. Only then are the outputs of that run looked at. They are compared with those of floats:
what is infinite there, too, is what the network says.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from engine.arrays import Array
from engine.backends.cuda.ops.gpu import Target
from engine.errors import EngineError
from engine.plan.build import Plan
from engine.plan.ops import Chain, Op

LARGEST = 65504  # of all halves
_ENDLESS = 3e38  # what a maximum over no cell is, and infinity
_CELLS = (64, 16, 4, 1)  # pixels: a picture has shapes of every size


def is_possible(plan: Plan, target: Target) -> bool:
    """Whether any op of the program writes halves."""
    return any(target.bytes_of(op.out) == 2 for op in plan.ops)


def picture(plan: Plan) -> Array:
    """One sequence of made-up images: shapes of all sizes, the right half in pure colours."""
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


def suspect(plan: Plan, target: Target, largest: Array) -> int | None:
    """The first op whose halves hold something that is no number; `largest` is of each op."""
    for place, (op, value) in enumerate(zip(plan.ops, largest, strict=True)):
        if target.bytes_of(op.out) == 2 and not np.isfinite(value):
            return place
    return None


def refuse(plan: Plan, op: Op, values: Mapping[Op, float]) -> None:
    """Raise, unless floats reach no number here either; of `values` there are none where nobody
    knows. In a chain it is the first link beyond the range.
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
