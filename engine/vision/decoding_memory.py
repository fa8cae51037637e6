"""How much memory it takes to decode a picture.

The figures are measured maxima of read_encoded() and with_channels() for each format and mode, by
tests/vision/test_decoding_memory.py.
"""

from __future__ import annotations

from typing import Protocol

_BYTES_PER_PIXEL = 12
_MORE_BYTES_PER_PIXEL = {
    ("WEBP", "RGB"): 9,  # libwebp composes animations, even with one frame, on two canvases
    ("WEBP", "RGBA"): 9,
    ("TIFF", "F"): 5,  # three float32, made from one
}  # by Pillow's format and mode


class Opened(Protocol):
    """A picture whose header was read."""

    format: str | None

    @property
    def size(self) -> tuple[int, int]: ...

    @property
    def mode(self) -> str: ...


def of_header(content: bytes) -> int:
    """Return the bytes needed to open an encoded picture, including its content."""
    copies = 3 if content.startswith(b"P") else 2  # the samples of a PPM may be scaled first
    return copies * len(content)


def of_picture(opened: Opened, length: int) -> int:
    """Return the bytes needed for decoding, including the `length` bytes of the encoded picture."""
    width, height = opened.size
    more = _MORE_BYTES_PER_PIXEL.get((opened.format or "", opened.mode), 0)
    return width * height * (_BYTES_PER_PIXEL + more) + 2 * length
