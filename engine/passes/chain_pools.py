"""Compute a MaxPool from another MaxPool of the same map with a smaller window.

The maximum over 13 x 13 cells is the maximum over 5 x 5 maxima of 9 x 9 cells, and so on: in
spatial pyramid pooling, each output reads 25 values instead of 81 or 169.
"""

from __future__ import annotations

from dataclasses import replace

from engine.plan.build import Plan
from engine.plan.ops import MaxPool, Op, Tensor
from engine.plan.shapes import Window


def chain_pools(plan: Plan) -> Plan:
    ops: list[Op] = []
    pools: dict[Tensor, list[MaxPool]] = {}  # earlier pools of each map
    for op in plan.ops:
        has_state = any(each.is_state for each in (*op.reads, op.out))  # may be overwritten
        if isinstance(op, MaxPool) and op.window.stride == (1, 1) and not has_state:
            earlier = pools.setdefault(op.src, [])
            ops.append(_smallest(op, earlier))
            earlier.append(op)
        else:
            ops.append(op)
    return replace(plan, ops=tuple(ops))


def _smallest(pool: MaxPool, earlier: list[MaxPool]) -> MaxPool:
    """Return an equal pool with the smallest window."""
    found = [(window, each.out) for each in earlier if (window := _window(pool, each)) is not None]
    if not found:
        return pool
    window, src = min(found, key=lambda item: item[0].size)
    return replace(pool, src=src, window=window)


def _window(large: MaxPool, small: MaxPool) -> Window | None:
    """Return the window over `small.out` whose maxima are those of `large`, or None."""
    axes = [_window_along(axis, large, small) for axis in (0, 1)]
    if None in axes or axes == [(1, 0), (1, 0)]:
        return None
    (height, top), (width, left) = axes  # type: ignore[misc]  # neither is None
    return Window((height, width), (1, 1), (top, left, height - 1 - top, width - 1 - left))


def _window_along(axis: int, large: MaxPool, small: MaxPool) -> tuple[int, int] | None:
    """Return the size of this window along an axis and its padding before the map, or None."""
    small_size, small_before = small.window.size[axis], small.window.padding[axis]
    size = large.window.size[axis] - small_size + 1
    before = large.window.padding[axis] - small_before
    extent, windows = large.src.shape.sides[1 + axis], small.out.shape.sides[1 + axis]
    # Each window must contain a small one, and the small ones must reach both borders.
    is_inside = 0 <= before < size and large.out.shape.sides[1 + axis] <= windows + before
    reaches_start = 0 <= small_before < small_size
    reaches_end = windows - 1 - small_before + small_size >= extent
    return (size, before) if is_inside and reaches_start and reaches_end else None
