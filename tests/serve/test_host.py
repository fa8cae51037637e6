"""Which names of the server a request may have: DNS rebinding is refused on loopback addresses."""

import pytest

from tests.serve.running import load, serving

from engine.serve.access import Access  # isort: skip - `running` skips this without the extra
from engine.serve.host import is_this_machine, name_of  # isort: skip


@pytest.fixture(scope="module")
def detector(tiny_detector):
    with load(tiny_detector) as detector:
        yield detector


@pytest.fixture(scope="module")
def server(detector):
    with serving(detector) as server:
        yield server


def status_of(server, head):
    with server.plug() as plug:
        plug.sendall(head.encode() + b"Connection: close\r\n\r\n")
        return int(plug.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8000", 200),
        ("a.localhost", 200),
        ("127.0.0.1:1", 200),
        ("127.8.8.8", 200),
        ("[::1]:80", 200),
        ("localhost.", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.0.1", 403),
        ("", 403),
    ],
)
def test_a_loopback_server_is_called_localhost(server, host, status):
    assert status_of(server, f"GET /model HTTP/1.1\r\nHost: {host}\r\n") == status


@pytest.mark.parametrize("path", ["/", "/model", "/healthz", "/metrics"])
def test_rebinding_reads_no_path(server, path):
    reply = server.get(path, Host="evil.example")
    assert (reply.status, reply.error) == (
        403,
        "Host: expected localhost, got evil.example. See: serve --allow-host",
    )


def test_rebinding_posts_no_picture(server):
    assert server.post("/detect", b"", Host="evil.example").status == 403


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("GET /model HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        ("GET /model HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\n", 400),
        ("GET /model HTTP/1.1\r\n", 400),
        ("GET /model HTTP/1.0\r\n", 200),
        ("GET /model HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: h2c\r\n", 200),
    ],
)
def test_a_request_has_one_host(server, head, status):
    assert status_of(server, head) == status


@pytest.mark.parametrize(
    ("allowed", "host", "status"),
    [
        ("camera.example", "Camera.Example:80", 200),
        ("camera.example", "localhost", 200),
        ("camera.example", "evil.example", 403),
        ("*", "evil.example", 200),
    ],
)
def test_other_names_may_be_allowed(detector, allowed, host, status):
    with serving(detector, access=Access(hosts=(allowed,))) as server:
        assert server.get("/model", Host=host).status == status


def test_a_server_that_others_reach_has_any_name(server):
    server.server._app.state.is_on_loopback = False
    try:
        assert server.get("/model", Host="camera.example").status == 200
    finally:
        server.server._app.state.is_on_loopback = True


def test_names_are_read_without_port_and_brackets():
    assert [name_of(each) for each in ("A:1", "[::1]:80", "[::1]", "a.", "")] == [
        *("a", "::1", "::1", "a", "")
    ]
    assert not is_this_machine("0.0.0.0")
