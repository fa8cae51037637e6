"""What the lowering makes of a plan: steps in the order of their launch, and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from engine.backends.cuda import conv
from engine.backends.cuda.conv import chains
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import DECODERS, NO_ANNOTATIONS, RUNNERS, Annotations, Arrays, Gpu
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.build import Plan
from engine.plan.ops import Chain, Conv2d, Head, Op, Tensor


@dataclass(frozen=True)
class Step:
    """One op with everything that was decided about its launch."""

    op: Op
    choice: Choice | None = None  # the algorithm of a convolution, the kernel of a chain
    annotations: Annotations = NO_ANNOTATIONS
    is_on_side_stream: bool = False

    @property
    def ops(self) -> tuple[Op, ...]:
        """Every op that the step computes."""
        multiply = self.annotations.multiply
        return (self.op,) if multiply is None else (self.op, multiply)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that the step reads or writes."""
        return tuple(tensor for op in self.ops for tensor in (*op.reads, op.out))

    @property
    def decided(self) -> Choice:
        """The choice, of a step that has one."""
        assert self.choice is not None, self.op
        return self.choice

    def workspace(self, target: Target) -> int:
        """Return the bytes of scratch memory that the step needs at most."""
        own, sums = target.of(self.op), self.annotations.partial_sums
        shared = 0 if sums is None else 4 * target.rows(sums.gate.src) * sums.floats
        if isinstance(self.op, Conv2d):
            return max(shared, conv.workspace(own, self.op, self.decided))
        if isinstance(self.op, Chain):
            return shared
        return max(shared, RUNNERS[type(self.op)].workspace(own, self.op))

    def prepare(self, target: Target, constants: Arrays) -> Arrays:
        """Return the arrays to upload, by name."""
        own = target.of(self.op)
        if isinstance(self.op, Conv2d):
            return conv.prepare(own, self.op, self.decided, constants)
        if isinstance(self.op, Chain):
            return chains.prepare(own, self.op, self.decided, constants)
        return RUNNERS[type(self.op)].prepare(own, self.op, constants)

    def tile(self, target: Target) -> Tile | None:
        """Return the kernel that is compiled for this step alone, if there is one."""
        own = target.of(self.op)
        if isinstance(self.op, Conv2d):
            return conv.tile(own, self.op, self.decided)
        return chains.tile(own, self.op, self.decided) if isinstance(self.op, Chain) else None

    def enqueue(self, gpu: Gpu) -> None:
        """Launch the step; `gpu` is bound to its op."""
        if isinstance(self.op, Conv2d):
            conv.enqueue(gpu, self.op, self.decided)
        elif isinstance(self.op, Chain):
            chains.enqueue(gpu, self.op, self.decided)
        else:
            RUNNERS[type(self.op)].run(gpu, self.op)


@dataclass(frozen=True)
class Decoder:
    """The step that decodes the boxes of one detection head."""

    head: Head
    is_on_side_stream: bool = False

    def workspace(self, target: Target) -> int:
        return DECODERS[type(self.head)].workspace(target.of(self.head), self.head)

    def prepare(self, target: Target, constants: Arrays) -> Arrays:
        return DECODERS[type(self.head)].prepare(target.of(self.head), self.head, constants)

    def enqueue(self, gpu: Gpu) -> None:
        DECODERS[type(self.head)].run(gpu, self.head)


@dataclass(frozen=True)
class Slice:
    """Part of the block of activations."""

    offset: int  # bytes
    pitch: int  # values from one pixel to the next


@dataclass(frozen=True)
class Layout:
    """The place of every tensor in one block of device memory."""

    slices: Mapping[Tensor, Slice] = field(default_factory=dict)
    states: tuple[tuple[int, int], ...] = ()  # (offset, bytes) of what outlives a run
    padded: tuple[tuple[int, int], ...] = ()  # of tensors with padding between pixels
    size: int = 0
    workspace: int = 0  # bytes of the block of scratch memory


EMPTY_LAYOUT = Layout()


@dataclass(frozen=True)
class Lowered:
    """A plan on its way through the passes; `steps` and `layout` are filled in by the last ones."""

    plan: Plan
    target: Target
    steps: tuple[Step, ...] = ()
    decoders: tuple[Decoder, ...] = ()
    layout: Layout = EMPTY_LAYOUT

    @property
    def launches(self) -> tuple[Step | Decoder, ...]:
        return *self.steps, *self.decoders
