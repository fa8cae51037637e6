"""Reading of request bodies, within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.types import Receive

from engine.serve import multipart, uploads
from engine.serve.rejection import ClientDisconnectedError, RejectedError, no_memory
from engine.serve.server_limits import ServerLimits

# curl --data-binary sends x-www-form-urlencoded unless it is given another type.
_BINARY_TYPES = ("application/octet-stream", "application/x-www-form-urlencoded")
_HINT = " With curl: -H 'Content-Type: image/jpeg' --data-binary @dog.jpg"


def check_headers(headers: Headers, limits: ServerLimits) -> None:
    """Reject a request whose headers already show that its body cannot be accepted."""
    media_type = media_type_of(headers)
    is_binary = media_type in ("", *_BINARY_TYPES) or media_type.startswith("image/")
    if not (is_binary or media_type in (multipart.MEDIA_TYPE, uploads.JSON_TYPE)):
        expected = f"image/…, {multipart.MEDIA_TYPE} or {uploads.JSON_TYPE}"
        raise RejectedError(
            415, f"Content-Type: expected {expected}, got {media_type[:80]!r}.{_HINT}"
        )
    coding = headers.get("content-encoding", "identity")
    if coding != "identity":
        raise RejectedError(415, f"Content-Encoding: expected none, got {coding[:80]!r}")
    codings = ", ".join(headers.getlist("transfer-encoding")).lower()
    if codings not in ("", "chunked"):
        reason = f"Transfer-Encoding: expected chunked, got {codings[:80]!r}"
        raise RejectedError(501, reason, closes_connection=True)
    length = headers.get("content-length", "0")
    if length.isdecimal() and (len(length) > 18 or int(length) > limits.body_bytes):
        raise _too_long(limits, length[:40])


async def read(receive: Receive, limits: ServerLimits, reserve: Callable[[int], bool]) -> bytes:
    """Return the whole body; `reserve` is asked for the bytes of each chunk before it is kept."""
    try:
        return await asyncio.wait_for(_read(receive, limits, reserve), limits.body_seconds)
    except asyncio.TimeoutError:
        raise RejectedError(
            *(408, f"body: expected all of it within {limits.body_seconds:g} s, got a part"),
            closes_connection=True,
        ) from None


async def _read(receive: Receive, limits: ServerLimits, reserve: Callable[[int], bool]) -> bytes:
    chunks: list[bytes] = []
    length = 0
    has_more = True
    while has_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnectedError
        chunk = message.get("body", b"")
        length += len(chunk)
        if length > limits.body_bytes:
            raise _too_long(limits, "more")
        if not reserve(len(chunk)):
            raise no_memory("the body")
        chunks.append(chunk)
        has_more = message.get("more_body", False)
    return b"".join(chunks)


def media_type_of(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _too_long(limits: ServerLimits, got: str) -> RejectedError:
    reason = f"body: expected at most {limits.body_bytes} bytes, got {got}"
    return RejectedError(413, reason, closes_connection=True)
