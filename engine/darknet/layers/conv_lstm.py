"""[conv_lstm]: an LSTM over feature maps, with convolutions in place of matrix products."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.blocks import BoundBlock, Convolution, activate
from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import activation_option, option
from engine.darknet.recurrence import (
    ConvolutionalRecurrent,
    States,
    add,
    concat,
    multiply,
    unroll,
)
from engine.plan import ops
from engine.plan.activations import ACTIVATIONS
from engine.plan.build import PlanBuilder
from engine.plan.ops import Tensor
from engine.plan.shapes import Shape

_GATES = ("f", "i", "g", "o")
_PEEPHOLE_GATES = ("f", "i", "o")


@layer("conv_lstm", training="time_normalizer")
@dataclass(frozen=True)
class ConvLstm(ConvolutionalRecurrent):
    activation: str = activation_option("linear")  # applied to each convolution before the sum
    peephole: bool = False  # the gates read the cell, too
    bottleneck: bool = False  # the gates read a convolution of state and input
    shortcut: bool = False  # with bottleneck: add its first half to the output
    lstm_activation: str = option("tanh", choices=ACTIVATIONS)
    state_constrain: int | None = option(None, at_least=0)  # 0 means no limit

    @property
    def limit(self) -> int:
        """Return the bound to which the cell is clipped after each step; 0 means no limit."""
        if self.state_constrain is None:
            return 32 * self.context.net.time_steps
        return self.state_constrain

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        if self.bottleneck and shape.channels != self.output:
            raise self.error(
                "bottleneck",
                f"expected as many filters in output as there are channels, {shape.channels}, "
                f"got {self.output}",
            )
        if self.bottleneck and self.shortcut and self.output % 2:
            raise self.error("shortcut", f"expected an even output, got {self.output}")
        return super().infer(shape)

    def blocks(self, shape: Shape) -> tuple[Convolution, ...]:
        """Return the blocks under darknet's names: v reads the cell, w the state, u the input."""
        count = self.output
        peepholes = _PEEPHOLE_GATES if self.peephole else ()
        v = [self.convolution(f"v{gate}_", count, count) for gate in peepholes]
        if self.bottleneck:
            w = [self.convolution("wf_", 2 * count, count)]
        else:
            w = [self.convolution(f"w{gate}_", count, count) for gate in _GATES]
        u = [self.convolution(f"u{gate}_", shape.channels, count) for gate in _GATES]
        return (*v, *w, *u)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        conv = {block.prefix: block.bind(plan, weights) for block in self.blocks(src.shape)}
        map_shape = Shape(self.output, src.shape.height, src.shape.width)

        def step(inputs: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
            if not self.bottleneck:
                state = states[0]
                sums = {
                    gate: [conv[f"w{gate}_"](state), from_input]
                    for gate, from_input in zip(_GATES, inputs, strict=True)
                }
                after = self._update(plan, conv, sums, states[1])
                return after[0], after
            narrow = self._bottleneck(plan, conv["wf_"], states[0], inputs[0])
            sums = {gate: [conv[f"u{gate}_"](narrow)] for gate in _GATES}
            after = self._update(plan, conv, sums, states[1])
            if not self.shortcut:
                return after[0], after
            half = concat(plan, (narrow, self.output // 2))
            return add(plan, [after[0], half]), after

        inputs = [src] if self.bottleneck else [conv[f"u{gate}_"](src) for gate in _GATES]
        return unroll(plan, inputs, [map_shape] * 2, step)

    def _bottleneck(
        self, plan: PlanBuilder, conv: BoundBlock, state: Tensor, src: Tensor
    ) -> Tensor:
        both = concat(plan, (state, self.output), (src, self.output))
        return activate(plan, conv(both), self.lstm_activation)

    def _update(
        self,
        plan: PlanBuilder,
        conv: dict[str, BoundBlock],
        sums: dict[str, list[Tensor]],
        cell: Tensor,
    ) -> States:
        """Return state and cell after a step; the output gate reads the new, unclipped cell."""

        def gate(name: str, activation: str = "logistic") -> Tensor:
            from_cell = [conv[f"v{name}_"](cell)] if f"v{name}_" in conv else []
            return add(plan, [*sums[name], *from_cell], activation)

        kept = multiply(plan, cell, gate("f"))
        added = multiply(plan, gate("g", self.lstm_activation), gate("i"))
        cell = add(plan, [kept, added])
        state = multiply(plan, activate(plan, cell, self.lstm_activation), gate("o"))
        if self.limit:
            out = plan.tensor(cell.shape, steps=1)
            cell = plan.emit(ops.Clip(out, cell, float(self.limit)))
        return _repair(plan, state), _repair(plan, cell)


def _repair(plan: PlanBuilder, src: Tensor) -> Tensor:
    return plan.emit(ops.Repair(plan.tensor(src.shape, steps=src.steps), src))
