"""Detect video files that are truncated or damaged, by the structure of their containers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.arrays import Array

_BOXES = frozenset({b"ftyp", b"styp", b"moov", b"mdat", b"free", b"skip", b"wide"})  # at the start
_MEDIA_BOXES = frozenset({b"moov", b"moof", b"mdat"})  # trailers may follow the last of them
_SPARE_BYTES = 64  # tolerated, as AVI writers miscount
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"
_CLUSTER = b"\x1f\x43\xb6\x75"
_TRACKS, _TRACK, _TRACK_NUMBER = b"\x16\x54\xae\x6b", b"\xae", b"\xd7"
_SIMPLE_BLOCK = b"\xa3"
_FRAMES = frozenset({_CLUSTER, _SIMPLE_BLOCK, b"\xa0"})  # and its two kinds of blocks
_ELEMENTS = _FRAMES | {  # first those of a segment, then those of a cluster
    *(b"\x11\x4d\x9b\x74", b"\x15\x49\xa9\x66", b"\x16\x54\xae\x6b", b"\x1c\x53\xbb\x6b"),
    *(b"\x19\x41\xa4\x69", b"\x10\x43\xa7\x70", b"\x12\x54\xc3\x67", b"\xec", b"\xbf"),
    *(b"\xe7", b"\x58\x54", b"\xa7", b"\xab", b"\xaf"),
}
_SEARCHED = 1 << 20  # bytes searched at a time
_PACKETS = ((188, 0), (192, 4))  # lengths of a packet of MPEG-TS, and where its sync byte is
_SYNC = b"\x47"
_START = b"\0\0\1"  # start code of frame data in packets; tables have none
_FILLER = 0x1FFF  # the stream of null packets
_FLV_TAG = 11  # header bytes of a tag
_PACKETS_AT_ONCE = 1 << 15
_LISTS = frozenset({b"RIFF", b"LIST"})
_UNKNOWN_RIFF = (0, 0xFFFFFFFF)


def is_cut_off(path: str) -> bool:
    """Return whether MP4, AVI, Matroska or FLV is truncated, or MPEG-TS ends inside a packet.

    Durations are not sufficient: those of complete files include longer sound and the display time
    of the last frame.
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


def has_gap(path: str) -> bool:
    """Return whether AVI, Matroska or MPEG-TS is damaged before its end.

    The demuxer silently skips what it cannot read. The decoder reports damage inside frames.
    """
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(4)
        if head == b"RIFF":
            return _has_gap_of_chunks(file, size)
        if head == _EBML:
            return _has_gap_of_elements(file)
        return any(_has_gap_of_packets(file, *each) for each in _PACKETS)


def _end_of_boxes(file: BinaryIO, size: int) -> int:
    """Return the least position at which the last box of the video ends."""
    at = end = 0
    kind = b""
    while at + 8 <= size:
        file.seek(at)
        head = file.read(16)
        length, kind = int.from_bytes(head[:4], "big"), head[4:8]
        if length == 1:
            length = int.from_bytes(head[8:], "big")
        if length < 8:  # 0 means up to the end of the file
            return size
        at += length
        if kind in _MEDIA_BOXES:
            end = at
    return size + 1 if kind == b"moof" else end  # its samples follow


def _end_of_riffs(file: BinaryIO, size: int) -> int:
    """Return where the last RIFF ends: AVI files of more than a gigabyte have several."""
    at = 0
    while at + 8 <= size:
        file.seek(at)
        head = file.read(8)
        length = int.from_bytes(head[4:], "little")
        if head[:4] != b"RIFF" or length in _UNKNOWN_RIFF:
            break
        at += 8 + length
    return at


def _has_gap_of_chunks(file: BinaryIO, size: int) -> bool:
    """Return whether bytes that are no chunk lie before the end of the last RIFF.

    Anything after that is a trailer.
    """
    at = end = 0
    while at + 8 <= size:
        file.seek(at)
        head = file.read(12)
        name, length = head[:4], int.from_bytes(head[4:8], "little")
        if name == b"RIFF":
            end = at + 8 + length
        elif at >= end:
            return False
        elif not all(0x20 <= each < 0x7F for each in name):
            return True
        # Lists hold chunks, after their own name.
        at += 12 if name in _LISTS else 8 + length + length % 2
    return False


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
    while kind := _ebml_kind(file):
        if kind not in _ELEMENTS:
            break
        length = _ebml_length(file)
        if length is None:
            if kind != _CLUSTER:
                break
            continue  # to its blocks
        at = file.tell() + length
        if kind in _FRAMES:
            end = at
        if at > size:
            break
        file.seek(at)
    return end


def _has_gap_of_elements(file: BinaryIO) -> bool:
    """Return whether clusters follow unknown bytes or a block of an unknown track."""
    file.seek(len(_EBML))
    file.seek(_ebml_length(file) or 0, os.SEEK_CUR)
    if file.read(len(_SEGMENT)) != _SEGMENT:
        return False
    _ebml_length(file)
    tracks: set[int | None] = set()
    while kind := _ebml_kind(file):
        at = file.tell()
        length = _ebml_length(file)
        begin = file.tell()
        if kind == _TRACK:
            tracks.add(_number_of_track(file, length or 0))
        elif kind not in _ELEMENTS or (
            kind == _SIMPLE_BLOCK and tracks and _ebml_length(file) not in tracks
        ):
            file.seek(at)
            return kind != _EBML and _holds(file, _CLUSTER)  # _EBML begins an appended file
        if kind not in (_CLUSTER, _TRACKS):  # which are read, too
            file.seek(begin + (length or 0))
    return False


def _number_of_track(file: BinaryIO, length: int) -> int | None:
    end = file.tell() + length
    while file.tell() < end and (kind := _ebml_kind(file)):
        size = _ebml_length(file) or 0
        if kind == _TRACK_NUMBER:
            return int.from_bytes(file.read(min(size, 8)), "big")
        file.seek(size, os.SEEK_CUR)
    return None


def _ebml_kind(file: BinaryIO) -> bytes:
    first = file.read(1)
    return first + file.read(8 - first[0].bit_length()) if first else b""


def _holds(file: BinaryIO, wanted: bytes) -> bool:
    """Return whether the rest of a file holds these bytes."""
    before = b""
    while found := file.read(_SEARCHED):
        if wanted in before + found:
            return True
        before = found[-len(wanted) :]
    return False


def _ebml_length(file: BinaryIO) -> int | None:
    """Read a number whose leading zero bits give its length in bytes; all ones mean unknown."""
    first = int.from_bytes(file.read(1), "big")
    more = 8 - first.bit_length()
    bits = 7 * (more + 1)
    value = (first << 8 * more | int.from_bytes(file.read(more), "big")) & ((1 << bits) - 1)
    return None if value == (1 << bits) - 1 else value


def _end_of_tags(file: BinaryIO, size: int) -> int:
    file.seek(5)
    at = int.from_bytes(file.read(4), "big") + 4  # each tag is followed by its length
    while at + _FLV_TAG <= size:
        file.seek(at + 1)
        end = at + _FLV_TAG + int.from_bytes(file.read(3), "big")
        if end > size:
            return end
        at = end + 4
    return size + 1 if at < size else size


def _ends_in_packet(file: BinaryIO, size: int, length: int, place: int) -> bool:
    """Return whether the file ends inside a packet; other bytes after the last are a trailer."""
    count, rest = divmod(size, length)
    if count < 3 or rest <= place:
        return False
    for number in (0, 1, 2, count - 2, count - 1, count):
        file.seek(number * length + place)
        if file.read(1) != _SYNC:
            return False
    return True


def _has_gap_of_packets(file: BinaryIO, length: int, place: int) -> bool:
    """Return whether other bytes lie between packets, or packets of a stream are missing."""
    file.seek(0)
    lost = b""  # bytes since the last packet
    streams = _Streams()
    is_first = True
    while content := file.read(length * _PACKETS_AT_ONCE):
        count = len(content) // length
        rows = np.frombuffer(content, np.uint8, count * length).reshape(count, length)
        packets = rows[:, place:]
        are_other = packets[:, 0] != _SYNC[0]
        if is_first and (count < 3 or are_other[:3].any()):
            return False
        is_first = False
        if lost or are_other.any():
            whole = 0 if lost else int(are_other.argmax())
            lost = lost[-2 * length :] + content[whole * length :]
            if _holds_packets(lost, length):
                return True
            packets = packets[:whole]
        if streams.lack_packets(packets):
            return True
    return False


def _holds_packets(content: bytes, length: int) -> bool:
    """Return whether there are three consecutive packets anywhere."""
    are_sync = np.frombuffer(content, np.uint8) == _SYNC[0]
    ends = len(are_sync) - 2 * length
    if ends <= 0:
        return False
    together = are_sync[:ends] & are_sync[length : length + ends] & are_sync[2 * length :]
    return bool(together.any())


class _Streams:
    """The state of each stream of a transport stream after the packets so far."""

    def __init__(self) -> None:
        self._latest: dict[int, Array] = {}  # packet headers since the last one with content
        self._has_frames: dict[int, bool] = {}  # False for tables

    def lack_packets(self, packets: Array) -> bool:
        """Return whether the next packets skip numbers or the beginning of a frame."""
        streams = (packets[:, 1].astype(int) & 0x1F) << 8 | packets[:, 2]
        each = {stream: packets[streams == stream] for stream in np.unique(streams).tolist()}
        each.pop(_FILLER, None)
        return any(self._lacks_numbers(*of) or self._lacks_starts(*of) for of in each.items())

    def _lacks_numbers(self, stream: int, packets: Array) -> bool:
        """Return whether continuity counters skip numbers.

        Where the next packet begins a frame, two recordings may have been concatenated.
        """
        heads = packets[:, :6].astype(int)
        if stream in self._latest:
            heads = np.concatenate([self._latest[stream], heads])
        has_content = (heads[:, 3] & 0x10 > 0).nonzero()[0]
        if not len(has_content):
            return False
        is_break = (heads[:, 3] & 0x20 > 0) & (heads[:, 4] > 0) & (heads[:, 5] & 0x80 > 0)
        breaks = np.cumsum(is_break)[has_content]
        begins = heads[has_content, 1] & 0x40 > 0
        steps = np.diff(heads[has_content, 3] & 0xF) % 16
        self._latest[stream] = heads[has_content[-1] :]
        return bool(((steps > 1) & (np.diff(breaks) == 0) & ~begins[1:]).any())

    def _lacks_starts(self, stream: int, packets: Array) -> bool:
        """Return whether only some packets that begin a frame or table have a start code."""
        starts = packets[packets[:, 1] & 0x40 > 0]
        if not len(starts):
            return False
        begin = np.where(starts[:, 3] & 0x20 > 0, 5 + starts[:, 4].astype(int), 4)
        at = np.minimum(begin, starts.shape[1] - len(_START))[:, None] + np.arange(len(_START))
        has_code = (np.take_along_axis(starts, at, axis=1) == list(_START)).all(axis=1)
        return bool((has_code != self._has_frames.setdefault(stream, bool(has_code[0]))).any())
