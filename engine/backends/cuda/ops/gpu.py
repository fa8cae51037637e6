"""What an op function sees of a program: memory, kernels, a stream.

An op function does not allocate, does not wait, and does not read the device. It only enqueues on
the program's stream, so that the same function serves an eager run, a graph capture and a
measurement.

    @runs(ops.MaxPool)
    def max_pool(gpu: Gpu, op: ops.MaxPool) -> None:
        gpu.launch_packed("max_pool", op)

Activations are NHWC. A tensor is a pointer and a pitch: the values from one pixel to the next. A
tensor that lives inside a wider one has its root's pitch and a pointer moved by its first channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from engine.arrays import Array
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.ops.arguments import arguments_of
from engine.backends.cuda.ops.target import Target as Target
from engine.plan.ops import Gate, Head, Multiply, Op, Tensor

if TYPE_CHECKING:
    from engine.backends.cuda.driver.cublas import Blas
    from engine.backends.cuda.driver.loaded_kernels import Kernels

THREADS = 256
MOST_GRID = 65535  # blocks in the second and the third dimension of a grid
ALIGNMENT = 256  # bytes: what the driver's own allocations have
NOTHING: Mapping[str, Any] = {}


def align(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True)
class Place:
    """The place of a tensor in device memory."""

    pointer: int  # or the offset into a block of memory
    pitch: int  # values from one pixel to the next


@dataclass(frozen=True)
class PartialSums:
    """What a depthwise convolution leaves in the workspace for the gate that reads its output.

    Each block of its kernel adds up one of `parts` of a row's lines, for one of `chunks` of the
    channels, and multiplies the sums with the weights of the gate's first layer.
    """

    gate: Gate
    parts: int
    chunks: int

    @property
    def pieces(self) -> int:
        return self.parts * self.chunks

    @property
    def floats(self) -> int:
        """The number of floats in all pieces of a row."""
        return self.pieces * padded_hidden(self.gate)


def padded_hidden(gate: Gate) -> int:
    """Return the floats of a piece: outputs of the gate's first layer, padded to whole fours."""
    return -(-gate.squeeze.shape[0] // 4) * 4


@dataclass(frozen=True)
class Annotations:
    """What the lowering tells an op function about the neighbours of its op."""

    partial_sums: PartialSums | None = None  # left by a convolution, read by the gate after it
    multiply: Multiply | None = None  # the op that a gate computes as well


NO_ANNOTATIONS = Annotations()


@dataclass(frozen=True)
class Gpu:
    """The memory, kernels and stream of one program, for a run of `sequences` sequences."""

    target: Target
    kernels: Kernels
    blas: Blas
    stream: Any
    places: Mapping[Tensor, Place]
    arrays: Mapping[tuple[Op | Head, str], int]
    workspace: int  # pointer; as many bytes as the step's workspace hook asked for
    sequences: int
    decoding: Mapping[Op | Head, Mapping[str, int]] = field(default_factory=dict)  # by head
    flag: int = 0  # pointer to the word that is set when results are not finite; 0: unchecked
    annotations: Annotations = NO_ANNOTATIONS
    next_weights: tuple[int, int] = (0, 0)  # pointer and bytes of those of the next convolution

    def of(self, item: Op | Head) -> Gpu:
        """Return the counterpart in the precision that an op or head computes in."""
        return self._counterpart(self.target.of(item))

    def storing(self, tensor: Tensor) -> Gpu:
        """Return the counterpart whose kernels store values as those of this tensor."""
        return self._counterpart(self.target.storing(tensor))

    def _counterpart(self, target: Target) -> Gpu:
        if target is self.target:
            return self
        return replace(self, target=target, kernels=self.kernels.storing(target.precision))

    def for_part(
        self, part: Op, op: Op, between: Tensor, pointer: int | None, **changes: Any
    ) -> Gpu:
        """Return the counterpart that runs a part of an op, with the op's arrays.

        `between` is placed at `pointer`; without one it keeps its own place.
        """
        own = ((name, at) for (item, name), at in self.arrays.items() if item == op)
        return replace(
            self,
            places=self.places
            if pointer is None
            else {**self.places, between: Place(pointer, between.shape.channels)},
            arrays={(part, name): at for name, at in own},
            **changes,
        )

    @property
    def is_single(self) -> bool:
        """Whether this run is so short that it matters how soon each kernel starts."""
        return self.sequences == 1

    @property
    def most_blocks(self) -> int:
        return self.target.multiprocessors * 32

    def __getitem__(self, tensor: Tensor) -> int:
        """Return the pointer to the first value of `tensor`."""
        return self.places[tensor].pointer

    def pitch(self, tensor: Tensor) -> int:
        """Return the values from one pixel of `tensor` to the next."""
        return self.places[tensor].pitch

    def rows(self, tensor: Tensor) -> int:
        """Return the rows of `tensor` in this run."""
        return self.sequences * tensor.steps

    def pixels(self, tensor: Tensor) -> int:
        """Return the pixels of all rows of `tensor` in this run."""
        return self.rows(tensor) * tensor.shape.area

    def packs(self, *tensors: Tensor) -> bool:
        """Return whether addresses and sizes of these tensors' pixels are multiples of 16 bytes."""
        values = self.target.pack
        return not any(
            self[each] % 16 or self.pitch(each) % values or each.shape.channels % values
            for each in tensors
        )

    def array(self, op: Op | Head, name: str) -> int:
        """Return the pointer to the array that `prepare` returned under this name, or 0."""
        return self.arrays.get((op, name), 0)

    def values(self, tensor: Tensor) -> int:
        """Return the values of all rows of `tensor` in this run."""
        return self.pixels(tensor) * tensor.shape.channels

    def arguments(
        self, op: Any, src: Tensor | None = None, out: Tensor | None = None
    ) -> dict[str, Any]:
        """Return what the names of parameters stand for; see arguments.py.

        The tensors are those of the op, which may be None if both are given.
        """
        written = out or (op.src if isinstance(op, Head) else op.out)
        own = getattr(op, "src", written)
        return arguments_of(self, op, src or own, written)

    def launch_op(self, kernel: str, op: Any, items: int | None = None, /, **own: Any) -> None:
        """Enqueue a kernel that computes an op, by default with a work item for each value."""
        items = self.values(op.out) if items is None else items
        self.launch(kernel, items, self.arguments(op), **own)

    def launch_packed(self, kernel: str, op: Any, /, *tensors: Tensor, **own: Any) -> None:
        """Enqueue a kernel that computes an op, in packs of 16 bytes where memory allows it.

        `tensors` are those that it reads or writes in packs, by default the source and the output.
        """
        if self.packs(*(tensors or (op.src, op.out))):
            self.launch_op(f"{kernel}_packed", op, self.values(op.out) // self.target.pack, **own)
        else:
            self.launch_op(kernel, op, **own)

    def launch_map(
        self, kernel: str, src: Tensor, out: Tensor, items: int | None = None, /, **own: Any
    ) -> None:
        """Enqueue a kernel that computes one tensor from another and reads no field of an op."""
        items = self.values(out) if items is None else items
        self.launch(kernel, items, self.arguments(None, src, out), **own)

    def launch(
        self, kernel: str, items: int, known: Mapping[str, Any] = NOTHING, /, **own: Any
    ) -> None:
        """Enqueue a grid-stride kernel over `items` work items."""
        blocks = max(1, min(-(-items // THREADS), self.most_blocks))
        self.launch_grid(kernel, (blocks, 1, 1), THREADS, known, **own)

    def launch_grid(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        threads: int,
        known: Mapping[str, Any] = NOTHING,
        /,
        shared: int = 0,
        **own: Any,
    ) -> None:
        """Enqueue a kernel on a grid of its own; `shared` bytes are its dynamic shared memory.

        Its arguments are `own` and those values of `known` for which it has parameters.
        """
        wanted = known.keys() & compiler.parameters(kernel).keys()
        values = compiler.in_order(kernel, {name: known[name] for name in wanted} | own)
        self.kernels.launch(
            *(kernel, grid, threads, values),
            stream=self.stream.handle,
            shared=shared,
            all_shared=self.is_single,
        )


Arrays = Mapping[str, Array]  # the constants of one op, by the name of the op's field
Run = Callable[[Gpu, Any], None]
Workspace = Callable[[Target, Any], int]
Prepare = Callable[[Target, Any, Arrays], Arrays]
_Function = TypeVar("_Function", bound=Run)


@dataclass(frozen=True)
class Runner:
    """The functions that run one kind of op."""

    enqueue: Run
    workspace: Workspace
    prepare: Prepare


RUNNERS: dict[type[Op | Head], Runner] = {}


def runs(
    kind: type[Op | Head],
    *,
    workspace: Workspace = lambda target, op: 0,
    prepare: Prepare = lambda target, op, constants: constants,
) -> Callable[[_Function], _Function]:
    """Register the function that enqueues an op or decodes a head; see detection_buffer.py.

    `workspace` returns the bytes of scratch memory that an op needs at most. `prepare` returns the
    arrays to upload, by name and of any dtype; without it an op's constants are uploaded unchanged
    under the names of its fields. Both are pure functions.
    """

    def register(function: _Function) -> _Function:
        RUNNERS[kind] = Runner(function, workspace, prepare)
        return function

    return register
