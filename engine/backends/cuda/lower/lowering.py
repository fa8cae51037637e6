"""The ordered list of target-aware passes. Nothing else rewrites or annotates a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.backends.cuda.lower.algorithm_choice import choose_algorithms
from engine.backends.cuda.lower.fold_factors import fold_factors
from engine.backends.cuda.lower.fuse_chains import fuse_chains, split_chains
from engine.backends.cuda.lower.lowered import Lowered
from engine.backends.cuda.lower.memory_layout import lay_out_memory
from engine.backends.cuda.lower.pixel_alignment import find_misaligned
from engine.backends.cuda.lower.precision_policy import choose_precision
from engine.backends.cuda.lower.side_stream import assign_streams
from engine.backends.cuda.lower.squeeze_excite import share_with_gates
from engine.backends.cuda.lower.weight_prefetch import prefetch_weights
from engine.backends.cuda.ops.target import Target
from engine.plan.build import Plan

Pass = Callable[[Lowered], Lowered]

FUSION: tuple[Pass, ...] = (choose_precision, find_misaligned, fold_factors, fuse_chains)
PLACEMENT: tuple[Pass, ...] = (
    choose_algorithms,
    share_with_gates,  # after the algorithms: not all of them can
    assign_streams,
    prefetch_weights,
    lay_out_memory,  # always last: it must know every step and its stream
)
LOWERING = FUSION + PLACEMENT


def lower(plan: Plan, target: Target) -> Lowered:
    """Run every pass."""
    return _run(LOWERING, Lowered(plan, target))


def fuse(plan: Plan, target: Target) -> Lowered:
    """Run the passes up to the choice of algorithms: the tuner measures what they return."""
    return _run(FUSION, Lowered(plan, target))


def place(fused: Lowered) -> Lowered:
    """Run the other passes; `fused.target` has the choices that were measured."""
    return _run(PLACEMENT, fused)


def in_floats(lowered: Lowered) -> Lowered:
    """The same ops in float32, by an algorithm for which nothing has to be compiled."""
    target = replace(lowered.target.in_floats(), algorithm="im2col_gemm")
    return place(find_misaligned(Lowered(split_chains(lowered.plan), target)))


def _run(passes: Iterable[Pass], lowered: Lowered) -> Lowered:
    for each in passes:
        lowered = each(lowered)
    return lowered
