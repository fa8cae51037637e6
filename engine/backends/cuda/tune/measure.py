"""Choose which algorithms are tried on a convolution, and time them on the device's thread."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import inf, prod

import numpy as np

from engine.backends.cuda import conv
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.lower.memory_layout import lay_out_memory
from engine.backends.cuda.lower.squeeze_excite import partial_sums
from engine.backends.cuda.lower.weights import lay_out_weights
from engine.backends.cuda.ops.border import fill_with_noise
from engine.backends.cuda.ops.gpu import Annotations, align
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Gate

VARIANTS = 9  # tried of a large family
FEW_VARIANTS = 2  # tried of other families
PLAIN = frozenset({"direct", "tiled"})
_ALIKE = 2  # tried of the variants that do the same work


def distinct(fused: Lowered) -> list[Conv2d]:
    """Return a convolution of each signature, the most expensive signature first.

    If several share it, return the one whose place in memory suits most algorithms.
    """
    target = fused.target
    alike: dict[str, list[Conv2d]] = {}
    for op in fused.plan.ops:
        if isinstance(op, Conv2d):
            alike.setdefault(conv.signature(target, op), []).append(op)

    def products(group: list[Conv2d]) -> int:
        op = group[0]
        return len(group) * target.rows(op.out) * op.out.shape.size * prod(op.weight.shape[1:])

    groups = sorted(alike.values(), key=products, reverse=True)
    return [
        group[0] if len(group) == 1 else max(group, key=lambda op: len(conv.candidates(target, op)))
        for group in groups
    ]


def shortlist(target: Target, op: Conv2d) -> list[Choice]:
    """Return the rule of thumb, the most promising variants of each family, and single algorithms.

    Plain loops are slow to measure: they are tried only if no kernel with tensor cores can run.
    """
    able = conv.candidates(target, op)
    estimates = {each: conv.get(each).estimate(target, op) for each in able}
    variants = {each: cycles for each, cycles in estimates.items() if cycles is not None}
    families: dict[tuple[str, bool], list[Choice]] = {}
    for each in sorted(variants, key=variants.__getitem__):
        family = conv.ALGORITHMS[each.algorithm].family, each.unfused
        families.setdefault(family, []).append(each)
    promising = [each for alike in families.values() for each in _best_of(alike)]
    single = [each for each in able if each not in variants]
    if promising:
        single = [each for each in single if each.algorithm not in PLAIN]
    return list(dict.fromkeys([conv.rule_of_thumb(target, op), *promising, *single]))


def _best_of(family: list[Choice]) -> list[Choice]:
    """Return the first few, of which at most _ALIKE do the same work and differ in buffering."""
    seen: Counter[object] = Counter()
    found = []
    for choice in family:
        work = conv.ALGORITHMS[choice.algorithm].work
        seen[work] += 1
        if seen[work] <= _ALIKE:
            found.append(choice)
    is_large = conv.ALGORITHMS[family[0].algorithm].large
    return found[: VARIANTS if is_large else FEW_VARIANTS]


COPIES = 10  # in one graph, each with weights of its own: in a network they are not cached either
REPEATS = 5
_NOISE_BYTES = 1 << 30  # at a time


def measure(
    context: Context,
    target: Target,
    op: Conv2d,
    choice: Choice,
    give_up: float,
    gate: Gate | None = None,
) -> float:
    """Return the milliseconds of one run; infinity if memory does not suffice.

    If the algorithm can, it leaves partial sums for the gate. It is run once alone, and not
    repeated if that takes longer than `give_up`.
    """
    driver, stream = context.driver, context.stream
    lowered = alone(target, op, choice, gate)
    (step,) = lowered.steps
    layout, weights = lowered.layout, lay_out_weights(lowered)
    squeeze = 0 if gate is None else align(4 * prod(gate.squeeze.shape))
    size = layout.size + COPIES * weights.size + layout.workspace + squeeze
    if size > context.free_memory() // 2:
        return inf
    block = driver.mem_alloc(size)
    try:
        start = int(block)
        copies = [start + layout.size + copy * weights.size for copy in range(COPIES + 1)]
        gpu = lowered.on(
            context,
            activations=start,
            workspace=copies.pop(),
            arrays={} if gate is None else {(gate, "squeeze"): start + size - squeeze},
            annotations=step.annotations,
        )
        for offset in range(0, size, _NOISE_BYTES):  # zeros would take less power, and less time
            fill_with_noise(gpu, start + offset, min(_NOISE_BYTES, size - offset))
        for copy in copies:
            for offset, values in weights.arrays:
                if values.dtype == np.int32:  # counters, which must start at zero
                    context.zero(copy + offset, values.nbytes)
        gpus = []
        for copy in copies:
            own = {key: copy + at for key, at in weights.offsets.items()}
            gpus.append(replace(gpu, arrays={**gpu.arrays, **own}))
        context.blas.allow_tf32(target.precision == "tf32")
        step.enqueue(gpus[0])  # loads what is loaded lazily
        stream.synchronize()
        once = context.time_of(lambda: step.enqueue(gpus[0]))
        if once > give_up:
            return once

        def enqueue_all() -> None:
            for each in gpus:
                step.enqueue(each)

        return context.recorded_time_of(enqueue_all, REPEATS) / COPIES
    finally:
        stream.synchronize()
        block.free()


def alone(target: Target, op: Conv2d, choice: Choice, gate: Gate | None = None) -> Lowered:
    """Return a network of this convolution only; see `measure` about the gate."""
    step = Step(op, choice, Annotations(partial_sums(target, op, choice, gate)))
    return lay_out_memory(Lowered(_plan(op), target, (step,)))


def _plan(op: Conv2d) -> Plan:
    zero = np.float32(0)
    constants = {each.name: np.broadcast_to(zero, each.shape) for each in op.constants}
    return Plan(op.src, (op,), (), (), constants=constants)
