"""Time one algorithm on one convolution, on the device's thread."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

import numpy as np

from engine.backends.cuda.driver import graphs
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.lower.memory_layout import align, lay_out_memory
from engine.backends.cuda.lower.squeeze_excite import partial_sums
from engine.backends.cuda.lower.weights import lay_out_weights
from engine.backends.cuda.ops.border import fill_with_noise
from engine.backends.cuda.ops.choice import Choice
from engine.backends.cuda.ops.gpu import Annotations, Gpu, Place
from engine.backends.cuda.ops.target import Target
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Gate

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
    sums = None if gate is None else partial_sums(target, op, choice, gate)
    step = Step(op, choice, Annotations(partial_sums=sums))
    lowered = lay_out_memory(Lowered(_plan(op), target, (step,)))
    layout, weights = lowered.layout, lay_out_weights(lowered)
    squeeze = 0 if gate is None else align(4 * prod(gate.squeeze.shape))
    size = layout.size + COPIES * weights.size + layout.workspace + squeeze
    if size > driver.mem_get_info()[0] // 2:
        return inf
    block = driver.mem_alloc(size)
    try:
        start = int(block)
        copies = [start + layout.size + copy * weights.size for copy in range(COPIES + 1)]
        gpu = Gpu(
            target,
            kernels=context.kernels(target.precision),
            blas=context.blas,
            stream=stream,
            places={
                tensor: Place(start + each.offset, each.pitch)
                for tensor, each in layout.slices.items()
            },
            arrays={} if gate is None else {(gate, "squeeze"): start + size - squeeze},
            workspace=copies.pop(),
            candidates=None,
            sequences=target.batch,
            annotations=step.annotations,
        )
        for offset in range(0, size, _NOISE_BYTES):  # zeros would take less power, and less time
            fill_with_noise(gpu, start + offset, min(_NOISE_BYTES, size - offset))
        for copy in copies:
            for offset, values in weights.arrays:
                if values.dtype == np.int32:  # counters, which must start at zero
                    gpu.zero(copy + offset, values.nbytes)
        gpus = [
            gpu.with_arrays({key: copy + at for key, at in weights.offsets.items()})
            for copy in copies
        ]
        context.blas.allow_tf32(target.precision == "tf32")
        step.enqueue(gpus[0])  # loads what is loaded lazily
        stream.synchronize()
        alone = _timed(context, lambda: step.enqueue(gpus[0]))
        if alone > give_up:
            return alone

        def enqueue_all() -> None:
            for each in gpus:
                step.enqueue(each)

        recorded = graphs.record(stream.handle, enqueue_all)
        try:
            recorded.launch()
            times = [_timed(context, recorded.launch) for _ in range(REPEATS)]
            return float(np.median(times)) / COPIES
        finally:
            stream.synchronize()
            recorded.close()
    finally:
        stream.synchronize()
        block.free()


def _plan(op: Conv2d) -> Plan:
    zero = np.float32(0)
    constants = {each.name: np.broadcast_to(zero, each.shape) for each in op.constants}
    return Plan(op.src, (op,), (), (), constants=constants)


def _timed(context: Context, enqueue: Callable[[], None]) -> float:
    start, end = context.driver.Event(), context.driver.Event()
    start.record(context.stream)
    enqueue()
    end.record(context.stream)
    end.synchronize()
    return float(end.time_since(start))
