"""MaxPool of a map and MaxPool of the same map with a smaller window -> a pool of the smaller one.

The maximum over 13 x 13 cells is that over 5 x 5 of what 9 x 9 left, and so on: a spatial pyramid
looks at 25 cells for each value instead of at 81 and 169.
"""

from __future__ import annotations

from dataclasses import replace

from engine.plan.build import Plan
from engine.plan.ops import MaxPool, Op, Tensor
from engine.plan.shapes import Window


def chain_pools(plan: Plan) -> Plan:
    ops: list[Op] = []
    pools: dict[Tensor, list[MaxPool]] = {}  # of each map, those that were before
    for op in plan.ops:
        if isinstance(op, MaxPool) and op.window.stride == (1, 1) and not op.out.is_state:
            before = pools.setdefault(op.src, [])
            ops.append(_shortest(op, before))
            before.append(op)
        else:
            ops.append(op)
    return replace(plan, ops=tuple(ops))


def _shortest(pool: MaxPool, before: list[MaxPool]) -> MaxPool:
    rests = [(window, small.out) for small in before if (window := _rest(pool, small)) is not None]
    if not rests:
        return pool
    window, src = min(rests, key=lambda rest: rest[0].size)
    return replace(pool, src=src, window=window)


def _rest(large: MaxPool, small: MaxPool) -> Window | None:
    """The window over `small.out` that gives what `large` does; None where there is none."""
    axes = [_rest_along(axis, large, small) for axis in (0, 1)]
    if None in axes or axes == [(1, 0), (1, 0)]:
        return None
    (height, top), (width, left) = axes  # type: ignore[misc]  # neither is None
    return Window((height, width), (1, 1), (top, left, height - 1 - top, width - 1 - left))


def _rest_along(axis: int, large: MaxPool, small: MaxPool) -> tuple[int, int] | None:
    """Its size and the cells before the map."""
    small_size, small_before = small.window.size[axis], small.window.padding[axis]
    size = large.window.size[axis] - small_size + 1
    before = large.window.padding[axis] - small_before
    extent, windows = large.src.shape.sides[1 + axis], small.out.shape.sides[1 + axis]
    # Every window has one of the small ones, and those at the borders reach what it reaches.
    is_inside = 0 <= before < size and large.out.shape.sides[1 + axis] <= windows + before
    reaches_start = 0 <= small_before < small_size
    reaches_end = windows - 1 - small_before + small_size >= extent
    return (size, before) if is_inside and reaches_start and reaches_end else None
