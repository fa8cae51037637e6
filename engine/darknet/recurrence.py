"""Recurrence: a step repeated over time, its states, and the options of convolutional ones."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.darknet.layers.base import Layer, Parameter, Weights
from engine.darknet.options import activation_option, option
from engine.darknet.parts import Convolution, Dense
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import Part, Tensor
from engine.plan.shapes import Shape

States = tuple[Tensor, ...]
# what is fed at one time step, the states before it -> output, the states after it
Step = Callable[[tuple[Tensor, ...], States], tuple[Tensor, States]]

MOST_STEPS = 4096  # each is written out, op by op


def unroll(plan: PlanBuilder, fed: Sequence[Tensor], states: Sequence[Shape], step: Step) -> Tensor:
    """Write `step` once for each time step of `fed`; its outputs, joined again."""
    stored = tuple(plan.tensor(shape, steps=1, is_state=True) for shape in states)
    current: States = stored
    outputs: list[Tensor] = []
    for number in range(plan.steps):
        rows = tuple(_take_step(plan, each, number) for each in fed)
        output, current = step(rows, current)
        outputs.append(output)
    for state, last in zip(stored, current, strict=True):
        plan.emit(ops.Store(state, last))
    if len(outputs) == 1:
        return outputs[0]
    return plan.emit(ops.JoinSteps(plan.tensor(outputs[0].shape), tuple(outputs)))


def _take_step(plan: PlanBuilder, src: Tensor, number: int) -> Tensor:
    if plan.steps == 1:
        return src
    return plan.emit(ops.TakeStep(plan.tensor(src.shape, steps=1), src, number))


def add(plan: PlanBuilder, sources: Sequence[Tensor], activation: str = "linear") -> Tensor:
    out = plan.tensor(sources[0].shape, steps=sources[0].steps)
    return plan.emit(ops.Add(out, tuple(sources), activation=activation))


def multiply(plan: PlanBuilder, src: Tensor, factor: Tensor) -> Tensor:
    out = plan.tensor(src.shape, steps=src.steps)
    return plan.emit(ops.Multiply(out, src, factor))


def concat(plan: PlanBuilder, *pieces: tuple[Tensor, int]) -> Tensor:
    """The first channels, as many as each piece says, one behind the other."""
    parts: list[Part] = []
    at = 0
    for src, count in pieces:
        parts.append(Part(src, 0, count, at))
        at += count
    first = pieces[0][0]
    out = plan.tensor(Shape(at, first.shape.height, first.shape.width), steps=first.steps)
    return plan.emit(ops.Concat(out, tuple(parts)))


def loop_hidden(
    plan: PlanBuilder,
    weights: Weights,
    parts: Sequence[Dense | Convolution],
    src: Tensor,
    *,
    hidden: Shape,
    shortcut: bool,
) -> Tensor:
    """s' = input(x) + self(s), + s with `shortcut`; y = output(s'); the parts in this order."""
    feed, keep, answer = (part.bind(plan, weights) for part in parts)

    def step(fed: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
        (state,) = states
        after = add(plan, [*fed, keep(state), *(states if shortcut else ())])
        return after, (after,)

    return answer(unroll(plan, [feed(src)], [hidden], step))


class Recurrent(Layer):
    """A layer made of dense or convolutional parts, whose states survive from run to run."""

    @abstractmethod
    def parts(self, shape: Shape) -> tuple[Dense | Convolution, ...]:
        """In the order of the .weights file."""

    def check_steps(self) -> None:
        if self.place.net.time_steps > MOST_STEPS:
            raise self.error(
                "", f"expected at most {MOST_STEPS} time steps, got {self.place.net.time_steps}"
            )

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        return tuple(array for part in self.parts(*shapes) for array in part.parameters())

    def operations(self, out: Shape, *shapes: Shape) -> int:
        matrices = (each for each in self.parameters(*shapes) if each.name.endswith("weight"))
        return sum(2 * each.size * out.area for each in matrices)


@dataclass(frozen=True)
class ConvolutionalRecurrent(Recurrent):
    """A recurrence over maps. States have the extents of the input, so its parts must keep them."""

    output: int = option(1, at_least=1)
    size: int = option(3, at_least=1)
    stride: int = option(1, at_least=1)
    dilation: int = option(1, at_least=1)
    pad: bool = False  # size / 2 cells on each side; `padding` is ignored then
    padding: int = option(0, at_least=0)
    groups: int = option(1, at_least=1)
    batch_normalize: bool = False
    activation: str = activation_option("logistic")
    xnor: bool = False

    needs_map = True

    def infer(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        self.check_steps()
        if self.xnor:
            raise self.error("xnor", "is not supported in a recurrent layer")
        for part in self.parts(shape):
            if part.channels % self.groups or part.filters % self.groups:
                raise self.error(
                    "groups",
                    f"expected a divisor of {part.channels} channels and {part.filters} filters, "
                    f"got {self.groups}",
                )
        out = self.convolution("", shape.channels, self.output).infer(shape)
        if (out.height, out.width) != (shape.height, shape.width):
            raise self.error(
                "size",
                "expected an odd size with pad=1 and stride=1, which keep the map at "
                f"{shape.width} x {shape.height}, got {out.width} x {out.height}",
            )
        return out

    def padded(self, *shapes: Shape) -> Shape:
        (shape,) = shapes
        channels = max(part.channels for part in self.parts(shape))
        widest = Shape(channels, shape.height, shape.width)
        return self.convolution("", channels, 1).padded(widest)

    @abstractmethod
    def parts(self, shape: Shape) -> tuple[Convolution, ...]: ...

    def convolution(self, prefix: str, channels: int, filters: int) -> Convolution:
        return Convolution(
            channels,
            filters,
            self.size,
            (self.stride, self.stride),
            padding=self.size // 2 if self.pad else self.padding,
            dilation=1 if self.size == 1 else self.dilation,
            groups=self.groups,
            batch_normalize=self.batch_normalize,
            activation=self.activation,
            prefix=prefix,
        )
