"""The port, signals, and an end that leaves nobody without an answer."""

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
from types import FrameType
from typing import Any, cast

import uvicorn

from engine.detector import Detector
from engine.errors import InputError
from engine.serve import app
from engine.serve.limits import Limits
from engine.serve.protocol import LimitedProtocol
from engine.serve.service import Service, warm_up

_SECONDS_TO_CLOSE = 5  # for connections, when every request is answered
_BACKLOG = 1024
_MOST_PORT = 65535


def bind(host: str, port: int) -> socket.socket:
    """A port that is ours, on which nothing is heard yet."""
    if not 0 <= port <= _MOST_PORT:
        raise InputError(f"--port {port}: expected 0 to {_MOST_PORT}")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise InputError(f"--host {host} --port {port}: {_reason(error)}") from error
    try:
        if hasattr(signal, "SIGHUP"):  # elsewhere this would let two servers share a port
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InputError(f"--host {host} --port {port}: {_reason(error)}") from error
    return bound


class Server(uvicorn.Server):
    """The first signal lets it end when nobody waits for an answer any more, the second at once.

    `wait_seconds` is how long a picture waits for others that are on their way, at most.
    """

    def __init__(
        self,
        detector: Detector,
        limits: Limits,
        *,
        wait_seconds: float,
        when_ready: Callable[[], None],
    ) -> None:
        if detector.task not in ("detector", "classifier"):
            raise InputError("serve: expected a network that looks at pictures, got another")
        if detector.has_state:
            raise InputError("serve: expected a network without memory of earlier pictures")
        self._detector = detector
        self._limits = limits
        self._wait_seconds = wait_seconds
        self._when_ready = when_ready
        self._service: Service | None = None
        self._asked_at: float | None = None
        super().__init__(
            uvicorn.Config(
                app.make(self._open_service),
                http=cast(Any, partial(LimitedProtocol, limits)),
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

    def answer_on(self, bound: socket.socket) -> bool:
        """Serve until the end; whether every request that was taken in was answered."""
        warm_up(self._detector)
        self.run(sockets=[bound])
        return not self.force_exit

    def _open_service(self) -> Service:
        self._service = Service(self._detector, self._limits, wait_seconds=self._wait_seconds)
        return self._service

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Uvicorn's own would raise the signal again at the end, and the status be that of it."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        names = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in names}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self._asked_at is not None:
            self._give_up()
        self._asked_at = time.monotonic()

    async def on_tick(self, counter: int) -> bool:
        if self._asked_at is not None and self._service is not None:
            self._service.is_draining = True
            if not self._service.visits:
                self.should_exit = True
            elif time.monotonic() - self._asked_at > self._limits.drain_seconds:
                self._give_up()
        return await super().on_tick(counter)

    def _give_up(self) -> None:
        self.should_exit = self.force_exit = True
        # what is cancelled now would be told with a traceback each
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error)).lower()
