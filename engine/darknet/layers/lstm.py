"""[lstm]: c' = f * c + i * g, h' = o * tanh(c'), with gates f, i, o and the new content g."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import option
from engine.darknet.parts import Dense, activate
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

    def parts(self, shape: Shape) -> tuple[Dense, ...]:
        """Darknet's names: w acts on the state, u on the input."""
        return tuple(
            Dense(inputs, self.output, self.batch_normalize, prefix=f"{source}{gate}_")
            for source, inputs in (("w", self.output), ("u", shape.size))
            for gate in _GATES
        )

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        dense = {part.prefix: part.bind(plan, weights) for part in self.parts(src.shape)}

        def step(fed: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
            state, cell = states
            forget, take, content, show = (
                add(plan, [dense[f"w{gate}_"](state), row], activation)
                for row, (gate, activation) in zip(fed, _GATES.items(), strict=True)
            )
            cell = add(plan, [multiply(plan, cell, forget), multiply(plan, content, take)])
            state = multiply(plan, activate(plan, cell, "tanh"), show)
            return state, (state, cell)

        fed = [dense[f"u{gate}_"](src) for gate in _GATES]
        return unroll(plan, fed, [Shape(self.output)] * 2, step)
