"""End an HTTP request when its time is up, however slowly the server sends its response.

A socket's timeout restarts with each byte. A server that sends one byte of a header or chunk
extension, or one "100 Continue", every few seconds would block the caller forever.
"""

from __future__ import annotations

import errno
import http.client
import math
import os
import selectors
import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any

_LOOK_SECONDS = 0.1  # between two checks whether the caller wants to stop
_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK)  # the second on Windows


class SocketDeadline:
    """Shuts down all connections of its handlers at the deadline; use it in a `with` block.

    An event `stopped`, which another thread sets, moves the deadline to now.
    """

    def __init__(self, seconds: float, *, stopped: threading.Event | None = None) -> None:
        self.has_expired = False
        self._stopped = stopped
        self._end = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._is_over = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="http-deadline", daemon=True)

    def restart(self, seconds: float) -> None:
        """Move the deadline to `seconds` from now."""
        self._end = time.monotonic() + seconds

    def handlers(self) -> tuple[urllib.request.BaseHandler, urllib.request.BaseHandler]:
        """Return handlers for http: and https: whose connections end at the deadline."""
        return _HttpHandler(self), _HttpsHandler(self)

    def connect(
        self, address: tuple[str, int], timeout: float, source: tuple[str, int] | None = None
    ) -> socket.socket:
        """Connect as socket.create_connection() does, and watch the result."""
        made = self._connected(address, timeout, source)
        # A duplicate, because TLS takes the descriptor away from the original object.
        watched = socket.socket(made.family, made.type, made.proto, os.dup(made.fileno()))
        with self._changed:
            self._sockets.append(watched)
            if self.has_expired:
                self._shut_down()
        return made

    def _connected(
        self, address: tuple[str, int], timeout: float, source: tuple[str, int] | None
    ) -> socket.socket:
        """Return a connection to the host's first address that accepts one."""
        failure = OSError("the host name has no address")
        for family, kind, protocol, _, where in socket.getaddrinfo(
            *address, type=socket.SOCK_STREAM
        ):
            try:
                made = socket.socket(family, kind, protocol)
            except OSError as error:  # an address family that this machine does not support
                failure = error
                continue
            try:
                if source:
                    made.bind(source)
                self._await_connection(made, where, timeout)
            except OSError as error:
                made.close()
                failure = error
                if self.has_expired:
                    break
            except BaseException:
                made.close()
                raise
            else:
                return made
        raise failure

    def _await_connection(self, made: socket.socket, where: Any, timeout: float) -> None:
        """Connect in time slices: another thread cannot abort a connection attempt."""
        made.setblocking(False)
        error = made.connect_ex(where)
        if error in _IN_PROGRESS:
            end = time.monotonic() + timeout
            with selectors.DefaultSelector() as connecting:
                connecting.register(made, selectors.EVENT_WRITE)
                while not connecting.select(_LOOK_SECONDS):
                    if self.has_expired or time.monotonic() > end:
                        raise TimeoutError("timed out")
            error = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        made.settimeout(timeout)

    def _watch(self) -> None:
        with self._changed:
            while not self._is_over:
                remaining = self._end - time.monotonic()
                is_stopped = self._stopped is not None and self._stopped.is_set()
                if remaining <= 0 or is_stopped:
                    self.has_expired = True
                    self._shut_down()
                    return
                longest = math.inf if self._stopped is None else _LOOK_SECONDS
                self._changed.wait(min(remaining, longest))

    def _shut_down(self) -> None:
        for each in self._sockets:
            with suppress(OSError):  # the peer may have closed it
                each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> SocketDeadline:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        for each in self._sockets:
            each.close()


def _watched(kind: Callable[..., Any], deadline: SocketDeadline, host: str, **options: Any) -> Any:
    connection = kind(host, **options)
    connection._create_connection = deadline.connect
    return connection


class _HttpHandler(urllib.request.HTTPHandler):
    def __init__(self, deadline: SocketDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        kind = partial(_watched, http.client.HTTPConnection, self._deadline)
        return self.do_open(kind, req)


class _HttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, deadline: SocketDeadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        kind = partial(_watched, http.client.HTTPSConnection, self._deadline)
        return self.do_open(kind, req)
