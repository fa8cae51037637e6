"""A video without its end, or with a gap, is reported; no whole one is, whatever its times are."""

import re
from fractions import Fraction

import numpy as np
import pytest

from engine.errors import ImageError
from engine.sources.cut_off import has_gap, is_cut_off
from engine.sources.media import Media, MediaKind
from engine.sources.reader import FrameSelection, read_items
from engine.sources.video import frames
from tests import needs

av = needs.package("av")

CODECS = {
    "a.mp4": ("mpeg4", {"movflags": "faststart"}),
    "fragments.mp4": ("mpeg4", {"movflags": "frag_keyframe+empty_moov"}),
    "more.mp4": ("libx264", {"movflags": "frag_keyframe"}),  # frames of its start are stated
    "dash.mp4": ("libx264", {"movflags": "dash+frag_keyframe+delay_moov"}),
    "a.mov": ("mjpeg", {"movflags": "faststart"}),
    "a.avi": ("mpeg4", {}),
    "a.mkv": ("mpeg4", {}),
    "a.webm": ("libvpx", {}),
    "a.flv": ("flv1", {}),
    "h264.mp4": ("libx264", {"movflags": "faststart"}),  # with B frames
    "h264.mkv": ("libx264", {}),
    "live.mkv": ("mpeg4", {"live": "1"}),  # a segment of unknown length
    "live.webm": ("libvpx", {"live": "1"}),
    "a.ts": ("libx264", {}),
    "a.m2ts": ("libx264", {"mpegts_m2ts_mode": "1"}),
}
COUNT = 20
EVEN, STARTS_LATE = list(range(COUNT)), list(range(30, 30 + COUNT))
VARIABLE = [number * (number + 1) // 2 for number in range(COUNT - 1)] + [500]
SOUND = {"a.webm": "libopus", "live.webm": "libopus", "a.flv": "libmp3lame"}


def written(path, *, times=EVEN, sound_seconds=0):
    """Write a video with a frame at each time, in tenths of a second, and sound, if any."""
    codec, options = CODECS[path.name]
    noise = np.random.default_rng(1)
    with av.open(str(path), "w", options=options) as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.codec_context.gop_size = 5
        sound = (
            container.add_stream(SOUND.get(path.name, "mp2"), rate=48000) if sound_seconds else None
        )
        for time in times:
            pixels = noise.integers(0, 255, (48, 64, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, 10)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        for number in range(sound_seconds * 48000 // 1152 if sound else 0):
            silence = av.AudioFrame.from_ndarray(
                np.zeros((2, 1152), np.float32), format="fltp", layout="stereo"
            )
            silence.pts, silence.sample_rate = number * 1152, 48000
            silence.time_base = Fraction(1, 48000)
            container.mux(sound.encode(silence))
        if sound:
            container.mux(sound.encode())
    return path


def cut(path, part):
    """Cut a file within a packet of MPEG-TS: its packets are of 188 or 192 bytes."""
    content = path.read_bytes()
    length = int(len(content) * part) // (47 * 192) * (47 * 192) + 100
    path.write_bytes(content[:length])
    return path


@pytest.mark.parametrize("part", [0.5, 0.75])
@pytest.mark.parametrize("name", CODECS)
def test_a_video_without_its_end_breaks_off(tmp_path, name, part):
    path = cut(written(tmp_path / name), part)
    found = []
    with pytest.raises(ImageError, match=r"breaks off after \d+ frames?: "):
        found.extend(frames(str(path)))


def test_what_was_read_before_the_end_is_yielded(tmp_path):
    path = str(cut(written(tmp_path / "a.mkv"), 0.5))
    found = list(read_items([Media(path, MediaKind.VIDEO)], FrameSelection()))
    assert [each.frame.number for each in found[:-1]] == list(range(len(found) - 1))
    assert f"breaks off after {len(found) - 1} frames" in str(found[-1].source)
    few = list(read_items([Media(path, MediaKind.VIDEO)], FrameSelection(max_frames=2)))
    assert [each.frame.number for each in few] == [0, 1]


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize(
    "content",
    [
        {},
        {"times": STARTS_LATE},
        {"times": VARIABLE},
        {"sound_seconds": 8},
        {"times": STARTS_LATE, "sound_seconds": 1},
    ],
    ids=["even", "starts late", "variable", "longer sound", "shorter sound"],
)
def test_a_whole_video_is_not_reported(tmp_path, name, content):
    path = written(tmp_path / name, **content)
    assert not is_cut_off(str(path))
    assert not has_gap(str(path))
    assert len(list(frames(str(path)))) >= COUNT  # a constant rate repeats frames


GAPS = ["a.mkv", "a.webm", "h264.mkv", "live.mkv", "a.avi", "a.ts", "a.m2ts"]


@pytest.mark.parametrize("content", [bytes(1), b"\xff"], ids=["zeros", "ones"])
@pytest.mark.parametrize("name", GAPS)
def test_frames_that_are_missing_before_the_end_are_reported(tmp_path, name, content):
    """Demuxers skip what they cannot read, and say nothing."""
    path = written(tmp_path / name)
    whole = path.read_bytes()
    start, end = len(whole) // 3, len(whole) * 2 // 3
    path.write_bytes(whole[:start] + content * (end - start) + whole[end:])
    assert not is_cut_off(str(path))
    assert has_gap(str(path))
    (*found, last) = read_items([Media(str(path), MediaKind.VIDEO)], FrameSelection())
    assert 0 < len(found) < COUNT
    assert isinstance(last.source, ImageError)
    told = r"video: is damaged: frames are missing before its end$|breaks off after \d+ frames: "
    assert re.search(told, str(last.source))


@pytest.mark.parametrize("name", ["a.ts", "a.m2ts"])
def test_packets_that_a_recording_lost_are_reported(tmp_path, name):
    path = written(tmp_path / name)
    length = 192 if name == "a.m2ts" else 188
    whole = path.read_bytes()
    packets = [whole[at : at + length] for at in range(0, len(whole), length)]
    inner = [number for number, each in enumerate(packets) if not each[length - 187] & 0x40]
    after = next(each for each in inner if each > len(packets) // 2)
    path.write_bytes(b"".join(packets[: after - 22] + packets[after:]))
    assert has_gap(str(path))
    with pytest.raises(ImageError, match="is damaged: frames are missing before its end"):
        list(frames(str(path)))


def test_joined_transport_streams_have_no_gap(tmp_path):
    path = written(tmp_path / "a.ts")
    path.write_bytes(path.read_bytes() * 3)
    assert not has_gap(str(path))
    assert len(list(frames(str(path)))) >= 3 * COUNT - 3


def test_files_that_do_not_state_their_length(tmp_path):
    path = tmp_path / "a"
    for content in (b"", b"RIFF", b"RIFF\0\0\0\0AVI ", b"\x1a\x45\xdf\xa3", b"\0\0\0\0mdat" * 2):
        path.write_bytes(content)
        assert not is_cut_off(str(path))
        assert not has_gap(str(path))
    for other in (str(tmp_path), "https://example.org/a.mp4"):
        assert not is_cut_off(other)
        assert not has_gap(other)


def matroska(*elements, missing=0):
    """Return a segment of unknown length."""
    content = b"\x1a\x45\xdf\xa3\x80\x18\x53\x80\x67" + UNKNOWN + b"".join(elements)
    return content[: len(content) - missing]


UNKNOWN = b"\x01" + b"\xff" * 7
CLUSTER, TIME = b"\x1f\x43\xb6\x75", b"\xe7\x81\x05"
BLOCK, TAGS = b"\xa3\x84" + bytes(4), b"\x12\x54\xc3\x67\x84" + bytes(4)


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        (matroska(CLUSTER, b"\x89", TIME, BLOCK), False),
        (matroska(CLUSTER, b"\x89", TIME, BLOCK, missing=1), True),
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK, BLOCK), False),
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK, BLOCK, missing=1), True),
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK, CLUSTER, UNKNOWN, TIME, BLOCK, missing=2), True),
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK, TAGS, missing=1), False),  # has all frames
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK, b"\xff\x0f trailer"), False),
        (matroska(TAGS, UNKNOWN, BLOCK, missing=1), False),  # only clusters may have none
        (matroska(), False),
    ],
)
def test_elements_of_matroska(tmp_path, content, is_cut):
    (tmp_path / "a.mkv").write_bytes(content)
    assert is_cut_off(str(tmp_path / "a.mkv")) is is_cut


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (matroska(CLUSTER, b"\x89", TIME, BLOCK, CLUSTER, UNKNOWN, TIME, BLOCK, TAGS), False),
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK, b"\xff\x0f trailer"), False),
        (matroska(CLUSTER, UNKNOWN, TIME, b"\0" * 9, CLUSTER, UNKNOWN, TIME, BLOCK), True),
        (matroska(CLUSTER, b"\x92", TIME, b"\xff" * 9, BLOCK, CLUSTER, UNKNOWN, TIME), True),
        (matroska(CLUSTER, UNKNOWN, TIME, BLOCK) + matroska(CLUSTER, UNKNOWN, TIME), False),
    ],
)
def test_gaps_between_elements_of_matroska(tmp_path, content, expected):
    (tmp_path / "a.mkv").write_bytes(content)
    assert has_gap(str(tmp_path / "a.mkv")) is expected


PACKET = b"\x47" + bytes(187)


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        (PACKET * 9, False),
        (PACKET * 9 + PACKET[:1], True),
        (PACKET * 9 + PACKET[:-1], True),
        (PACKET * 9 + b"a trailer", False),
        ((b"time" + PACKET) * 9, False),
        ((b"time" + PACKET) * 9 + b"time", False),
        ((b"time" + PACKET) * 9 + b"time\x47", True),
        (PACKET * 5 + b"shifted" + PACKET * 4, False),
    ],
)
def test_packets_of_transport_streams(tmp_path, content, is_cut):
    (tmp_path / "a.ts").write_bytes(content)
    assert is_cut_off(str(tmp_path / "a.ts")) is is_cut


def mp4(*kinds, missing=0):
    """Return boxes of 24 bytes, the last one without some."""
    content = b"".join((24).to_bytes(4, "big") + kind + bytes(16) for kind in kinds)
    return content[: len(content) - missing]


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        (mp4(b"ftyp", b"moov", b"mdat"), False),
        (mp4(b"ftyp", b"moov", b"mdat", missing=1), True),
        (mp4(b"ftyp", b"mdat", b"moov", missing=1), True),
        (mp4(b"ftyp", b"moov", b"mdat") + b"\xff" * 64, False),  # what some cameras append
        (mp4(b"ftyp", b"moov", b"mdat") + b"a trailer of text", False),
        (mp4(b"ftyp", b"moov", b"moof", b"mdat"), False),
        (mp4(b"ftyp", b"moov", b"moof", b"mdat", missing=20), True),
        (mp4(b"ftyp", b"moov", b"moof"), True),
    ],
)
def test_boxes_of_mp4(tmp_path, content, is_cut):
    (tmp_path / "a.mp4").write_bytes(content)
    assert is_cut_off(str(tmp_path / "a.mp4")) is is_cut


def flv(*, last_length=b"\0\0\0\x1b", missing=0):
    tag = b"\x09\0\0\x10" + bytes(7 + 16)
    content = b"FLV\x01\x05\0\0\0\x09" + bytes(4) + tag + b"\0\0\0\x1b" + tag + last_length
    return content[: len(content) - missing]


@pytest.mark.parametrize(
    ("content", "is_cut"),
    [
        (flv(), False),
        (flv(last_length=b""), False),
        (flv(last_length=bytes(4)), False),
        (flv(missing=5), True),
        (flv(missing=4 + 27 - 3), True),
    ],
)
def test_tags_of_flv(tmp_path, content, is_cut):
    (tmp_path / "a.flv").write_bytes(content)
    assert is_cut_off(str(tmp_path / "a.flv")) is is_cut
