"""What an op function sees of a program, and the registry that says which function runs which op.

Three laws of an op function: it does not allocate, it does not wait, it does not read the device.
It only enqueues on the program's stream, so that the same function serves an eager run, a graph
capture and a measurement.

    @runs(ops.MaxPool)
    def max_pool(gpu: Gpu, op: ops.MaxPool) -> None:
        gpu.launch_packed("max_pool", op.src, op.out, **window_sizes(op.window))

Activations are NHWC. A tensor is a pointer and a pitch: the values from one pixel to the next. A
tensor that lives inside a wider one has its root's pitch and a pointer moved by its first channel.
program.py brings images in and results out; importing ops.py must register every op and head.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from engine.arrays import Array
from engine.backends.cuda.driver import compiler
from engine.backends.cuda.ops.choice import Choice
from engine.plan.activations import ACTIVATIONS
from engine.plan.ops import Conv2d, Gate, Head, Multiply, Op, Tensor
from engine.plan.shapes import Window

if TYPE_CHECKING:
    from engine.backends.cuda.driver.cublas import Blas
    from engine.backends.cuda.driver.launch import Function
    from engine.backends.cuda.driver.loaded_kernels import Kernels
    from engine.backends.cuda.driver.tiles import Tile

Arrays = Mapping[str, Array]  # the constants of one op, by the name of the op's field

VALUE_BYTES = {"float32": 4, "tf32": 4, "float16": 2}
THREADS = 256
_NARROW_SUM = 48  # products at most
KINDS = {name: kind for kind, name in enumerate(ACTIVATIONS)}  # the `kind` of the C `activate`


def is_narrow(op: Op | Head) -> bool:
    """Whether a convolution sums so few products that the rounding of its weights would show.

    Such layers are bound by memory, so that a better product costs next to nothing.
    """
    if not isinstance(op, Conv2d) or op.is_depthwise or op.src.shape.area == 1:
        return False
    return math.prod(op.weight.shape[1:]) <= _NARROW_SUM


@dataclass(frozen=True)
class Target:
    """What a program is compiled for; all of it is known before anything is allocated."""

    batch: int  # sequences at most
    precision: str
    capability: tuple[int, int]
    multiprocessors: int
    algorithm: str | None = None  # run every convolution that can by this one
    measured: Mapping[str, Choice] = field(default_factory=dict)  # by signature

    misaligned: frozenset[Tensor] = frozenset()  # pixels of these do not begin on 16 bytes
    floats: frozenset[Tensor] = frozenset()  # of a program of halves; see floats.py

    @property
    def value_bytes(self) -> int:
        """Size of one value of an activation: what `real` is in a kernel."""
        return VALUE_BYTES[self.precision]

    def bytes_of(self, tensor: Tensor) -> int:
        """Size of one value of this tensor."""
        return VALUE_BYTES["float32"] if tensor in self.floats else self.value_bytes

    def of(self, item: Op | Head) -> Target:
        """As an op or head sees it: of floats where that is how it computes, see floats.py."""
        touched = {item.src} if isinstance(item, Head) else {*item.reads, item.out}
        if touched <= self.floats or (self.precision == "tf32" and is_narrow(item)):
            return self.in_floats()
        return self

    def in_floats(self) -> Target:
        return replace(self, precision="float32", floats=frozenset())

    def rows(self, tensor: Tensor) -> int:
        """The most rows that `tensor` can have."""
        return self.batch * tensor.steps


@dataclass(frozen=True)
class Place:
    """Where a tensor lives."""

    pointer: int
    pitch: int  # values from one pixel to the next


@dataclass(frozen=True)
class Candidates:
    """Where decoders put what they find: a counter, then records in any order.

    A record is `columns` words: its number as unsigned, then x, y, w, h, objectness and the class
    scores as float. The number says where darknet would list it:
    row * per_row + first + cell * anchors + anchor, `first` being the head's own.
    There is room for every cell, so a decoder never asks whether its slot exists.
    """

    counter: int  # pointer to one unsigned; slot = atomicAdd(counter, 1)
    records: int  # pointer to the first record
    columns: int
    per_row: int
    firsts: Mapping[Head, int]
    threshold: int  # pointer to one float, read when the kernel runs
    hierarchy: int  # likewise


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
        """The floats of all pieces of a row."""
        return self.pieces * padded_hidden(self.gate)


def padded_hidden(gate: Gate) -> int:
    """The floats of a piece: the outputs of a gate's first layer, padded to a multiple of four."""
    return -(-gate.squeeze.shape[0] // 4) * 4


@dataclass(frozen=True)
class Annotations:
    """What the lowering tells an op function about the neighbours of its op."""

    partial_sums: PartialSums | None = None  # left by a convolution, read by the gate after it
    multiply: Multiply | None = None  # the product that a gate computes as well
    next_conv: Conv2d | None = None  # the convolution whose weights to bring into the cache


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
    candidates: Candidates | None
    sequences: int
    flag: int = 0  # pointer to the word that is set when results are not finite; 0: unchecked
    annotations: Annotations = NO_ANNOTATIONS
    next_weights: tuple[int, int] = (0, 0)  # pointer and bytes of those of the next convolution

    def of(self, item: Op | Head) -> Gpu:
        """Return the counterpart in float32 if that is how an op or head computes."""
        target = self.target.of(item)
        return self if target is self.target else self._counterpart(target)

    def storing(self, tensor: Tensor) -> Gpu:
        """Return the counterpart whose kernels store values as those of this tensor."""
        if tensor not in self.target.floats:
            return self
        return self._counterpart(self.target.in_floats())

    def _counterpart(self, target: Target) -> Gpu:
        return replace(self, target=target, kernels=self.kernels.in_floats())

    def for_part(self, part: Op, op: Op, between: Tensor, pointer: int, **changes: Any) -> Gpu:
        """Return what runs a part of an op, with the op's arrays; `between` lies at a pointer."""
        own = ((name, at) for (item, name), at in self.arrays.items() if item == op)
        return replace(
            self,
            places={**self.places, between: Place(pointer, between.shape.channels)},
            arrays={(part, name): at for name, at in own},
            **changes,
        )

    @property
    def most_blocks(self) -> int:
        return self.target.multiprocessors * 32

    def __getitem__(self, tensor: Tensor) -> int:
        """The pointer to the first value of `tensor`."""
        return self.places[tensor].pointer

    def pitch(self, tensor: Tensor) -> int:
        """Values from one pixel of `tensor` to the next."""
        return self.places[tensor].pitch

    def rows(self, tensor: Tensor) -> int:
        """Rows of `tensor` in this run."""
        return self.sequences * tensor.steps

    def pixels(self, tensor: Tensor) -> int:
        """Pixels of all rows of `tensor` in this run."""
        return self.rows(tensor) * tensor.shape.area

    def packs(self, *tensors: Tensor) -> bool:
        """Whether every pixel of all of them begins on 16 bytes and is whole packs long."""
        values = 16 // self.target.value_bytes
        return all(
            place.pointer % 16 == 0 and place.pitch % values == 0 and channels % values == 0
            for place, channels in (
                (self.places[tensor], tensor.shape.channels) for tensor in tensors
            )
        )

    def is_aligned(self, tensor: Tensor) -> bool:
        """Whether every pixel of the tensor begins on 16 bytes."""
        return tensor not in self.target.misaligned

    def tile(self, tile: Tile, shared: int) -> Function:
        """The tensor-core kernel for this tile, with so many bytes of dynamic shared memory."""
        return self.kernels.tile(tile, shared)

    def array(self, op: Op | Head, name: str) -> int:
        """The pointer to what `prepare` made under this name; 0, C's null, where it made none."""
        return self.arrays.get((op, name), 0)

    def values(self, tensor: Tensor) -> int:
        """Values of all rows of `tensor` in this run."""
        return self.pixels(tensor) * tensor.shape.channels

    def launch(self, kernel: str, items: int, /, **arguments: float) -> None:
        """Enqueue a grid-stride kernel over `items` work items, with arguments by name."""
        blocks = max(1, min(-(-items // THREADS), self.most_blocks))
        self._launch(kernel, (blocks, 1, 1), THREADS, arguments)

    def arguments(self, kernel: str, src: Tensor, out: Tensor, /, **named: Any) -> dict[str, Any]:
        """Return the arguments of a kernel that computes one tensor from another.

        Parameters with the names below always mean the same, unless `named` says otherwise.
        """
        known = {
            "src": self[src],
            "src_pitch": self.pitch(src),
            "src_channels": src.shape.channels,
            "src_area": src.shape.area,
            "height": src.shape.height,
            "width": src.shape.width,
            "out": self[out],
            "out_pitch": self.pitch(out),
            "channels": out.shape.channels,
            "area": out.shape.area,
            "out_h": out.shape.height,
            "out_w": out.shape.width,
            "rows": self.rows(out),
            "pixels": self.pixels(out),
        }
        wanted = known.keys() & set(compiler.parameters(kernel))
        return {name: known[name] for name in wanted} | named

    def launch_map(
        self, kernel: str, src: Tensor, out: Tensor, items: int | None = None, /, **named: Any
    ) -> None:
        """Enqueue a kernel that computes one tensor from another; see `arguments`.

        A work item is a value of `out` unless `items` says otherwise.
        """
        items = self.values(out) if items is None else items
        self.launch(kernel, items, **self.arguments(kernel, src, out, **named))

    def launch_packed(self, kernel: str, *tensors: Tensor, **named: Any) -> None:
        """Enqueue a kernel that computes the last tensor from the first.

        If the memory of all of them allows it, its packed form computes 16 bytes at once.
        """
        src, out = tensors[0], tensors[-1]
        items = self.values(out)
        if self.packs(*tensors):
            kernel, items = f"{kernel}_packed", items * self.target.value_bytes // 16
        self.launch_map(kernel, src, out, items, **named)

    def launch_grid(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        threads: int,
        /,
        shared: int = 0,
        **arguments: float,
    ) -> None:
        """Enqueue a kernel on a grid of its own; `shared` bytes are its dynamic shared memory."""
        self._launch(kernel, grid, threads, arguments, shared)

    def _launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        threads: int,
        arguments: Mapping[str, float],
        shared: int = 0,
    ) -> None:
        values = compiler.in_order(kernel, arguments)
        self.kernels.launch(kernel, grid, threads, values, stream=self.stream, shared=shared)

    def copy(self, out: int, src: int, size: int) -> None:
        """Enqueue a copy of `size` bytes from one device pointer to another."""
        self.kernels.driver.memcpy_dtod_async(out, src, size, self.stream)

    def zero(self, out: int, size: int) -> None:
        """Enqueue filling `size` bytes, a multiple of 4, with zeros."""
        self.kernels.driver.memset_d32_async(out, 0, size // 4, self.stream)


def window_sizes(window: Window) -> dict[str, int]:
    (size_y, size_x), (stride_y, stride_x) = window.size, window.stride
    top, left, _, _ = window.padding
    return {
        "size_y": size_y,
        "size_x": size_x,
        "stride_y": stride_y,
        "stride_x": stride_x,
        "top": top,
        "left": left,
    }


Run = Callable[[Gpu, Any], None]
Workspace = Callable[[Target, Any], int]
Prepare = Callable[[Target, Any, Arrays], Arrays]
_Function = TypeVar("_Function", bound=Run)


def _nothing(target: Target, op: Op | Head) -> int:
    return 0


def _as_they_are(target: Target, op: Op | Head, constants: Arrays) -> Arrays:
    return constants


@dataclass(frozen=True)
class Runner:
    """How one kind of op is run."""

    run: Run
    workspace: Workspace = _nothing
    prepare: Prepare = _as_they_are


RUNNERS: dict[type[Op], Runner] = {}
DECODERS: dict[type[Head], Runner] = {}


def runs(
    kind: type[Op], *, workspace: Workspace = _nothing, prepare: Prepare = _as_they_are
) -> Callable[[_Function], _Function]:
    """Register the function that enqueues `kind`.

    workspace(target, op) says how many bytes of scratch memory it needs at most;
    prepare(target, op, constants) returns the arrays to upload, by name, of any dtype: constants
    as they are, re-laid, or made anew. Both are pure. Without `prepare` an op's constants are
    uploaded as they stand in the plan (float32), under the names of the op's fields.
    """

    def register(function: _Function) -> _Function:
        RUNNERS[kind] = Runner(function, workspace, prepare)
        return function

    return register


def decodes(
    kind: type[Head], *, workspace: Workspace = _nothing, prepare: Prepare = _as_they_are
) -> Callable[[_Function], _Function]:
    """Register the function that enqueues a head's decoder; it writes into `gpu.candidates`.

    The same hooks as an op's; `constants` is empty, a head's tables come from `prepare`.
    """

    def register(function: _Function) -> _Function:
        DECODERS[kind] = Runner(function, workspace, prepare)
        return function

    return register
