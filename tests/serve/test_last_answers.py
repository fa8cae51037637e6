"""The last answer on a connection reaches its client, and health is answered when all are taken."""

import signal
import socket
import struct
import time

import pytest

from tests import needs
from tests.serve.running import serving, until
from tests.serve.test_limits import answer_in, plugged
from tests.serve.test_refusals import full

from engine.serve.access import Access  # isort: skip - `running` skips this without the extra

_BODY = 10 << 20
_HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n"


def last_answer(server, path, field=b"Connection: close\r\n"):
    with plugged(server) as (plug, lines):
        plug.sendall(_HEAD % (path, field, _BODY))
        time.sleep(0.05)  # the refusal is written while the body is sent
        for _ in range(10):
            plug.sendall(bytes(_BODY // 10))
            time.sleep(0.005)
        return answer_in(lines)[0]


@pytest.mark.parametrize("field", [b"Connection: close\r\n", b"Expect: 100-continue\r\n"])
def test_refusal_of_a_full_server_arrives(detector, field):
    with serving(detector) as server, full(server):
        assert [last_answer(server, b"/detect", field) for _ in range(5)] == [503] * 5


def test_refusal_for_lack_of_memory_arrives(detector):
    with serving(detector, memory_bytes=96 << 20) as server:
        memory = server.service.body_memory
        assert memory.try_reserve("192.0.2.1", memory.largest)
        assert memory.try_reserve("192.0.2.2", memory.largest // 2)
        assert [last_answer(server, b"/detect") for _ in range(5)] == [503] * 5
        memory.release("192.0.2.1", memory.largest)
        memory.release("192.0.2.2", memory.largest // 2)


@pytest.mark.parametrize("field", [b"Connection: close\r\n", b"Expect: 100-continue\r\n"])
def test_refusal_by_the_application_arrives(detector, field):
    with serving(detector) as server:
        assert [last_answer(server, b"/nothing", field) for _ in range(5)] == [404] * 5
        assert last_answer(server, b"/detect?threshold=9", field) == 400


@pytest.mark.parametrize("body", [b"Content-Length: 2000", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize(
    ("line", "field", "status"),
    [
        (b"POST /detect", b"Content-Encoding: gzip", 415),
        (b"POST /detect", b"Authorization: Bearer x", 401),
        (b"POST /detect", b"Host: example.org", 400),
        (b"POST /detect?threshold=9", b"", 400),
        (b"PUT /detect", b"", 405),
        (b"POST /nothing", b"", 404),
        (b"GET /healthz", b"", 200),
    ],
)
def test_answer_instead_of_100_continue_ends_the_connection(detector, line, field, status, body):
    fields = [b"Host: localhost", b"Expect: 100-continue", body, field]
    if not field.startswith(b"Authorization"):
        fields.append(b"Authorization: Bearer word")
    head = line + b" HTTP/1.1\r\n" + b"".join(each + b"\r\n" for each in fields if each)
    with serving(detector, access=Access("word")) as server, plugged(server) as (plug, lines):
        start = time.perf_counter()
        plug.sendall(head + b"\r\n")
        found, headers, _ = answer_in(lines)
        assert (found, headers["connection"]) == (status, "close")
        assert lines.read() == b""
        assert time.perf_counter() - start < 1.5  # no time is lost waiting for the body


def test_answer_of_a_full_server_to_a_page_ends_the_connection(detector):
    head = b"POST /detect HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
    with serving(detector) as server, full(server), plugged(server) as (plug, lines):
        plug.sendall(head + b"Expect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        status, headers, _ = answer_in(lines)
        assert (status, headers["connection"]) == (503, "close")
        assert lines.read() == b""


@pytest.mark.parametrize("blank", [b"", b" ", b"\t"])
def test_accepted_upload_is_continued_and_the_connection_stays(server, pictures, blank):
    head = _HEAD % (b"/detect", b"Expect: 100-continue%s\r\n" % blank, len(pictures[0]))
    with plugged(server) as (plug, lines):
        for _ in range(3):
            plug.sendall(head)
            assert lines.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert lines.readline() == b"\r\n"
            plug.sendall(pictures[0])
            assert answer_in(lines)[0] == 200


@pytest.mark.parametrize("offer", [b"", b"Connection: upgrade\r\nUpgrade: h2c\r\n"])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
def test_nothing_is_continued_that_has_no_body_or_no_interim_responses(server, version, offer):
    """HTTP/1.0 has no interim responses, and a body that is complete needs none."""
    length = 4 if version == b"1.0" else 0
    head = b"POST /detect HTTP/%s\r\nHost: localhost\r\nExpect: 100-continue\r\n" % version
    head += offer
    with plugged(server) as (plug, lines):
        plug.sendall(head + b"Content-Length: %d\r\n\r\n" % length + bytes(length))
        status, headers, _ = answer_in(lines)
        assert (status, headers.get("connection") == "close") == (422, version == b"1.0")


def test_refusal_arrives_though_the_server_shuts_down(detector):
    with serving(detector) as server:
        connections = server.server.server_state.connections
        with plugged(server) as (plug, lines), lines:
            plug.sendall(_HEAD % (b"/nothing", b"Connection: close\r\n", _BODY))
            until(lambda: any(each._is_discarding for each in connections))
            server.server.handle_exit(signal.SIGTERM, None)
            until(lambda: server.server.should_exit)
            for _ in range(10):
                plug.sendall(bytes(_BODY // 10))
                time.sleep(0.05)
            assert answer_in(lines)[0] == 404
        until(lambda: not connections)


def test_refusal_of_a_connection_arrives(detector):
    with serving(detector, connections=2) as server:
        others = [server.plug() for _ in range(2)]
        until(lambda: len(server.server.server_state.connections) == 2)
        assert [last_answer(server, b"/detect") for _ in range(5)] == [503] * 5
        for other in others:
            other.close()


def test_health_is_answered_when_one_client_holds_all_connections(detector, pictures):
    with serving(detector, connections=20) as server:
        others = [server.plug() for _ in range(100)]
        until(lambda: len(server.server.server_state.connections) >= 18)
        for path in ("/healthz", "/readyz", "/metrics"):
            reply = server.get(path)
            assert reply.status == 200
            assert reply.seconds < 1
        assert server.get("/model").status == 503
        for other in others:
            other.close()
        until(lambda: not server.server.server_state.connections)
        assert server.post("/detect", pictures[0]).status == 200


@pytest.mark.parametrize("more", [b"", _HEAD % (b"/nothing", b"", 0)])
def test_connection_beyond_the_limit_ends_after_a_check_of_health(detector, more):
    with serving(detector, connections=1) as server, server.plug():
        until(lambda: len(server.server.server_state.connections) == 1)
        with plugged(server) as (plug, lines):
            plug.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" + more)
            status, headers, _ = answer_in(lines)
            assert (status, headers["connection"]) == (200, "close")
            assert lines.read() == b""


def test_connection_beyond_the_limit_of_a_full_server_ends_after_a_refusal(detector):
    with serving(detector, connections=1) as server, full(server), server.plug():
        until(lambda: len(server.server.server_state.connections) == 1)
        with plugged(server) as (plug, lines):
            plug.sendall(_HEAD % (b"/detect", b"", 0))
            status, headers, _ = answer_in(lines)
            assert (status, headers["connection"]) == (503, "close")
            assert lines.read() == b""


def test_one_client_leaves_connections_to_others(detector):
    with serving(detector, connections=20) as server:
        others = [server.plug() for _ in range(18)]
        until(lambda: len(server.server.server_state.connections) == 18)
        assert server.get("/model").status == 503
        connections = list(server.server.server_state.connections)
        for each in connections[:9]:
            each.client = ("192.0.2.1", 9)
        assert server.get("/model").status == 200
        for other in others:
            other.close()


@pytest.mark.parametrize("count", [1, 3])
def test_client_that_ends_its_side_after_the_body_is_answered(detector, pictures, count):
    request = _HEAD % (b"/detect", b"", len(pictures[0])) + pictures[0]
    with serving(detector) as server, plugged(server) as (plug, lines):
        plug.sendall(request * count)
        plug.shutdown(socket.SHUT_WR)
        answers = [answer_in(lines) for _ in range(count)]
        assert [status for status, _, _ in answers] == [200] * count
        assert answers[-1][1]["connection"] == "close"
        assert lines.read() == b""
        until(server.holds_nothing)


@pytest.mark.parametrize("rest", [b"GET / HT", _HEAD % (b"/detect", b"", 9) + b"part"])
def test_client_that_ends_its_side_within_a_request_gets_the_answers_before(
    detector, pictures, rest
):
    request = _HEAD % (b"/detect", b"", len(pictures[0])) + pictures[0]
    with serving(detector) as server, plugged(server) as (plug, lines):
        plug.sendall(request * 3 + rest)
        plug.shutdown(socket.SHUT_WR)
        assert [answer_in(lines)[0] for _ in range(3)] == [200] * 3
        assert lines.read() == b""
        until(server.holds_nothing)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["half-closed", "closed", "reset"])
def test_pipelined_requests_of_a_client_that_left_cause_no_traceback(
    detector, pictures, caplog, way
):
    needs.package("uvloop")  # asyncio drops what is written after the end
    head = b"POST /detect HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    request = head % len(pictures[0]) + pictures[0]
    with serving(detector) as server:
        for _ in range(20):
            with server.plug() as plug:
                plug.sendall(request * 3)
                if way == "half-closed":
                    plug.shutdown(socket.SHUT_WR)
                    while plug.recv(1 << 16):
                        pass
                elif way == "reset":
                    plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: not server.server.server_state.connections)
        until(server.holds_nothing)
        assert server.get("/healthz").status == 200
    assert not [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
