"""Annotator and colors: draw boxes and texts as with ultralytics.utils.plotting.

from engine.compat.ultralytics.utils.plotting import Annotator, colors

annotator = Annotator(frame, line_width=2)  # in BGR order; it is drawn on in place
for box in result.boxes:
    number = int(box.cls)
    annotator.box_label(box.xyxy[0], result.names[number], colors(number, True))
frame = annotator.result()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from engine.arrays import Array
from engine.errors import InputError
from engine.vision.colours import Colour, colour_of, text_colour_on
from engine.vision.draw import text_mask

Area: TypeAlias = "tuple[int, int, int, int]"  # left, top, right, bottom

_LINE_SHARE = 0.003  # line width relative to the mean side
_TEXT_SIZE = 7  # in line widths
_MIN_TEXT_SIZE = 11
_GREY: Colour = (128, 128, 128)


class Colors:
    """The colours of classes, which are those of plot()."""

    def __call__(self, i: Any, bgr: bool = False) -> Colour:
        red, green, blue = colour_of(int(i))
        return (blue, green, red) if bgr else (red, green, blue)


colors = Colors()


class Annotator:
    """Draws on a picture in place: an array of bytes in BGR order, or a Pillow image.

    A read-only array, an array without three channels and, with `pil`, any array is copied first;
    result() returns what was drawn on. Colours have the channel order of the picture.
    """

    def __init__(
        self,
        im: Array | Image.Image,
        line_width: int | None = None,
        font_size: float | None = None,
        font: str = "Arial.ttf",
        pil: bool = False,
        example: Any = "abc",
    ) -> None:
        """Create the annotator; ignore `font` and `example`, as each text gets its own font."""
        if isinstance(im, Image.Image):
            self.im: Any = im if im.mode in ("RGB", "RGBA") else im.convert("RGB")
        else:
            self.im = _drawable(im, copies=pil)
        size = self._size
        self.lw = int(line_width or max(2, round(sum(size) / 2 * _LINE_SHARE)))
        self._text_size = round(font_size or max(_MIN_TEXT_SIZE, _TEXT_SIZE * self.lw))
        self._starts_at_top = pil or isinstance(im, Image.Image)

    @property
    def _size(self) -> tuple[int, int]:
        """Return width and height."""
        if isinstance(self.im, Image.Image):
            return self.im.size
        height, width = self.im.shape[:2]
        return width, height

    def box_label(
        self,
        box: Any,
        label: str | None = "",
        color: Sequence[int] = _GREY,
        txt_color: Sequence[int] | None = None,
    ) -> None:
        """Draw a box, and a label above it or, at the top of the picture, inside.

        Without `txt_color` the text is black on a light `color` and white on a dark one.
        """
        edges = np.asarray(box, np.float64)
        if edges.shape != (4,):
            raise InputError(f"box: expected left, top, right, bottom, got the shape {edges.shape}")
        left, top, right, bottom = edges.astype(int).tolist()
        before = self.lw // 2
        after = self.lw - before
        for x in (left, right):
            self._fill((x - before, top - before, x + after, bottom + after), color)
        for y in (top, bottom):
            self._fill((left - before, y - before, right + after, y + after), color)
        if label:
            mask = text_mask(str(label), self._text_size)
            left = max(0, min(left, self._size[0] - mask.width))
            top = top - mask.height if top >= mask.height else top
            self._write(mask, (left, top), txt_color or _legible(color), color)

    def text(
        self,
        xy: Sequence[float],
        text: str,
        txt_color: Sequence[int] = (255, 255, 255),
        anchor: str = "top",
        box_color: Sequence[int] = (),
    ) -> None:
        """Write lines of text, on `box_color` if it is given.

        On an array, the first line ends at the height of `xy`, as with OpenCV. It begins there on
        a Pillow image and with `pil`, unless `anchor` is "bottom".
        """
        left, top = (int(each) for each in xy)
        masks = [text_mask(line, self._text_size) for line in str(text).split("\n")]
        if not self._starts_at_top or anchor == "bottom":
            top -= masks[0].height
        for mask in masks:
            self._write(mask, (left, top), txt_color, box_color)
            top += mask.height

    def result(self, pil: bool = False) -> Any:
        """Return the array that was drawn on or, with `pil`, a Pillow image of it in RGB order."""
        drawn = np.asarray(self.im)
        return Image.fromarray(np.ascontiguousarray(drawn[:, :, ::-1])) if pil else drawn

    # ------------------------------------------------------------ pixels

    def _write(
        self,
        mask: Image.Image,
        at: tuple[int, int],
        colour: Sequence[int],
        background: Sequence[int],
    ) -> None:
        left, top = at
        area = (left, top, left + mask.width, top + mask.height)
        if len(background):
            self._fill(area, background)
        inside = self._clipped(area)
        mask = mask.crop((inside[0] - left, inside[1] - top, inside[2] - left, inside[3] - top))
        if isinstance(self.im, Image.Image):
            self.im.paste(_whole(colour), inside, mask)
            return
        patch = self._patch(inside)
        share = np.asarray(mask)[:, :, None] / 255
        patch[:] = np.rint(patch + (np.array(_whole(colour)) - patch) * share)

    def _fill(self, area: Area, colour: Sequence[int]) -> None:
        if isinstance(self.im, Image.Image):
            self.im.paste(_whole(colour), self._clipped(area))
        else:
            self._patch(self._clipped(area))[:] = _whole(colour)

    def _clipped(self, area: Area) -> Area:
        """Return the part of an area that is inside the picture, which may be empty."""
        width, height = self._size
        left, right = (min(max(each, 0), width) for each in area[::2])
        top, bottom = (min(max(each, 0), height) for each in area[1::2])
        return left, top, max(left, right), max(top, bottom)

    def _patch(self, area: Area) -> Array:
        left, top, right, bottom = area
        return np.asarray(self.im)[top:bottom, left:right]


def _drawable(array: Any, *, copies: bool) -> Array:
    """Return an array with three channels of bytes: the same one if it can be drawn on."""
    made = np.asarray(array)
    if made.dtype != np.uint8 or made.ndim not in (2, 3):
        raise InputError(
            "im: expected a Pillow image or an array of bytes, (height, width, 3), "
            f"got {made.dtype} of the shape {made.shape}"
        )
    made = made if made.ndim == 3 else made[:, :, None]
    if made.shape[2] == 1:
        return made.repeat(3, axis=2)
    if made.shape[2] == 2:
        return np.pad(made, ((0, 0), (0, 0), (0, 1)))
    if copies or made.shape[2] > 3 or not made.flags.writeable:
        return made[:, :, :3].copy()
    return made


def _whole(colour: Sequence[int]) -> Colour:
    first, second, third = (int(each) for each in [*colour][:3])
    return first, second, third


def _legible(colour: Sequence[int]) -> Colour:
    """Return the colour of text on a colour in BGR order."""
    blue, green, red = _whole(colour)
    return text_colour_on((red, green, blue))
