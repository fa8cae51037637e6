"""Annotated copies of videos have the times of their frames."""

from fractions import Fraction

import pytest
from PIL import Image

from engine.files.atomic import NewFile
from engine.sources.item import Item
from engine.sources.video_writer import VideoWriter
from engine.vision.frame import Frame
from tests import needs

av = needs.package("av")

UNEVEN = [0, 0.02, 0.04, 0.06, 0.5, 0.51, 0.52, 2, 3, 3.01, 3.02, 3.03, 9]
EXTENSIONS = [".mp4", ".m4v", ".mov", ".mkv", ".webm", ".ts", ".mts"]


def written(path, times, rate, *, size=(64, 48), **more):
    frames = [
        Frame("v.mp4", number, time, Fraction(rate), **more) for number, time in enumerate(times)
    ]
    writer = VideoWriter(NewFile(path), Item("v.mp4#0", "v.mp4", frames[0]))
    for frame in frames:
        writer.add(Image.new("RGB", size, (frame.number * 20 % 256, 0, 0)), frame)
    writer.finish()
    return path


def times_of(path):
    with av.open(str(path)) as container:
        times = [frame.time for frame in container.decode(video=0)]
        return [each - times[0] for each in times], container.streams.video[0].average_rate


@pytest.mark.parametrize("extension", EXTENSIONS)
@pytest.mark.parametrize("rate", ["13/3", "220800/22559"])
def test_a_varying_frame_rate_is_kept(tmp_path, extension, rate):
    times, _ = times_of(written(tmp_path / f"v{extension}", UNEVEN, rate))
    assert times == pytest.approx(UNEVEN, abs=0.0011)


@pytest.mark.parametrize("extension", [*EXTENSIONS, ".avi"])
@pytest.mark.parametrize("rate", ["25", "24000/1001", "120000/1001", "1/5"])
def test_a_constant_frame_rate_is_kept(tmp_path, extension, rate):
    expected = [float(number / Fraction(rate)) for number in range(8)]
    times, stated = times_of(written(tmp_path / f"v{extension}", expected, rate))
    assert times == pytest.approx(expected, abs=0.0011)
    assert stated or extension in (".ts", ".mts")  # which do not state slow ones
    assert not stated or float(stated) == pytest.approx(float(Fraction(rate)), rel=0.01)


@pytest.mark.parametrize("extension", [".mp4", ".mkv", ".avi"])
def test_hours_between_frames_are_kept(tmp_path, extension):
    expected = [0, 7200, 14_400, 21_600]
    times, _ = times_of(written(tmp_path / f"v{extension}", expected, "1/7200"))
    assert times == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("extension", [*EXTENSIONS, ".avi"])
def test_pixels_keep_their_shape(tmp_path, extension):
    path = written(tmp_path / f"v{extension}", [0, 0.1], 10, pixel_aspect=Fraction(4, 3))
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        shape = stream.width, stream.height, stream.sample_aspect_ratio
    # WebM has no shapes of pixels
    assert shape == ((86, 48, 1) if extension == ".webm" else (64, 48, Fraction(4, 3)))
