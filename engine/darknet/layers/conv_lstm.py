"""[conv_lstm]: an lstm over maps, whose products are convolutions."""

from __future__ import annotations

from dataclasses import dataclass

from engine.darknet.layers.base import Weights, layer
from engine.darknet.options import activation_option, option
from engine.darknet.parts import Convolution, Stage, activate
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
_PEEPING = ("f", "i", "o")


@layer("conv_lstm", training="time_normalizer")
@dataclass(frozen=True)
class ConvLstm(ConvolutionalRecurrent):
    activation: str = activation_option("linear")  # of each convolution, before they are added
    peephole: bool = False  # the gates see the cell too
    bottleneck: bool = False  # one convolution of state and input first, which the gates read
    shortcut: bool = False  # with bottleneck: its first half is added to the output
    lstm_activation: str = option("tanh", choices=ACTIVATIONS)
    state_constrain: int | None = option(None, at_least=0)  # 0 is no limit

    @property
    def limit(self) -> int:
        """How large a cell may be after a step."""
        if self.state_constrain is None:
            return 32 * self.place.net.time_steps
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

    def parts(self, shape: Shape) -> tuple[Convolution, ...]:
        """Darknet's names: v acts on the cell, w on the state, u on the input."""
        count = self.output
        peeping = _PEEPING if self.peephole else ()
        v = [self.convolution(f"v{gate}_", count, count) for gate in peeping]
        if self.bottleneck:
            w = [self.convolution("wf_", 2 * count, count)]
        else:
            w = [self.convolution(f"w{gate}_", count, count) for gate in _GATES]
        u = [self.convolution(f"u{gate}_", shape.channels, count) for gate in _GATES]
        return (*v, *w, *u)

    def lower(self, plan: PlanBuilder, weights: Weights, *tensors: Tensor) -> Tensor:
        (src,) = tensors
        conv = {part.prefix: part.bind(plan, weights) for part in self.parts(src.shape)}
        map_shape = Shape(self.output, src.shape.height, src.shape.width)

        def step(fed: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
            if not self.bottleneck:
                state = states[0]
                sums = {
                    gate: [conv[f"w{gate}_"](state), row]
                    for gate, row in zip(_GATES, fed, strict=True)
                }
                after = self._update(plan, conv, sums, states[1])
                return after[0], after
            narrow = self._narrow(plan, conv["wf_"], states[0], fed[0])
            sums = {gate: [conv[f"u{gate}_"](narrow)] for gate in _GATES}
            after = self._update(plan, conv, sums, states[1])
            if not self.shortcut:
                return after[0], after
            half = concat(plan, (narrow, self.output // 2))
            return add(plan, [after[0], half]), after

        fed = [src] if self.bottleneck else [conv[f"u{gate}_"](src) for gate in _GATES]
        return unroll(plan, fed, [map_shape] * 2, step)

    def _narrow(self, plan: PlanBuilder, conv: Stage, state: Tensor, src: Tensor) -> Tensor:
        both = concat(plan, (state, self.output), (src, self.output))
        return activate(plan, conv(both), self.lstm_activation)

    def _update(
        self, plan: PlanBuilder, conv: dict[str, Stage], sums: dict[str, list[Tensor]], cell: Tensor
    ) -> States:
        """State and cell after a step. The output gate peeps at the new cell, before its limit."""

        def gate(name: str, activation: str = "logistic") -> Tensor:
            peeped = [conv[f"v{name}_"](cell)] if f"v{name}_" in conv else []
            return add(plan, [*sums[name], *peeped], activation)

        kept = multiply(plan, cell, gate("f"))
        taken = multiply(plan, gate("g", self.lstm_activation), gate("i"))
        cell = add(plan, [kept, taken])
        state = multiply(plan, activate(plan, cell, self.lstm_activation), gate("o"))
        if self.limit:
            out = plan.tensor(cell.shape, steps=1)
            cell = plan.emit(ops.Clip(out, cell, float(self.limit)))
        return _repair(plan, state), _repair(plan, cell)


def _repair(plan: PlanBuilder, src: Tensor) -> Tensor:
    return plan.emit(ops.Repair(plan.tensor(src.shape, steps=src.steps), src))
