"""The answer to a client of which nothing more is read."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

_MOST_BYTES = 64 << 20
_MOST_SECONDS = 2.0


class LastAnswer(JSONResponse):
    """Closes the connection, but not at once.

    A client that is still sending when its connection is closed may lose the answer before it
    looks for one. So what it sends is thrown away for a while.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [*self.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(_throw_away(receive), _MOST_SECONDS)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _throw_away(receive: Receive) -> None:
    length = 0
    while length < _MOST_BYTES:
        message = await receive()
        length += len(message.get("body", b""))
        if not message.get("more_body", False):  # all was sent, or the client has left
            return
