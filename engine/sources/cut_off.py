"""Whether a video file lacks its end, by the lengths that its container states."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

_BOXES = frozenset({b"ftyp", b"styp", b"moov", b"mdat", b"free", b"skip", b"wide"})  # first ones
_MEDIA_BOXES = frozenset({b"moov", b"moof", b"mdat"})  # anything may follow the last of them
_SPARE_BYTES = 64  # by which AVI writers miscount
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_CLUSTER = b"\x1f\x43\xb6\x75"
_FRAMES = frozenset({_CLUSTER, b"\xa3", b"\xa0"})  # and its two kinds of blocks
_ELEMENTS = _FRAMES | {  # first those of a segment, then those of a cluster
    *(b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b", b"\x1c\x53\xbb\x6b"),
    *(b"\x19\x41\xa4\x69", b"\x10\x43\xa7\x70", b"\x12\x54\xc3\x67", b"\xec", b"\xbf"),
    *(b"\xe7", b"\x58\x54", b"\xa7", b"\xab", b"\xaf"),
}
_PACKETS = ((188, 0), (192, 4))  # lengths of a packet of MPEG-TS, and where its sync byte is
_SYNC = b"\x47"
_FLV_TAG = 11  # bytes before the content of a tag
_UNKNOWN_RIFF = (0, 0xFFFFFFFF)


def is_cut_off(path: str) -> bool:
    """Tell whether MP4, AVI, Matroska or FLV is shorter than it says, or MPEG-TS ends in a packet.

    Durations alone do not tell: those of whole files include longer sound and the time for which
    the last frame is shown.
    """
    if not Path(path).is_file():  # a pipe cannot be read twice
        return False
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(12)
        if head[4:8] in _BOXES:
            return _end_of_boxes(file, size) > size
        if head[:4] == b"RIFF":
            return _end_of_riffs(file, size) > size + _SPARE_BYTES
        if head[:4] == _EBML:
            return _end_of_segment(file, size) > size
        if head[:3] == b"FLV":
            return _end_of_tags(file, size) > size
        return any(_ends_in_packet(file, size, *each) for each in _PACKETS)


def _end_of_boxes(file: BinaryIO, size: int) -> int:
    """Return where the last box of the video ends, at least."""
    at = end = 0
    kind = b""
    while at + 8 <= size:
        file.seek(at)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:], "big")
        if length < 8:  # 0 means up to the end
            return size
        at += length
        if kind in _MEDIA_BOXES:
            end = at
    return size + 1 if kind == b"moof" else end  # its samples follow


def _end_of_riffs(file: BinaryIO, size: int) -> int:
    """Return where the last part ends: AVI of more than a gigabyte has several."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        head = file.read(8)
        length = int.from_bytes(head[4:], "little")
        if head[:4] != b"RIFF" or length in _UNKNOWN_RIFF:
            break
        at += 8 + length
    return at


def _end_of_segment(file: BinaryIO, size: int) -> int:
    file.seek(len(_EBML))
    file.seek(_ebml_length(file) or 0, os.SEEK_CUR)
    if file.read(len(_SEGMENT)) != _SEGMENT:
        return 0
    length = _ebml_length(file)
    return _end_of_clusters(file, size) if length is None else file.tell() + length


def _end_of_clusters(file: BinaryIO, size: int) -> int:
    """Return where the last cluster or block of a segment of unknown length ends."""
    end = 0
    while first := file.read(1):
        kind = first + file.read(8 - first[0].bit_length())
        if kind not in _ELEMENTS:
            break
        length = _ebml_length(file)
        if length is None:
            if kind != _CLUSTER:
                break
            continue  # its blocks follow
        at = file.tell() + length
        if kind in _FRAMES:
            end = at
        if at > size:
            break
        file.seek(at)
    return end


def _ebml_length(file: BinaryIO) -> int | None:
    """Read a number whose leading zero bits tell its bytes; all ones mean that it is unknown."""
    first = int.from_bytes(file.read(1), "big")
    more = 8 - first.bit_length()
    bits = 7 * (more + 1)
    value = (first << 8 * more | int.from_bytes(file.read(more), "big")) & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value


def _end_of_tags(file: BinaryIO, size: int) -> int:
    file.seek(5)
    at = int.from_bytes(file.read(4), "big") + 4  # the length of the tag before follows each tag
    while at + _FLV_TAG <= size:
        file.seek(at + 1)
        end = at + _FLV_TAG + int.from_bytes(file.read(3), "big")
        if end > size:
            return end
        at = end + 4
    return size + 1 if at < size else size


def _ends_in_packet(file: BinaryIO, size: int, length: int, place: int) -> bool:
    """Tell whether the file ends in a packet: other bytes after the last one are a trailer."""
    count, rest = divmod(size, length)
    if count < 3 or rest <= place:
        return False
    for number in (0, 1, 2, count - 2, count - 1, count):
        file.seek(number * length + place)
        if file.read(1) != _SYNC:
            return False
    return True
