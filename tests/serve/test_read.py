"""?read=true of the server: texts of codes, for one request or for all."""

import json
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import engine
from engine.codes import formats
from engine.codes.reader import CodeReader
from engine.vision.image import read
from tests import needs
from tests.codes.made import zxing
from tests.serve.camera import Camera
from tests.serve.running import serving

from engine.serve.live import LiveOptions  # isort: skip - `running` skips this without the extra

PARCEL = (Path(__file__).parents[2] / "docs/parcel.jpg").read_bytes()


@pytest.fixture(scope="module")
def server():
    assert zxing
    with engine.load(device="cpu", threads=1) as detector, serving(detector) as server:
        yield server


@pytest.fixture
def readers(monkeypatch):
    """Collect the names of the threads that read codes."""
    threads = set()
    plain = CodeReader.read

    def noted(*arguments, **options):
        threads.add(threading.current_thread().name)
        return plain(*arguments, **options)

    monkeypatch.setattr(CodeReader, "read", noted)
    return threads


def is_of_network(thread):
    return thread.startswith("engine-batch")


def test_a_request_reads_codes(server, readers):
    read = server.post("/detect?read=true", PARCEL).found["detections"]
    assert "DXTE44R8V6" in [each["text"] for each in read]
    assert all(len(each["corners"]) == 4 for each in read if each["text"])
    assert readers
    assert not any(map(is_of_network, readers))  # which goes on meanwhile
    plain = server.post("/detect?read=0", PARCEL).found["detections"]
    assert not any("text" in each for each in plain)


def test_codes_that_are_read_after_a_run_are_those_of_the_run(server):
    detector = server.service.detector
    settings = replace(detector.settings, read=True)
    picture = read(PARCEL)
    (plain,) = detector.run(detector.prepare(picture), [settings.unread])
    found = detector.read_codes(picture, plain, settings)
    expected = detector(PARCEL, read=True)
    assert found.codes == expected.codes
    assert found.xyxy.tolist() == expected.xyxy.tolist()
    assert found.scores.tolist() == expected.scores.tolist()
    assert list(found.timing) == list(expected.timing)


@pytest.mark.slow
def test_live_sources_read_codes_if_all_requests_do(readers):
    needs.package("av")
    camera = Camera(PARCEL)
    with (
        engine.load(device="cpu", threads=1, read=True) as detector,
        serving(detector, live=LiveOptions([camera.name])) as server,
        closing(server.connect()) as connection,
    ):
        connection.request("GET", "/sources/0/jsonl")
        found = json.loads(connection.getresponse().readline())["detections"]
    camera.off()
    assert {"DXTE44R8V6", None} < {each["text"] for each in found}
    assert "serve-live-0" in readers
    assert not any(map(is_of_network, readers))


def test_a_wrong_value_is_refused(server):
    reply = server.post("/detect?read=maybe", PARCEL)
    assert (reply.status, reply.error) == (400, "read: expected true or false, got 'maybe'")


def test_a_server_without_the_library_refuses_the_request(server, monkeypatch):
    monkeypatch.setattr(server.service.detector._runs, "_reader", None)
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    reply = server.post("/detect?read", PARCEL)
    assert reply.status == 400
    assert reply.error.startswith("read: zxing-cpp is not installed")
    assert server.post("/detect", PARCEL).status == 200


def test_the_description_has_the_setting_and_the_keys(server):
    found = server.get("/openapi.json").found
    parameters = found["paths"]["/detect"]["post"]["parameters"]
    assert "read" in [each["name"] for each in parameters]
    row = found["components"]["schemas"]["Entry"]["properties"]["detections"]["items"]
    assert {"text", "format", "corners", "bytes"} <= set(row["properties"])
