"""[crnn]: convolutions around a hidden map: s' = input(x) + self(s), y = output(s')."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import Convolution
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import option
from engine.darknet.recurrence import ConvolutionalRecurrent, lower_simple_rnn
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape


@layer("crnn")
@dataclass(frozen=True)
class Crnn(ConvolutionalRecurrent):
    hidden: int = option(1, at_least=1)
    shortcut: bool = False

    def blocks(self, shape: Shape) -> tuple[Convolution, ...]:
        return (
            self.convolution("input_", shape.channels, self.hidden),
            self.convolution("self_", self.hidden, self.hidden),
            self.convolution("output_", self.hidden, self.output),
        )

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        hidden = Shape(self.hidden, src.shape.height, src.shape.width)
        blocks = self.blocks(src.shape)
        return lower_simple_rnn(plan, weights, blocks, src, hidden=hidden, shortcut=self.shortcut)
