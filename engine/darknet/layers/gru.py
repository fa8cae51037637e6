"""[gru]: h' = z * h + (1 - z) * candidate(x, r * h), with gates z and r."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import Dense
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import option
from engine.darknet.recurrence import Recurrent, States, add, multiply, unroll
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

_GATES = ("z", "r", "h")


@layer("gru")
@dataclass(frozen=True)
class Gru(Recurrent):
    output: int = option(1, at_least=1)
    batch_normalize: bool = False
    tanh: bool = False  # the candidate's activation; darknet's default is logistic

    def makes_map(self, *shapes: Shape) -> bool:
        return False

    def infer(self, *shapes: Shape) -> Shape:
        self.check_steps()
        return Shape(self.output)

    def blocks(self, shape: Shape) -> tuple[Dense, ...]:
        return tuple(
            Dense(inputs, self.output, self.batch_normalize, prefix=f"{source}_{gate}_")
            for source, inputs in (("input", shape.size), ("state", self.output))
            for gate in _GATES
        )

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        dense = {block.prefix: block.bind(plan, weights) for block in self.blocks(src.shape)}

        def step(inputs: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
            (state,), (input_z, input_r, input_h) = states, inputs
            update = add(plan, [input_z, dense["state_z_"](state)], "logistic")
            reset = add(plan, [input_r, dense["state_r_"](state)], "logistic")
            remembered = dense["state_h_"](multiply(plan, state, reset))
            candidate = add(plan, [input_h, remembered], "tanh" if self.tanh else "logistic")
            after = plan.tensor(state.shape, steps=1)
            plan.emit(ops.Mix(after, update, state, candidate))
            return after, (after,)

        inputs = [dense[f"input_{gate}_"](src) for gate in _GATES]
        return unroll(plan, inputs, [Shape(self.output)], step)
