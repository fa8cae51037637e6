"""Plans that run one case, with tensors that own memory or are views of wider ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.backends.base import Device
from engine.plan import ops
from engine.plan.build import Plan, View
from engine.plan.ops import ConcatPart, Constant, Tensor
from engine.plan.shapes import Shape
from tests.backends.cases import Case

Array = NDArray[Any]

MARK = 7.0  # the value of the margins of the output, before and after


@dataclass(frozen=True)
class Layout:
    name: str
    margin: int  # channels on either side of a tensor that is a view

    def __str__(self) -> str:
        return self.name


ALONE = Layout("alone", margin=0)
INSIDE = Layout("inside", margin=3)
INSIDE_ALIGNED = Layout("inside_aligned", margin=8)  # 16-byte loads are possible


def laid_out(case: Case, *, sequences: int, layout: Layout = ALONE) -> tuple[Plan, Array]:
    """Return a plan that runs `case` and its images; outputs are `out`, then its root."""
    inputs = case.inputs(sequences)
    plan = _plan(case, inputs)
    outputs = [case.op.out]
    if layout.margin:
        plan, root = _inside(plan, case.op, layout.margin)
        outputs.append(root)
    return replace(plan, outputs=tuple(outputs)), _source(plan, inputs, sequences)


def run_case(
    device: Device,
    case: Case,
    *,
    sequences: int,
    layout: Layout = ALONE,
    precision: str = "float32",
) -> Array:
    """Compile and run `case`; return its output in float64."""
    plan, images = laid_out(case, sequences=sequences, layout=layout)
    program = device.compile(plan, batch=sequences, precision=precision)
    try:
        result, *roots = program.forward(images)
    finally:
        program.close()
    for values in roots:
        np.testing.assert_array_equal(values[:, : layout.margin], MARK)
        np.testing.assert_array_equal(values[:, -layout.margin :], MARK)
    return result.astype(np.float64)


def _plan(case: Case, inputs: Mapping[Tensor, Array]) -> Plan:
    """Take the inputs from one flat source, unless the op reads only the source."""
    steps = max(tensor.steps for tensor in [*inputs, case.op.out])
    if len(inputs) == 1 and next(iter(inputs)).steps == steps:
        (source,) = inputs
        return Plan(source, (case.op,), (), (), constants=case.constants, steps=steps)
    source = Tensor(-1, Shape(sum(tensor.shape.size for tensor in inputs)), steps)
    feeders: list[ops.Op] = []
    first = 0
    for number, tensor in enumerate(inputs):
        size = tensor.shape.size
        cut = Tensor(-10 * number - 2, Shape(size), steps)
        feeders.append(ops.Concat(cut, (ConcatPart(source, first, size, at=0),)))
        if tensor.steps != steps:
            taken = Tensor(-10 * number - 3, Shape(size))
            feeders.append(ops.TakeStep(taken, cut, number % steps))
            cut = taken
        feeders.append(ops.Reshape(tensor, cut))
        first += size
    ops_in_order = (*feeders, case.op)
    return Plan(source, ops_in_order, (), (), constants=case.constants, steps=steps)


def _source(plan: Plan, inputs: Mapping[Tensor, Array], sequences: int) -> Array:
    if plan.source in inputs:
        return inputs[plan.source]
    source = np.zeros((plan.steps * sequences, *plan.source.shape.sides), np.float32)
    first = 0
    for number, (tensor, values) in enumerate(inputs.items()):
        step = 0 if tensor.steps == plan.steps else number % plan.steps
        rows = slice(step * sequences, step * sequences + len(values))
        source[rows, first : first + tensor.shape.size, 0, 0] = values.reshape(len(values), -1)
        first += tensor.shape.size
    return source


def _inside(plan: Plan, op: ops.Op, margin: int) -> tuple[Plan, Tensor]:
    """Make the tensors of `op` views of wider ones; the root of `out` is filled with MARK."""
    views: dict[Tensor, View] = {}
    for tensor in dict.fromkeys([*op.reads, op.out]):
        channels, height, width = tensor.shape.sides
        shape = Shape(channels + 2 * margin, height, width)
        views[tensor] = View(replace(tensor, index=tensor.index + 10_000, shape=shape), margin)
    root = views[op.out].root
    mark = Constant("mark", root.shape.sides)
    constants = {**plan.constants, mark.name: np.full(mark.shape, MARK, np.float32)}
    with_mark = (*plan.ops[:-1], ops.Load(root, mark), plan.ops[-1])
    return replace(plan, ops=with_mark, views=views, constants=constants), root
