"""Why a request is not answered as its client wished."""

from __future__ import annotations

from engine.errors import EngineError


class RefusedError(EngineError):
    """One line for the client, and the status that goes with it."""

    def __init__(
        self,
        status: int,
        reason: str,
        *,
        retry_after: int | None = None,
        allowed: str | None = None,
        is_last: bool = False,
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.is_last = is_last  # nothing more is read from this client
        headers = {"Retry-After": retry_after, "Allow": allowed}
        self.headers = {name: str(value) for name, value in headers.items() if value is not None}


class ClientLeftError(Exception):
    """The client has left: nobody reads the answer."""
