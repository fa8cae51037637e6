"""--json-port and --mjpeg-port: clients written for `darknet detector demo` read live sources."""

import http.client
import io
import json
import socket
import urllib.request
from contextlib import closing
from typing import NamedTuple

import pytest
from PIL import Image

from engine import cli
from engine.errors import InputError
from tests import needs
from tests.pictures import write_video
from tests.serve.child_server import SIGNALS
from tests.serve.running import Running, decoders, serving, until

from engine.serve import darknet_ports  # isort: skip - `running` skips this without the extra
from engine.serve.access import Access  # isort: skip
from engine.serve.darknet_ports import DarknetPorts  # isort: skip
from engine.serve.live import LiveOptions  # isort: skip
from engine.serve.server import Server, bind  # isort: skip
from engine.serve.server_limits import ServerLimits  # isort: skip

needs.package("av")


class Live(NamedTuple):
    server: Running
    json_port: int
    mjpeg_port: int

    @property
    def clients(self):
        return self.server.get("/sources").found["sources"][0]["clients"]


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return str(write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", count=4, rate=20))


@pytest.fixture(scope="module")
def live(detector, clip):
    bound = [bind("127.0.0.1", 0) for _ in range(2)]
    ports = DarknetPorts(bound[:1], bound[1:])
    access = Access(cors=("http://page.example",))
    with serving(detector, live=LiveOptions([clip]), ports=ports, access=access) as server:
        yield Live(server, *(each.getsockname()[1] for each in bound))


def entries(lines):
    """Yield the frames of darknet's JSON stream, as the documentation of darknet shows it.

    [ {"frame_id": 1, "objects": [ {"class_id": 4, "name": …, "relative_coordinates": {…},
    "confidence": …}, … ] }, {"frame_id": 2, …
    """
    decoder = json.JSONDecoder()
    text = ""
    for line in lines:
        text += line
        while (start := text.lstrip(" \r\n[,]")).startswith("{"):
            try:
                entry, end = decoder.raw_decode(start)
            except ValueError:
                break
            text = start[end:]
            yield entry


def check(entry):
    assert list(entry) == ["frame_id", "objects"]
    for found in entry["objects"]:
        assert list(found) == ["class_id", "name", "relative_coordinates", "confidence"]
        assert found["name"] in ("cat", "dog", "cow")
        assert list(found["relative_coordinates"]) == ["center_x", "center_y", "width", "height"]
        assert all(0 <= each <= 2 for each in found["relative_coordinates"].values())
        assert 0.3 <= found["confidence"] <= 1


def test_an_http_client_of_darknet_reads_frames_as_they_come(live):
    with urllib.request.urlopen(f"http://127.0.0.1:{live.json_port}", timeout=20) as answer:
        assert answer.headers["Content-Type"] == "application/json"
        lines = (line.decode() for line in answer)
        found = [entry for entry, _ in zip(entries(lines), range(6), strict=False)]
    for entry in found:
        check(entry)
    assert any(entry["objects"] for entry in found)
    numbers = [entry["frame_id"] for entry in found]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0
    until(lambda: live.clients == 0)


def test_a_socket_that_sends_nothing_and_ends_its_side_is_answered(live):
    with socket.create_connection(("127.0.0.1", live.json_port), timeout=20) as client:
        client.shutdown(socket.SHUT_WR)
        lines = iter(client.makefile("r", newline="\n"))
        assert next(lines) == "HTTP/1.0 200 OK\r\n"
        while next(lines) != "\r\n":
            pass
        assert next(lines) == "[\n"
        found = [entry["frame_id"] for entry, _ in zip(entries(lines), range(3), strict=False)]
    assert found == sorted(set(found))


def test_a_name_of_one_odd_byte_is_a_name(live, caplog):
    with socket.create_connection(("127.0.0.1", live.json_port), timeout=20) as client:
        client.sendall(b"GET \xa0\r\n\r\n")
        assert client.recv(8) == b"HTTP/1.0"
    until(lambda: live.clients == 0)
    assert not caplog.records


def test_frames_are_the_parts_that_darknet_sends(live):
    connection = http.client.HTTPConnection("127.0.0.1", live.mjpeg_port, timeout=20)
    connection.request("GET", "/")
    with closing(connection), connection.getresponse() as answer:
        kind = answer.headers["Content-Type"]
        assert kind == "multipart/x-mixed-replace; boundary=mjpegstream"
        for _ in range(3):
            assert answer.readline() == b"--mjpegstream\r\n"
            assert answer.readline() == b"Content-Type: image/jpeg\r\n"
            length = int(answer.readline().split()[1])
            assert answer.readline() == b"\r\n"
            assert Image.open(io.BytesIO(answer.read(length))).format == "JPEG"
            assert answer.readline() == b"\r\n"


def test_a_frame_is_drawn_once_for_both_kinds_of_mjpeg(live, monkeypatch):
    from engine.serve import live as module

    drawn = []
    plain = module.jpeg
    monkeypatch.setattr(module, "jpeg", lambda seen: drawn.append(seen.decoded) or plain(seen))
    with (
        urllib.request.urlopen(f"http://127.0.0.1:{live.mjpeg_port}", timeout=20) as one,
        urllib.request.urlopen(f"http://127.0.0.1:{live.server.port}/sources/0/mjpeg") as other,
    ):
        for answer in (one, other) * 3:
            answer.read(2000)
    assert drawn
    assert len({id(each) for each in drawn}) == len(drawn)


def status_of(port, *headers, path="/"):
    with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
        client.sendall("\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""]).encode())
        answer = client.makefile("rb")
        status = int(answer.readline().split()[1])
        return status, answer.read().decode() if status != 200 else ""


def test_browsers_are_asked_for_host_and_origin(live):
    port = live.json_port
    assert status_of(port, f"Host: localhost:{port}")[0] == 200
    assert status_of(port, f"Host: localhost:{port}", "Origin: http://page.example")[0] == 200
    status, reason = status_of(port, "Host: evil.example")
    assert status == 403
    assert reason.endswith("Host: expected localhost, got evil.example. See: serve --allow-host\n")
    status, reason = status_of(port, f"Host: localhost:{port}", "Origin: http://evil.example")
    assert status == 403
    assert reason.endswith("Origin: expected a page of this server, got another's\n")
    assert status_of(port, f"Host: localhost:{port}", path="/favicon.ico")[0] == 404
    assert status_of(port, "X: " + "x" * 70_000)[0] == 400


def test_there_is_one_limit_for_clients_of_all_ports(live, monkeypatch):
    from engine.serve import live as module

    monkeypatch.setattr(module, "MOST_VIEWERS", 1)
    with urllib.request.urlopen(f"http://127.0.0.1:{live.json_port}", timeout=20) as answer:
        answer.readline()
        status, reason = status_of(live.mjpeg_port)
        assert status == 503
        assert "Retry-After: 5" in reason
    until(lambda: live.clients == 0)


@pytest.mark.slow
def test_a_client_that_does_not_read_is_disconnected(detector, clip, monkeypatch):
    monkeypatch.setattr(darknet_ports, "_jpeg_part", lambda seen: bytes(8 << 20))
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    ports = DarknetPorts([], [bound])
    with serving(detector, live=LiveOptions([clip]), ports=ports, response_seconds=0.5) as server:
        live = Live(server, 0, port)
        with socket.create_connection(("127.0.0.1", port)) as lazy:
            until(lambda: live.clients == 1)
            until(lambda: live.clients == 0)
            assert lazy.recv(100).startswith(b"HTTP/1.0 200 OK")
        until(server.holds_nothing)


def test_the_list_is_complete_when_the_server_ends(detector, clip):
    bound = bind("127.0.0.1", 0)
    port = bound.getsockname()[1]
    with serving(detector, live=LiveOptions([clip]), ports=DarknetPorts([bound])):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        connection.request("GET", "/")
        answer = connection.getresponse()
        start = answer.read(200)
    with closing(connection):
        found = json.loads(start + answer.read())
    assert found
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_token_needs_a_loopback_address():
    with closing(bind("0.0.0.0", 0)) as outside, closing(bind("127.0.0.1", 0)) as inside:
        DarknetPorts([inside]).refuse_token(Access("word"))
        DarknetPorts([outside]).refuse_token(Access())
        with pytest.raises(InputError, match="--mjpeg-port: clients of darknet send no token"):
            DarknetPorts([], [outside]).refuse_token(Access("word"))


def test_one_port_for_two_things_is_refused(detector, clip):
    with closing(bind("127.0.0.1", 0)) as main:
        port = main.getsockname()[1]
        with closing(bind("127.0.0.1", port)) as same:  # neither listens yet
            ports = DarknetPorts([same])
            server = Server(
                *(detector, ServerLimits(), decoders()),
                wait_seconds=0,
                on_ready=pytest.fail,
                live=LiveOptions([clip]),
                ports=ports,
            )
            with pytest.raises(InputError, match=f"--json-port {port}: address already in use"):
                server.serve_on(main)


def test_there_are_at_most_as_many_ports_as_sources(capsys, clip):
    assert cli.main(["serve", "--source", clip, *["--json-port", "0"] * 2]) == 2
    error = capsys.readouterr().err
    assert error == "Error: --json-port: expected at most one for each --source, got 2 for 1\n"


@pytest.mark.slow
@SIGNALS
def test_the_command_prints_the_ports(start, clip):
    process = start("--source", clip, "--json-port", 0, "--mjpeg-port", 0)
    for kind in ("json", "mjpeg"):
        address, _, what = process.child.stdout.readline().partition("  ")
        assert what == f"{kind} of {clip}\n"
        with urllib.request.urlopen(address, timeout=20) as answer:
            assert answer.read(100)
    process.child.terminate()
    assert process.ended() == (0, "")
