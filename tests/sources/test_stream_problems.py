"""Messages about streams that fail, and what docs/troubleshooting.md says of each."""

import errno
import re
import socket
import time
from pathlib import Path

import pytest

from engine.errors import ImageError
from engine.sources import stream_problems, video
from tests import needs
from tests.http_answers import answering, camera, head
from tests.pictures import write_picture

needs.package("av")

PAGE = (Path(__file__).parents[2] / "docs/troubleshooting.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


@pytest.fixture(autouse=True)
def _short_timeout(monkeypatch):
    monkeypatch.setattr(video, "READ_TIMEOUT", 1.0)


def is_explained(message):
    """Tell whether the page has a row for the reason that a message gives."""
    reason = message.removeprefix("cannot be read: ")
    patterns = (".*".join(map(re.escape, each.split("…"))) for each in QUOTED)
    return any(re.search(each, reason) for each in patterns)


def silent(request):
    yield head(b"multipart/x-mixed-replace; boundary=b")
    time.sleep(4)


ANSWERS = {
    "silent": (silent, "cannot be read: no data for 1 s"),
    "web page": (
        lambda request: [head(b"text/html"), b"<html>" * 999],
        "cannot be read: expected a video, got text/html. Name the address of the stream itself",
    ),
    "login": (
        lambda request: [head(b"text/html", b"401 Unauthorized")],
        "cannot be read: the server answered 401 Unauthorized (authorization failed)",
    ),
    "nothing": (
        lambda request: [head(b"multipart/x-mixed-replace; boundary=b")],
        "cannot be read: the stream has ended before its first frame",
    ),
}


def told(address):
    with pytest.raises(ImageError) as caught:
        list(video.frames(address, is_live=True))
    return str(caught.value).removeprefix(f"{address}: video: ")


@pytest.mark.parametrize("kind", ANSWERS)
def test_a_camera_that_fails_is_told_in_words_that_are_explained(kind):
    answer, message = ANSWERS[kind]
    with answering(answer) as address:
        assert told(f"{address}/x.mjpg") == message
    assert is_explained(message)


def test_what_a_server_says_is_printed_without_controls():
    with answering(lambda request: [b"HTTP/1.1 599 \x1b[31mred\x07\r\n\r\n"]) as address:
        message = told(f"{address}/x.mjpg")
    assert message.isprintable()
    with answering(lambda request: [head(b"text/html\x1b[31m"), b"<p>"]) as address:
        message = told(f"{address}/x.mjpg")
    assert message.isprintable()


@pytest.mark.parametrize("count", [1, 3])
def test_a_camera_that_ends(tmp_path, count):
    jpeg = write_picture(tmp_path / "a.jpg", size=(200, 200)).read_bytes()
    with answering(lambda request: camera(*[jpeg] * count)) as address:
        message = told(f"{address}/x.mjpg")
    frames = "1 frame" if count == 1 else f"{count} frames"
    assert message == f"breaks off after {frames}: the stream has ended"
    assert is_explained("the stream has ended")


@pytest.mark.parametrize("address", ["rtsp://nothing.invalid/1", "http://nothing.invalid/x.mjpg"])
def test_a_host_that_does_not_exist(monkeypatch, address):
    import av

    def failing(*_, **__):
        raise av.error.OSError(errno.EIO, "Input/output error")

    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(av, "open", failing)
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    message = told(address)
    assert message == "cannot be read: host name not found"
    assert is_explained(message)


def test_a_protocol_that_ffmpeg_lacks():
    import av

    error = av.error.ProtocolNotFoundError(0, "Protocol not found")
    found = stream_problems.problem_of("srt://127.0.0.1:1", error, has_begun=False, timeout=1)
    assert found == "this FFmpeg cannot read addresses with srt://"
    assert is_explained(found)
