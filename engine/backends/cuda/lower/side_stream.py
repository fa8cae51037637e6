"""Run the layers that lead to a detection layer on a side stream while the network goes on.

On small maps neither fills the card. What these steps read and write stays in memory until the end
of the run, when the streams join; see memory_layout.py.
"""

from __future__ import annotations

from dataclasses import replace

from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.ops.target import Target
from engine.plan.ops import Conv2d, Tensor, YoloOutput

_KINDS = (Conv2d, YoloOutput)
_MOST_PIXELS = 1 << 15  # of a run: larger maps fill the card


def assign_streams(lowered: Lowered) -> Lowered:
    """Move steps that only side-stream steps depend on, and never the last step.

    A step on the main stream does not wait for the side stream. So if a step must stay on the main
    stream, its producers must as well.
    """
    plan, target = lowered.plan, lowered.target
    roots = {view.root for view in plan.views.values()}
    readers: dict[Tensor, list[int]] = {}
    for position, step in enumerate(lowered.steps):
        for tensor in (tensor for op in step.ops for tensor in op.reads):
            readers.setdefault(tensor, []).append(position)
    moved: set[int] = set()
    for position, step in reversed([*enumerate(lowered.steps)][:-1]):
        out = step.op.out
        is_whole = out not in plan.views and out not in roots and not out.is_state
        if (
            is_whole
            and isinstance(step.op, _KINDS)
            and target.rows(out) * out.shape.area <= _MOST_PIXELS
            and moved.issuperset(readers.get(out, ()))
            and can_move(step, target)
        ):
            moved.add(position)
    steps = (
        replace(step, is_on_side_stream=position in moved)
        for position, step in enumerate(lowered.steps)
    )
    ends = {lowered.steps[position].op.out for position in moved}
    decoders = (replace(each, is_on_side_stream=each.head.src in ends) for each in lowered.decoders)
    return replace(lowered, steps=tuple(steps), decoders=tuple(decoders))


def can_move(step: Step, target: Target) -> bool:
    """Whether the step uses nothing that a program has once, such as the workspace or cuBLAS."""
    if step.workspace(target):
        return False
    return not isinstance(step.op, Conv2d) or step.tile(target) is not None
