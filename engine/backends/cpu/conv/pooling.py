"""Which pools may come before the activation of their convolution."""

from __future__ import annotations

from engine.plan import ops
from engine.plan.activations import ACTIVATIONS


def pools_quads(op: ops.Conv2d) -> bool:
    """Whether the pool is 2 x 2 / 2 from the first cell on, and may come before the activation."""
    if op.pool is None or not ACTIVATIONS[op.activation].rises:
        return False
    grid, out = op.grid, op.out.shape
    return (
        op.pool.size == op.pool.stride == (2, 2)
        and op.pool.padding[:2] == (0, 0)
        and 2 * out.height <= grid.height
        and 2 * out.width <= grid.width
    )
