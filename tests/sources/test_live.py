"""Cameras and streams: several at once, lost ones are opened again, closing never waits."""

import io
import json
import logging
import math
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.sources import reader, video
from engine.sources.media import media_of
from engine.sources.reader import FrameSelection, read_items
from engine.vision import image
from tests import needs
from tests.http_answers import answering, camera, head
from tests.pictures import write_picture, write_video

needs.package("av")


CAMERA = "rtsp://camera/1"


class Stopped:
    """Stands for the event that ends a stream; it notes the pauses and waits for none."""

    def __init__(self, after=100):
        self.pauses = []
        self._after = after

    def is_set(self):
        return len(self.pauses) >= self._after

    def wait(self, seconds):
        self.pauses.append(seconds)


def frame(number=0):
    import av

    picture = av.VideoFrame.from_ndarray(np.zeros((8, 8, 3), np.uint8), format="rgb24")
    return video.DecodedFrame(number, number / 10, Fraction(10), picture)


class Unconvertible:
    """A frame of pixels that are not converted."""

    number, seconds, rate, pixel_aspect = 0, 0.0, Fraction(10), Fraction(1)

    def picture(self, name):
        raise ImageError(f"{name}: video: a frame cannot be converted")


def test_a_frame_that_is_not_converted_ends_no_source(monkeypatch):
    def frames(name, **_):
        yield frame() if name == CAMERA else Unconvertible()
        time.sleep(0.2)
        yield frame(1)

    monkeypatch.setattr(video, "live_frames", frames)
    media = [media_of(CAMERA), media_of("rtsp://camera/2")]
    items = [item for _, item in reader.read_live(media, FrameSelection())]
    broken = [each for each in items if isinstance(each.source, ImageError)]
    assert [str(each.source) for each in broken] == [
        "rtsp://camera/2: video: a frame cannot be converted"
    ]
    assert sum(not isinstance(each.source, ImageError) for each in items) == 3


def opening(*outcomes, seconds=0.0):
    """Return frames() that has a number of frames each time, and then breaks off."""
    left = list(outcomes)

    def frames(name, *, is_live, card=None):
        for _ in range(left.pop(0) if left else 0):
            time.sleep(seconds)
            yield frame()
        raise ImageError(f"{shown(name)}: video: breaks off")

    return frames


def test_a_lost_stream_is_opened_again_for_ever_after_growing_pauses(monkeypatch, caplog):
    monkeypatch.setattr(video, "frames", opening(2, *[0] * 8, 3))
    stopped = Stopped(after=30)
    with caplog.at_level(logging.WARNING, "engine"):
        numbers = [each.number for each in video.live_frames(CAMERA, stopped=stopped)]
    assert numbers == [0, 1, 2, 3, 4]
    assert stopped.pauses == [0.5, 1, *[2] * 28]
    assert caplog.messages == [
        f"{CAMERA}: video: breaks off. Reopening it until it is back",
        f"{CAMERA}: video: is back",
    ]


def test_a_played_video_that_breaks_off_is_reported_once(monkeypatch, caplog):
    rounds = iter([2, 2, None, 0, 2, 2, 3, 2])  # frames until it breaks off; None: all of 3

    def frames(name, **_):
        count = next(rounds, 2)
        yield from map(frame, range(3 if count is None else count))
        if count is not None:
            raise ImageError(f"{name}: video: breaks off after {count} frames")

    monkeypatch.setattr(video, "frames", frames)
    lost = []
    options = {"stopped": Stopped(after=23), "on_lost": lost.append}
    found = list(video.played_frames("cut.mp4", **options))
    assert [each.number for each in found] == list(range(len(found)))
    reasons = [f"cut.mp4: video: breaks off after {count} frames" for count in (2, 2, 0, 2, 2, 3)]
    assert [str(each) for each in lost][:6] == reasons
    assert caplog.messages == [
        f"{reasons[0]}. Replaying it up to the damage",
        f"{reasons[2]}. Reopening it until it is back",
        "cut.mp4: video: is back",
        f"{reasons[3]}. Replaying it up to the damage",
    ]


def test_a_stream_that_is_away_for_hours_is_still_opened_again(monkeypatch):
    monkeypatch.setattr(video, "frames", opening(1, *[0] * 1200, 1))
    numbers = [each.number for each in video.live_frames(CAMERA, stopped=Stopped(after=1300))]
    assert numbers == [0, 1]


def test_a_stream_that_was_never_there_can_be_tried_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(video, "frames", opening(*[0] * 8, 2))
    failures = []
    frames = video.live_frames(
        "rtsp://user:secret@camera/1",
        reconnect=math.inf,
        stopped=Stopped(after=20),
        on_lost=failures.append,
    )
    assert len(list(frames)) == 2
    assert len(failures) == 20
    assert {str(each) for each in failures} == {"rtsp://camera/1: video: breaks off"}
    assert caplog.messages == [
        "rtsp://camera/1: video: breaks off. Reopening it until it is back",
        "rtsp://camera/1: video: is back",
    ]


def test_a_stream_that_was_back_for_a_while_begins_anew(monkeypatch, caplog):
    monkeypatch.setattr(video, "_STEADY_SECONDS", 0.005)
    monkeypatch.setattr(video, "frames", opening(2, 3, 2, seconds=0.01))
    stopped = Stopped(after=3)
    assert len(list(video.live_frames(CAMERA, stopped=stopped))) == 7
    assert stopped.pauses == [0.5] * 3
    assert sum("Reopening it" in each for each in caplog.messages) == 3


def test_the_number_of_times_can_be_limited(monkeypatch, caplog):
    monkeypatch.setattr(video, "frames", opening(1))
    stopped = Stopped()
    with pytest.raises(ImageError, match="breaks off"):
        list(video.live_frames(CAMERA, reconnect=2, stopped=stopped))
    assert stopped.pauses == [0.5, 1]
    assert "at most 2 times" in caplog.text
    with pytest.raises(InputError, match="reconnect: expected 0 or more, got -1"):
        FrameSelection(reconnect=-1)


def test_an_end_of_one_source_does_not_end_the_others(monkeypatch):
    monkeypatch.setattr(video, "frames", opening())
    monkeypatch.setattr(video, "FIRST_PAUSE", 0)
    items = list(read_items([media_of("7"), media_of("8")], FrameSelection()))
    assert [str(each.source) for each in items] == [
        f"{name}: video: breaks off" for name in ("7", "8")
    ]


def test_a_stream_of_results_can_be_closed_while_the_camera_is_lost(monkeypatch, tiny_detector):
    monkeypatch.setattr(video, "frames", opening(1))
    monkeypatch.setattr(video, "FIRST_PAUSE", 60)
    monkeypatch.setattr(video, "LONGEST_PAUSE", 60)
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        for sources in (CAMERA, [CAMERA, "rtsp://camera/2"]):
            monkeypatch.setattr(video, "frames", opening(1, 1))
            results = detector.stream(sources)
            assert next(results).path == CAMERA or isinstance(sources, list)
            start = time.monotonic()
            results.close()
            assert time.monotonic() - start < 10


@pytest.mark.slow
@pytest.mark.parametrize("sources", [CAMERA, "an iterator of the caller"])
def test_an_interrupt_while_the_camera_is_silent_ends_the_stream(
    monkeypatch, tiny_detector, sources
):
    """The interrupt is raised inside the stream, which waits for a picture."""
    monkeypatch.setattr(video, "frames", opening(1))
    monkeypatch.setattr(video, "FIRST_PAUSE", 60)
    monkeypatch.setattr(video, "LONGEST_PAUSE", 60)
    stopped = threading.Event()

    class Silent:
        stop = stopped.set

        def __iter__(self):
            yield np.zeros((8, 8, 3), np.uint8)
            stopped.wait(60)

    def interrupt():
        time.sleep(0.5)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        results = detector.stream(sources if sources == CAMERA else Silent())
        next(results)
        start = time.monotonic()
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            next(results)
        assert time.monotonic() - start < 20


@contextmanager
def station(content):
    """Serve a video again and again, as a camera does that is switched off at times."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.sendall(content)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(5)


@pytest.mark.slow
def test_two_streams_at_once_through_the_command_line(tmp_path, monkeypatch, tiny_detector, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(video, "FIRST_PAUSE", 0.01)
    content = write_video(tmp_path / "live.ts", count=20).read_bytes()
    with station(content) as one, station(content) as two:
        words = [one, two, "--max-frames", "3", "--track", "--jsonl", "all.jsonl", "-o", "drawn"]
        assert cli.main(["detect", *tiny_detector.options, *words, "--threshold", "0.5"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "all.jsonl").read_text().splitlines()]
    assert sorted(each["path"] for each in lines) == sorted([one, two] * 3)
    for name in (one, two):
        times = [each["seconds"] for each in lines if each["path"] == name]
        assert times == sorted(times)
    assert len(list((tmp_path / "drawn").glob("*.mp4"))) == 2


def jpegs(count):
    """Return grey pictures of growing brightness as JPEG."""
    found = []
    for number in range(count):
        buffer = io.BytesIO()
        Image.new("L", (640, 480), 10 + 20 * number).save(buffer, "JPEG")
        found.append(buffer.getvalue())
    return found


@pytest.mark.parametrize("bad", [b"", b"not a JPEG" * 50])
def test_a_camera_goes_on_after_frames_that_cannot_be_decoded(monkeypatch, bad):
    monkeypatch.setattr(video, "_MOST_BAD", 2)
    first, second, third = jpegs(3)
    parts = [first, bad, second, bad, bad, third, bad, bad, bad, first]
    problem = "after 3 frames: 3 in a row cannot be decoded"
    with answering(lambda request: camera(*parts)) as address:
        frames = video.frames(f"{address}/x.mjpg", is_live=True)
        assert [round(next(frames).pixels().mean(), -1) for _ in range(3)] == [10, 30, 50]
        with pytest.raises(ImageError, match=problem):
            next(frames)


def test_what_follows_cameras_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "frames", opening(*[1] * 4))
    picture = write_picture(tmp_path / "a.jpg").read_bytes()
    stopped = threading.Event()
    with answering(lambda request: [head(b"image/jpeg"), picture]) as address:
        names = ["rtsp://camera/1", f"{address}/a.jpg", "rtsp://camera/2", f"{address}/b.jpg"]
        selection = FrameSelection(max_frames=1)
        items = list(read_items(map(media_of, names), selection, stopped=stopped))
        assert [each.source_name for each in items] == names
        assert image.read(items[-1].source).size == (50, 40)
    assert not stopped.is_set()
