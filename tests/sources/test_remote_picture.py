"""Pictures from web servers, correct and misbehaving."""

import signal
import socket
import sys
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import engine
from engine.errors import ImageError
from engine.sources.remote_picture import RemotePicture
from engine.vision.image import read
from tests.dripping_server import DRIPS
from tests.pictures import write_picture


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    picture = write_picture(tmp_path_factory.mktemp("web") / "a.png").read_bytes()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            length = len(picture)
            if self.path == "/none":
                self.send_error(404, "Not Found")
                return
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", "file:///etc/passwd")
                self.end_headers()
                return
            if self.path == "/short":
                length += 100
            self.send_response(200)
            if self.path != "/endless":
                self.send_header("Content-Length", str(length))
            self.end_headers()
            if self.path == "/page":
                self.wfile.write(b"<html>".ljust(length))
            elif self.path == "/endless":
                self.send_until_closed()
            elif self.path == "/slow":
                time.sleep(1)
            else:
                self.wfile.write(picture)

        def send_until_closed(self):
            try:
                while True:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                pass

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_picture_is_downloaded_and_named_by_its_address(server):
    picture = read(RemotePicture(f"{server}/a.png"))
    assert (picture.size, picture.path) == ((50, 40), f"{server}/a.png")


@pytest.mark.parametrize(
    ("path", "limits", "reason"),
    [
        ("/none", {}, "the server answered 404 Not Found"),
        ("/away", {}, "the server answered 302"),
        ("/short", {}, r"ended after \d+ of \d+ bytes"),
        ("/slow", {"read_timeout": 0.2}, "no data for 0.2 s"),
        ("/endless", {"max_bytes": 1 << 20}, "more than 1048576 bytes"),
        ("/endless", {"total_timeout": 0.2, "max_bytes": 1 << 40}, "not finished after 0.2 s"),
        ("/page", {}, "got a web page"),
    ],
)
def test_invalid_content_is_an_image_error(server, path, limits, reason):
    with pytest.raises(ImageError, match=f"{server}{path}: picture: .*{reason}"):
        read(RemotePicture(server + path, **limits))


def test_a_host_that_does_not_exist_is_named_in_words(monkeypatch):
    def unknown(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(ImageError, match=r"invalid/a\.jpg: picture: .*: host name not found$"):
        read(RemotePicture("http://nothing.invalid/a.jpg"))


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:1/a.jpg",
        "http://127.0.0.1:x/a.jpg",
        "http://[::1/a.jpg",
        "http://ex\u2100ample.org/a.jpg",
    ],
)
def test_addresses_without_a_server_are_image_errors(address):
    with pytest.raises(ImageError, match="picture: cannot be read"):
        read(RemotePicture(address))


def test_a_server_that_does_not_answer_tls_is_named_in_words():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"https://127.0.0.1:{silent.getsockname()[1]}/a.png"
        with pytest.raises(ImageError, match=r"cannot be read: no answer for 0\.2 s"):
            read(RemotePicture(address, read_timeout=0.2))


@pytest.mark.parametrize("kind", DRIPS)
def test_an_address_that_drips_ends_in_time(dripping, kind):
    picture = RemotePicture(dripping(*DRIPS[kind]), read_timeout=5, total_timeout=0.5)
    start = time.monotonic()
    with pytest.raises(OSError, match=r"not finished after 0\.5 s"):
        picture.read()
    assert time.monotonic() - start < 4


@pytest.mark.parametrize("scheme", ["ftp", "file", "data"])
def test_a_redirect_stays_with_http(dripping, scheme):
    head = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s://127.0.0.1/a\r\n\r\n"
    with pytest.raises(OSError, match=r"answered 302|not http: or https:"):
        RemotePicture(dripping(head % scheme.encode(), b"")).read()


@pytest.fixture
def full():
    """Return the address of a server that accepts no further connection, and refuses none."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}/a.jpg"


@pytest.mark.skipif(sys.platform != "linux", reason="others refuse what does not fit the backlog")
@pytest.mark.parametrize(
    ("ends", "reason"),
    [("stopped", "interrupted"), ("total_timeout", "not finished"), ("read_timeout", "no answer")],
)
def test_a_connection_that_is_not_made_ends_at_once(full, ends, reason):
    limits = {} if ends == "stopped" else {ends: 0.3}
    stopped = threading.Event()
    picture = RemotePicture(full, stopped=stopped, **limits)
    if ends == "stopped":
        threading.Timer(0.3, stopped.set).start()
    start = time.monotonic()
    with pytest.raises(OSError, match=reason):
        picture.read()
    assert time.monotonic() - start < 1


def test_the_next_address_of_a_host_is_tried(server, monkeypatch):
    port = int(server.rpartition(":")[2])
    kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    found = [(*kind, ("127.0.0.1", 1)), (*kind, ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert read(RemotePicture("http://host.invalid/a.png")).size == (50, 40)


def test_a_family_of_addresses_that_is_missing_is_passed_over(server, monkeypatch):
    port = int(server.rpartition(":")[2])
    kind = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
    found = [(250, *kind, ("::1", port)), (socket.AF_INET, *kind, ("127.0.0.1", port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert read(RemotePicture("http://host.invalid/a.png")).size == (50, 40)


def test_a_download_that_drips_ends_when_it_is_stopped(dripping):
    stopped = threading.Event()
    picture = RemotePicture(dripping(*DRIPS["body"]), stopped=stopped)
    threading.Timer(0.3, stopped.set).start()
    start = time.monotonic()
    with pytest.raises(OSError, match="interrupted"):
        picture.read()
    assert time.monotonic() - start < 5


def test_an_interrupt_ends_the_stream_of_a_download_that_drips(dripping, tiny_detector):
    main = threading.main_thread().ident
    with engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu") as detector:
        results = detector.stream([dripping(*DRIPS["body"])])
        threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            next(results)
        assert time.monotonic() - start < 10
