"""Share work between a squeeze-and-excite gate and its neighbours: fewer kernels read the map.

A depthwise convolution can leave partial sums of its output, already multiplied by the weights of
the gate's first layer. They lie in the workspace, since nothing else runs between the two. A gate
can multiply the map by its factors, if that is what comes next. A gate that is too large for its
kernel runs as the layers that it stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from engine.backends.cuda import conv
from engine.backends.cuda.lower.lowered import Lowered, Step
from engine.backends.cuda.ops.gpu import Annotations, PartialSums
from engine.backends.cuda.ops.squeeze_excite import fits
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.ops import Activate, AveragePool, Constant, Conv2d, Gate, Multiply, Op, Tensor
from engine.plan.shapes import Shape, Window

_MOST_SCALED = 5 << 18  # values of all rows: larger maps are scaled faster by a kernel of their own


def split_large_gates(lowered: Lowered) -> Lowered:
    """Split Gate into AveragePool, Conv2d, Conv2d if a block cannot hold the hidden values."""
    plan = lowered.plan
    indices = count(1 + max(tensor.index for tensor in plan.tensors))
    made: list[Op] = []
    for op in plan.ops:
        if isinstance(op, Gate) and not fits(lowered.target, op):
            made += _layers(op, indices)
        else:
            made.append(op)
    return replace(lowered, plan=replace(plan, ops=tuple(made)))


def _layers(gate: Gate, indices: Iterator[int]) -> Iterator[Op]:
    """Yield the layers that passes/fuse_gate.py joined."""

    def new(channels: int) -> Tensor:
        return Tensor(next(indices), Shape(channels), gate.out.steps)

    def dense(
        out: Tensor, src: Tensor, weight: Constant, bias: Constant | None, activation: str
    ) -> Conv2d:
        if activation == "linear":
            return Conv2d(out, src, weight, bias)
        sums = new(out.shape.channels)
        return Conv2d(sums, src, weight, bias).then(Activate(out, sums, activation))

    src = gate.src.shape
    mean, hidden = new(src.channels), new(gate.squeeze.shape[0])
    yield AveragePool(mean, gate.src, Window(src.sides[1:]))
    yield dense(hidden, mean, gate.squeeze, gate.squeeze_bias, gate.squeeze_activation)
    yield dense(gate.out, hidden, gate.expand, gate.expand_bias, gate.activation)


def share_with_gates(lowered: Lowered) -> Lowered:
    """Annotate gates and the convolutions before them, and drop the products that gates compute."""
    target = lowered.target
    steps: list[Step] = []
    for step in lowered.steps:
        before = steps[-1] if steps else None
        if (
            before is not None
            and isinstance(step.op, Multiply)
            and before.annotations.multiply is None
            and scales(target, before.op, step.op)
        ):
            annotations = replace(before.annotations, multiply=step.op)
            steps[-1] = replace(before, annotations=annotations)
        else:
            sums = partial_sums(target, before.op, before.choice, step.op) if before else None
            annotations = Annotations(partial_sums=sums)
            if before is not None and sums is not None:
                steps[-1] = replace(before, annotations=annotations)
            steps.append(replace(step, annotations=annotations))
    return replace(lowered, steps=tuple(steps))


def scales(target: Target, gate: Op, op: Op) -> bool:
    """Return whether a gate can compute the product that comes next, and does so faster."""
    if not isinstance(gate, Gate) or not isinstance(op, Multiply):
        return False
    own, out = target.of(gate), op.out.shape
    if op.factor != gate.out or op.src.shape != out or own != target.of(op):
        return False
    if op.src == gate.out:  # the kernel loads the map before it has the factors
        return False
    if gate.src.shape.area != out.area:  # the maps that are summed and scaled may be different
        return False
    touched = {op.src, op.out, gate.out}
    is_packed = not (touched & own.misaligned or out.channels % own.pack)
    is_small = target.rows(op.out) * out.size <= _MOST_SCALED
    return is_packed and is_small and not touched & own.floats


def partial_sums(
    target: Target, op: Op, choice: Choice | None, gate: Op | None
) -> PartialSums | None:
    """Return what an algorithm leaves for the next op, if that is a gate of its output."""
    if not (isinstance(op, Conv2d) and choice and isinstance(gate, Gate) and gate.src == op.out):
        return None
    own = target.of(op)
    if choice.unfused or own.value_bytes != target.of(gate).value_bytes:
        return None
    return conv.ALGORITHMS[choice.algorithm].partial_sums(own, op, gate)
