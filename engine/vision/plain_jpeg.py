"""Recognise JPEGs that all decoders decode alike, and read the header data to place them.

A GPU's JPEG decoder neither reports damage nor agrees with libjpeg about rare kinds of files. It
gets only what is accepted here: one baseline scan of eight bits, grey or YCbCr with common
subsampling, complete and without foreign markers. Everything else is left to decode.py, whose
results and errors are the reference.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from engine.files.stamp import Stamp

_MARKER, _FRAME = struct.Struct(">BBH"), struct.Struct(">BHHB")
_SOI = b"\xff\xd8"
_SOF0, _DHT, _EOI, _SOS, _DQT, _DRI = 0xC0, 0xC4, 0xD9, 0xDA, 0xDB, 0xDD
_APP1, _APP14, _COM = 0xE1, 0xEE, 0xFE
_SKIPPED = frozenset((_COM, *range(0xE0, 0xF0)))
_MAX_SEGMENTS = 64
_TABLE_BYTES = 65  # size of an 8-bit quantization table

# Component number, samplings and the number of its table; 4:2:0, 4:2:2 and 4:4:4.
_SAMPLINGS = (b"\x22\x11\x11", b"\x21\x11\x11", b"\x11\x11\x11")
_SCANS = {1: b"\x01", 3: b"\x01\x02\x03"}  # components in order
_FULL_SPECTRUM = b"\x00\x3f\x00"
_MAX_DC_BITS = 11  # for a DC difference of 8-bit samples

_EXIF, _XMP_ORIENTATION = b"Exif\0\0", b"tiff:Orientation"
_ORIENTATION, _SHORT = 0x0112, 3
_MAX_TAGS = 512


Content: TypeAlias = "bytes | NDArray[np.uint8]"  # an array lies in shared memory


class PlainJpeg(NamedTuple):
    """An ordinary JPEG; width and height are those before any rotation."""

    content: Content  # up to its end marker
    width: int
    height: int
    channels: int  # 1 (grey) or 3
    orientation: int  # EXIF orientation, 1 to 8
    address: int | None = None  # memory address of the content, if known


class PlainPicture(NamedTuple):
    """A PlainJpeg that was read, and the file data of a Picture."""

    jpeg: PlainJpeg
    path: str | None
    stamp: Stamp | None = None


class _UnusualError(Exception):
    """The file is of another kind, or not a valid JPEG."""


def plain_jpeg(content: bytes) -> PlainJpeg | None:
    """Return what the header says, or None for any other file."""
    if not content.startswith(_SOI):
        return None
    try:
        header = _Header(content)
        orientation = header.orientation
        end = _end_of_scan(content, header.scan, has_restarts=header.restart_interval > 0)
    except (_UnusualError, IndexError, struct.error):
        return None
    whole = content if end == len(content) else content[:end]
    return PlainJpeg(whole, *header.size, header.channels, orientation)


class _Header:
    """The segments before the scan."""

    def __init__(self, content: bytes) -> None:
        self.size = (0, 0)
        self.channels = 0
        self.restart_interval = 0
        self._huffman: set[int] = set()  # table numbers, plus 16 for AC tables
        self._quantization: set[int] = set()
        self._wanted: set[int] = set()  # required quantization tables
        self._exif_orientation: int | None = None  # 0 if the EXIF has none
        self._may_be_in_xmp = False
        place = len(_SOI)
        for _ in range(_MAX_SEGMENTS):
            start, marker, length = _MARKER.unpack_from(content, place)
            if start != 0xFF or length < 2:
                raise _UnusualError
            end = place + 2 + length
            self._take(marker, content[place + 4 : end])
            if marker == _SOS:
                self.scan = end
                return
            place = end
        raise _UnusualError

    def _take(self, marker: int, segment: bytes) -> None:
        if marker == _DHT:
            self._take_huffman(segment)
        elif marker == _DQT:
            self._take_quantization(segment)
        elif marker == _SOF0:
            self._take_frame(segment)
        elif marker == _SOS:
            self._check_scan(segment)
        elif marker == _APP1:
            self._take_application(segment)
        elif marker == _APP14:
            self._check_adobe(segment)
        elif marker == _DRI:
            (self.restart_interval,) = struct.unpack(">H", segment)
        elif marker not in _SKIPPED:
            raise _UnusualError

    def _take_frame(self, segment: bytes) -> None:
        depth, height, width, count = _FRAME.unpack_from(segment)
        numbers, samplings = segment[6::3], segment[7::3]
        is_usual = samplings == b"\x11" if count == 1 else samplings in _SAMPLINGS
        if self.channels or len(segment) != 6 + 3 * count or numbers != _SCANS.get(count):
            raise _UnusualError
        if depth != 8 or not height or not width or not is_usual:
            raise _UnusualError
        self.size, self.channels = (width, height), count
        self._wanted.update(segment[8::3])

    def _check_scan(self, segment: bytes) -> None:
        count = self.channels
        is_usual = len(segment) == 4 + 2 * count and segment[:1] == bytes([count])
        if not count or not is_usual or segment[1:-3:2] != _SCANS[count]:
            raise _UnusualError
        for each in segment[2:-3:2]:
            if each >> 4 not in self._huffman or 16 + (each & 15) not in self._huffman:
                raise _UnusualError
        if segment[-3:] != _FULL_SPECTRUM or not self._wanted <= self._quantization:
            raise _UnusualError

    def _take_quantization(self, segment: bytes) -> None:
        if len(segment) % _TABLE_BYTES or max(segment[::_TABLE_BYTES]) > 3:
            raise _UnusualError
        self._quantization.update(segment[::_TABLE_BYTES])

    def _take_huffman(self, segment: bytes) -> None:
        numbers = _huffman_tables(segment)
        if not numbers:
            raise _UnusualError
        self._huffman.update(numbers)

    def _check_adobe(self, segment: bytes) -> None:
        if segment.startswith(b"Adobe") and (len(segment) < 12 or segment[11] != 1):
            raise _UnusualError  # RGB, CMYK, or a transform that libjpeg guesses

    def _take_application(self, segment: bytes) -> None:
        """Record the orientation; unlike in Pillow, several EXIF segments are not joined."""
        if segment.startswith(_EXIF):
            if self._exif_orientation is not None:
                raise _UnusualError
            self._exif_orientation = _orientation(segment[len(_EXIF) :])
        elif _XMP_ORIENTATION in segment:
            self._may_be_in_xmp = True

    @property
    def orientation(self) -> int:
        """The EXIF orientation; Pillow looks for it in XMP if the EXIF has none."""
        if not self._exif_orientation and self._may_be_in_xmp:
            raise _UnusualError
        return self._exif_orientation or 1


@lru_cache(maxsize=256)  # most files have the tables of the standard
def _huffman_tables(segment: bytes) -> tuple[int, ...]:
    """Return the numbers of the tables, or () if libjpeg would refuse one of them."""
    numbers, place = [], 0
    while place < len(segment):
        number, counts = segment[place], segment[place + 1 : place + 17]
        symbols = segment[place + 17 : place + 17 + sum(counts)]
        place += 17 + len(symbols)
        is_whole = len(counts) == 16 and len(symbols) == sum(counts) <= 256
        if number not in (0, 1, 16, 17) or not is_whole or not _are_codes(counts):
            return ()
        if number < 16 and max(symbols, default=0) > _MAX_DC_BITS:
            return ()
        numbers.append(number)
    return tuple(numbers)


def _are_codes(counts: bytes) -> bool:
    """Return whether a Huffman table can have these numbers of codes of 1, 2, … 16 bits.

    No code may consist of ones only.
    """
    code = 0
    for length, count in enumerate(counts, 1):
        code += count
        if code >= 1 << length:
            return False
        code <<= 1
    return code > 0


def _orientation(tiff: bytes) -> int:
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None:
        raise _UnusualError
    (start,) = struct.unpack_from(order + "I", tiff, 4)
    (count,) = struct.unpack_from(order + "H", tiff, start)
    table = tiff[start + 2 : start + 2 + 12 * count]
    if count > _MAX_TAGS or len(table) < 12 * count:
        raise _UnusualError
    found = 0
    for tag, kind, values, value, _ in struct.iter_unpack(order + "HHIHH", table):
        if tag == _ORIENTATION:
            if found or kind != _SHORT or values != 1 or not 1 <= value <= 8:
                raise _UnusualError
            found = value
    return found


def _end_of_scan(content: bytes, start: int, *, has_restarts: bool) -> int:
    """Return the position after the end marker, before which there may be only coded data."""
    values = np.frombuffer(content, np.uint8, offset=start)
    if len(values) < 2:
        raise _UnusualError
    # A byte of 255 begins a marker unless zero follows. Vectorised, the search takes a tenth of the
    # time, and other threads run meanwhile.
    is_marker = np.equal(values[:-1], 0xFF)
    as_bytes = is_marker.view(np.uint8)
    np.minimum(as_bytes, values[1:], out=as_bytes)
    first = int(is_marker.argmax())
    if not has_restarts or values[first + 1] == _EOI:
        if not is_marker[first] or values[first + 1] != _EOI:
            raise _UnusualError
        return start + first + 2
    places = np.flatnonzero(is_marker)
    kinds = values[places + 1]
    ends = np.flatnonzero(kinds == _EOI)
    if not ends.size:
        raise _UnusualError
    last = int(ends[0])
    # Restart markers cycle from 0 to 7; a gap means lost data.
    if not np.array_equal(kinds[:last], 0xD0 + np.arange(last) % 8):
        raise _UnusualError
    return start + int(places[last]) + 2
