"""Addresses with host names in other scripts, and with a login, which is never shown."""

import base64
import itertools
import json
import logging

import pytest

import engine
from engine import cli
from engine.errors import ImageError, InputError
from engine.serve.live import LiveOptions
from engine.sources import addresses
from engine.sources.media import MediaKind, media_of
from engine.sources.remote_picture import RemotePicture
from engine.vision.image import read
from tests import needs
from tests.http_answers import answering, camera, head
from tests.pictures import write_picture

SECRET = "pass%2Fword"  # pass/word
LOGIN = b"Authorization: Basic " + base64.b64encode(b"me:pass/word")


@pytest.fixture
def site(tmp_path):
    """Serve a picture and a camera that need a login; yield an address with the login."""
    jpeg = write_picture(tmp_path / "a.jpg").read_bytes()

    def answer(request):
        path = request.split()[1]
        if path == b"/public.jpg":
            assert LOGIN not in request
            return [head(b"image/jpeg"), jpeg]
        if LOGIN not in request:
            challenge = b'401 Unauthorized\r\nWWW-Authenticate: Basic realm="camera"'
            return [head(b"text/html", challenge)]
        if path == b"/moved.jpg":
            return [head(b"text/html", b"302 Found\r\nLocation: /a.jpg")]
        if path == b"/away.jpg":
            port = request.partition(b"Host: 127.0.0.1:")[2].split()[0]
            other = b"http://localhost:" + port + b"/public.jpg"
            return [head(b"text/html", b"302 Found\r\nLocation: " + other)]
        if path.startswith(b"/video"):
            return camera(*itertools.repeat(jpeg, 100))
        return [head(b"image/jpeg"), jpeg]

    with answering(answer) as address:
        yield address.replace("://", f"://me:{SECRET}@")


@pytest.mark.parametrize("path", ["a.jpg", "moved.jpg", "away.jpg", "straße.jpg"])
def test_a_login_goes_to_its_server_and_not_into_results(site, path):
    picture = read(RemotePicture(f"{site}/{path}"))
    assert picture.size == (50, 40)
    assert picture.path == f"http://{site.partition('@')[2]}/{path}"


@pytest.mark.parametrize("path", ["a.jpg", "video", "video.mjpg"])
def test_no_output_and_no_message_has_the_password(
    site, tmp_path, monkeypatch, capsys, tiny_detector, caplog, path
):
    needs.package("av")
    monkeypatch.chdir(tmp_path)
    files = {"--json": "a.json", "--jsonl": "a.jsonl", "--csv": "a.csv", "-o": "drawn"}
    words = [
        f"{site}/{path}",
        f"{site.replace('pass', 'wrong')}/{path}",
        "--max-frames",
        "2",
        "--reconnect",
        "0",
    ]
    with caplog.at_level(logging.DEBUG):
        status = cli.main(
            ["detect", *tiny_detector.options, *words, *itertools.chain(*files.items())]
        )
    told = capsys.readouterr()
    assert status == 1
    assert "the server answered 401" in told.err
    written = [each for each in tmp_path.rglob("*") if each.is_file() and each.suffix != ".weights"]
    texts = [told.out, told.err, caplog.text, *map(str, written)]
    texts += [each.read_bytes().decode("latin-1") for each in written]
    assert not [text for text in texts if "pass%2F" in text or "wrong%2F" in text or "me:" in text]
    (line, *_) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == f"http://{site.partition('@')[2]}/{path}"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("rtsp://me:se/cret@camera/1", r"expected a port .* write / as %2F"),
        ("http://camera:99999/a.jpg", "expected a port from 0 to 65535"),
        ("rtsp://me:se[cret@camera/1", r"the address cannot be parsed\. .* \[ as %5B"),
        (f"rtsp://{'ü' * 70}.example/1", "the host name has characters or a length"),
        ("rtsp://me:secret@straße.example/1", "the host name differs .* xn-- form"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_line(address, problem):
    media = media_of(address)
    assert media.kind is MediaKind.BROKEN
    assert "cret" not in media.problem
    assert "cret" not in media.name
    with pytest.raises(InputError, match=problem) as caught:
        LiveOptions([address])
    assert "cret" not in str(caught.value)
    with pytest.raises(ImageError, match=problem) as caught:
        read(RemotePicture(address))
    assert "cret" not in str(caught.value)


def test_a_folder_named_like_a_scheme_keeps_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_picture(tmp_path / "fn:" / "me@home" / "a.jpg")
    assert media_of("fn://me@home/a.jpg").name == "fn://me@home/a.jpg"
    assert "secret" not in repr(RemotePicture("http://me:secret@camera/a.jpg"))


def test_host_names_are_encoded():
    assert addresses.with_ascii_host("rtsp://me:ü@bücher.example:554/ä") == (
        "rtsp://me:ü@xn--bcher-kva.example:554/ä"
    )
    assert addresses.request_of("http://bücher.example/ä b?c=%20") == (
        "http://xn--bcher-kva.example/%C3%A4 b?c=%20",
        {},
    )


def test_a_list_of_results_refuses_a_camera_without_showing_its_password(tiny_detector):
    detector = engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu")
    with detector, pytest.raises(InputError, match=r"^rtsp://camera/1: has no end"):
        detector("rtsp://me:secret@camera/1")
