"""Refuse files that a decoder would read for much longer than their size suggests.

Pillow reads headers, and some entire formats, in Python with the GIL held. A few bytes can make it
loop for minutes. Each check here walks the same structure with a bound on its steps, so that an
ordinary file costs microseconds and a hostile one is refused in milliseconds.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from io import BytesIO

import numpy as np

from engine.errors import ImageError

_MAX_STEPS = 1 << 14  # segments, chunks and blocks that Pillow reads in Python, at 10 us each
_MAX_JUNK_BYTES = 1 << 17  # junk that Pillow skips byte by byte
_BYTES_PER_PNG_CHUNK = 4096  # large pictures have more chunks than _MAX_STEPS
_MAX_SCANS = 16  # allowed in a progressive JPEG of any size
_MAX_SCANNED_PIXELS = 1 << 31
_MAX_RLE_WORK = 1 << 22  # pixels and bytes
_MAX_PLAIN_SAMPLES = 3 << 20
_MAX_PLAIN_COMMENTS = 1000
_MAX_PPM_HEADER = 1 << 14
_SCALED_SAMPLES = 1 << 18
_MAX_TIFF_PARTS = 1 << 16  # Pillow makes several objects for each strip or tile
_MAX_TIFF_TAGS = 4096

_SOS = 0xDA
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SEQUENTIAL = frozenset((0xC0, 0xC1))  # with Huffman coding
_LONE = frozenset((0xC8, *range(0xD0, 0xDA), *range(0xF0, 0xFE)))  # markers without a length

_PPM_SPACE = rb"(?:[ \t\n\v\f\r]|#[^\r\n]*[\r\n])"
_PPM_HEADER = re.compile(rb"P([1-6])" + (_PPM_SPACE + rb"+(\d{1,10})") * 2)
_PPM_MAXIMUM = re.compile(_PPM_SPACE + rb"+(\d{1,5})[ \t\n\v\f\r]")

_TIFF_PART_TAGS = frozenset((273, 279, 324, 325))  # offsets and sizes of strips and tiles
_RLE_COMPRESSIONS = (1, 2)


def affordable(content: bytes, name: str) -> bytes:
    """Return `content`, or the same picture in a form that costs less; raise ImageError."""
    for magic, check in _CHECKS:
        if content.startswith(magic):
            return check(content, name)
    return content


def _jpeg(content: bytes, name: str) -> bytes:
    """Check all segments before the first scan, and the number of scans.

    If the first scan of a sequential picture has all components, a decoder reads only that one and
    refuses a second. This holds for most files, and searching for further scans takes longer than
    the rest.
    """
    place, steps, junk, pixels = 2, 0, 0, 0
    sequential = 0  # components of a sequential frame
    while place + 4 <= len(content):
        start = content.find(b"\xff", place)
        if start < 0:
            start = len(content)
        end = start + 1
        while content[end : end + 1] == b"\xff" and end - start < _MAX_JUNK_BYTES:
            end += 1
        junk += end - place - 1
        steps += 1
        if steps > _MAX_STEPS or junk > _MAX_JUNK_BYTES:
            raise _too_costly(name, "a JPEG", "segments", _MAX_STEPS)
        if end + 3 > len(content):
            return content
        marker = content[end]
        if marker == _SOS:
            if sequential and content[end + 3 : end + 4] == bytes((sequential,)):
                return content
            break
        if marker == 0 or marker in _LONE:
            place = end + 1
            continue
        if marker in _FRAMES and end + 8 <= len(content):
            height, width = struct.unpack_from(">HH", content, end + 4)
            pixels = height * width
            sequential = content[end + 8] if marker in _SEQUENTIAL and len(content) > end + 8 else 0
        place = end + 1 + max(int.from_bytes(content[end + 1 : end + 3], "big"), 2)
    scans = content.count(b"\xff\xda", place)
    if scans > _MAX_SCANS and scans * pixels > _MAX_SCANNED_PIXELS:
        raise _too_costly(name, "a JPEG of this size", "scans", _MAX_SCANNED_PIXELS // pixels)
    return content


def _png(content: bytes, name: str) -> bytes:
    limit = _MAX_STEPS + len(content) // _BYTES_PER_PNG_CHUNK
    place = 8
    for _ in range(limit):
        if place + 8 > len(content):
            return content
        place += 12 + int.from_bytes(content[place : place + 4], "big")
    raise _too_costly(name, "a PNG of this length", "chunks", limit)


def _gif(content: bytes, name: str) -> bytes:
    """Check the extensions before the first picture."""
    place = 13 + ((6 << (content[10] & 7)) if len(content) > 10 and content[10] & 128 else 0)
    steps = 0
    while place < len(content) and content[place] not in b",;":
        if content[place] == 0x21:
            place += 2
            while size := int.from_bytes(content[place : place + 1], "big"):
                place += 1 + size
                steps += 1
                if steps > _MAX_STEPS:
                    break
        place += 1
        steps += 1
        if steps > _MAX_STEPS:
            raise _too_costly(name, "a GIF", "blocks before its picture", _MAX_STEPS)
    return content


def _bmp(content: bytes, name: str) -> bytes:
    if len(content) < 34 or struct.unpack_from("<I", content, 14)[0] < 40:
        return content
    width, height = (abs(each) for each in struct.unpack_from("<ii", content, 18))
    (compression,) = struct.unpack_from("<I", content, 30)
    if compression in _RLE_COMPRESSIONS and width * height + len(content) > _MAX_RLE_WORK:
        raise _too_costly(name, "a run-length encoded BMP", "pixels and bytes", _MAX_RLE_WORK)
    return content


def _ppm(content: bytes, name: str) -> bytes:
    """Check plain-text files, and scale samples that Pillow would scale one by one."""
    header = _PPM_HEADER.match(content, 0, _MAX_PPM_HEADER)
    if header is None:
        if len(content) > _MAX_PPM_HEADER:
            raise ImageError(
                f"{name}: picture: cannot be decoded: expected width and height of a PPM in"
                f" its first {_MAX_PPM_HEADER} bytes"
            )
        return content
    kind, width, height = (int(each) for each in header.groups())
    bands = 3 if kind in (3, 6) else 1
    if kind <= 3:
        if width * height * bands > _MAX_PLAIN_SAMPLES:
            raise _too_costly(name, "a PPM in plain text", "samples", _MAX_PLAIN_SAMPLES)
        if content.count(b"#") > _MAX_PLAIN_COMMENTS:
            raise _too_costly(name, "a PPM in plain text", "comments", _MAX_PLAIN_COMMENTS)
    if kind in (1, 4):
        return content
    found = _PPM_MAXIMUM.match(content, header.end(), header.end() + _MAX_PPM_HEADER)
    if found is None:
        if len(content) > header.end() + _MAX_PPM_HEADER:
            raise ImageError(
                f"{name}: picture: cannot be decoded: expected a maximum in the header of a PPM"
            )
        return content
    maximum = int(found[1])
    is_raw = kind <= 3 or maximum == 255 or (maximum == 65535 and bands == 1)
    if is_raw or not 0 < maximum < 65536:
        return content
    return _scaled_ppm(content, found.end(), (width, height, bands), maximum)


def _scaled_ppm(content: bytes, start: int, shape: tuple[int, int, int], maximum: int) -> bytes:
    """Return a binary PPM with the maximum 255, or 65535 for grey of 16 bits, as Pillow scales."""
    width, height, bands = shape
    is_wide = maximum > 255
    count = min(width * height * bands, (len(content) - start) // (1 + is_wide))
    samples = np.frombuffer(content, ">u2" if is_wide else np.uint8, count, start)
    top = 65535 if is_wide and bands == 1 else 255
    values = np.arange(65536 if is_wide else 256) / maximum * top
    table = np.minimum(np.rint(values), top).astype(">u2" if top > 255 else np.uint8)
    scaled = BytesIO()
    scaled.write(b"P%d\n%d %d\n%d\n" % (6 if bands == 3 else 5, width, height, top))
    for first in range(0, count, _SCALED_SAMPLES):  # in parts: an index takes eight bytes
        scaled.write(table.take(samples[first : first + _SCALED_SAMPLES]).tobytes())
    return scaled.getvalue()


def _tiff(content: bytes, name: str) -> bytes:
    """Check the directory of the first picture."""
    if len(content) < 16:
        return content
    order = "<" if content[:1] == b"I" else ">"
    is_big = 43 in (content[2], content[3])
    count_form = order + ("Q" if is_big else "H")
    entry_form = order + ("HHQ" if is_big else "HHI")
    start = struct.unpack_from(order + ("Q" if is_big else "I"), content, 8 if is_big else 4)[0]
    first = start + struct.calcsize(count_form)
    if first > len(content):
        return content
    (count,) = struct.unpack_from(count_form, content, start)
    if count > _MAX_TIFF_TAGS:
        raise _too_costly(name, "a TIFF", "tags", _MAX_TIFF_TAGS)
    for place in range(first, first + count * (20 if is_big else 12), 20 if is_big else 12):
        if place + struct.calcsize(entry_form) > len(content):
            break
        tag, _, values = struct.unpack_from(entry_form, content, place)
        if tag in _TIFF_PART_TAGS and values > _MAX_TIFF_PARTS:
            raise _too_costly(name, "a TIFF", "strips or tiles", _MAX_TIFF_PARTS)
    return content


def _too_costly(name: str, kind: str, of: str, limit: int) -> ImageError:
    return ImageError(
        f"{name}: picture: expected {kind} to have at most {limit} {of}, got more."
        " Save it anew, for instance as PNG."
    )


_CHECKS: tuple[tuple[bytes, Callable[[bytes, str], bytes]], ...] = (
    (b"\xff\xd8\xff", _jpeg),
    (b"\x89PNG", _png),
    (b"GIF8", _gif),
    (b"BM", _bmp),
    (b"P", _ppm),
    (b"II", _tiff),
    (b"MM", _tiff),
)
