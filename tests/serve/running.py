"""A server in this process, on its own port, and a client."""

import http.client
import json
import signal
import socket
import threading
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache

import pytest

import engine
from engine.serve.server_limits import ServerLimits
from engine.vision.decode_pool import DecodePool
from tests import needs

pytest.importorskip("starlette", reason=needs.advice("starlette"))
pytest.importorskip("uvicorn", reason=needs.advice("uvicorn"))
pytest.importorskip("httptools", reason=needs.advice("httptools"))
pytest.importorskip("python_multipart", reason=needs.advice("python_multipart"))

from engine.serve.server import Server, bind


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    content: bytes
    seconds: float

    @property
    def found(self):
        return json.loads(self.content)

    @property
    def error(self):
        return self.found["error"]


@dataclass(frozen=True)
class Running:
    server: Server
    host: str
    port: int

    @property
    def service(self):
        return self.server._service

    def connect(self, timeout=30):
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)

    def plug(self, timeout=30, source=""):
        """Open a raw connection, for requests that no client sends, from the address `source`."""
        return socket.create_connection((self.host, self.port), timeout, (source, 0))

    def get(self, path, **headers):
        with closing(self.connect()) as connection:
            return ask(connection, "GET", path, None, **headers)

    def post(self, path, content, **headers):
        with closing(self.connect()) as connection:
            return ask(connection, "POST", path, content, **headers)

    def holds_nothing(self):
        service = self.service
        bodies, pictures = service.body_memory, service.picture_memory
        held = service.active_requests, service.accepted_pictures, bodies.held, pictures.held
        return held == (0, 0, 0, 0)


def ask(connection, method, path, content, **headers):
    """Send a request; keyword arguments are headers, with _ for -."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    start = time.perf_counter()
    connection.request(method, path, content, headers)
    answer = connection.getresponse()
    read = answer.read()
    return Reply(answer.status, answer.headers, read, time.perf_counter() - start)


@lru_cache(1)
def decoders():
    """Return processes that all servers of a test run share: each takes a moment to start."""
    return DecodePool(2)


@contextmanager
def serving(
    detector,
    *,
    wait_seconds=0.005,
    access=None,
    access_log=None,
    live=None,
    ports=None,
    **limits,
):
    is_ready = threading.Event()
    bound = bind("127.0.0.1", 0)
    server = Server(
        *(detector, ServerLimits(**limits), decoders()),
        wait_seconds=wait_seconds,
        on_ready=is_ready.set,
        access=access,
        access_log=access_log,
        live=live,
        ports=ports,
    )
    thread = threading.Thread(target=server.serve_on, args=(bound,))
    thread.start()
    try:
        assert is_ready.wait(30)
        yield Running(server, *bound.getsockname()[:2])
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(30)
        assert not thread.is_alive()


def load(model, **options):
    return engine.load(model.cfg, model.weights, model.names, device="cpu", **options)


def until(is_so, seconds=10):
    """Wait until another thread has made a condition true."""
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.005)
