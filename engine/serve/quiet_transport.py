"""A transport wrapper that makes writing after closing harmless."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class QuietTransport:
    """A transport that drops what is written while it is closing, or after its end was written.

    A client may close its connection at any moment. Asyncio then drops what is written, but uvloop
    raises RuntimeError, and uvicorn writes to such transports: it reports a lost connection only
    to the last of several pipelined requests.

    `close_gently` is called before the transport is closed; it returns whether it has written the
    end and will close the transport itself later.
    """

    def __init__(self, transport: asyncio.Transport, close_gently: Callable[[], bool]) -> None:
        self._transport = transport
        self._close_gently = close_gently
        self._has_ended = False

    def write(self, data: bytes) -> None:
        if not (self._has_ended or self._transport.is_closing()):
            self._transport.write(data)

    def close(self) -> None:
        if self._has_ended or not self._close_gently():
            self._transport.close()

    def write_eof(self) -> None:
        if not (self._has_ended or self._transport.is_closing()):
            self._has_ended = True
            self._transport.write_eof()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
