"""HTTPS requests that refuse redirects to other schemes."""

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

from engine.concurrency.socket_deadline import SocketDeadline
from engine.files.naming import line_of
from engine.version import __version__

_LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
_TRANSIENT_STATUSES = {408, 425, 429, 500, 502, 503, 504}


class PermanentError(Exception):
    """The URL cannot provide the file, so a retry is pointless."""


class TransientError(Exception):
    """The transfer failed, but a retry may succeed."""


def check_url(url: str, *, allow_http: bool) -> None:
    """Raise unless `url` is an HTTPS URL or, with `allow_http`, an HTTP URL of this machine."""
    try:
        parts = urlsplit(url)
        if parts.hostname:
            parts.hostname.encode("idna")
    except ValueError as error:
        raise PermanentError(f"invalid URL: {reason(error)}") from None
    is_local = allow_http and parts.scheme == "http" and parts.hostname in _LOOPBACK_HOSTS
    if not (parts.scheme == "https" or is_local):
        raise PermanentError(f"expected an https: URL, got {parts.scheme or 'no scheme'}:")


def get(
    url: str,
    headers: Mapping[str, str],
    *,
    deadline: SocketDeadline,
    timeout: float,
    allow_http: bool,
) -> http.client.HTTPResponse:
    """Send a GET request; return a response of status 200 or 206 whose body is not yet read.

    The connection ends at the deadline, which the caller may restart.
    """
    check_url(url, allow_http=allow_http)
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),  # http_proxy, https_proxy, no_proxy
        *deadline.handlers(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _SafeRedirectHandler(allow_http=allow_http),
    ):
        opener.add_handler(handler)
    request = urllib.request.Request(
        url,
        headers={"User-Agent": f"engine/{__version__}", "Accept-Encoding": "identity", **headers},
    )
    try:
        return cast(http.client.HTTPResponse, opener.open(request, timeout=timeout))
    except urllib.error.HTTPError as error:
        error.close()
        kind = TransientError if error.code in _TRANSIENT_STATUSES else PermanentError
        raise kind(f"{error.code} {reason(error.reason)}") from None
    except urllib.error.URLError as error:
        if isinstance(error.reason, ssl.SSLCertVerificationError):
            raise PermanentError(f"certificate: {error.reason.verify_message}") from None
        if isinstance(error.reason, socket.gaierror):
            raise PermanentError("host name not found. Is the network up?") from None
        raise TransientError(reason(error.reason)) from None
    except (OSError, http.client.HTTPException) as error:
        raise TransientError("timed out" if deadline.has_expired else reason(error)) from None
    except ValueError as error:  # the environment names a proxy with an invalid host
        raise PermanentError(f"invalid proxy: {reason(error)}") from None


def reason(error: object) -> str:
    """Return a short one-line description of a network error."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return line_of(error)


class _SafeRedirectHandler(urllib.request.HTTPRedirectHandler):
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
        check_url(newurl, allow_http=self._allow_http)
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
