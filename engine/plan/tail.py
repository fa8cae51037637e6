"""Divide the tail of a convolution between a kernel and the ops that come after it."""

from __future__ import annotations

from collections.abc import Callable

from engine.plan.ops import Conv2d, TailOp


def split_tail(
    conv: Conv2d, can_run: Callable[[Conv2d], bool]
) -> tuple[Conv2d, tuple[TailOp, ...]]:
    """Return `conv` with as much of its tail as `can_run` accepts, and the ops for the rest.

    The convolution writes what the first of these ops reads; the last writes `conv`'s output.
    """
    count = len(conv.tail)
    while count and not can_run(conv.cut(count)):
        count -= 1
    return conv.cut(count), conv.tail[count:]
