"""Refusals of a full server: early, cheap and spread over time."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import engine
from tests.serve.running import ask, serving, until
from tests.serve.test_limits import HEAD, answer_in, plugged

CHECK = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PARCEL = Path(__file__).parents[2] / "docs" / "parcel.jpg"
CLIENT = """
import http.client, sys
port, count, path, status = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
body = open(path, "rb").read()
connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
for _ in range(count):
    connection.request("POST", "/detect", body)
    answer = connection.getresponse()
    answer.read()
    assert answer.status == status, answer.status
"""


@contextmanager
def full(server):
    """Let the queue look full."""
    server.service.accepted_pictures += server.service.limits.queue
    try:
        yield
    finally:
        server.service.accepted_pictures -= server.service.limits.queue


def test_refusal_does_not_pass_through_the_application(detector, pictures, monkeypatch):
    async def must_not_run(*_):
        raise AssertionError("the application was called")

    with serving(detector) as server, full(server):
        monkeypatch.setattr("starlette.applications.Starlette.__call__", must_not_run)
        reply = server.post("/detect?threshold=0.5", pictures[0])
        monkeypatch.undo()
        assert reply.status == 503
        assert reply.error == "queue: is full with 64 pictures"
        assert reply.headers["Content-Type"] == "application/json"
        metrics = server.get("/metrics").content.decode()
        assert 'engine_requests_total{path="/detect",status="503"} 1' in metrics
        monkeypatch.setattr("starlette.applications.Starlette.__call__", must_not_run)
        assert server.post("/v2/models/net/infer", b"{}").status == 503
        monkeypatch.undo()


def test_connection_of_a_refused_picture_stays_usable(detector, pictures):
    with serving(detector) as server:
        connection = server.connect()
        with full(server):
            for _ in range(3):
                assert ask(connection, "POST", "/detect", pictures[0]).status == 503
                assert ask(connection, "GET", "/healthz", None).status == 200
        used = connection.sock
        assert ask(connection, "POST", "/detect", pictures[0]).status == 200
        assert connection.sock is used is not None
        connection.close()


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (b"HTTP/1.0", b""),
        (b"HTTP/1.1", b"Connection: close\r\n"),
        (b"HTTP/1.1", b"Expect: 100-continue\r\n"),
    ],
)
def test_refusal_closes_the_connection_where_it_cannot_go_on(detector, line, field):
    with serving(detector) as server, full(server), plugged(server) as (plug, lines):
        plug.sendall(
            b"POST /detect %s\r\nHost: localhost\r\n%sContent-Length: 4\r\n\r\n" % (line, field)
        )
        status, headers, _ = answer_in(lines)
        assert (status, headers["connection"]) == (503, "close")
        if b"Expect" not in field:
            plug.sendall(b"body")
        assert lines.read() == b""


def test_idle_time_starts_anew_after_a_refusal(detector, pictures):
    with serving(detector, idle_seconds=0.6) as server, full(server):
        connection = server.connect()
        used = None
        for _ in range(5):
            assert ask(connection, "POST", "/detect", pictures[0]).status == 503
            used = used or connection.sock
            assert connection.sock is used
            time.sleep(0.25)
        connection.close()


def test_idle_time_before_a_refused_upload_does_not_cut_it_off(detector):
    with serving(detector, idle_seconds=1.5) as server, full(server), plugged(server) as ends:
        plug, lines = ends
        for part in (HEAD + b"Content-Length: 4\r\n\r\n", b"body" + CHECK):
            time.sleep(0.9)
            plug.sendall(part)
        assert [answer_in(lines)[0] for _ in range(2)] == [503, 200]


@pytest.mark.parametrize("rest", [b"zz\r\n" + CHECK, b"1;" + b"x" * (1 << 17)])
@pytest.mark.parametrize(("path", "status"), [(b"/detect", 503), (b"/nothing", 404)])
def test_refused_body_that_is_malformed_gets_no_second_answer(detector, path, status, rest):
    head = HEAD.replace(b"/detect", path) + b"Transfer-Encoding: chunked\r\n\r\n"
    with serving(detector) as server, full(server), plugged(server) as (plug, lines), lines:
        plug.sendall(head)
        assert answer_in(lines)[0] == status
        plug.sendall(rest)
        assert lines.read() == b""


def test_malformed_request_after_a_refused_one_is_answered(detector):
    request = HEAD.replace(b"/detect", b"/nothing") + b"Content-Length: 4\r\n\r\n"
    with serving(detector) as server, plugged(server) as (plug, lines), lines:
        plug.sendall(request)
        assert answer_in(lines)[0] == 404
        plug.sendall(b"body" + b"\0\r\n\r\n")
        assert lines.readline().startswith(b"HTTP/1.1 400 ")


def test_time_for_a_body_that_was_answered_early_is_not_taken_from_the_next_request(detector):
    head = b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n"
    with serving(detector, idle_seconds=1.0) as server, plugged(server) as (plug, lines):
        plug.sendall(head)
        assert answer_in(lines)[0] == 404
        for part in (b"bo", b"dy", CHECK):
            time.sleep(0.6)
            plug.sendall(part)
        assert answer_in(lines)[0] == 200


@pytest.mark.parametrize(
    ("field", "others"), [(b"Expect: 100-continue\r\n", 0), (b"", 1)], ids=["expect", "reserve"]
)
def test_more_input_does_not_put_off_the_end_of_a_refused_connection(detector, field, others):
    request = HEAD + field + b"Content-Length: 4\r\n\r\nbody"
    with ExitStack() as stack, serving(detector, connections=1) as server, full(server):
        before = [stack.enter_context(server.plug()) for _ in range(others)]
        connections = server.server.server_state.connections
        until(lambda: len(connections) == len(before))
        with plugged(server) as (plug, lines), lines:
            plug.sendall(request * 3)
            assert answer_in(lines)[0] == 503
            assert lines.read() == b""
            (ending,) = (each for each in connections if each._is_discarding)
            assert ending._idle_timer.when() - ending.loop.time() < 3


@pytest.mark.slow
def test_flood_of_pipelined_refusals_is_cut_off(detector):
    with serving(detector, response_seconds=1) as server, full(server):
        requests = (HEAD + b"Content-Length: 0\r\n\r\n") * 500_000  # 30 MB
        with plugged(server) as (plug, _):  # the client never reads
            plug.settimeout(5)
            with pytest.raises((ConnectionError, TimeoutError)):
                plug.sendall(requests)
        assert server.get("/healthz").status == 200
    assert not server.service.active_requests


def test_clients_refused_together_come_back_at_different_times(detector, pictures):
    with serving(detector) as server, full(server):
        seconds = [
            int(server.post("/detect", pictures[0]).headers["Retry-After"]) for _ in range(40)
        ]
    assert set(seconds) == {1, 2, 3}


def test_few_bodies_are_read_in_vain(detector):
    with ExitStack() as stack, serving(detector, queue=3) as server:
        server.service.reading.update({"192.0.2.1": 3, "192.0.2.2": 1})
        lines = []
        for _ in range(2):
            plug, reader = stack.enter_context(plugged(server))
            plug.sendall(HEAD + b"Content-Length: 4\r\n\r\nab")
            lines.append((plug, reader))
        until(lambda: server.service.reading["127.0.0.1"] == 2)
        with plugged(server) as (plug, reader):
            plug.sendall(HEAD + b"Content-Length: 4\r\n\r\n")  # the body is not sent
            status, headers, content = answer_in(reader)
            assert (status, int(headers["retry-after"]) >= 1) == (503, True)
            assert json.loads(content)["error"] == "queue: is full of 6 bodies being read"
        for plug, reader in lines:
            plug.sendall(b"cd")
            assert answer_in(reader)[0] in (422, 503)
        until(server.holds_nothing)


@pytest.mark.skipif(sys.platform == "darwin", reason="loopback has one address on macOS")
def test_unfinished_bodies_of_one_address_leave_the_queue_to_others(detector, pictures):
    with ExitStack() as stack, serving(detector, queue=3) as server:

        def begin_body():
            plug = server.plug(source="127.0.0.2")
            stack.callback(plug.close)
            plug.sendall(HEAD + b"Content-Length: 4\r\n\r\nab")
            return plug

        for _ in range(3):
            begin_body()
        until(lambda: server.service.reading["127.0.0.2"] == 3)
        for _ in range(10):
            status, headers, content = answer_in(begin_body().makefile("rb"))
            assert (status, headers["retry-after"] in "123") == (503, True)
            assert json.loads(content)["error"] == (
                "queue: is full of 3 bodies being read from this address"
            )
        with ThreadPoolExecutor(3) as pool:
            replies = pool.map(lambda picture: server.post("/detect", picture), pictures[:3])
            assert [reply.status for reply in replies] == [200] * 3
    assert not server.service.reading


@pytest.mark.slow
def test_refusal_costs_less_than_a_hundredth_of_an_answer():
    def cost(server, count, status):
        """Return the processor seconds of the server; the client is another process."""
        words = [str(server.port), str(count), str(PARCEL), str(status)]
        before = time.process_time()
        subprocess.run([sys.executable, "-c", CLIENT, *words], check=True, timeout=300)
        return (time.process_time() - before) / count

    with engine.load(device="cpu") as detector, serving(detector) as server:
        cost(server, 3, 200)
        answer = cost(server, 10, 200)
        with full(server):
            refusal = cost(server, 500, 503)
    assert refusal < answer / 100
