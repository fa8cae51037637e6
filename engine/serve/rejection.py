"""Errors that end a request without a result."""

from __future__ import annotations

import random

from engine.errors import EngineError

_LONGEST_SECONDS = 60
_SPREAD = 3.0


class RejectedError(EngineError):
    """A request that the server refuses: a status code and one line for the client."""

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        retry_after: int | None = None,
        closes_connection: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.closes_connection = closes_connection
        self.headers = {} if retry_after is None else {"Retry-After": str(retry_after)}


class ClientDisconnectedError(Exception):
    """The client has closed its connection, so no response can be delivered."""


def no_memory(what: str) -> RejectedError:
    """Return the error for a request for which there is currently no memory."""
    reason = f"memory: expected space for {what}, got none now"
    return RejectedError(503, reason, retry_after=spread_seconds(1))


def spread_seconds(seconds: float) -> int:
    """Return a random whole number of seconds, from `seconds` to three times as many.

    Otherwise clients that were refused together would retry together.
    """
    seconds = max(1.0, seconds)
    return min(round(random.uniform(seconds, seconds * _SPREAD)), _LONGEST_SECONDS)
