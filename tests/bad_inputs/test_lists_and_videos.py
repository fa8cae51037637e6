"""65 and 66: lists of pictures, and videos."""

import io
import shutil
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.sources import video
from tests import needs

NOISE = np.random.default_rng(0).integers(0, 256, (48, 64, 3), dtype=np.uint8)

LISTS = {
    "CRLF": (b"street.png\r\nb.png\r\n", 0),
    "lone CR": (b"street.png\rb.png\r", 0),
    "no last line end": (b"street.png\nb.png", 0),
    "blank lines": (b"\n\nstreet.png\n  \n\nb.png\n\n", 0),
    "quotes": (b"'street.png'\n\"b.png\"\n", 0),
    "byte order mark": (b"\xef\xbb\xbfstreet.png\nb.png\n", 0),
    "UTF-16": ("street.png\nb.png\n".encode("utf-16"), 0),
    "one missing": (b"street.png\ngone.png\nb.png\n", 1),
    "another list": (b"street.png\nother.txt\nb.png\n", 1),
    "a NUL": (b"street.png\na\0b.png\nb.png\n", 1),
    "damaged UTF-16": (b"\xff\xfe" + b"a\0" * 9 + b"\xd8", 2),
    "nothing": (b"", 2),
}


@pytest.mark.parametrize("kind", LISTS)
def test_65_a_list_is_read_or_refused(detect, file, picture, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    shutil.copy(picture, "b.png")
    content, expected = LISTS[kind]
    shown = file("list.txt", content)
    status, _ = detect("--jsonl", "found.jsonl", shown=shown, errors=None)
    assert status == expected
    rows = (tmp_path / "found.jsonl").read_text().splitlines() if status < 2 else []
    assert len([row for row in rows if '"detections"' in row]) == (
        0 if kind in ("damaged UTF-16", "nothing") else 2
    )


# ------------------------------------------------------------ videos


@pytest.fixture
def av():
    return needs.package("av")


def frame(av, pixels, number=None):
    made = av.VideoFrame.from_ndarray(np.ascontiguousarray(pixels), format="rgb24")
    made.pts = number
    return made


def write(av, path, numbers, codec="mpeg4"):
    """Write a video with a frame at each of these tenths of a second."""
    with av.open(str(path), "w") as file:
        stream = file.add_stream(codec, rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 10)
        for number in numbers:
            for packet in stream.encode(frame(av, NOISE, number)):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)
    return str(path)


def test_66_a_video_without_frames_is_refused(av, tmp_path, refuses):
    refuses("video: ", shown=write(av, tmp_path / "none.avi", []), status=1)


def test_66_variable_frame_rate_keeps_its_times(av, tmp_path):
    name = write(av, tmp_path / "odd.mkv", [0, 1, 7, 8, 30])
    found = [each.seconds for each in video.frames(name)]
    assert found == pytest.approx([0, 0.1, 0.7, 0.8, 3.0], abs=0.02)


def test_66_frames_of_changing_size_are_all_read(av, file, detect):
    """Concatenated pictures, as cameras send them."""
    sizes = [(64, 48), (64, 48), (32, 80), (16, 16)]
    content = io.BytesIO()
    for size in sizes:
        Image.fromarray(NOISE).resize(size).save(content, "JPEG")
    path = file("changing.avi", content.getvalue())
    found = []
    try:
        found += [each.pixels().shape for each in video.frames(str(path))]
    except ImageError as error:
        found.append(str(error))
    assert found[0] == (48, 64, 3)
    assert detect(shown=path)[0] in (0, 1)


def test_66_sound_alone_is_refused(av, tmp_path, refuses):
    path = tmp_path / "sound.avi"
    with av.open(str(path), "w") as file:
        stream = file.add_stream("pcm_s16le", rate=8000)
        sound = av.AudioFrame.from_ndarray(
            np.zeros((1, 800), np.int16), format="s16", layout="mono"
        )
        sound.sample_rate = 8000
        for packet in (*stream.encode(sound), *stream.encode()):
            file.mux(packet)
    refuses("has sound only, no pictures", shown=path, status=1)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_66_a_video_that_was_cut_off_ends_there(av, tmp_path, file, detect, share):
    whole = write(av, tmp_path / "whole.avi", range(30))
    content = (tmp_path / "whole.avi").read_bytes()
    assert len(list(video.frames(whole))) == 30
    status, _ = detect(shown=file("cut.avi", content[: int(len(content) * share)]))
    assert status in (0, 1)
