"""The body of a request, read within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Receive

from engine.serve import multipart
from engine.serve.limits import Limits
from engine.serve.refusal import ClientLeftError, RefusedError

# What a picture may be called; the last is what curl --data-binary says without being asked.
_RAW = ("application/octet-stream", "application/x-www-form-urlencoded")
_HINT = " With curl: -H 'Content-Type: image/jpeg' --data-binary @dog.jpg"


def check_head(headers: Headers, limits: Limits) -> None:
    """Refuse what the head of a request tells already."""
    kind = _kind(headers)
    if not (kind in ("", *_RAW, multipart.KIND) or kind.startswith("image/")):
        raise RefusedError(
            415, f"Content-Type: expected image/… or {multipart.KIND}, got {kind[:80]!r}.{_HINT}"
        )
    coding = headers.get("content-encoding", "identity")
    if coding != "identity":
        raise RefusedError(415, f"Content-Encoding: expected none, got {coding[:80]!r}")
    length = headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 18 or int(length) > limits.body_bytes):
        raise _too_long(limits, length[:40])


async def read(receive: Receive, limits: Limits, take: Callable[[int], bool]) -> bytes:
    """All of it; every piece is asked for at `take` first."""
    try:
        return await asyncio.wait_for(_read(receive, limits, take), limits.body_seconds)
    except asyncio.TimeoutError:
        raise RefusedError(
            408, f"body: expected within {limits.body_seconds:g} s, got a part", is_last=True
        ) from None


async def _read(receive: Receive, limits: Limits, take: Callable[[int], bool]) -> bytes:
    pieces: list[bytes] = []
    length = 0
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        piece = message.get("body", b"")
        length += len(piece)
        if length > limits.body_bytes:
            raise _too_long(limits, "more")
        if not take(len(piece)):
            raise RefusedError(
                503, "memory: expected room for the body, got none now", retry_after=1
            )
        pieces.append(piece)
        has_more = message.get("more_body", False)
    return b"".join(pieces)


def is_form(headers: Headers) -> bool:
    return _kind(headers) == multipart.KIND


def file_in(content: bytes, headers: Headers) -> tuple[bytes, str]:
    """The only file of a form, and its name."""
    return multipart.file_in(content, headers["content-type"])


def _kind(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_long(limits: Limits, got: str) -> RefusedError:
    reason = f"body: expected at most {limits.body_bytes} bytes, got {got}"
    return RefusedError(413, reason, is_last=True)
