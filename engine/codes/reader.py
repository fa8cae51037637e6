"""Read the codes of a picture: from the whole picture, and from the boxes of a detector.

Reading the whole picture finds what zxing-cpp finds without a detector. The boxes whose codes were
not read are then cut out, rotated upright and enlarged. A text is accepted for a box only if its
format belongs to the box's class and the centre of the symbol lies inside. A 1-D code has a weak
checksum or none, so two readings must agree. The exception is a self-checking format that was read
from the whole picture where the network sees bars, if no other reading contradicts it. ITF's
characters are self-checking, but part of an ITF code may be a valid code, too: it is accepted only
if its bars end where it was read. PDF417 may have little error correction: two readings of a crop
must agree, and none may contradict what was read from the whole picture.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import ceil, hypot, sqrt
from typing import Any, NamedTuple

import numpy as np

from engine.arrays import Array
from engine.codes.busy import busy_parts
from engine.codes.deskew import ALL_LINES, Crop, View
from engine.codes.formats import ClassFormats, Look, library
from engine.codes.grey import grey_of
from engine.vision.boxes import Boxes
from engine.vision.code import Code, Corners, Point
from engine.vision.detection import Box

_READ_SCORE = 1.0  # score of a code that was read but not detected
_STRIP = 1.2  # least ratio of the sides of a box that may hold a strip
_MAX_CROPS = 200  # per picture, best boxes first: each takes milliseconds
_BARS_SHARE = 0.4  # the middle share of the height of bars that is read
_LINES = 2  # every second line is read of rotated or downscaled bars
_FOLLOWED_LINES = 64  # maximum number of lines searched for the ends of bars
_MOST_PIXELS = 600_000  # maximum for an enlarged crop
_LONGEST_SIDE = 65535  # zxing-cpp's limit
_LARGE = 2**20  # pixels; smaller pictures are read in one go
_SMALLER = 3  # zxing-cpp also downscales by this factor
_AGREEING = 2  # readings required for a 1-D code, and for a crop with PDF417
_SAME_BOX = 0.7  # least IoU of boxes of the same code
_AS_NEAR = 1 / 8  # extra distance of a better box, relative to a code's longer side
_AS_LARGE = 1.5  # largest ratio between the sizes of a box and its code
_SAME_BARS = 0.5  # least correlation of two pixel rows that show the same bars
_ITF_MODULES = 9, 9  # width of a digit, and of start and stop, in narrow bars
_QUIET = 6  # empty modules required at both ends; the standard says 10, a wide bar has 3
_BLUR = 1  # modules next to a bar that may be dark
_MOST_NOISE = 0.3  # contrast allowed in the quiet zones, relative to the bars
_TIGHT = 0.3  # slack that excludes the edge of a label with a narrow quiet zone
_WITH_QUIET = 1.4  # side of a crop of bars, relative to their length


class _Variant(NamedTuple):
    """One way to look at a crop."""

    scale: float
    is_thorough: bool = False  # also try inverted, rotated by 90 degrees and downscaled
    is_upright: bool = True  # rotate by the direction of the gradients
    slack: float | None = 1.0  # margin relative to the usual one; None is the whole crop
    most_lines: int = ALL_LINES  # limit for bars: a few lines tell as much in less time


# The first variant reads nine of ten codes that any variant reads; for bars and rows a second one
# must agree. Some 2-D codes are read only from the original pixels. zxing-cpp finds few rMQR codes
# in one attempt, even with the exact direction, and mostly those with large modules.
_VARIANTS: dict[Look, tuple[_Variant, ...]] = {
    "squares": (
        _Variant(1.2),
        _Variant(2, is_thorough=True),
        _Variant(1, is_thorough=True, is_upright=False),
    ),
    "strips": (_Variant(4, is_thorough=True),),
    "rows": (_Variant(1.2), _Variant(1.4), _Variant(1.7)),
    "bars": (
        _Variant(1.5, most_lines=24),
        _Variant(1.2, most_lines=24),
        _Variant(1.5, slack=_TIGHT, most_lines=24),
        _Variant(1.2, slack=_TIGHT, most_lines=24),
        _Variant(2.5, slack=None, most_lines=64),
        _Variant(1.7, slack=None, is_thorough=True),
    ),
}


class _Reading(NamedTuple):
    code: Code
    zxing_format: Any
    is_tight: bool = False  # read from a crop that may exclude the ends of the code

    @property
    def centre(self) -> Point:
        x, y = zip(*self.code.corners, strict=True)
        return sum(x) / 4, sum(y) / 4

    @property
    def box(self) -> Box:
        x, y = zip(*self.code.corners, strict=True)
        return Box(min(x), min(y), max(x), max(y))

    @property
    def area(self) -> float:
        return self.box.width * self.box.height

    def encloses(self, point: Point) -> bool:
        """Return whether a point is inside the corners, which form a convex outline."""
        one, two, three, four = self.code.corners
        sides = (one, two), (two, three), (three, four), (four, one)
        turns = [
            (b[0] - a[0]) * (point[1] - a[1]) - (b[1] - a[1]) * (point[0] - a[0]) for a, b in sides
        ]
        return all(each > 0 for each in turns) or all(each < 0 for each in turns)

    def says_the_same(self, other: _Reading) -> bool:
        return (self.code.format, self.code.text) == (other.code.format, other.code.text)


class CodeReader:
    """Reads codes with zxing-cpp; thread-safe."""

    def __init__(self, labels: Sequence[str]) -> None:
        """Raise InputError if zxing-cpp is missing or no class stands for codes."""
        self._zxing = library()
        self._formats = ClassFormats(self._zxing, labels)

    def read(
        self, pixels: Array, boxes: Boxes, *, classes: Collection[int] | None = None
    ) -> tuple[Boxes, list[Code | None]]:
        """Return the boxes, plus those of codes that only reading found, and the code in each.

        `pixels` is (height, width, channels). `classes` limits the codes that are added. The best
        scores come first.
        """
        picture = grey_of(pixels)
        height, width = picture.shape
        size = width, height
        rows = _edges(boxes, size)
        found: dict[int, _Reading] = {}  # by row
        alone: list[_Reading] = []
        for reading in sorted(self._outermost(self._read_picture(picture)), key=self._order):
            row = self._row_of(reading, rows, boxes, found)
            if row is None:
                alone.append(reading)
            else:
                found[row] = reading
        done: list[Box] = []
        for row, (box, class_id) in enumerate(zip(rows, boxes.class_ids.tolist(), strict=True)):
            first = found.pop(row, None)
            formats = self._formats.of(class_id)
            is_another = row < _MAX_CROPS and not any(_are_alike(box, each) for each in done)
            if formats and (first or is_another):
                read = self._read_box(picture, box, formats, first, is_detected=True)
                if read and not self._is_known(read, found.values()):
                    found[row] = self._whole_bars(picture, read)
                    done.append(box)
        added: list[tuple[int, _Reading]] = []
        for reading in alone:
            number = self._formats.class_of(reading.zxing_format)
            if number is None or (classes is not None and number not in classes):
                continue
            if self._is_known(reading, found.values()) or self._is_inside(reading, found.values()):
                continue
            alike = frozenset((reading.zxing_format,))
            around = _square_around(reading.box)
            read = self._read_box(picture, around, alike, reading, is_detected=False)
            if read:
                added.append((number, self._whole_bars(picture, read)))
        codes = [found[row].code if row in found else None for row in range(len(rows))]
        if not added:
            return boxes, codes
        more = [reading.box for _, reading in added]
        return (
            _joined([number for number, _ in added], more, boxes, size),
            [*(reading.code for _, reading in added), *codes],
        )

    def _row_of(
        self, reading: _Reading, rows: Sequence[Box], boxes: Boxes, taken: Collection[int]
    ) -> int | None:
        """Return the best box close to a code, or else the nearest one.

        Only boxes of the code's class around its centre count. At tiny thresholds, a poor box may
        happen to be slightly nearer than the code's own.
        """
        fitting = [
            (_distance(box, reading.centre), row)
            for row, (box, class_id) in enumerate(zip(rows, boxes.class_ids.tolist(), strict=True))
            if row not in taken and self._fits(reading, box, self._formats.of(class_id))
        ]
        if not fitting:
            return None
        nearest, row = min(fitting)
        side = _side(reading.box)
        alike = [
            (-float(boxes.scores[each]), distance, each)
            for distance, each in fitting
            if distance <= nearest + _AS_NEAR * side
            and side / _AS_LARGE <= _side(rows[each]) <= side * _AS_LARGE
        ]
        return min(alike)[2] if alike else row

    def _outermost(self, readings: Sequence[_Reading]) -> Iterator[_Reading]:
        """Yield readings except 2-D codes inside others: the core of Aztec may read as a rune."""
        for reading in readings:
            if reading.zxing_format in self._formats.linear or not any(
                each.zxing_format not in self._formats.linear
                and each.area > reading.area
                and each.encloses(reading.centre)
                for each in readings
            ):
                yield reading

    def _order(self, reading: _Reading) -> tuple[bool, int]:
        """Sort ITF last, and partial ITF codes after complete ones: a box gets the first one."""
        is_divisible = reading.zxing_format in self._formats.divisible
        return is_divisible, -len(reading.code.text) if is_divisible else 0

    def _fits(self, reading: _Reading, box: Box, formats: Collection[Any]) -> bool:
        x, y = reading.centre
        is_inside = box.left <= x <= box.right and box.top <= y <= box.bottom
        return is_inside and reading.zxing_format in formats

    def _is_known(self, reading: _Reading, others: Iterable[_Reading]) -> bool:
        """Return whether the same symbol was read before: the same text at the same position.

        Some rows of a 1-D code may yield only part of it, especially ITF, which has no checksum.
        """
        if reading.zxing_format not in self._formats.linear:
            return any(self._is_again(reading, each) for each in others)
        return any(
            reading.code.format == each.code.format
            and reading.code.text in each.code.text
            and _meet(reading.box, each.box)
            for each in others
        )

    def _is_again(self, reading: _Reading, earlier: _Reading) -> bool:
        """Return whether two readings of one text are of one symbol, not of a neighbour.

        Boxes of rotated neighbours overlap, while lines of the same bars share no area.
        """
        if not reading.says_the_same(earlier):
            return False
        if reading.zxing_format in self._formats.linear:
            return _meet(reading.box, earlier.box)
        return reading.encloses(earlier.centre) or earlier.encloses(reading.centre)

    def _is_inside(self, reading: _Reading, others: Iterable[_Reading]) -> bool:
        """Return whether bars are part of longer ones, which a pixel row may leave at an angle."""
        linear = self._formats.linear
        return reading.zxing_format in linear and any(
            each.zxing_format in linear and each.encloses(reading.centre) for each in others
        )

    def _read_box(
        self,
        picture: Array,
        box: Box,
        formats: Collection[Any],
        first: _Reading | None,
        *,
        is_detected: bool,
    ) -> _Reading | None:
        """Return what a box says; `first` is its reading from the whole picture, if any."""
        votes: list[_Reading] = []
        readings = self._variants(
            picture, box, formats, is_close=is_detected, was_read=first is not None
        )
        if first is not None:
            votes.append(first)
            if first.zxing_format not in self._formats.easily_misread:
                return first
        for reading in readings:
            if reading.zxing_format not in self._formats.easily_misread:
                return reading
            if reading.is_tight and not self._is_whole(picture, reading):
                continue  # two readings that miss the same bars agree, too
            votes.append(reading)
            if sum(reading.says_the_same(each) for each in votes) >= _AGREEING:
                return reading
        if first is None or votes != [first]:
            return None
        if is_detected and not self._is_whole(picture, first):
            return None
        if is_detected and first.zxing_format in self._formats.divisible:
            return first
        trusted = self._formats.checked if is_detected else self._formats.rows
        return first if first.zxing_format in trusted else None

    def _is_whole(self, picture: Array, reading: _Reading) -> bool:
        """Return whether a code cannot be a part of a longer one."""
        is_divisible = reading.zxing_format in self._formats.divisible
        return not is_divisible or _is_whole_itf(picture, reading)

    def _whole_bars(self, picture: Array, reading: _Reading) -> _Reading:
        """Return a 1-D code with the corners of its entire bars, not only of the rows just read."""
        if reading.zxing_format not in self._formats.linear:
            return reading
        bars = _bars_of(picture, reading)
        if bars is None:
            return reading
        left, right, top, bottom = bars.left, bars.right, bars.top, bars.bottom
        one, two, three, four = map(
            bars.upright.in_picture, [(left, top), (right, top), (right, bottom), (left, bottom)]
        )
        corners = (three, four, one, two) if bars.is_on_its_head else (one, two, three, four)
        return reading._replace(code=replace(reading.code, corners=corners))

    def _variants(
        self,
        picture: Array,
        box: Box,
        formats: Collection[Any],
        *,
        is_close: bool,
        was_read: bool,
    ) -> Iterator[_Reading]:
        """Yield the reading of each variant for a box."""
        looks = [*self._formats.by_look(formats)]
        sides = sorted((box.width, box.height))
        if self._formats.strips & frozenset(formats) and sides[1] > _STRIP * sides[0]:
            looks.append(("strips", self._formats.strips))  # last, because they are rare
        for look, of_look in looks:
            squares = look in ("squares", "strips")
            crop = Crop.of(picture, box, has_squares=squares, is_close=is_close)
            if crop is None:
                return
            turned: tuple[View, float] | None = None
            variants = _VARIANTS[look]
            seen: set[tuple[object, ...]] = set()
            if look == "rows" and was_read:  # the first variant would repeat what was read
                variants = variants[::-1]
            for variant in variants:
                scale = _scale(variant, look, crop.image.size)
                if not variant.is_upright:
                    if scale < variant.scale:
                        continue
                    upright = crop.as_it_is()
                elif turned is None or look == "bars":  # few rows; rescaling would blur them
                    share = _BARS_SHARE if look == "bars" else 1.0
                    upright = crop.upright(
                        scale,
                        share=share,
                        most_lines=variant.most_lines,
                        slack=variant.slack,
                    )
                    turned = upright, scale
                else:
                    upright = turned[0].resized(scale / turned[1])
                pixels = upright.grey.shape, upright.back
                if pixels in seen:  # the reading would be the same
                    continue
                seen.add(pixels)
                thorough = variant.is_thorough
                codes = self._decoded(upright.grey, of_look, is_thorough=thorough, shrinks=thorough)
                if look == "bars":  # some rows may yield only part of the code
                    codes.sort(key=lambda code: len(code.text), reverse=True)
                for code in codes:
                    reading = self._reading(code, map(upright.in_picture, _corners(code)))
                    if self._fits(reading, box, formats):
                        reading = reading._replace(is_tight=variant.slack == _TIGHT)
                        if turned and upright is turned[0]:  # the next variant crops to this code
                            turned = upright.around(_corners(code)), scale
                        yield reading

    def _read_picture(self, picture: Array) -> list[_Reading]:
        """Return what zxing-cpp reads without boxes, each code once."""
        readings: list[_Reading] = []
        for view, formats, is_thorough, shrinks in self._views(picture):
            for code in self._decoded(view.grey, formats, is_thorough=is_thorough, shrinks=shrinks):
                reading = self._reading(code, map(view.in_picture, _corners(code)))
                if not any(self._is_again(reading, each) for each in readings):
                    readings.append(reading)
        return readings

    def _views(self, picture: Array) -> Iterator[tuple[View, Collection[Any], bool, bool]]:
        """Yield each view of a picture to read, its formats, and two options of `_decoded`.

        Together they are what zxing-cpp tries by default, except for lines of bars next to others,
        and for parts of a large picture that are too flat for 2-D codes. Pillow rotates the picture
        faster than zxing-cpp would.
        """
        from PIL import Image

        if max(picture.shape) > _LONGEST_SIDE:
            return
        bars = self._formats.of_any & self._formats.linear
        others = self._formats.of_any - bars
        scale = 1
        while picture.size > _LARGE:
            if bars:
                whole = View.scaled(picture, scale)
                yield whole, bars, False, False
                yield whole.turned(every=_LINES), bars, False, False
            for area in busy_parts(picture) if others else ():
                part = View.scaled(picture, scale, area)
                for look, formats in self._formats.by_look(others):
                    yield part, formats, look == "squares", False
                    if look == "rows":
                        yield part.turned(), formats, False, False
            smaller = Image.fromarray(picture).reduce(_SMALLER)
            picture, scale = np.asarray(smaller), scale * _SMALLER
        whole = View.scaled(picture, scale)
        if scale == 1 or not bars:
            yield whole, self._formats.of_any, True, True
            return
        yield whole.lines(every=_LINES), bars, False, True
        yield whole.turned(every=_LINES), bars, False, True
        if others:
            yield whole, others, True, True

    def _decoded(
        self, grey: Array, formats: Collection[Any], *, is_thorough: bool, shrinks: bool
    ) -> list[Any]:
        """Return the codes read from pixels (height, width).

        A thorough reading also tries the picture inverted, rotated by 90 degrees, and perhaps
        downscaled.
        """
        zxing = self._zxing
        codes = zxing.read_barcodes(
            zxing.ImageView(grey, grey.shape[1], grey.shape[0], zxing.ImageFormat.Lum),
            formats=list(formats),
            try_rotate=is_thorough,
            try_downscale=shrinks,
            try_invert=is_thorough,
            text_mode=zxing.TextMode.Plain,
        )
        return [code for code in codes if code.valid and code.text]

    def _reading(self, code: Any, corners: Iterable[Point]) -> _Reading:
        top_left, top_right, bottom_right, bottom_left = corners
        quad: Corners = (top_left, top_right, bottom_right, bottom_left)
        return _Reading(Code(code.text, str(code.format), quad, bytes(code.bytes)), code.format)


def _scale(variant: _Variant, look: Look, size: tuple[int, int]) -> float:
    """Return the enlargement of a crop; it differs per variant, as equal pixels always agree."""
    largest = sqrt(_MOST_PIXELS / (size[0] * size[1]))
    if variant.scale <= largest:
        return variant.scale
    return largest * variant.scale / max(each.scale for each in _VARIANTS[look])


def _corners(code: Any) -> tuple[Point, Point, Point, Point]:
    place = code.position
    return (
        (place.top_left.x, place.top_left.y),
        (place.top_right.x, place.top_right.y),
        (place.bottom_right.x, place.bottom_right.y),
        (place.bottom_left.x, place.bottom_left.y),
    )


def _edges(boxes: Boxes, size: tuple[int, int]) -> list[Box]:
    """Return the edges of boxes in pixels."""
    scaled = boxes.xywh.astype(np.float64) * (*size, *size)
    centre, half = scaled[:, :2], scaled[:, 2:] / 2
    return [Box(*row) for row in np.concatenate([centre - half, centre + half], axis=1).tolist()]


class _Bars(NamedTuple):
    """The upright bars of a 1-D code: the columns that were read, and the rows that show them."""

    upright: View
    grey: Array
    left: int
    right: int
    top: int
    bottom: int
    is_on_its_head: bool


def _bars_of(picture: Array, reading: _Reading, *, size: float = 1.0) -> _Bars | None:
    """Follow the bars beyond the rows that were read; None if there are not enough pixels."""
    crop = Crop.of(
        picture, _square_around(reading.box, size=size), has_squares=False, is_close=False
    )
    if crop is None:
        return None
    upright = crop.upright(1, most_lines=_FOLLOWED_LINES, is_exact=False)
    grey = upright.grey.astype(np.float32)
    height, width = grey.shape
    places = [upright.from_picture(corner) for corner in reading.code.corners]
    x, y = zip(*places, strict=True)
    left, right = max(0, round(min(x))), min(width, round(max(x)))
    top, bottom = max(0, round(min(y))), min(height, round(max(y)) + 1)
    if right - left < 2 or bottom <= top:
        return None
    rows = grey[:, left:right]
    rows = rows - rows.mean(axis=1, keepdims=True)
    bars = rows[(top + bottom) // 2]
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(bars)
    others = np.flatnonzero(rows @ bars <= _SAME_BARS * norms)
    top = min(top, int(others[others < top].max(initial=-1)) + 1)
    bottom = max(bottom, int(others[others >= bottom].min(initial=height)))
    return _Bars(upright, grey, left, right, top, bottom, x[0] > x[1])


def _is_whole_itf(picture: Array, reading: _Reading) -> bool:
    """Return whether both ends of the bars that were read are followed by a quiet zone."""
    bars = _bars_of(picture, reading, size=_WITH_QUIET)
    if bars is None:
        return False
    of_digit, others = _ITF_MODULES
    module = (bars.right - bars.left) / (of_digit * len(reading.code.text) + others)
    quiet, blur = ceil(_QUIET * module), ceil(_BLUR * module)
    start, end = bars.left - blur, bars.right + blur
    steps = np.abs(np.diff(bars.grey[bars.top : bars.bottom].mean(axis=0)))
    if start < quiet or end + quiet > len(steps):
        return False
    noise = max(steps[start - quiet : start].mean(), steps[end : end + quiet].mean())
    return bool(noise < _MOST_NOISE * steps[bars.left : bars.right].mean())


def _side(box: Box) -> float:
    return max(box.width, box.height)


def _distance(box: Box, point: Point) -> float:
    return hypot((box.left + box.right) / 2 - point[0], (box.top + box.bottom) / 2 - point[1])


def _square_around(box: Box, *, size: float = 1.0) -> Box:
    """Return a square around the part of a code that was read, which is a line across its bars."""
    x, y = (box.left + box.right) / 2, (box.top + box.bottom) / 2
    half = size * max(box.width, box.height) / 2
    return Box(x - half, y - half, x + half, y + half)


def _meet(one: Box, other: Box) -> bool:
    across = min(one.right, other.right) - max(one.left, other.left)
    down = min(one.bottom, other.bottom) - max(one.top, other.top)
    return across >= 0 and down >= 0


def _are_alike(one: Box, other: Box) -> bool:
    """Return whether two boxes enclose the same code, which a network may detect as two classes."""
    across = min(one.right, other.right) - max(one.left, other.left)
    down = min(one.bottom, other.bottom) - max(one.top, other.top)
    shared = max(0.0, across) * max(0.0, down)
    both = one.width * one.height + other.width * other.height - shared
    return shared > _SAME_BOX * both


def _joined(
    numbers: Sequence[int], added: Sequence[Box], boxes: Boxes, size: tuple[int, int]
) -> Boxes:
    """Return the boxes of read codes, by class, before those that the network found."""
    edges = np.array(added, np.float64) / (*size, *size)
    xywh = np.concatenate([(edges[:, :2] + edges[:, 2:]) / 2, edges[:, 2:] - edges[:, :2]], axis=1)
    scores = np.full(len(added), _READ_SCORE, np.float32)
    return Boxes(
        np.concatenate([xywh.astype(np.float32), boxes.xywh]),
        np.concatenate([scores, boxes.scores]),
        np.concatenate([np.array(numbers, np.int64), boxes.class_ids]),
        np.concatenate([scores, boxes.objectness]),
    )
