"""The listening socket, signals and graceful shutdown."""

from __future__ import annotations

import logging
import math
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import ip_address
from types import FrameType
from typing import Any, cast

import uvicorn

from engine.darknet.graph import named_task
from engine.detector import Detector
from engine.errors import InputError
from engine.serve import app
from engine.serve.access import Access, AccessLog
from engine.serve.darknet_ports import DarknetPorts
from engine.serve.early_refusal import RefusingProtocol
from engine.serve.live import LiveOptions
from engine.serve.protocol import LimitedProtocol
from engine.serve.rejection import RejectedError
from engine.serve.server_limits import ServerLimits
from engine.serve.service import Service, useless_memory, warm_up
from engine.vision.decode_pool import DecodePool

_SECONDS_TO_CLOSE = 5  # for connections, once every request has its response
_SECONDS_TO_END_STREAMS = 0.5  # for clients of live sources, which may have stopped reading
_BACKLOG = 1024
_MIB = 1 << 20
_MAX_PORT = 65535
_PICTURE_PATHS = frozenset((b"/detect", b"/classify"))


def bind(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Return a bound socket that does not listen yet."""
    if not 0 <= port <= _MAX_PORT:
        raise InputError(f"{option} {port}: expected 0 to {_MAX_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host} {option} {port}: {_reason(error)}") from error
    try:
        if hasattr(signal, "SIGHUP"):  # on Windows SO_REUSEADDR lets two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InputError(f"--host {host} {option} {port}: {_reason(error)}") from error
    return bound


def address_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _listen(bound: socket.socket, option: str) -> None:
    """Begin to listen, which fails if another server has meanwhile taken the port."""
    try:
        bound.listen(_BACKLOG)
    except OSError as error:
        port = bound.getsockname()[1]
        raise InputError(f"{option} {port}: {_reason(error)}") from error


class Server(uvicorn.Server):
    """A server that drains on the first signal and exits at once on the second.

    `decoders` are the processes that decode pictures. `wait_seconds` is the maximum time that a
    batch waits for pictures being decoded.
    """

    def __init__(
        self,
        detector: Detector,
        limits: ServerLimits,
        decoders: DecodePool,
        *,
        wait_seconds: float,
        on_ready: Callable[[], None],
        access: Access | None = None,
        access_log: AccessLog | None = None,
        live: LiveOptions | None = None,
        ports: DarknetPorts | None = None,
    ) -> None:
        if live and live.names and detector.task != "detector":
            raise InputError(f"--source: expected a detector, got {named_task(detector.task)}")
        if detector.task not in ("detector", "classifier"):
            raise InputError("serve: expected a detector or a classifier, got another network")
        if detector.has_state:
            raise InputError("serve: expected a network without state, got a recurrent one")
        if limits.memory_bytes <= (useless := useless_memory(detector)):
            width, height = detector.size
            least = f"{math.ceil(useless / _MIB * 100) / 100:g} MiB"
            raise InputError(
                f"--memory: expected more than {least} for a network of {width} x {height}, "
                f"got {limits.memory_bytes / _MIB:g}"
            )
        self._detector = detector
        self._limits = limits
        self._decoders = decoders
        self._wait_seconds = wait_seconds
        self._on_ready = on_ready
        self._access = access or Access()
        self._access_log = access_log
        self._live = live
        self._service: Service | None = None
        self._shutdown_requested_at: float | None = None
        self._ports = ports or DarknetPorts()
        self._app = app.make(self._open_service, self._access, self._access_log, self._ports)
        super().__init__(
            uvicorn.Config(
                self._app,
                http=cast(Any, partial(RefusingProtocol, limits, self._refusal_of)),
                ws="none",
                lifespan="on",
                log_config=None,
                log_level=logging.ERROR,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=math.ceil(limits.idle_seconds),
                timeout_graceful_shutdown=_SECONDS_TO_CLOSE,
            )
        )

    def serve_on(self, bound: socket.socket) -> bool:
        """Serve until shutdown, and return whether every accepted request got its response."""
        warm_up(self._detector)
        for option, each in (("--port", bound), *self._ports.by_option):
            _listen(each, option)
        address = bound.getsockname()[0].partition("%")[0]
        self._app.state.is_on_loopback = ip_address(address).is_loopback
        self.run(sockets=[bound])
        return not self.force_exit

    def _open_service(self) -> Service:
        self._service = Service(
            *(self._detector, self._limits, self._decoders),
            wait_seconds=self._wait_seconds,
            allow_urls=self._access.allow_urls,
            live=self._live,
        )
        return self._service

    def _refusal_of(self, target: bytes, client: str) -> RejectedError | None:
        """Return and record why the server refuses a picture posted to `target`, or None."""
        service = self._service
        path = target.partition(b"?")[0]
        is_of_picture = path in _PICTURE_PATHS or (
            path.startswith(b"/v2/models/") and path.endswith(b"/infer")
        )
        if service is None or not is_of_picture or service.is_draining:
            return None  # at shutdown the application refuses, and the connection closes gently
        if refusal := service.body_refusal(client):
            name = path.decode() if path in _PICTURE_PATHS else "/v2/models"
            service.metrics.add_request(name, refusal.status, 0.0)
            if self._access_log:
                text = target.decode("latin-1")
                self._access_log.add(client, "POST", text, refusal.status, 0, 0.0)
        return refusal

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM, and restore the previous handlers afterwards.

        Uvicorn raises the signal again after shutdown, which would replace our exit status.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        signals = (signal.SIGINT, signal.SIGTERM)
        previous = {each: signal.signal(each, self.handle_exit) for each in signals}
        try:
            yield
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._shutdown_requested_at is not None:
            self._force_exit()
        self._shutdown_requested_at = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        if self._shutdown_requested_at is not None and self._service is not None:
            self._service.is_draining = True
            self._service.live.end_viewers()
            streaming = [each for each in self._connections if each.is_streaming]
            if time.monotonic() - self._shutdown_requested_at > _SECONDS_TO_END_STREAMS:
                for connection in streaming:
                    connection.abort_stream()
            if not (self._service.active_requests or streaming):
                self.should_exit = True
            elif time.monotonic() - self._shutdown_requested_at > self._limits.drain_seconds:
                self._force_exit()
        return await super().on_tick(counter)

    @property
    def _connections(self) -> list[LimitedProtocol]:
        return cast("list[LimitedProtocol]", [*self.server_state.connections])

    def _force_exit(self) -> None:
        self.should_exit = self.force_exit = True
        if self._service is not None:
            self._service.abandon()
        # Uvicorn logs a traceback for each request that is cancelled.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error)).lower()
