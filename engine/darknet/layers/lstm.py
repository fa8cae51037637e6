"""[lstm]: c' = f * c + i * g, h' = o * tanh(c'), with gates f, i, o and the candidate g."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import Dense, activate
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import option
from engine.darknet.recurrence import Recurrent, States, add, multiply, unroll
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

_GATES = {"f": "logistic", "i": "logistic", "g": "tanh", "o": "logistic"}


@layer("lstm")
@dataclass(frozen=True)
class Lstm(Recurrent):
    output: int = option(1, at_least=1)
    batch_normalize: bool = False

    def infer(self, *shapes: Shape) -> Shape:
        self.check_steps()
        return Shape(self.output)

    def blocks(self, shape: Shape) -> tuple[Dense, ...]:
        """Return the blocks under darknet's names: w reads the state, u the input."""
        return tuple(
            Dense(inputs, self.output, self.batch_normalize, prefix=f"{source}{gate}_")
            for source, inputs in (("w", self.output), ("u", shape.size))
            for gate in _GATES
        )

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        dense = {block.prefix: block.bind(plan, weights) for block in self.blocks(src.shape)}

        def step(inputs: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
            state, cell = states
            f, i, g, o = (
                add(plan, [dense[f"w{gate}_"](state), from_input], activation)
                for from_input, (gate, activation) in zip(inputs, _GATES.items(), strict=True)
            )
            cell = add(plan, [multiply(plan, cell, f), multiply(plan, g, i)])
            state = multiply(plan, activate(plan, cell, "tanh"), o)
            return state, (state, cell)

        inputs = [dense[f"u{gate}_"](src) for gate in _GATES]
        return unroll(plan, inputs, [Shape(self.output)] * 2, step)
