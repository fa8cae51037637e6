"""The result of lowering a plan: steps in the order of their launch, and their memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from engine.backends.cuda import conv
from engine.backends.cuda.conv import sm90_fused
from engine.backends.cuda.driver.context import Context
from engine.backends.cuda.driver.tiles import Tile
from engine.backends.cuda.ops.gpu import NO_ANNOTATIONS, RUNNERS, Annotations, Arrays, Gpu, Place
from engine.backends.cuda.ops.target import Choice, Target
from engine.plan.build import Plan
from engine.plan.ops import Conv2d, Head, Op, Tensor


class _Launch:
    """An op or a head, with what a program enqueues for it."""

    op: Op | Head

    @property
    def runner(self) -> Any:
        return RUNNERS[type(self.op)]

    def workspace(self, target: Target) -> int:
        """Return the bytes of scratch memory that it needs at most."""
        size: int = self.runner.workspace(target.of(self.op), self.op)
        return size

    def prepare(self, target: Target, constants: Arrays) -> Arrays:
        """Return the arrays to upload, by name."""
        arrays: Arrays = self.runner.prepare(target.of(self.op), self.op, constants)
        return arrays

    def enqueue(self, gpu: Gpu) -> None:
        """Launch it; `gpu` is bound to its op."""
        self.runner.enqueue(gpu, self.op)


@dataclass(frozen=True)
class Step(_Launch):
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
    def runner(self) -> Any:
        """The algorithm of a convolution, the kernel of a chain, or the Runner of another op."""
        if self.choice is None:
            return super().runner
        return (conv.get if isinstance(self.op, Conv2d) else sm90_fused.get)(self.choice)

    def workspace(self, target: Target) -> int:
        sums = self.annotations.partial_sums
        shared = 0 if sums is None else 4 * target.rows(sums.gate.src) * sums.floats
        return max(shared, super().workspace(target))

    def tile(self, target: Target) -> Tile | None:
        """Return the tile that the step launches, if it is a tensor-core kernel."""
        made: Tile | None = self.runner.tile(target.of(self.op), self.op) if self.choice else None
        return made


@dataclass(frozen=True)
class Decoder(_Launch):
    """The step that decodes the boxes of one detection head."""

    op: Head
    is_on_side_stream: bool = False


@dataclass(frozen=True)
class Layout:
    """The place of every tensor in one block of device memory."""

    slices: Mapping[Tensor, Place] = field(default_factory=dict)
    states: tuple[tuple[int, int], ...] = ()  # (offset, bytes) of tensors that outlive a run
    padded: tuple[tuple[int, int], ...] = ()  # the same of padded tensors
    returned: frozenset[Tensor] = frozenset()  # outputs that are written where the host reads them
    size: int = 0
    workspace: int = 0  # bytes of the block of scratch memory


@dataclass(frozen=True)
class Lowered:
    """A plan on its way through the passes; `steps` and `layout` are filled in by the last ones."""

    plan: Plan
    target: Target
    steps: tuple[Step, ...] = ()
    decoders: tuple[Decoder, ...] = ()
    layout: Layout = field(default_factory=Layout)

    def on(self, context: Context, *, activations: int, workspace: int, **others: Any) -> Gpu:
        """Return what op functions see of a program with these pointers to its memory."""
        return Gpu(
            self.target,
            kernels=context.kernels(self.target.precision),
            blas=context.blas,
            stream=context.stream,
            places={
                tensor: replace(each, pointer=activations + each.pointer)
                for tensor, each in self.layout.slices.items()
            },
            workspace=workspace,
            sequences=self.target.batch,
            **others,
        )

    @property
    def launches(self) -> tuple[Step | Decoder, ...]:
        return *self.steps, *self.decoders
