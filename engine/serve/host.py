"""Refuse requests that name another host: a defence against DNS rebinding.

A malicious page may make its own name resolve to 127.0.0.1. The browser then treats this server as
same-origin, but sends the page's name in Host.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from ipaddress import ip_address

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from engine.files.naming import shown

ANY = "*"


class CheckHost:
    """Middleware that requires one Host header, which must name this machine on a loopback address.

    `allowed` are additional names; if there are any, Host is checked on every address.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self._refusal(scope)):
            status, problem = refusal
            await JSONResponse({"error": f"Host: {problem}"}, status)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        given = [value for name, value in scope["headers"] if name == b"host"]
        if len(given) > 1 or not (given or scope["http_version"] == "1.0"):
            return 400, f"expected one, got {len(given) or 'none'}"
        host = given[0].decode("latin-1") if given else None
        problem = problem_of(host, self._allowed, is_loopback=scope["app"].state.is_on_loopback)
        return (403, problem) if problem else None


def problem_of(host: str | None, allowed: Collection[str], *, is_loopback: bool) -> str | None:
    """Return why a request with this Host is refused, or None; `allowed` are in lower case."""
    if host is None or ANY in allowed or not (allowed or is_loopback):
        return None
    name = name_of(host)
    if name in allowed or is_this_machine(name):
        return None
    return f"expected localhost, got {shown(name[:80])}. See: serve --allow-host"


def name_of(host: str) -> str:
    """Return the name in a Host header, in lower case, without port and brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def is_this_machine(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False
