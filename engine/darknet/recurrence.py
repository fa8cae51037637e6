"""Recurrent layers: unrolling over time, states, and the options of convolutional recurrences."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.darknet.blocks import Convolution, Dense
from engine.darknet.layers.base import Layer, Parameter, Weights
from engine.darknet.options import activation_option, option
from engine.plan import ops
from engine.plan.build import PlanBuilder
from engine.plan.ops import ConcatPart, Tensor
from engine.plan.shapes import Shape

States = tuple[Tensor, ...]
# (inputs of one time step, states before it) -> (output, states after it)
TimeStep = Callable[[tuple[Tensor, ...], States], tuple[Tensor, States]]

MAX_TIME_STEPS = 4096  # the plan holds the ops of every time step


def unroll(
    plan: PlanBuilder, inputs: Sequence[Tensor], states: Sequence[Shape], step: TimeStep
) -> Tensor:
    """Emit `step` once for each time step of `inputs` and join its outputs."""
    stored = tuple(plan.tensor(shape, steps=1, is_state=True) for shape in states)
    current: States = stored
    outputs: list[Tensor] = []
    for number in range(plan.steps):
        output, current = step(tuple(_take_step(plan, each, number) for each in inputs), current)
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
    """Concatenate the first channels of each (tensor, number of channels)."""
    parts: list[ConcatPart] = []
    offset = 0
    for src, count in pieces:
        parts.append(ConcatPart(src, 0, count, offset))
        offset += count
    first = pieces[0][0]
    out = plan.tensor(Shape(offset, first.shape.height, first.shape.width), steps=first.steps)
    return plan.emit(ops.Concat(out, tuple(parts)))


def lower_simple_rnn(
    plan: PlanBuilder,
    weights: Weights,
    blocks: Sequence[Dense | Convolution],
    src: Tensor,
    *,
    hidden: Shape,
    shortcut: bool,
) -> Tensor:
    """Emit s' = input(x) + self(s) (+ s with `shortcut`), y = output(s').

    `blocks` are input, self and output.
    """
    from_input, from_state, to_output = (block.bind(plan, weights) for block in blocks)

    def step(inputs: tuple[Tensor, ...], states: States) -> tuple[Tensor, States]:
        (state,) = states
        after = add(plan, [*inputs, from_state(state), *(states if shortcut else ())])
        return after, (after,)

    return to_output(unroll(plan, [from_input(src)], [hidden], step))


class Recurrent(Layer):
    """A layer of dense or convolutional blocks whose states persist from run to run."""

    @abstractmethod
    def blocks(self, shape: Shape) -> tuple[Dense | Convolution, ...]:
        """Return the blocks in the order of the .weights file."""

    def check_steps(self) -> None:
        if self.context.net.time_steps > MAX_TIME_STEPS:
            raise self.error(
                "",
                f"expected at most {MAX_TIME_STEPS} time steps, got {self.context.net.time_steps}",
            )

    def parameters(self, *shapes: Shape) -> tuple[Parameter, ...]:
        return tuple(array for block in self.blocks(*shapes) for array in block.parameters())

    def operations(self, out: Shape, *shapes: Shape) -> int:
        matrices = (each for each in self.parameters(*shapes) if each.name.endswith("weight"))
        return sum(2 * each.size * out.area for each in matrices)


@dataclass(frozen=True)
class ConvolutionalRecurrent(Recurrent):
    """A recurrence over feature maps, whose blocks must preserve height and width."""

    output: int = option(1, at_least=1)
    size: int = option(3, at_least=1)
    stride: int = option(1, at_least=1)
    dilation: int = option(1, at_least=1)
    pad: bool = False  # pad size / 2 cells on each side and ignore `padding`
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
        for block in self.blocks(shape):
            if block.channels % self.groups or block.filters % self.groups:
                raise self.error(
                    "groups",
                    f"expected a divisor of {block.channels} channels and {block.filters} filters, "
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
        channels = max(block.channels for block in self.blocks(shape))
        widest = Shape(channels, shape.height, shape.width)
        return self.convolution("", channels, 1).padded(widest)

    @abstractmethod
    def blocks(self, shape: Shape) -> tuple[Convolution, ...]: ...

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
