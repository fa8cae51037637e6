"""Addresses whose names do not tell what is there: a picture, a video or a camera."""

import itertools
import time
from threading import Event

import pytest

import engine
from engine import cli
from engine.errors import ImageError, InputError
from engine.sources import address_kinds
from engine.sources.address_kinds import AddressKinds
from engine.sources.media import MediaKind, media_of
from engine.sources.pictures import items_of
from engine.sources.reader import FrameSelection
from tests import needs
from tests.http_answers import answering, camera, head
from tests.pictures import write_picture, write_video

needs.package("av")


@pytest.fixture
def site(tmp_path):
    """Serve a camera, a video and a picture; the requests are in the list `asked`."""
    jpeg = write_picture(tmp_path / "a.jpg").read_bytes()
    clip = write_video(tmp_path / "clip.ts").read_bytes()
    asked = []

    def answer(request):
        path = request.split()[1]
        asked.append(path.decode())
        if path.startswith((b"/video", b"/stream.jpg")):
            return camera(*itertools.repeat(jpeg, 200))
        if path == b"/clip":
            return [head(b"video/mp2t"), clip]
        if path == b"/silent":
            time.sleep(1)
        return [head(b"image/jpeg"), jpeg]

    with answering(answer) as address:
        yield address, asked


@pytest.mark.parametrize(
    ("path", "kind", "requests"),
    [
        ("/video?channel=1", MediaKind.LIVE, 1),
        ("/clip", MediaKind.VIDEO, 1),
        ("/snapshot", MediaKind.URL, 1),
        ("/a.jpg", MediaKind.URL, 0),  # its name tells
        ("/video.mjpg", MediaKind.LIVE, 0),
    ],
)
def test_the_content_type_tells_what_an_address_is(site, path, kind, requests):
    address, asked = site
    assert AddressKinds([address + path]).of(media_of(address + path)).kind is kind
    assert asked == [path] * requests


def test_what_does_not_answer_stays_a_picture(site, monkeypatch):
    monkeypatch.setattr(address_kinds, "_SECONDS", 0.5)
    address, asked = site
    names = ["http://127.0.0.1:1/video", f"{address}/silent", f"{address}/video"]
    kinds = AddressKinds(names)
    found = [kinds.of(media_of(each)).kind for each in names]
    assert found == [MediaKind.URL, MediaKind.URL, MediaKind.LIVE]
    assert sorted(asked) == ["/silent", "/video"]


def test_many_addresses_are_pictures_that_are_fetched_once(site):
    address, asked = site
    names = [f"{address}/snapshot{number}" for number in range(17)]
    assert len(list(items_of(names))) == 17
    assert asked == []


def test_a_server_turns_no_list_into_a_stream(site, tmp_path, monkeypatch, capsys, tiny_detector):
    monkeypatch.chdir(tmp_path)
    address, asked = site
    (tmp_path / "list.txt").write_text(
        "\n".join(f"{address}/{each}" for each in ("a", "video", "b"))
    )
    words = ["detect", *tiny_detector.options, "list.txt", "--jsonl", "found.jsonl"]
    assert cli.main(words) == 1
    assert (
        "/video: picture: cannot be read: expected a picture, got a video"
        in capsys.readouterr().err
    )
    assert len((tmp_path / "found.jsonl").read_text().splitlines()) == 3
    assert sorted(asked) == ["/a", "/b", "/video"]


def test_an_interrupt_ends_the_questions(site, monkeypatch):
    address, _ = site
    stopped = Event()

    def interrupted(future):
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.Future.result", interrupted)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        AddressKinds([f"{address}/silent"], stopped)
    assert stopped.is_set()
    assert time.monotonic() - start < 0.9


def test_cameras_without_a_known_ending_take_turns(site):
    address, _ = site
    names = [f"{address}/video1", f"{address}/video2"]
    items = list(items_of(names, FrameSelection(max_frames=2)))
    assert sorted(each.frame.video for each in items) == sorted(names * 2)


def test_a_camera_gives_no_list_of_results(site, tiny_detector):
    address, _ = site
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        with pytest.raises(InputError, match=r"/video: has no end\. Use stream\(\)"):
            detector([f"{address}/video"])
        for name in ("video", "stream.jpg"):
            start = time.monotonic()
            problem = r"expected a picture, got a video \(multipart/x-mixed-replace\)"
            with pytest.raises(ImageError, match=f"{name}: picture: cannot be read: {problem}"):
                detector(f"{address}/{name}")
            assert time.monotonic() - start < 5


def test_the_command_line_writes_a_video_of_such_a_camera(
    site, tmp_path, monkeypatch, capsys, tiny_detector
):
    monkeypatch.chdir(tmp_path)
    address, _ = site
    words = [f"{address}/video", "--max-frames", "2", "-o", "seen.mp4", "--quiet"]
    assert cli.main(["detect", *tiny_detector.options, *words]) == 0
    assert (tmp_path / "seen.mp4").stat().st_size
    assert cli.main(["detect", *tiny_detector.options, f"{address}/video", "--untrusted"]) == 1
    assert "got a video, which is not decoded as untrusted" in capsys.readouterr().err
