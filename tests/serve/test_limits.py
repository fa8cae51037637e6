"""Limits per client: bytes, pixels, time, connections, queue places; all are released."""

import io
import json
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial

import numpy as np
import pytest
from PIL import Image

from tests.serve.running import ask, serving, until

HEAD = b"POST /detect HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def plugged(server):
    with server.plug() as plug:
        yield plug, plug.makefile("rb")


def answer_in(lines):
    """Return status, headers and content of the next answer on a raw connection."""
    status = int(lines.readline().split()[1])
    headers = {}
    while (line := lines.readline().strip()) != b"":
        name, _, value = line.decode().partition(": ")
        headers[name.lower()] = value
    return status, headers, lines.read(int(headers["content-length"]))


def noise(width, height):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels))


def encoded(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()


# ------------------------------------------------------------ bytes


def test_too_large_content_length_is_refused_before_the_body(detector):
    with serving(detector, body_bytes=1000) as server, plugged(server) as (plug, lines):
        plug.sendall(HEAD + b"Content-Length: 10000000000\r\nExpect: 100-continue\r\n\r\n")
        status, headers, content = answer_in(lines)
        assert (status, headers["connection"]) == (413, "close")
        assert json.loads(content)["error"] == (
            "body: expected at most 1000 bytes, got 10000000000"
        )
        plug.shutdown(socket.SHUT_WR)
        assert lines.read() == b""
        until(server.holds_nothing)


def test_a_body_that_does_not_end_is_cut_off(detector):
    with serving(detector, body_bytes=1 << 20) as server, plugged(server) as (plug, lines):
        plug.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
        for _ in range(20):  # a little more than is allowed
            plug.sendall(chunk)
        status, _, content = answer_in(lines)
        assert status == 413
        assert b"got more" in content
        plug.shutdown(socket.SHUT_WR)
        assert lines.read() == b""
        until(server.holds_nothing)


@pytest.mark.parametrize("coding", [b"gzip, chunked", b"gzip\r\nTransfer-Encoding: chunked"])
@pytest.mark.parametrize("path", [b"/detect", b"/v2/models/net/infer"])
def test_other_transfer_codings_are_not_implemented(server, path, coding):
    with plugged(server) as (plug, lines):
        plug.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\n" % path)
        plug.sendall(b"Transfer-Encoding: %s\r\n\r\n4\r\nbody\r\n0\r\n\r\n" % coding)
        status, headers, content = answer_in(lines)
        assert (status, headers["connection"]) == (501, "close")
        assert json.loads(content)["error"] == (
            "Transfer-Encoding: expected chunked, got 'gzip, chunked'"
        )
        assert lines.read() == b""


@pytest.mark.parametrize(
    "field",
    [
        b"Transfer-Encoding:  chunked ",
        b"Transfer-Encoding: chunked\r\nContent-Encoding:\tidentity\t",
        b"Transfer-Encoding: chunked\r\nOrigin: http://localhost \t",
    ],
)
def test_blanks_around_the_value_of_a_field_mean_nothing(server, field):
    with plugged(server) as (plug, lines):
        plug.sendall(HEAD + field + b"\r\n\r\n4\r\nbody\r\n0\r\n\r\n")
        assert answer_in(lines)[0] == 422  # no picture


def test_refusal_reaches_a_client_that_sends_everything_first(detector):
    with serving(detector, body_bytes=1 << 20) as server:
        assert server.post("/detect", bytes(20 << 20)).status == 413


def test_large_bodies_leave_a_quarter_of_their_memory_to_small_ones(detector, pictures):
    with serving(detector, memory_bytes=8 << 20, body_seconds=5, queue=8) as server:
        with plugged(server) as (plug, lines):
            length = (1 << 20) - 100
            plug.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 20) + bytes(length))
            until(lambda: server.service.body_memory.held == length)
            reply = server.post("/detect", bytes(200_000))
            assert (reply.status, reply.headers["Retry-After"] in "123") == (503, True)
            assert reply.error.startswith("memory: ")
            assert server.post("/detect", pictures[0]).status == 200
            plug.sendall(bytes(100))
            assert answer_in(lines)[0] == 422
        assert server.post("/detect", bytes(200_000)).status == 422
        until(server.holds_nothing)


@pytest.mark.skipif(sys.platform == "darwin", reason="loopback has one address on macOS")
def test_large_bodies_of_one_address_leave_memory_to_others(detector):
    with serving(detector, memory_bytes=8 << 20, queue=8) as server:
        with closing(server.plug(source="127.0.0.2")) as plug:
            length = (1 << 20) - 100
            plug.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (1 << 20) + bytes(length))
            until(lambda: server.service.body_memory.held == length)
            assert server.post("/detect", bytes(400_000)).status == 422
            with closing(server.plug(source="127.0.0.2")) as another:
                another.sendall(HEAD + b"Content-Length: 400000\r\n\r\n" + bytes(400_000))
                assert answer_in(another.makefile("rb"))[0] == 503
        until(server.holds_nothing)


# ------------------------------------------------------------ pixels


@pytest.mark.parametrize(
    ("mode", "kind", "status"),
    [("L", "TIFF", 200), ("LAB", "TIFF", 200), ("F", "TIFF", 413), ("RGB", "WEBP", 413)],
)
def test_memory_of_a_picture_depends_on_its_mode(detector, mode, kind, status):
    options = {"compression": "tiff_deflate"} if kind == "TIFF" else {}
    buffer = io.BytesIO()
    Image.new(mode, (500, 500)).save(buffer, kind, **options)
    with serving(detector, memory_bytes=14 * 500 * 500 * 32 // 21) as server:
        assert server.post("/detect", buffer.getvalue()).status == status
        until(server.holds_nothing)


def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(detector):
    bomb = encoded(Image.new("L", (8000, 8000)))
    with serving(detector, pixels=1_000_000) as server:
        reply = server.post("/detect", bomb)
        assert reply.status == 413
        assert reply.error == "picture: expected at most 1000000 pixels, got 8000 x 8000"


def test_picture_beyond_the_memory_limit_is_refused(detector, pictures):
    with serving(detector, memory_bytes=4 << 20) as server:
        large = encoded(Image.new("L", (700, 700)))
        reply = server.post("/detect", large)
        assert reply.status == 413
        assert "bytes of memory" in reply.error
        assert server.post("/detect", pictures[0]).status == 200


@pytest.mark.parametrize("accept", ["application/json", "image/png"])
def test_pictures_wait_for_memory_in_order(detector, accept):
    picture = encoded(Image.new("L", (350, 350)))  # two of them exceed the limit
    with serving(detector, memory_bytes=4 << 20) as server:
        connections = [server.connect() for _ in range(12)]
        for connection in connections:
            connection.request("POST", "/detect", picture, {"Accept": accept})
        for connection in connections:
            with closing(connection):
                assert connection.getresponse().status == 200
        until(server.holds_nothing)


# ------------------------------------------------------------ time


@pytest.mark.parametrize("sent", [b"", b"part"])
def test_late_body_is_refused(detector, sent):
    with serving(detector, body_seconds=0.3) as server, plugged(server) as (plug, lines):
        start = time.perf_counter()
        plug.sendall(HEAD + b"Content-Length: 100\r\n\r\n" + sent)
        status, headers, content = answer_in(lines)
        assert 0.2 < time.perf_counter() - start < 8
        assert (status, headers["connection"]) == (408, "close")
        assert json.loads(content)["error"] == "body: expected all of it within 0.3 s, got a part"


@pytest.mark.parametrize("sent", [b"", b"POST /detect HTTP/1.1\r\nHost:"])
def test_a_connection_without_a_request_is_closed(detector, sent):
    with serving(detector, idle_seconds=0.3) as server, plugged(server) as (plug, lines):
        start = time.perf_counter()
        plug.sendall(sent)
        assert lines.read() == b""
        assert 0.2 < time.perf_counter() - start < 8


def test_slow_header_is_cut_off(detector):
    with serving(detector, idle_seconds=0.4) as server, server.plug() as plug:
        start = time.perf_counter()
        plug.sendall(HEAD)
        with pytest.raises(ConnectionError):  # noqa: PT012 - any of them
            while time.perf_counter() - start < 12:
                plug.sendall(b"X: y\r\n")
                time.sleep(0.05)
        assert time.perf_counter() - start < 8


@pytest.mark.parametrize(
    "before",
    [
        b"",
        HEAD,
        HEAD + b"X: ",
        b"POST /detect?",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;",
    ],
)
@pytest.mark.parametrize("more", [b"X: y\r\n", b"x"])
def test_endless_header_is_cut_off(detector, before, more):
    with serving(detector) as server, plugged(server) as (plug, lines):
        sent = 0
        with suppress(ConnectionError):
            plug.sendall(before)
            while sent < 1 << 24:
                sent += plug.send(more * (4096 // len(more)))
            pytest.fail("all of it was taken")
        with suppress(ConnectionError):
            assert lines.readline()[9:12] in (b"", b"400", b"431")
        until(server.holds_nothing)


def test_long_header_is_refused(detector):
    with serving(detector) as server, plugged(server) as (plug, lines):
        plug.sendall(HEAD + b"X: " + b"y" * (1 << 16))
        assert answer_in(lines)[0] == 431
        assert lines.read() == b""


@pytest.mark.slow
@pytest.mark.parametrize("offer", [b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n"])
def test_all_pipelined_requests_are_answered_in_order(detector, pictures, offer):
    head = b"GET /p%d HTTP/1.1\r\nHost: localhost\r\n" + offer + b"\r\n"
    picture = HEAD + offer + b"Content-Length: %d\r\n\r\n" % len(pictures[0]) + pictures[0]
    with serving(detector) as server:
        with plugged(server) as (plug, lines):
            plug.sendall(b"".join(picture + head % number for number in range(150)))
            plug.shutdown(socket.SHUT_WR)
            for number in range(150):
                assert answer_in(lines)[0] == 200
                status, _, content = answer_in(lines)
                assert status == 404
                assert json.loads(content)["error"].startswith(f"/p{number}: ")
            assert lines.read() == b""
        until(server.holds_nothing)


def test_pipelined_requests_are_not_read_while_earlier_ones_wait(detector):
    requests = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500_000  # 18 MB
    with serving(detector) as server, server.plug(1) as plug:  # the client never reads
        with pytest.raises(TimeoutError):
            plug.sendall(requests)
        (connection,) = server.server.server_state.connections
        assert len(connection.pipeline) < 300
        assert server.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("rest", "status"),
    [(b"\x16\x03\x01\r\n\r\n", 400), (b"GET / HTTP/1.1\r\nX: " + b"y" * (1 << 17), 431)],
)
def test_input_that_is_refused_leaves_the_answers_before_it(detector, pictures, rest, status):
    picture = HEAD + b"Content-Length: %d\r\n\r\n" % len(pictures[0]) + pictures[0]
    with serving(detector) as server, plugged(server) as (plug, lines):
        plug.sendall(picture * 3 + rest)
        assert [answer_in(lines)[0] for _ in range(4)] == [200, 200, 200, status]
        until(server.holds_nothing)


def test_header_timeout_restarts_with_each_request(detector, pictures):
    with serving(detector, idle_seconds=0.4) as server, closing(server.connect()) as connection:
        for _ in range(5):
            assert ask(connection, "POST", "/detect", pictures[0]).status == 200
            time.sleep(0.15)


def test_silent_connection_after_a_refusal_is_closed(detector):
    with serving(detector, idle_seconds=1) as server, plugged(server) as (plug, lines):
        plug.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n")
        assert answer_in(lines)[0] == 404
        plug.sendall(bytes(100))  # sent after the answer
        start = time.perf_counter()
        assert lines.read() == b""
        assert 0.5 < time.perf_counter() - start < 5


@pytest.mark.slow
def test_unread_answer_is_given_up(detector):
    picture = noise(2500, 2000)
    with serving(detector, response_seconds=0.5) as server, plugged(server) as (plug, lines):
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        plug.sendall(HEAD + b"Accept: image/png\r\nContent-Length: %d\r\n\r\n" % len(picture))
        plug.sendall(picture)
        until(lambda: server.service.active_requests == 1)
        until(server.holds_nothing)
        with pytest.raises((ConnectionError, AssertionError)):
            assert len(answer_in(lines)[2]) > len(picture) // 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "darwin", reason="loopback has one address on macOS")
def test_unread_answers_of_one_address_leave_the_queue_to_others(detector, pictures):
    picture = noise(1800, 1500)
    with serving(detector, queue=4, response_seconds=60) as server, ExitStack() as stack:
        for number in range(6):
            plug = server.plug(source="127.0.0.2")
            stack.callback(plug.close)
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            plug.sendall(HEAD + b"Accept: image/png\r\nContent-Length: %d\r\n\r\n" % len(picture))
            plug.sendall(picture)
            assert plug.recv(1)  # the server has started to answer
            expected = min(number + 1, 2)
            until(partial(has_unread_answers, server, expected))
        with ThreadPoolExecutor(2) as pool:
            replies = pool.map(lambda picture: server.post("/detect", picture), pictures[:2])
            assert [reply.status for reply in replies] == [200] * 2
        assert has_unread_answers(server, 2)


def has_unread_answers(server, count):
    connections = list(server.server.server_state.connections)
    unread = sum(each._response_timer is not None for each in connections)
    return unread == count == server.service.accepted_pictures


def test_slowly_read_answer_arrives(detector):
    picture = noise(1500, 1000)
    with serving(detector, response_seconds=5) as server, closing(server.connect()) as connection:
        connection.request("POST", "/detect", picture, {"Accept": "image/png"})
        answer = connection.getresponse()
        parts = []
        while part := answer.read(1 << 18):
            parts.append(part)
            time.sleep(0.01)
        assert Image.open(io.BytesIO(b"".join(parts))).size == (1500, 1000)


# ------------------------------------------------------------ number


def test_connections_beyond_the_limit_are_refused(detector, pictures):
    with serving(detector, connections=3) as server:
        others = [server.plug() for _ in range(3)]
        until(lambda: len(server.server.server_state.connections) == 3)
        with plugged(server) as (_, lines):
            status, headers, _ = answer_in(lines)
            assert (status, headers["retry-after"] in "123") == (503, True)
        for other in others:
            other.close()
        until(lambda: not server.server.server_state.connections)
        assert server.post("/detect", pictures[0]).status == 200


def test_garbage_is_answered_and_the_server_survives(server, pictures):
    refused = b"HTTP/1.1 400 Bad Request\r\n", b"HTTP/1.1 400 \r\n"
    no_picture = b"HTTP/1.1 422 Unprocessable Entity\r\n"  # unless the client has left
    for garbage, answers in (
        (b"\x16\x03\x01\x02", refused),
        (b"GET\r\n\r\n", refused),
        (b"POST /detect HTTP/1.1\r\n\r\n", (*refused, no_picture)),
        (b"\0" * 99, refused),
    ):
        with plugged(server) as (plug, lines):
            plug.sendall(garbage)
            plug.shutdown(socket.SHUT_WR)
            assert lines.readline() in (b"", *answers)
    assert server.post("/detect", pictures[0]).status == 200
