"""Detect damage in pictures that were decoded nevertheless, as in browsers and darknet.

Pillow accepts a PNG whose pixels end early, and a JPEG whose middle was overwritten. The structure
of the file reveals both. libjpeg fills missing blocks of a JPEG with grey: they are detected by
whether a decoder consumes data appended to the file. Other damage in a JPEG, such as zeros, is not
found.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from engine.vision.decode import load, open_image

if TYPE_CHECKING:
    from PIL import Image

_PNG = b"\x89PNG\r\n\x1a\n"
_IHDR = struct.Struct(">IIBBxxB")
_IHDR_PLACE = 16
_SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
_ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2))
_LAST_PASS = (0, 1, 1, 2)  # x and y, and their steps
_BLOCK = 1 << 16

_JPEG = b"\xff\xd8\xff"
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
_EOI, _SOS, _FILL = 0xD9, 0xDA, 0xFF
_WITH_LENGTH = frozenset((0xC4, 0xDA, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)))
_FRAMES = frozenset(range(0xC0, 0xD0))
_MAX_SEGMENTS = 1 << 14
_BLOCK_SIDE = 8
_GREY = range(127, 130)  # 128, with the rounding of the conversion to luma
_END = b"\xff\xd9"
_RESTARTS = tuple(bytes((0xFF, 0xD0 + number)) for number in range(8))
_CODED = b"\x55" * 1024  # data that a decoder consumes only if blocks are missing


def describe(content: bytes, image: Image.Image | None) -> str | None:
    """Return what is wrong with an encoded picture that could be decoded, or None.

    A JPEG whose decoder missed no data needs no `image`.
    """
    if content.startswith(_JPEG):
        return _damage_of_jpeg(content, image)
    return _damage_of_png(content, image) if image and content.startswith(_PNG) else None


def _damage_of_png(content: bytes, image: Image.Image) -> str | None:
    """Count the bytes of pixels, but only if the last rows in the file are black."""
    width, height, depth, colour, is_interlaced = _IHDR.unpack_from(content, _IHDR_PLACE)
    row = height - 1 - (is_interlaced and height % 2 and height > 1)  # its last pass has odd rows
    if image.size != (width, height) or colour not in _SAMPLES:
        return None
    if image.crop((0, row, width, row + 1)).tobytes().strip(b"\0"):
        return None
    bits = depth * _SAMPLES[colour]
    passes = (*_ADAM7, _LAST_PASS) if is_interlaced else ((0, 0, 1, 1),)
    expected = 0
    for x, y, x_step, y_step in passes:
        columns, rows = -(-(width - x) // x_step), -(-(height - y) // y_step)
        expected += rows * (1 + -(-columns * bits // 8)) if columns > 0 and rows > 0 else 0
    found = _inflated_bytes(content, expected)
    if found >= expected:
        return None
    return f"has {100 * found // expected} % of its pixels; the missing part is black or empty"


def _inflated_bytes(content: bytes, most: int) -> int:
    inflate = zlib.decompressobj()
    count = 0
    for block in _image_data(content):
        pending = block
        while pending and count < most and not inflate.eof:
            try:
                count += len(inflate.decompress(pending, _BLOCK))
            except zlib.error:
                return count
            pending = inflate.unconsumed_tail
    return count


def _image_data(content: bytes) -> Iterator[bytes]:
    place = len(_PNG)
    while place + 8 <= len(content):
        size = int.from_bytes(content[place : place + 4], "big")
        if content[place + 4 : place + 8] == b"IDAT":
            for start in range(place + 8, place + 8 + size, _BLOCK):
                yield content[start : min(start + _BLOCK, place + 8 + size)]
        place += 12 + size


def _damage_of_jpeg(content: bytes, image: Image.Image | None) -> str | None:
    """Look for what is invalid in or between the scans: other markers, data after a segment.

    If the last block of a single scan is grey, look for missing data.
    """
    place, scans = 2, 0
    for _ in range(_MAX_SEGMENTS):
        found = _MARKER.search(content, place)
        if found is None:
            return None
        if content[found.start() + 1] == _EOI:
            is_grey = image is not None and scans == 1 and _is_last_block_grey(image)
            if is_grey and _lacks_blocks(content, found.start()):
                return "lacks data before its end: the missing part is grey"
            return None
        marker, end = content[found.start() + 1], found.end()
        if marker in _WITH_LENGTH or (not scans and marker in _FRAMES):
            end += max(int.from_bytes(content[end : end + 2], "big"), 2)
            is_followed = marker == _SOS or content[end : end + 1] == b"\xff"
        else:
            is_followed = False
        if scans and not is_followed:
            return "is damaged: its data break off in the middle, and the rest may be wrong"
        scans += marker == _SOS
        place = end
    return None


def _is_last_block_grey(image: Image.Image) -> bool:
    """Return whether the blocks of luma, or of black, at the bottom right may be missing.

    Only luma counts, because a decoder blends the chroma of adjacent blocks.
    """
    width, height = image.size
    left, top = (each - 1 - (each - 1) % _BLOCK_SIDE for each in image.size)
    corner = image.crop((left, top, width, height))
    luma = corner.getchannel("K") if image.mode == "CMYK" else corner.convert("L")
    return set(luma.tobytes()) <= set(_GREY)


def _lacks_blocks(content: bytes, end: int) -> bool:
    """Return whether a decoder consumes more data than a JPEG has before its end marker."""
    while content[end - 1] == _FILL:  # padding before the marker, or half of an escaped byte
        end -= 1
    _, last = max((content.rfind(each, 0, end), number) for number, each in enumerate(_RESTARTS))
    restart = _RESTARTS[(last + 1) % len(_RESTARTS)]  # the missing blocks may begin after it
    data = memoryview(content)[:end]
    longer = b"".join((data, _CODED, restart, _CODED, _END))
    return _small(longer) != _small(content)


def _small(content: bytes) -> bytes:
    """Decode only the means of the blocks, which is faster and takes 2 % of the memory."""
    small = open_image(content, "picture")
    width, height = small.size
    small.draft(None, (max(width // _BLOCK_SIDE, 1), max(height // _BLOCK_SIDE, 1)))
    return load(small, "picture", max_pixels=width * height)[0].tobytes()
