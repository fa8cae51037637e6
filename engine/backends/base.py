"""What a backend is: a Device compiles plans, a Program runs one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from engine.arrays import Array
from engine.plan.build import Plan
from engine.plan.ops import Op
from engine.vision.boxes import Boxes, Suppression
from engine.vision.resize import Placement

Answer = TypeVar("Answer", covariant=True)


@dataclass(frozen=True)
class Memory:
    """Bytes a program holds until it is closed."""

    weights: int
    activations: int
    workspace: int

    @property
    def total(self) -> int:
        return self.weights + self.activations + self.workspace


class Program(Protocol):
    """A plan made ready for one device and one number of rows (batch * time steps at most)."""

    @property
    def plan(self) -> Plan: ...

    @property
    def batch(self) -> int: ...

    @property
    def memory(self) -> Memory: ...

    def forward(self, images: Array) -> tuple[Array, ...]:
        """Run float32 (rows, c, h, w); return a copy of every tensor of `plan.outputs`."""
        ...

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        """Run, decode the heads; return for each row one array of candidates of all heads.

        It has a column for every class of the head that knows most; see `ops.Head`.
        """
        ...

    def reset(self) -> None:
        """Set recurrent state back to zero."""
        ...

    def close(self) -> None: ...


class Placed(NamedTuple):
    """A picture as it was read, and how it is to lie in a row of the network's input."""

    pixels: Array  # (height, width, channels), contiguous; uint8, or float32 in 0..1
    placement: Placement
    exact: bool = False  # with darknet's fault in the bottom row


class Ticket(Protocol[Answer]):
    """A run under way."""

    def result(self) -> Answer:
        """Wait for it; every time the same."""
        ...


@runtime_checkable
class PictureProgram(Program, Protocol):
    """A program that scales pictures by itself, and begins a run before the last one has ended.

    Rows are equal to what vision.resize makes of the pictures, to the last bit. Pictures may be
    changed as soon as these functions return. Runs happen in the order in which they began; a
    ticket may be forgotten.
    """

    @property
    def runs_ahead(self) -> int:
        """How many runs to have begun while one is waited for, so that the device never waits."""
        ...

    def start_forward(self, pictures: Sequence[Placed]) -> Ticket[tuple[Array, ...]]: ...

    def start_detect(
        self, pictures: Sequence[Placed], *, threshold: float, hierarchy: float = 0.5
    ) -> Ticket[list[Array]]: ...


@runtime_checkable
class PinningProgram(PictureProgram, Protocol):
    """A program that takes pictures from page-locked memory as they lie."""

    def pin(self, frames: Array) -> None:
        """Page-lock an array; pictures in it may not be changed until their run has ended."""
        ...


@runtime_checkable
class SuppressingProgram(PictureProgram, Protocol):
    """A program that also does the work of vision.postprocess, with the same result."""

    def start_boxes(
        self,
        pictures: Sequence[Placed],
        suppression: Suppression,
        *,
        threshold: float,
        hierarchy: float = 0.5,
    ) -> Ticket[list[Boxes]]:
        """Start to compute postprocess_batch(start_detect()); the suppression has a threshold."""
        ...


@dataclass(frozen=True)
class Stages:
    """Milliseconds of the parts of one run."""

    upload: float
    forward: float
    download: float  # until the answer is in the caller's hands; a CPU decodes boxes here


@dataclass(frozen=True)
class OpTime:
    """Milliseconds of one op, and the algorithm that ran it where there are several."""

    op: Op
    milliseconds: float
    algorithm: str = ""


@runtime_checkable
class TimedProgram(Program, Protocol):
    """A program that says what its time goes into."""

    def stages(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> tuple[Stages, Sequence[Any]]:
        """One run in parts, and its answer: of detect() with a threshold, else of forward().

        Pictures that are placed are for a PictureProgram.
        """
        ...

    def profile(self, images: Array, *, repeats: int = 10) -> list[OpTime]:
        """Medians of each op alone, in order; recurrent state is zero afterwards."""
        ...


@dataclass(frozen=True)
class Peaks:
    """What a device could do at most; no program reaches it."""

    operations: float  # of sums of products, in a second
    bytes: float  # to and from its memory, in a second
    value_bytes: int  # of an activation or a weight
    multiprocessors: int


class Device(Protocol):
    """A machine that runs programs. Closing it closes what it compiled."""

    @property
    def name(self) -> str: ...

    @property
    def passes(self) -> Sequence[str]:
        """Names of the passes whose results this device can run."""
        ...

    def describe(self) -> str:
        """What it is, for whoever reads measurements."""
        ...

    def compile(self, plan: Plan, *, batch: int = 1, precision: str = "float32") -> Program: ...

    def close(self) -> None: ...
