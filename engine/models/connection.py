"""HTTPS requests that follow no way out of it: redirects, proxies, names of failures."""

from __future__ import annotations

import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from typing import IO, cast
from urllib.parse import urlsplit

from engine.version import __version__
from engine.vision.naming import shown

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_TRY_AGAIN = {408, 425, 429, 500, 502, 503, 504}


class RefusedError(Exception):
    """The address has nothing for us, now or later."""


class InterruptedTransferError(Exception):
    """The transfer failed in a way that may be over at the next attempt."""


def check_address(address: str, *, allow_http: bool) -> None:
    """HTTPS only; with `allow_http` also HTTP to this machine."""
    try:
        parts = urlsplit(address)
        if parts.hostname:
            parts.hostname.encode("idna")
    except ValueError as error:
        raise RefusedError(f"is no address: {reason(error)}") from None
    is_local = allow_http and parts.scheme == "http" and parts.hostname in _LOOPBACK
    if not (parts.scheme == "https" or is_local):
        raise RefusedError(f"leads to {parts.scheme or 'no scheme'}:, expected https")


def get(
    address: str, headers: Mapping[str, str], *, timeout: float, allow_http: bool
) -> http.client.HTTPResponse:
    """An answer of status 200 or 206, with its body not yet read."""
    check_address(address, allow_http=allow_http)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),  # http_proxy, https_proxy, no_proxy
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _Redirects(allow_http=allow_http),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(
        address,
        headers={"User-Agent": f"engine/{__version__}", "Accept-Encoding": "identity", **headers},
    )
    try:
        return cast(http.client.HTTPResponse, opener.open(request, timeout=timeout))
    except urllib.error.HTTPError as error:
        error.close()
        kind = InterruptedTransferError if error.code in _TRY_AGAIN else RefusedError
        raise kind(f"{error.code} {reason(error.reason)}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise RefusedError(f"certificate: {error.reason.verify_message}") from None
        if isinstance(error.reason, socket.gaierror):
            raise RefusedError("the server's name is not known; is there a network?") from None
        raise InterruptedTransferError(reason(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise InterruptedTransferError(reason(error)) from None
    except ValueError as error:  # of a proxy whose name cannot be one
        raise RefusedError(f"leads through what is no address: {reason(error)}") from None


def reason(error: object) -> str:
    """A failure of the network in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return shown(" ".join(str(error).split())) or type(error).__name__


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, *, allow_http: bool) -> None:
        self._allow_http = allow_http

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Message,
        newurl: str,
    ) -> urllib.request.Request | None:
        check_address(newurl, allow_http=self._allow_http)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
