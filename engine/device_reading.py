"""Read the pictures of a batch ahead, and decode their JPEGs on the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from engine.backends.base import DecodedJpeg, DevicePixels, JpegDecoder
from engine.errors import ImageError
from engine.inputs import Ahead, Readable, ReadAhead, Wanted
from engine.vision import image, picture_limits
from engine.vision.image import Encoded, EncodedPicture, Picture
from engine.vision.orientation import Layout
from engine.vision.plain_jpeg import PlainPicture, plain_jpeg

_CHANNELS = 3  # the only number that a device decodes


class DeviceReader:
    """Decodes what the device can, and leaves everything else to the host."""

    def __init__(self, decoder: JpegDecoder) -> None:
        self._decoder = decoder

    def read(
        self,
        sources: Sequence[Wanted],
        *,
        channels: int,
        orient: bool,
        max_pixels: int | None,
        lenient: bool,
        before: ReadAhead | None = None,
    ) -> Ahead:
        """Return the sources, read and decoded as far as possible, with the milliseconds for each.

        The options are those of image.read(), which decodes the rest. `before` reads files in
        processes, as BatchDecoder.read() does.
        """
        start = time.perf_counter()
        options: dict[str, Any] = {
            "channels": channels,
            "orient": orient,
            "max_pixels": max_pixels,
            "lenient": lenient,
        }
        is_for_device = channels == _CHANNELS and self._decoder.is_usable
        read: Ahead = [(each, 0.0) for each in sources]
        if before is not None:
            read = before(sources, **options, leaves_plain=is_for_device)
        if not is_for_device:
            return read
        most = picture_limits.PIXELS if max_pixels is None else max_pixels
        found = [_plain(each, most) for each, _ in read]
        plain = [each for each in found if isinstance(each, PlainPicture)]
        decoded = iter(self._decoder.decode([each.jpeg for each in plain]) if plain else ())

        def on_host(plain: PlainPicture) -> Picture:
            return image.read(_encoded(plain), **options)

        wanted = [
            _result(each, next(decoded), on_host, orient=orient)
            if isinstance(each, PlainPicture)
            else each
            for each in found
        ]
        spent = (time.perf_counter() - start) * 1e3 / max(len(wanted), 1)
        return [(each, spent) for each in wanted]


def _plain(source: Readable, most: int) -> Readable:
    """Read an encoded source; return a plain JPEG as a PlainPicture."""
    if isinstance(source, (PlainPicture, ImageError, Picture, Encoded, DevicePixels)):
        return source
    try:
        encoded = image.encoded_of(source)
    except ImageError as error:
        return error
    if encoded is None:
        return source
    jpeg = plain_jpeg(encoded.content)
    if jpeg is None or jpeg.width * jpeg.height > most:
        return encoded
    return PlainPicture(jpeg, encoded.path, encoded.stamp)


def _result(
    plain: PlainPicture,
    there: DecodedJpeg | None,
    on_host: Callable[[PlainPicture], Picture],
    *,
    orient: bool,
) -> Encoded | DevicePixels:
    """Return the pixels on the device; the host decodes the picture again if it needs them."""
    if there is None:
        return _encoded(plain)
    _, width, height, _, orientation, _ = plain.jpeg
    pointer, row_step, owner = there
    column_step = _CHANNELS
    if orient and orientation != 1:
        layout = Layout(height, width, row_step, column_step).upright(orientation)
        height, width, row_step, column_step, first = layout
        pointer += first
    decode = partial(on_host, plain)
    picture = EncodedPicture((width, height), plain.path, decode, plain.stamp)
    shape = height, width, _CHANNELS
    return DevicePixels(shape, pointer, row_step, column_step, owner, picture)


def _encoded(plain: PlainPicture) -> Encoded:
    return Encoded(bytes(plain.jpeg.content), plain.path, plain.stamp)
