"""Convert pictures in any form to a batch for one run, with the data to map boxes back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeGuard, cast

import numpy as np

from engine.arrays import Array
from engine.backends.base import DevicePixels, Placed, PlacedAlike
from engine.backends.frame_picture import FramePicture
from engine.errors import ImageError, InputError, suggest
from engine.files.stamp import is_of_file
from engine.plan.shapes import Shape
from engine.settings import Settings
from engine.vision import image, resize, tiles
from engine.vision.image import Decoder, Encoded, Picture, Source
from engine.vision.plain_jpeg import PlainPicture
from engine.vision.resize import Fit, Placement
from engine.vision.tiles import Area

if TYPE_CHECKING:
    from engine.darknet.graph import Graph

Wanted: TypeAlias = "Source | ImageError"  # an error stands for a source that could not be read

# Sources, some of them already read or decoded, with the milliseconds that each took.
Readable: TypeAlias = "Wanted | Encoded | PlainPicture | DevicePixels"
Ahead: TypeAlias = "Sequence[tuple[Readable, float]]"
ReadAhead: TypeAlias = "Callable[..., Ahead]"  # BatchDecoder.read() or DeviceReader.read()

RESIZES = ("cfg", "stretch", "letterbox", "exact")


class FolderFoundError(ImageError):
    """A source is a folder and has to be expanded. Callers of a stream never get this error."""

    def __init__(self, problem: str, folder: str) -> None:
        super().__init__(problem)
        self.folder = folder


class TooManyTilesError(ImageError):
    """A picture was read, but would be cut into more tiles than are allowed."""


class Prepared(NamedTuple):
    """A picture that was read, and its placement in a row of the network's input.

    A picture cut into tiles has a row for each of its `tiles`; the first is the whole picture.
    """

    picture: Picture
    placement: Placement
    milliseconds: float
    tiles: tuple[Area, ...] = ()

    @property
    def rows(self) -> int:
        return len(self.tiles) or 1


@dataclass(frozen=True, eq=False)
class Batch:
    """`pictures` has an entry for each source, in order, `placed` one for each row of the input."""

    placed: Sequence[Placed]
    pictures: tuple[Prepared | ImageError, ...]

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> Batch:
        """Join several batches of one intake."""
        return cls(
            tuple(each for batch in batches for each in batch.placed),
            tuple(each for batch in batches for each in batch.pictures),
        )

    @property
    def count(self) -> int:
        """The number of pictures that were read."""
        return sum(isinstance(each, Prepared) for each in self.pictures)

    @property
    def is_cut(self) -> bool:
        """Whether pictures are cut into tiles, so that the rows may not fit into one run."""
        return any(isinstance(each, Prepared) and each.tiles for each in self.pictures)

    def singly(self) -> Iterator[Batch]:
        """Yield a batch for each entry."""
        first = 0
        for entry in self.pictures:
            last = first + (entry.rows if isinstance(entry, Prepared) else 0)
            yield Batch(self.placed[first:last], (entry,))
            first = last


def check_frames(frames: object) -> None:
    """Raise unless `frames` is an array of pictures that owns its memory."""
    if not isinstance(frames, np.ndarray) or frames.dtype != np.uint8:
        got = frames.dtype if isinstance(frames, np.ndarray) else type(frames).__name__
        raise InputError(f"pin: expected an array of uint8, got {got}")
    if not (frames.flags.owndata and frames.flags.c_contiguous and frames.size):
        raise InputError(
            "pin: expected an array that owns its memory, in C order, got a view or nothing. "
            "Make one with numpy.empty(), fill it, and pass its rows as pictures"
        )


@dataclass(frozen=True)
class Intake:
    """How a network takes pictures."""

    shape: Shape
    resize: Fit
    exact: bool = False  # reproduce the error of darknet's resize in the bottom row
    orient: bool = True
    max_pixels: int | None = None  # per picture; None means picture_limits.PIXELS
    lenient: bool = False  # accept truncated JPEGs
    scales: bool = True  # also scale to the input's rows; otherwise the device does
    decoder: Decoder | None = None  # for encoded pictures; None decodes in this process

    @classmethod
    def of(
        cls,
        network: Graph,
        resize: str = "cfg",
        *,
        orient: bool = True,
        max_pixels: int | None = None,
        lenient: bool = False,
        decoder: Decoder | None = None,
    ) -> Intake:
        """Return the intake of a network, `resize` being one of RESIZES."""
        if resize not in RESIZES:
            hint = suggest(resize, RESIZES)
            raise InputError(f"resize: expected {', '.join(RESIZES)}, got {resize!r}.{hint}")
        fit = resize
        if resize in ("cfg", "exact"):
            fit = "letterbox" if network.letter_box else "stretch"
            fit = "crop" if network.task == "classifier" else fit
        return cls(
            *(network.net.shape, cast(Fit, fit)),
            exact=resize == "exact",
            orient=orient,
            max_pixels=max_pixels,
            lenient=lenient,
            decoder=decoder,
        )

    def prepare(
        self,
        sources: Sequence[Wanted],
        *,
        bgr: bool = False,
        max_pixels: int | None = None,
        settings: Settings | None = None,
        decoder: Decoder | None = None,
        ahead: ReadAhead | None = None,
        finds_folders: bool = False,
    ) -> Batch:
        """Read and scale pictures; an unreadable one is replaced by its ImageError.

        `settings` determine whether pictures are cut into tiles. Tiles are views of the picture,
        scaled just before their run, because their rows would take much more memory than the
        picture. `ahead` first decodes whatever it can of all sources. With `finds_folders`, the
        name of a folder gives a FolderFoundError.
        """

        def error_of(given: Wanted, error: ImageError) -> ImageError:
            if finds_folders and isinstance(given, str) and os.path.isdir(given):  # noqa: PTH112
                return FolderFoundError(str(error), given)
            return error

        channels, height, width = self.shape.sides
        max_pixels = self.max_pixels if max_pixels is None else max_pixels
        is_cut = settings is not None and settings.tiles is not None
        if not (self.scales or bgr or is_cut):
            start = time.perf_counter()
            if image.are_uniform_arrays(sources, channels=channels, max_pixels=max_pixels):
                return self._uniform(sources, start)
        placed: list[Placed] = []
        pictures: list[Prepared | ImageError] = []
        placements: dict[tuple[int, int], Placement] = {}
        timed: Iterable[tuple[Readable, float]] = zip(sources, repeat(0.0))
        if ahead is not None and not bgr:
            timed = ahead(
                sources,
                channels=channels,
                orient=self.orient,
                max_pixels=max_pixels,
                lenient=self.lenient,
            )
        for given, (source, spent) in zip(sources, timed, strict=True):
            start = time.perf_counter() - spent / 1e3
            if isinstance(source, ImageError):
                pictures.append(error_of(given, source))
                continue
            there: DevicePixels | None = None
            try:
                if isinstance(source, DevicePixels):
                    picture, there = source.picture, source
                elif (
                    isinstance(source, FramePicture)
                    and channels == 3
                    and not (self.scales or is_cut)
                ):
                    picture, there = source, source.on_device()
                else:
                    assert not isinstance(source, PlainPicture), "left to a device"
                    picture = self.read(source, bgr=bgr, max_pixels=max_pixels, decoder=decoder)
                cut = self._cut(picture, settings) if is_cut else ()
            except ImageError as error:
                pictures.append(error_of(given, _without_frames(error)))
                continue
            if isinstance(given, Picture) and is_of_file(picture.stamp):
                picture = replace(picture, stamp=None)  # its pixels may differ from the file's
            size = picture.size
            placement = placements.get(size)
            if placement is None:
                placement = placements[size] = Placement(size, (width, height), self.resize)
            if cut:
                placed += self._tiles(picture, cut)
                milliseconds = (time.perf_counter() - start) * 1e3
                pictures.append(Prepared(picture, placement, milliseconds, cut))
                continue
            row = None
            if self.scales:
                row = np.empty(self.shape.sides, np.float32)
                resize.scale_into(picture.pixels, placement, row, exact=self.exact)
            placed.append(Placed(there or picture.pixels, placement, self.exact, row))
            milliseconds = (time.perf_counter() - start) * 1e3
            pictures.append(Prepared(picture, placement, milliseconds))
        return Batch(tuple(placed), tuple(pictures))

    def read(
        self,
        source: Source | Encoded,
        *,
        bgr: bool = False,
        max_pixels: int | None = None,
        decoder: Decoder | None = None,
    ) -> Picture:
        """Read a picture as the network takes it; raise its ImageError."""
        return image.read(
            source,
            channels=self.shape.channels,
            orient=self.orient,
            bgr=bgr,
            max_pixels=self.max_pixels if max_pixels is None else max_pixels,
            lenient=self.lenient,
            decoder=decoder or self.decoder,
        )

    def takes(self, source: object) -> TypeGuard[Array]:
        """Return whether a source is an array that the device accepts unchanged."""
        is_ready = image.needs_no_conversion(source, self.shape.channels, self.max_pixels)
        return is_ready and not self.scales

    def placement_of(self, array: Array) -> Placement:
        """Return the placement of an array in the network's input."""
        _, height, width = self.shape.sides
        rows, columns, _ = array.shape
        return _placement((columns, rows), (width, height), self.resize)

    def _cut(self, picture: Picture, settings: Settings | None) -> tuple[Area, ...]:
        assert settings is not None
        assert settings.tiles is not None
        _, height, width = self.shape.sides
        try:
            return tiles.areas_of(picture.size, (width, height), settings.tiles, settings.overlap)
        except InputError as error:  # too many tiles, for a picture of this size
            raise TooManyTilesError(f"{picture.name}: {error}") from error

    def _tiles(self, picture: Picture, areas: Sequence[Area]) -> Iterator[Placed]:
        _, height, width = self.shape.sides
        for left, top, right, bottom in areas:
            placement = Placement((right - left, bottom - top), (width, height), self.resize)
            yield Placed(picture.pixels[top:bottom, left:right], placement, self.exact)

    def _uniform(self, arrays: Sequence[Array], start: float) -> Batch:
        """Place arrays of one size with little Python code for each, at thousands per second.

        All are assigned the average time.
        """
        pictures = list(map(Picture.of, arrays))
        placement = self.placement_of(arrays[0])
        milliseconds = (time.perf_counter() - start) * 1e3 / len(arrays)
        entries = zip(pictures, repeat(placement), repeat(milliseconds), repeat(()), repeat(None))
        placed = PlacedAlike(arrays, placement, exact=self.exact)
        return Batch(placed, tuple(map(_prepared, entries)))


def _without_frames(error: ImageError) -> ImageError:
    """Remove tracebacks from an error: their frames would keep the batch's pictures alive."""
    chain: list[BaseException | None] = [error]
    for each in chain:
        if each is not None and each.__traceback__ is not None:
            each.__traceback__ = None
            chain += (each.__cause__, each.__context__)
    return error


_placement = lru_cache(maxsize=64)(Placement)  # most arrays have the same size as earlier ones

# A NamedTuple's own constructor is Python code and would take half of the time here.
_prepared: Callable[[tuple[Picture, Placement, float, tuple[Area, ...], None]], Prepared]
_prepared = partial(tuple.__new__, Prepared)
