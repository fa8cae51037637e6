"""[history]: the maps of the last time steps concatenated, the newest first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.darknet.blocks import Dense
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import option
from engine.darknet.recurrence import Recurrent, States, concat, unroll
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("history")
@dataclass(frozen=True)
class History(Recurrent):
    history_size: int = option(4, at_least=1)

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.check_steps()
        return Shape(shape.channels * self.history_size, shape.height, shape.width)

    def blocks(self, shape: Shape) -> tuple[Dense, ...]:
        return ()

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        out = self.infer(src.shape)
        older = out.channels - src.shape.channels
        if not older:
            return src
        if plan.steps == 1:
            # with one time step darknet keeps no history: the older maps are always zero
            past_shape = Shape(older, out.height, out.width)
            zeros = plan.constant("zeros", np.zeros(past_shape.sides, np.float32))
            past = plan.emit(ops.Load(plan.tensor(past_shape), zeros))
            return concat(plan, (src, src.shape.channels), (past, older))

        def step(inputs: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
            after = concat(plan, (inputs[0], src.shape.channels), (states[0], older))
            return after, (after,)

        return unroll(plan, [src], [out], step)
