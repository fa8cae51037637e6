"""Live sources of a server: state, MJPEG and JSON lines for clients of any speed."""

import io
import json
import re
import socket
import time
from contextlib import closing, contextmanager
from itertools import islice, pairwise
from threading import Event

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.cli import _tracking
from engine.errors import InputError
from engine.sources import video
from engine.track import Line, ScenePlan, Zone
from tests import needs
from tests.pictures import write_video
from tests.serve.camera import Camera
from tests.serve.running import load, serving, until

from engine.serve.access import Access  # isort: skip - `running` skips this without the extra
from engine.serve import metrics  # isort: skip
from engine.serve.live import LiveOptions  # isort: skip

av = needs.package("av")

PLAN = ScenePlan(
    high=0.3,
    lines=[Line((0, 0.5), (1, 0.5), "middle")],
    zones=[Zone(((0, 0), (1, 0), (1, 1), (0, 1)), "all")],
)


@pytest.fixture(scope="module")
def camera():
    opened = Camera()
    yield opened
    if opened._listener:
        opened.off()


@pytest.fixture(scope="module")
def live(detector, camera, tmp_path_factory):
    clip = write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", count=4, rate=20)
    options = LiveOptions(
        [camera.name, str(clip), "tcp://127.0.0.1:1"], [PLAN, ScenePlan(high=0.3)]
    )
    with serving(detector, live=options) as server:
        until(lambda: sum(each["frames"] > 2 for each in sources_of(server)) == 2, 30)
        yield server


def sources_of(server):
    return server.get("/sources").found["sources"]


@contextmanager
def following(server, path, **headers):
    connection = server.connect()
    connection.request("GET", path, headers=headers)
    with closing(connection), connection.getresponse() as answer:
        yield answer


def test_the_state_of_each_source_is_told(live, camera):
    one, clip, missing = sources_of(live)
    assert one["name"] == f"http://127.0.0.1:{camera.port}/x.mjpg"
    assert (one["state"], one["error"], one["width"], one["height"]) == ("live", None, 64, 48)
    assert one["received"] >= one["frames"] > 0 < one["fps"]
    assert clip["state"] == "live"
    assert missing["state"] == "lost"
    assert "tcp://127.0.0.1:1: video: cannot be read" in missing["error"]
    metrics = live.get("/metrics").content.decode()
    assert re.search(r'engine_source_frames_total{source="0"} [1-9]', metrics)
    assert 'engine_source_up{source="2"} 0' in metrics


def test_lines_of_json_have_increasing_frames_and_times(live):
    with following(live, "/sources/1/jsonl") as answer:
        assert answer.headers["Content-Type"] == "application/jsonl"
        lines = [json.loads(answer.readline()) for _ in range(6)]  # the clip has 4 frames
    frames, times = ([each[key] for each in lines] for key in ("frame", "time"))
    assert frames == sorted(set(frames))
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 60
    assert {each["source"] for each in lines} == {1}
    assert all("track_id" in found for each in lines for found in each["detections"])


def test_what_crosses_lines_and_is_in_zones_is_counted(live, monkeypatch):
    with following(live, "/sources/0/jsonl") as answer:
        for _ in range(3):
            entry = json.loads(answer.readline())
            (line,), (zone,) = entry["counts"]["lines"], entry["counts"]["zones"]
            assert (line["name"], zone["name"]) == ("middle", "all")
            assert sum(zone["inside"].values()) == len(entry["detections"]) > 0
    with following(live, "/sources/1/jsonl") as answer:
        assert "counts" not in json.loads(answer.readline())
    counted, plain, _ = sources_of(live)
    assert "counts" not in plain
    (zone,) = counted["counts"]["zones"]
    label, count = next(iter(zone["visitors"].items()))
    text = live.get("/metrics").content.decode()
    key = f'engine_zone_visitors_total{{source="0",zone="all",label="{label}"}}'
    assert int(re.search(rf"^{re.escape(key)} (\d+)$", text, re.MULTILINE)[1]) >= count
    assert re.search(r'^engine_zone_objects{source="0",zone="all",label="\w+"} \d', text, re.M)
    assert "# TYPE engine_line_crossings_total counter" in text

    from engine.serve import live as module

    drawn = []
    jpeg = module.jpeg
    monkeypatch.setattr(module, "jpeg", lambda seen: drawn.append(seen.result) or jpeg(seen))
    with following(live, "/sources/0/mjpeg") as answer:
        answer.readline()
    captions = [mark.caption for mark in drawn[0].overlay.marks]
    assert [each.partition(":")[0] for each in captions] == ["middle", "all"]


def test_a_stream_to_a_client_of_http_1_0_ends_with_its_connection(live):
    with live.plug() as client, client.makefile("rb") as lines:
        client.sendall(b"GET /sources/1/jsonl HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        head = b"".join(iter(lines.readline, b"\r\n")).lower()
        assert b"connection: close\r\n" in head
        assert b"transfer-encoding" not in head
        for _ in range(3):
            assert json.loads(lines.readline())["source"] == 1
    until(lambda: sources_of(live)[1]["clients"] == 0)


def test_pictures_are_parts_that_a_browser_shows(live):
    with following(live, "/sources/0/mjpeg") as answer:
        assert answer.headers["Content-Type"] == "multipart/x-mixed-replace; boundary=frame"
        for _ in range(3):
            assert answer.readline() == b"--frame\r\n"
            assert answer.readline() == b"Content-Type: image/jpeg\r\n"
            length = int(answer.readline().split()[1])
            assert answer.readline() == b"\r\n"
            assert Image.open(io.BytesIO(answer.read(length))).size == (64, 48)
            assert answer.readline() == b"\r\n"
    until(lambda: not any(each["clients"] for each in sources_of(live)))


def test_frames_are_encoded_once_and_only_for_viewers(live, monkeypatch):
    from engine.serve import live as module

    encoded = []
    plain = module.jpeg
    monkeypatch.setattr(module, "jpeg", lambda seen: encoded.append(seen.decoded) or plain(seen))
    for _ in range(2):  # the frame that runs now may have a viewer that has just left
        encoded.clear()
        before = sources_of(live)[0]["frames"]
        until(lambda before=before: sources_of(live)[0]["frames"] > before + 2)
    assert not encoded
    with following(live, "/sources/0/mjpeg") as one, following(live, "/sources/0/mjpeg") as other:
        for answer in (one, other) * 3:
            answer.read(2000)
    assert encoded
    assert len({id(each) for each in encoded}) == len(encoded)


def test_a_client_that_leaves_with_a_request_in_line_gives_its_place_back(live):
    for _ in range(3):
        with live.plug() as client:
            client.sendall(b"GET /sources/0/mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.recv(100)
            assert sources_of(live)[0]["clients"]
    until(lambda: sources_of(live)[0]["clients"] == 0)


@pytest.mark.parametrize(
    "rest",
    [b"\0garbage\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500],
    ids=["garbage", "many requests"],
)
@pytest.mark.parametrize("pause", [0, 0.2])
def test_a_client_of_a_lost_source_is_missed_whatever_it_has_sent(live, rest, pause):
    """Nothing is written to it that would fail, so the server has to keep reading."""
    with live.plug() as client:
        client.sendall(b"GET /sources/2/jsonl HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(pause)
        client.sendall(rest)
        assert client.recv(12) == b"HTTP/1.1 200"
        until(lambda: sources_of(live)[2]["clients"] == 1)
    until(lambda: sources_of(live)[2]["clients"] == 0)


@pytest.mark.slow
def test_a_client_that_does_not_read_delays_nobody(live, pictures):
    with live.plug() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.sendall(b"GET /sources/0/mjpeg HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: sources_of(live)[0]["clients"] == 1)
        before = sources_of(live)[0]["frames"]
        with following(live, "/sources/0/jsonl") as answer:
            for _ in range(5):
                answer.readline()
        assert sources_of(live)[0]["frames"] >= before + 3
        assert live.post("/detect", pictures[0]).status == 200
    until(lambda: sources_of(live)[0]["clients"] == 0)


@pytest.mark.slow
def test_a_source_that_was_away_is_back_within_five_seconds(live, camera, caplog):
    camera.off()
    until(lambda: sources_of(live)[0]["state"] == "lost", 20)
    time.sleep(1)  # the pauses grow
    before = sources_of(live)[0]["frames"]
    camera.on()
    back = time.monotonic()
    until(lambda: sources_of(live)[0]["frames"] > before, 25)
    assert time.monotonic() - back < 25  # 0.7 s on an idle machine; the ceiling of a pause is 2 s
    assert [each for each in caplog.messages if "Reopening it" in each]
    assert sum(each.endswith("video: is back") for each in caplog.messages) == 1
    assert "secret" not in caplog.text


def test_addresses_without_a_source_are_refused(live, server):
    for number in ("3", "x", "-1"):
        reply = live.get(f"/sources/{number}/mjpeg")
        assert (reply.status, reply.error) == (404, f"source: expected 0 to 2, got {number}")
    assert server.get("/sources").found == {"sources": []}
    assert server.get("/sources/0/jsonl").error.startswith(
        "source: expected a server with --source"
    )
    reply = live.get("/sources/0/mjpeg", Origin="http://example.org")
    assert reply.status == 403


def test_there_is_a_limit_of_clients(live, monkeypatch):
    from engine.serve import live as module

    monkeypatch.setattr(module, "MOST_VIEWERS", 1)
    with following(live, "/sources/0/jsonl") as answer:
        answer.readline()
        reply = live.get("/sources/1/jsonl")
        assert (reply.status, reply.headers["Retry-After"]) == (503, "5")
    until(lambda: sources_of(live)[0]["clients"] == 0)


@pytest.mark.slow
def test_a_token_is_needed_and_streams_end_with_the_server(detector, camera):
    if camera._listener is None:
        camera.on()
    with serving(detector, live=LiveOptions([camera.name]), access=Access("word")) as server:
        assert server.get("/sources").status == 401
        assert server.get("/sources/0/mjpeg").status == 401
        lazy = server.plug()
        head = b"GET /sources/0/mjpeg HTTP/1.1\r\nHost: localhost\r\n"
        lazy.sendall(head + b"Authorization: Bearer word\r\n\r\n")
        connection = server.connect()
        connection.request("GET", "/sources/0/jsonl", headers={"Authorization": "Bearer word"})
        answer = connection.getresponse()
        answer.readline()
        begin = time.monotonic()
    assert time.monotonic() - begin < 5  # 0.9 s on an idle machine
    answer.read()  # complete: another end would raise IncompleteRead
    connection.close()
    lazy.close()


def test_frames_that_need_too_much_memory_are_an_error_of_the_source(detector, camera):
    options = LiveOptions([camera.name])
    with serving(detector, live=options, pixels=100) as server:
        until(lambda: sources_of(server)[0]["error"])
        (source,) = sources_of(server)
        assert source["error"] == "frame: expected at most 100 pixels, got 64 x 48"


@pytest.mark.slow
@pytest.mark.parametrize("plan", [None, PLAN])
def test_only_the_frame_in_which_the_network_overflows_is_without_boxes(
    overflowing_when_bright, tmp_path, caplog, plan
):
    """Frame 4 of the clip is bright: later frames are not delayed, and there is one warning."""
    clip = str(tmp_path / "clip.avi")
    with av.open(clip, "w") as container:
        stream = container.add_stream("png", rate=10)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        for number in range(8):
            pixels = np.full((48, 64, 3), 255 * (number == 4), np.uint8)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")))
        container.mux(stream.encode())
    reason = f"{clip}: scores: expected numbers, got NaN or infinity. The network's values overflow"
    options = LiveOptions([clip], [plan] if plan else [])
    with load(overflowing_when_bright) as opened, serving(opened, live=options) as server:
        until(lambda: sources_of(server)[0]["frames"])
        with following(server, "/sources/0/jsonl") as answer:
            lines = [json.loads(answer.readline()) for _ in range(20)]
        until(lambda: sources_of(server)[0]["error"] == reason)  # while it is the latest
        until(lambda: sources_of(server)[0]["state"] == "live")
    empty = {each["frame"] for each in lines if not each["detections"]}
    assert {number % 8 for number in empty} == {4}
    steps = [after["time"] - before["time"] for before, after in pairwise(lines)]
    assert max(steps) < 0.9
    assert [each for each in caplog.messages if "scores" in each] == [reason]


def test_what_cannot_be_a_source_is_refused(tmp_path):
    with pytest.raises(
        InputError, match=r"--source no.jpg: expected a camera, a stream or a video"
    ):
        LiveOptions(["no.jpg"])
    with pytest.raises(InputError, match=r"--source missing.mp4: cannot be read: no such file"):
        LiveOptions(["missing.mp4"])


def test_lines_may_belong_to_one_source():
    words = "--source a --source b --line 0,0.5,1,0.5 --line 1:door=0,0,9,9 --zone 0:0,0,1,0,1,1"
    arguments = cli.parser_of("serve").parse([*words.split(), "--anchor", "bottom"])
    assert _tracking.has_any(arguments)
    one, two = _tracking.plans(arguments, 2)
    assert [each.name for each in one.lines] == [""]
    assert [each.name for each in two.lines] == ["", "door"]
    assert (len(one.zones), len(two.zones)) == (1, 0)
    assert (one.low, one.high, one.anchor) == (0.1, 0.25, "bottom")
    with pytest.raises(InputError, match="--line 1:door=0,0,9,9: expected a source from 0 to 0"):
        _tracking.plans(arguments, 1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("--line 0,0.5,1,0.5", "--track, --line and --zone: only with --source"),
        (
            "--decode gpu",
            "--decode gpu: only with --source. Processes decode what clients send",
        ),
        ("--source 0 --anchor bottom", "--anchor: only with --track"),
        ("--source 0 --line 1,2,3", "--line 1,2,3: expected pairs of X,Y, got 3 numbers"),
    ],
)
def test_settings_in_vain_are_refused(capsys, words, reason):
    assert cli.main(["serve", *words.split()]) == 2
    assert capsys.readouterr().err == f"Error: {reason}\n"


def test_labels_of_metrics_may_be_any_text():
    assert metrics.labels(line='a"b\\c\n\udce9') == 'line="a\\"b\\\\c\\n\\\\udce9"'


def test_streams_are_only_read(live):
    for way in ("mjpeg", "jsonl"):
        assert live.post(f"/sources/0/{way}", b"").status == 405


@pytest.mark.slow
def test_a_short_video_is_played_at_its_own_speed(tmp_path):
    path = write_video(tmp_path / "short.mp4", count=2)  # at 10 frames a second
    stopped = Event()
    frames = video.played_frames(str(path), stopped=stopped, on_lost=print)
    began = time.monotonic()
    for _ in islice(frames, 10):
        pass
    stopped.set()
    assert time.monotonic() - began > 0.8
