"""[rnn]: dense layers around a hidden state: s' = input(x) + self(s), y = output(s')."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import Dense
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import activation_option, option
from engine.darknet.recurrence import Recurrent, lower_simple_rnn
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("rnn")
@dataclass(frozen=True)
class Rnn(Recurrent):
    output: int = option(1, at_least=1)
    hidden: int = option(1, at_least=1)
    activation: str = activation_option("logistic")
    batch_normalize: bool = False
    logistic: int = option(0, at_least=0, at_most=2)  # for self: 0 activation, 1 logistic, 2 loggy
    shortcut: bool = False

    def infer(self, *shapes: Shape) -> Shape:
        self.check_steps()
        return Shape(self.output)

    def blocks(self, shape: Shape) -> tuple[Dense, ...]:
        recurrent = (self.activation, "logistic", "loggy")[self.logistic]
        return (
            self._dense("input_", shape.size, self.hidden, self.activation),
            self._dense("self_", self.hidden, self.hidden, recurrent),
            self._dense("output_", self.hidden, self.output, self.activation),
        )

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        hidden = Shape(self.hidden)
        blocks = self.blocks(src.shape)
        return lower_simple_rnn(plan, weights, blocks, src, hidden=hidden, shortcut=self.shortcut)

    def _dense(self, prefix: str, inputs: int, outputs: int, activation: str) -> Dense:
        return Dense(inputs, outputs, self.batch_normalize, activation, prefix=prefix)
