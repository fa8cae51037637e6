"""Refusals that are written as soon as the head of a request is parsed.

A refusal by the application costs several times as much as one written by the protocol, and clients
that retry immediately would take processor time from accepted pictures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeAlias

from engine.serve.protocol import LimitedProtocol
from engine.serve.rejection import RejectedError
from engine.serve.server_limits import ServerLimits

# Takes the target of a POST request and the address of its client, and returns why an overloaded
# server refuses it, or None.
RefusalOf: TypeAlias = Callable[[bytes, str], "RejectedError | None"]


class RefusingProtocol(LimitedProtocol):
    """A connection that refuses pictures without a task, a parsed URL or a copy of the body."""

    def __init__(self, limits: ServerLimits, refusal_of: RefusalOf, **options: Any) -> None:
        super().__init__(limits, **options)
        self._refusal_of = refusal_of
        self._is_refusing = False  # whether the arriving body is of a refused request
        self._closes_after_body = False

    def on_headers_complete(self) -> None:
        self._is_refusing = self._refuse()
        if not self._is_refusing:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self._is_refusing:
            self._unparsed = 0
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refusing:
            super().on_message_complete()
            return
        self._is_refusing = False
        if self._is_discarding:
            return
        self._stop_idle_timer()  # restarted for the next request
        if self._closes_after_body:
            self.transport.close()

    @property
    def _is_body_in_vain(self) -> bool:
        return self._is_refusing or super()._is_body_in_vain

    def _refuse(self) -> bool:
        """Write a refusal if one is due and nothing else is being written."""
        if self.parser.get_method() != b"POST" or self.parser.has_upgrade_offer:
            return False
        if self._is_responding or self.pipeline or self.flow.write_paused:
            return False
        if self._is_reserved or self._is_discarding:
            return False
        if any(name == b"origin" for name, _ in self.headers):
            return False  # a browser needs the CORS headers that the application adds
        client = self.client[0] if self.client else "-"
        if (refusal := self._refusal_of(self.url, client)) is None:
            return False
        self._unparsed = 0
        self._stop_idle_timer()  # restarted for the body
        version = self.parser.get_http_version()
        # Without "100 Continue" a client may or may not send the body, so the connection must end.
        self._closes_after_body = (
            version == "1.0" or self.expect_100_continue or not self.parser.should_keep_alive()
        )
        self.transport.write(_encoded(refusal, closes=self._closes_after_body))
        if self.expect_100_continue:
            self._close_gently()
        return True


def _encoded(refusal: RejectedError, *, closes: bool) -> bytes:
    content = json.dumps({"error": str(refusal)}).encode()
    fields = {"Content-Type": "application/json", "Content-Length": str(len(content))}
    if closes:
        fields["Connection"] = "close"
    lines = [f"{name}: {value}\r\n" for name, value in (fields | refusal.headers).items()]
    head = f"HTTP/1.1 {refusal.status} Service Unavailable\r\n{''.join(lines)}\r\n"
    return head.encode("latin-1") + content
