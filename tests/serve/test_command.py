"""python -m engine serve: start, shutdown, and errors at the start."""

import http.client
import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress

import pytest
from PIL import Image

from engine import extras
from tests import needs
from tests.cli.child import ENVIRONMENT, engine, engine_here
from tests.lanes import slow, slow_except
from tests.serve.child_server import SIGNALS
from tests.serve.running import Server, until
from tests.serve.test_limits import HEAD, answer_in


def test_server_prints_its_address_and_answers(start, pictures):
    process = start("--batch", 2, "--threshold", 0.35)
    assert process.said.endswith("detector on cpu\n")
    with closing(process.connect()) as connection:
        connection.request("POST", "/detect", pictures[0])
        assert connection.getresponse().status == 200
    assert b'"batch":2,"threshold":0.35' in process.get("/model")[1]


@pytest.mark.slow
def test_access_options_reach_the_server(start, pictures, tmp_path):
    (tmp_path / "token").write_text("a-secret\n")
    log = tmp_path / "access.log"
    options = ["--token-file", tmp_path / "token", "--access-log", log, "--allow-urls"]
    process = start(*options, "--cors", "https://example.org")
    assert process.get("/model")[0] == 401
    with closing(process.connect()) as connection:
        headers = {"Authorization": "Bearer a-secret", "Origin": "https://example.org"}
        connection.request("GET", "/model", headers=headers)
        answer = connection.getresponse()
        assert answer.headers["Access-Control-Allow-Origin"] == "https://example.org"
        assert b'"accepts_urls":true' in answer.read()
    process.child.terminate()
    process.ended()
    lines = log.read_text().splitlines()
    assert [line.split('"')[2].split()[0] for line in lines] == ["401", "200"]


@pytest.mark.slow
@SIGNALS
@pytest.mark.parametrize(
    "number", slow_except([signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]), ids=str
)
def test_signal_ends_the_server_quietly(start, number):
    process = start()
    process.child.send_signal(number)
    assert process.ended() == (0, "")


@pytest.mark.slow
@SIGNALS
def test_requests_in_flight_are_answered_on_shutdown(start, pictures):
    process = start()
    with process.plug() as plug, closing(process.connect()) as other:
        lines = plug.makefile("rb")
        plug.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(pictures[0]) + pictures[0][:100])
        other.request("GET", "/readyz")
        answer = other.getresponse()
        assert (answer.status, answer.read()) == (200, b"ready\n")
        until(lambda: b"engine_requests_in_progress 1" in process.get("/metrics")[1])

        process.child.send_signal(signal.SIGTERM)
        until(lambda: process.get("/readyz") == (503, b"shutting down\n"))
        assert process.get("/healthz") == (200, b"ok\n")
        other.request("POST", "/detect", pictures[1])
        answer = other.getresponse()
        assert (answer.status, answer.headers["Connection"]) == (503, "close")
        assert b"server: shutting down" in answer.read()

        plug.sendall(pictures[0][100:])
        assert answer_in(lines)[0] == 200
    assert process.ended() == (0, "")


@SIGNALS
@pytest.mark.slow
def test_second_signal_ends_the_server_at_once(start):
    process = start("--drain-seconds", 60)
    with process.plug() as plug:
        plug.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
        until(lambda: b"engine_requests_in_progress 1" in process.get("/metrics")[1])
        begin = time.monotonic()
        process.child.send_signal(signal.SIGINT)
        until(lambda: process.get("/readyz")[0] == 503)
        process.child.send_signal(signal.SIGINT)
        status, err = process.ended()
        assert time.monotonic() - begin < 9
    assert (status, err) == (130, "")


@SIGNALS
@pytest.mark.slow
def test_second_signal_ends_the_server_while_it_decodes(start):
    """Decoded pictures wait for memory that only a response would free."""
    buffer = io.BytesIO()
    Image.new("RGB", (7000, 7000)).save(buffer, "PNG")
    picture = buffer.getvalue()
    process = start("--memory", 1100, "--drain-seconds", 60)
    statuses = []

    def ask():
        broken = (OSError, http.client.HTTPException)
        with suppress(*broken), closing(process.connect()) as connection:
            connection.request("POST", "/detect", picture)
            answer = connection.getresponse()
            statuses.append(answer.status)
            answer.read()

    clients = [threading.Thread(target=ask) for _ in range(10)]
    for each in clients:
        each.start()
    until(lambda: process.metric("engine_requests_in_progress") >= 4)
    process.child.send_signal(signal.SIGTERM)
    time.sleep(0.3)
    begin = time.monotonic()
    process.child.send_signal(signal.SIGTERM)
    status, err = process.ended()
    assert time.monotonic() - begin < 8  # a second on an idle machine
    assert (status, err) == (130, "")
    for each in clients:
        each.join()
    assert 503 in statuses
    assert set(statuses) <= {200, 503}


@SIGNALS
@pytest.mark.slow
def test_shutdown_waits_at_most_the_grace_period(start):
    process = start("--drain-seconds", 0.5, "--body-seconds", 60)
    with process.plug() as plug:
        plug.sendall(HEAD + b"Content-Length: 100\r\n\r\n")
        until(lambda: b"engine_requests_in_progress 1" in process.get("/metrics")[1])
        begin = time.monotonic()
        process.child.send_signal(signal.SIGTERM)
        status, headers, content = answer_in(plug.makefile("rb"))
        assert (status, headers["connection"]) == (503, "close")
        assert json.loads(content) == {"error": "server: shutting down"}
        with suppress(ConnectionError):  # the server does not wait for the rest
            while time.monotonic() - begin < 12:
                plug.sendall(b"x")
                time.sleep(0.2)
        status, err = process.ended()
        assert time.monotonic() - begin < 9
    assert (status, err) == (130, "")


@SIGNALS
@pytest.mark.slow
def test_server_ends_under_load(start, pictures):
    process = start("--queue", 4)
    statuses = []

    def ask():
        # until the server has ended: idle connections are closed, new ones refused
        broken = (ConnectionError, http.client.HTTPException)
        with suppress(*broken), closing(process.connect()) as connection:
            while True:
                connection.request("POST", "/detect", pictures[0])
                answer = connection.getresponse()
                answer.read()
                statuses.append(answer.status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    until(lambda: statuses.count(200) > 20)
    process.child.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join(30)
    assert process.ended() == (0, "")
    assert set(statuses) == {200, 503}


# ------------------------------------------------------------ what keeps it from starting


@pytest.fixture
def serve(monkeypatch, model):
    """Run the command in this process, as far as it would begin to answer."""

    def started(*_):
        raise AssertionError("the server has started")

    monkeypatch.setattr(Server, "serve_on", started)
    return lambda *options, files=model.options: engine_here("serve", *files, *options)


@pytest.mark.slow
def test_port_in_use_is_reported(serve):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = serve("--port", port)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"Error: --host 127.0.0.1 --port {port}: address already in use\n"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--port", 65536], "--port 65536: "),
        (["--queue", 0], "--queue: expected a whole number of 1 or more, got '0'"),
        slow((["--max-pixels", "1e6"], "--max-pixels: expected a whole number of 1 or more, got")),
        (["--decode-seconds", 0], "--decode-seconds: expected seconds above 0, got '0'"),
        slow((["--body-seconds", "nan"], "--body-seconds: expected seconds above 0, got 'nan'")),
        slow((["--drain-seconds", "inf"], "--drain-seconds: expected seconds above 0, got 'inf'")),
        slow((["--drain-seconds", "x"], "--drain-seconds: expected seconds above 0, got 'x'")),
        slow((["--host", "no.such.host.invalid"], "--host no.such.host.invalid --port 8000: ")),
        (["--max-body", "-1"], "--max-body: expected a number of MiB, got '-1'"),
        (["--memory", "200MB"], "--memory: expected a number of MiB, got '200MB'"),
        (
            ["--memory", 0.0625],
            "--memory: expected more than 0.1 MiB for a network of 64 x 48, got 0.0625",
        ),
        (["--memory", "inf"], "--memory: expected a number of MiB, got 'inf'"),
        slow((["--max-body", "1e305"], "--max-body: expected a number of MiB, got '1e305'")),
        slow((["--wait-ms", "nan"], "--wait-ms: expected 0 to 10000, got nan")),
        slow((["--port", "http"], "argument --port: invalid int value: 'http'")),
        slow((["--token", "a", "--token-file", "b"], "--token and --token-file: expected one of")),
        slow((["--token-file", "missing"], "missing: cannot be read")),
        slow((["--cors", "example.org"], "--cors example.org: expected an origin like")),
        slow((["--access-log", "/dev/null/log"], "--access-log /dev/null/log: ")),
        slow((["dog.jpg"], "unexpected 'dog.jpg': expected CFG and WEIGHTS")),
        slow((["--batch", 0], "batch: expected an integer of 1 or more, got 0")),
    ],
)
def test_invalid_options_are_refused(serve, options, reason):
    done = serve(*options)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("Error: ")
    assert reason in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("kind", slow_except(["weights"], ["weights", "scales", "token", "video"]))
def test_access_log_adds_nothing_to_a_file_that_is_read(serve, model, tmp_path, kind):
    """The scales of int8 are next to the weights, and a link to a file is that file."""
    needs.package("av")
    video, token = tmp_path / "street.mp4", tmp_path / "token"
    for each in (video, token):
        each.write_text("a-secret")
    scales = model.weights.with_suffix(".scales")
    read = {"weights": model.weights, "scales": scales, "token": token, "video": video}[kind]
    log = tmp_path / "log"
    log.symlink_to(read)
    before = read.read_bytes() if read.exists() else None
    options = ["--token-file", token, "--source", video, "--precision", "int8"]
    done = serve(*options, "--port", 0, "--access-log", log)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"Error: --access-log {log}: would add lines to a file that is read\n"
    assert (read.read_bytes() if read.exists() else None) == before


@pytest.mark.slow
def test_access_log_goes_on_in_the_file_of_an_earlier_run(start, tmp_path):
    log = tmp_path / "access.log"
    log.write_text("earlier\n")
    process = start("--access-log", log)
    assert process.get("/readyz")[0] == 200
    process.child.terminate()
    process.ended()
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["earlier", "127.0.0.1"]


@pytest.mark.slow
def test_network_without_pictures_is_refused(serve, tiny_recurrent):
    done = serve("--port", 0, files=tiny_recurrent.options)
    assert done.status == 2
    assert done.err == "Error: serve: expected a detector or a classifier, got another network\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    "missing",
    slow_except(["starlette"], ["starlette", "uvicorn", "httptools", "python_multipart"]),
)
def test_missing_extra_is_reported(model, missing):
    code = (
        f"import sys; sys.modules[{missing!r}] = None; from engine.cli import main;"
        "sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "serve", *model.options],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    how = extras.command("serve")
    assert done.stderr == f"Error: serve: {missing} is not installed. Run: {how}\n"


def test_help_needs_no_extra():
    done = engine("serve", "--help")
    assert done.status == 0
    assert "--wait-ms" in done.out
