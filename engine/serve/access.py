"""Access to the server (a token, origins, URLs) and its log."""

from __future__ import annotations

import hmac
import logging
import queue
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from logging.handlers import QueueHandler, QueueListener, WatchedFileHandler
from pathlib import Path

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.errors import InputError
from engine.files.atomic import refuse_address
from engine.files.naming import escaped, shown
from engine.serve.rejection import RejectedError
from engine.sources.addresses import ascii_host

_MAX_QUEUED_LINES = 10_000  # with a slow disk, lines are lost rather than responses
_MAX_TARGET_LENGTH = 2000
_ANY = "*"
_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+]|[^]\s/\\?#@:[]+)(?::([0-9]{0,5}))?")
_NAME = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?")  # a host name as browsers send it
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?")  # what browsers parse as IPv4
_DEFAULT_PORTS = {"http": 80, "https": 443}
_MAX_PORT = 65535


@dataclass(frozen=True)
class Access:
    """The token that clients must send, and what they may request."""

    token: str | None = None
    cors: Sequence[str] = ()  # origins whose pages may call the server; "*" is any
    allow_urls: bool = False  # whether clients may name pictures by URL
    hosts: Sequence[str] = ()  # names of the server besides localhost; "*" is any

    def __post_init__(self) -> None:
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            raise InputError("--token: expected printable ASCII characters, got others")
        if self.token is not None and (not self.token or " " in self.token):
            raise InputError("--token: expected a word without spaces, got none or several")
        object.__setattr__(self, "cors", tuple(_as_sent(each) for each in self.cors))
        for host in self.hosts:
            if not host or any(mark in host for mark in ":/ "):
                raise InputError(
                    f"--allow-host {shown(host)}: expected a name like example.org or *"
                )

    def check_origin(self, headers: Headers) -> None:
        """Raise if the request comes from a page of another origin that --cors does not name.

        Where a browser sends Sec-Fetch-Site (over HTTPS and to localhost), it decides, since a
        proxy may have changed Host. An opaque origin is "null".
        """
        origin = headers.get("origin")
        if _ANY in self.cors or (origin is not None and origin in self.cors):
            return
        if site := headers.get("sec-fetch-site"):
            is_own = site in ("same-origin", "none")
        else:
            is_own = origin is None or origin.partition("://")[2] == headers.get("host")
        if not is_own:
            raise RejectedError(403, "Origin: expected a page of this server, got another's")


def _as_sent(origin: str) -> str:
    """Return an origin of --cors as browsers send it: in lower case, without a default port."""
    if origin == _ANY:
        return origin
    if found := _ORIGIN.fullmatch(origin.lower()):
        scheme, host, given = found.groups()
        usual = _DEFAULT_PORTS[scheme]
        port = int(given or usual)
        with suppress(ValueError):  # not a valid host name
            host = _host_as_sent(host)
            if port <= _MAX_PORT:
                return f"{scheme}://{host}" if port == usual else f"{scheme}://{host}:{port}"
    raise InputError(f"--cors {shown(origin)}: expected an origin like https://example.org or *")


def _host_as_sent(host: str) -> str:
    """Return a host as browsers send it, or raise ValueError if it is invalid, like a wildcard."""
    if host.startswith("["):
        return f"[{IPv6Address(host[1:-1])}]"
    name = ascii_host(host)
    if _NUMERIC.fullmatch(name):
        return str(IPv4Address(name))
    if not _NAME.fullmatch(name):
        raise ValueError("the host name has an invalid character")
    return name


class Cors(CORSMiddleware):
    """Starlette's middleware for --cors, with refusals in the server's JSON format."""

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        refused = bytes(response.body).decode().removeprefix("Disallowed CORS ")
        reason = f"CORS: expected what --cors allows, got another {refused}"
        kept = {k: v for k, v in response.headers.items() if not k.startswith("content-")}
        return JSONResponse({"error": reason}, response.status_code, kept)


class RequireToken:
    """Middleware that asks for "Authorization: Bearer TOKEN", except on public paths."""

    def __init__(self, app: ASGIApp, token: str, public_paths: frozenset[str]) -> None:
        self._app = app
        self._expected = b"bearer " + token.encode()
        self._public_paths = public_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self._public_paths:
            given = dict(scope["headers"]).get(b"authorization", b"")
            kind, _, token = given.partition(b" ")
            if not hmac.compare_digest(kind.lower() + b" " + token.strip(), self._expected):
                what = "the server's token" if given else "Authorization: Bearer TOKEN"
                got = "another" if given else "none"
                content = {"error": f"Authorization: expected {what}, got {got}"}
                response = JSONResponse(content, 401, {"WWW-Authenticate": "Bearer"})
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


class AccessLog:
    """Lines in the Common Log Format with the seconds of the response, written by a thread.

    The file is reopened after logrotate has renamed it.
    """

    def __init__(self, path: str) -> None:
        try:
            if path != "-":
                refuse_address(path)
                with suppress(FileExistsError):  # it is a file, so opening will fail
                    Path(path).parent.mkdir(parents=True, exist_ok=True)
            handler = logging.StreamHandler() if path == "-" else _LogFile(Path(path))
        except OSError as error:
            raise InputError(f"--access-log {shown(path)}: {error.strerror}") from None
        handler.handleError = _ignore  # type: ignore[method-assign]
        self._queue: queue.Queue[logging.LogRecord] = queue.Queue(_MAX_QUEUED_LINES)
        self._handler = handler
        self._lines = QueueHandler(self._queue)
        self._lines.handleError = _ignore  # type: ignore[method-assign]
        self._listener = QueueListener(self._queue, handler)
        self._listener.start()

    def add(
        self, client: str, method: str, target: str, status: int, length: int, seconds: float
    ) -> None:
        moment = time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime())
        request = escaped(f"{method} {target[:_MAX_TARGET_LENGTH]} HTTP/1.1").replace('"', "%22")
        line = f'{client} - - [{moment}] "{request}" {status} {length} {seconds:.3f}'
        self._lines.emit(logging.LogRecord("access", logging.INFO, "", 0, line, None, None))

    def __enter__(self) -> AccessLog:
        return self

    def __exit__(self, *_: object) -> None:
        while True:
            try:
                self._listener.stop()
                break
            except queue.Full:  # the disk is slow: drop the oldest line
                with suppress(queue.Empty):
                    self._queue.get_nowait()
        self._handler.close()


class _LogFile(WatchedFileHandler):
    """A file that is reopened when renamed; if that fails, the next line tries again."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


def _ignore(record: logging.LogRecord) -> None:
    """Drop a line that cannot be written: responses matter more."""
