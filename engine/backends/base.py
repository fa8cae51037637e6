"""The interface of a backend: a Device compiles plans, a Program runs one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, overload, runtime_checkable

from engine.arrays import Array
from engine.errors import DeviceError, InputError
from engine.plan.build import Plan
from engine.plan.ops import Op, RegionHead, YoloHead
from engine.vision.boxes import Boxes, Suppression
from engine.vision.image import Picture
from engine.vision.plain_jpeg import PlainJpeg
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


class DevicePixels(NamedTuple):
    """The uint8 pixels of a picture in the memory of a device that scales it.

    The steps, in bytes and of either sign, make any picture upright: no orientation needs a copy.
    """

    shape: tuple[int, int, int]  # height, width, channels of the upright picture
    pointer: int  # to its top left pixel
    row_step: int  # to the pixel below
    column_step: int  # to the pixel on the right
    owner: object  # keeps the memory as long as it lives
    picture: Picture  # the same, for a run whose pictures the host scales


class NoJpegEngineError(DeviceError):
    """A card has no engine for JPEGs; it may have one for videos."""


class PrecisionError(InputError):
    """A device does not have a precision."""


class DecodedJpeg(NamedTuple):
    """RGB pixels of a JPEG in device memory, as stored in the file."""

    pointer: int  # to the first pixel
    row_step: int  # bytes
    owner: object  # keeps the memory as long as it lives


class JpegDecoder(Protocol):
    """A decoder of JPEGs into device memory, for pictures of its programs; for any thread."""

    def decode(self, jpegs: Sequence[PlainJpeg]) -> Sequence[DecodedJpeg | None]:
        """Decode what the device can; None stands for what the host must decode.

        Nothing is raised: after a failure, which is logged once, the host decodes everything.
        """
        ...

    @property
    def is_usable(self) -> bool:
        """Whether there has been no failure so far."""
        ...


class Nv12(NamedTuple):
    """A video frame of even height as a decoder leaves it in device memory."""

    size: tuple[int, int]
    luma: int  # pointer to a plane of brightness,
    luma_step: int  # and the bytes of its lines
    chroma: int  # to a plane of half the height, of pairs that serve 2 x 2 pixels
    chroma_step: int
    matrix: int  # number of the colour matrix in ITU-T H.273
    is_full: bool  # brightness from 0 to 255, not from 16 to 235


class DeviceFrame(NamedTuple):
    """RGB pixels of a video frame in device memory, as stored in the file."""

    pointer: int  # to the first pixel
    row_step: int  # bytes
    owner: object  # keeps the memory as long as it lives
    wait: Callable[[], None]  # until the pixels are there, on any thread
    to_host: Callable[[], Array]  # waits as well


class FrameIntake(Protocol):
    """An intake of one video's frames from its decoder, for one thread at a time."""

    def take(self, frame: Nv12, owner: object) -> DeviceFrame | None:
        """Start to convert a frame; None if there is no memory or the colours are unknown.

        The `owner` of the decoder's memory is kept until that is read.
        """
        ...

    def close(self) -> None:
        """Close the intake; frames that were taken stay."""
        ...


class VideoDevice(Protocol):
    """A device that decodes videos for its programs; for any thread."""

    @property
    def number(self) -> int:
        """The number of the card, as FFmpeg counts."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Return a block in which the device's context outlives the device."""
        ...

    def entered(self) -> AbstractContextManager[None]:
        """Return a block in which the device's context is the current one of this thread."""
        ...

    def intake(self) -> FrameIntake: ...


class Placed(NamedTuple):
    """A picture as it was read, and its place in a row of the network's input."""

    # (height, width, channels) with contiguous lines; an array is uint8, or float32 in 0..1
    pixels: Array | DevicePixels
    placement: Placement
    exact: bool = False  # reproduce the error of darknet's resize in the bottom row
    row: Array | None = None  # float32 (channels, height, width): the result, if already scaled


class PlacedAlike(Sequence[Placed]):
    """Arrays of uint8 of one shape and placement, in C order: one of them describes all."""

    def __init__(self, arrays: Sequence[Array], placement: Placement, *, exact: bool) -> None:
        self.arrays: Sequence[Array] = arrays
        self.placement: Placement = placement
        self.exact: bool = exact

    def __len__(self) -> int:
        return len(self.arrays)

    @overload
    def __getitem__(self, which: int) -> Placed: ...

    @overload
    def __getitem__(self, which: slice) -> PlacedAlike: ...

    def __getitem__(self, which: int | slice) -> Placed | PlacedAlike:
        if isinstance(which, slice):
            return PlacedAlike(self.arrays[which], self.placement, exact=self.exact)
        return Placed(self.arrays[which], self.placement, self.exact)


@dataclass(frozen=True)
class DetectionSettings:
    """Which boxes of a picture to return."""

    threshold: float
    suppression: Suppression
    hierarchy: float = 0.5
    classes: tuple[int, ...] | None = None
    max_detections: int | None = None


class Ticket(Protocol[Answer]):
    """A submitted run."""

    def result(self) -> Answer:
        """Block until the run is done; idempotent."""
        ...


class TimedTicket(Ticket[Answer], Protocol[Answer]):
    """A submitted run that tells, once it is done, where the time went."""

    @property
    def milliseconds(self) -> Mapping[str, float]:
        """Durations of "network" and, for boxes, "suppress"."""
        ...


class Program(Protocol):
    """A plan compiled for one device and a maximum number of rows (batch * time steps)."""

    @property
    def plan(self) -> Plan: ...

    @property
    def batch(self) -> int: ...

    @property
    def memory(self) -> Memory: ...

    @property
    def runs_ahead(self) -> int:
        """How many runs to submit before waiting for one; 0 if a run starts in result()."""
        ...

    @property
    def submitters(self) -> int:
        """How many threads may submit the runs of a stream at once, each after a copy."""
        ...

    @property
    def scales_pictures(self) -> bool:
        """Whether the device scales pictures; otherwise `Placed.row` should be made ahead."""
        ...

    def submit(
        self, pictures: Sequence[Placed], settings: Sequence[DetectionSettings]
    ) -> TimedTicket[list[Boxes]]:
        """Start a run and return a ticket for the boxes of each picture.

        There are settings for each picture, with one value of `hierarchy`; thresholds may differ
        only if thresholds_may_differ(plan). The pictures may be changed once this returns, unless
        they are pinned. Runs execute in the order of submission; a ticket may be dropped.
        """
        ...

    def submit_forward(self, pictures: Sequence[Placed]) -> TimedTicket[tuple[Array, ...]]:
        """Start a run and return a ticket for every tensor of `plan.outputs`."""
        ...

    def pin(self, frames: Array) -> None:
        """Page-lock an array, where that saves a copy of the pictures in it.

        Such a picture must not be changed before its result is there.
        """
        ...

    def forward(self, images: Array) -> tuple[Array, ...]:
        """Run float32 (rows, c, h, w); return a copy of every tensor of `plan.outputs`."""
        ...

    def detect(self, images: Array, *, threshold: float, hierarchy: float = 0.5) -> list[Array]:
        """Run and decode; return one array of the candidates of all heads for each row.

        It has a column for each class of the head with the most classes; see `ops.Head`.
        """
        ...

    def reset(self) -> None:
        """Set recurrent state back to zero."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class DirectProgram(Program, Protocol):
    """A program with a shorter way for one array, whose caller waits for its boxes."""

    def recipe_of(
        self, pixels: Array, placement: Placement, settings: DetectionSettings, *, exact: bool
    ) -> Any | None:
        """Return what calls with arrays of this shape share, or None if only submit() runs them."""
        ...

    def boxes_of(self, pixels: Array, recipe: Any, meanwhile: Callable[[], object]) -> Boxes | None:
        """Return the boxes, before any selection, or None if only submit() can find them.

        `meanwhile` is called while the device computes.
        """
        ...


def check_heads(plan: Plan) -> None:
    """Raise if a plan has no boxes to detect."""
    if not plan.heads:
        raise InputError("detect: expected a network with a detection layer, got none")


def check_images(plan: Plan, images: Array, batch: int) -> int:
    """Return the number of sequences of images, or raise if forward() does not take them."""
    if images.dtype.kind != "f":
        raise InputError(f"images: expected float32, got {images.dtype}")
    sides = plan.source.shape.sides
    if images.ndim != 4 or images.shape[1:] != sides:
        expected = ", ".join(map(str, ("rows", *sides)))
        raise InputError(f"images: expected ({expected}), got {images.shape}")
    return sequences_of(plan, len(images), batch)


def sequences_of(plan: Plan, rows: int, batch: int) -> int:
    """Return the number of sequences that rows are, or raise if there is no such batch."""
    steps, most = plan.steps, batch * plan.steps
    if not 0 < rows <= most:
        raise InputError(f"images: expected 1 to {most} rows, got {rows}")
    if rows % steps:
        raise InputError(f"images: expected a multiple of {steps} time steps, got {rows} rows")
    return rows // steps


def thresholds_may_differ(plan: Plan) -> bool:
    """Return whether candidates of one threshold include those of any higher one."""
    return all(
        isinstance(head, YoloHead) or (isinstance(head, RegionHead) and not head.tree_parents)
        for head in plan.heads
    )


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
    """A program that can time its parts."""

    def settle(self) -> None:
        """Wait until it runs as fast as it will: tuning may go on while a program runs."""
        ...

    def stages(
        self, images: Array | Sequence[Placed], *, threshold: float | None = None
    ) -> tuple[Stages, Sequence[Any]]:
        """Time the parts of one run; return them and the answer.

        The answer is that of detect() with a threshold, otherwise that of forward().
        """
        ...

    def profile(self, images: Array, *, repeats: int = 10) -> list[OpTime]:
        """Return the median time of each op by itself, in order; resets recurrent state."""
        ...


@dataclass(frozen=True)
class Peaks:
    """Theoretical peaks of a device."""

    operations: float  # per second; a multiply-add is two
    bytes: float  # to and from its memory, per second
    value_bytes: int  # of an activation or a weight, unless it is int8
    multiprocessors: int
    int8_operations: float  # per second, of ops that multiply integers


@runtime_checkable
class DecodingDevice(Protocol):
    """A device that can decode JPEGs and videos for its programs."""

    def open_decoder(self) -> JpegDecoder:
        """Return a decoder, which its device closes, or raise what is missing."""
        ...

    def open_videos(self) -> VideoDevice:
        """Return what takes the frames of videos, which its device closes."""
        ...


class Device(Protocol):
    """A machine that runs programs; closing it closes them."""

    @property
    def name(self) -> str: ...

    @property
    def passes(self) -> Sequence[str]:
        """Names of the passes whose output this device can run."""
        ...

    def describe(self) -> str:
        """Return the model and what else a measurement should state."""
        ...

    def compile(self, plan: Plan, *, batch: int = 1, precision: str = "float32") -> Program:
        """Make a plan ready; one for "int8" has been through passes/quantise.py."""
        ...

    def close(self) -> None: ...
