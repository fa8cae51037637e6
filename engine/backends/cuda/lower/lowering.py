"""The ordered list of target-aware passes. Nothing else rewrites or annotates a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.backends.cuda import conv
from engine.backends.cuda.conv import sm90_fused
from engine.backends.cuda.conv.algorithm import KeepingConv2d
from engine.backends.cuda.lower import fusion
from engine.backends.cuda.lower.lowered import Decoder, Lowered, Step
from engine.backends.cuda.lower.memory_layout import find_misaligned, lay_out_memory
from engine.backends.cuda.lower.precision_policy import choose_precision
from engine.backends.cuda.lower.squeeze_excite import share_with_gates, split_large_gates
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.build import Plan
from engine.plan.ops import Chain, Conv2d, Op, Tensor, YoloOutput


def choose_algorithms(lowered: Lowered) -> Lowered:
    """Make a step of every op and of every head."""

    def choice(op: Op) -> Choice | None:
        if isinstance(op, Conv2d):
            return conv.choose(lowered.target, op)
        return sm90_fused.choose(lowered.target, op) if isinstance(op, Chain) else None

    steps = tuple(Step(op, choice(op)) for op in lowered.plan.ops)
    return replace(lowered, steps=steps, decoders=tuple(map(Decoder, lowered.plan.heads)))


_KINDS = (Conv2d, YoloOutput)
_MOST_PIXELS = 1 << 15  # per run; larger maps fill the card


def assign_streams(lowered: Lowered) -> Lowered:
    """Move steps to the side stream if only such steps depend on them; never the last step.

    A step on the main stream does not wait for the side stream. So if a step must stay on the main
    stream, its producers must as well, and a step that reads a state stays before its next Store.
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
        is_whole = out not in plan.views and out not in roots
        if (
            is_whole
            and isinstance(step.op, _KINDS)
            and not any(tensor.is_state for tensor in step.tensors)
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
    decoders = (replace(each, is_on_side_stream=each.op.src in ends) for each in lowered.decoders)
    return replace(lowered, steps=tuple(steps), decoders=tuple(decoders))


def can_move(step: Step, target: Target) -> bool:
    """Return whether the step uses nothing that a program has once (workspace, cuBLAS)."""
    if step.workspace(target) or isinstance(step.op, KeepingConv2d):  # whose map others read
        return False
    return not isinstance(step.op, Conv2d) or step.tile(target) is not None


Pass = Callable[[Lowered], Lowered]

FUSION: tuple[Pass, ...] = (
    split_large_gates,
    choose_precision,
    find_misaligned,
    fusion.fold_factors,
    fusion.fold_rounding,
    fusion.fold_conversions,
    fusion.fold_pools,
    fusion.fold_quarters,
    fusion.fuse_chains,
)
PLACEMENT: tuple[Pass, ...] = (
    choose_algorithms,
    share_with_gates,  # after the algorithms: not all of them can
    assign_streams,
    lay_out_memory,  # always last: it must know every step and its stream
)


def fuse(plan: Plan, target: Target) -> Lowered:
    """Run the passes up to the choice of algorithms: the tuner measures what they return."""
    return _run(FUSION, Lowered(plan, target))


def place(fused: Lowered) -> Lowered:
    """Run the other passes; `fused.target` has the choices that were measured."""
    return _run(PLACEMENT, fused)


def in_floats(lowered: Lowered) -> Lowered:
    """Return the same ops in float32, by an algorithm for which nothing has to be compiled."""
    target = replace(lowered.target.in_floats(), algorithm="im2col_gemm", scales={})
    return place(find_misaligned(Lowered(fusion.split_chains(lowered.plan), target)))


def _run(passes: Iterable[Pass], lowered: Lowered) -> Lowered:
    for each in passes:
        lowered = each(lowered)
    return lowered
