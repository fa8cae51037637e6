"""URLs with a host name in any script, a user and a password."""

from __future__ import annotations

import base64
import re
from urllib.parse import SplitResult, quote, unquote, urlsplit

_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
_NOT_THE_SAME = "ßς\u200c\u200d"  # Python's IDNA 2003 maps them to other hosts than browsers
_HINT = "In a password write / as %2F, ? as %3F, # as %23, @ as %40, [ as %5B and ] as %5D"


def problem_of(url: str) -> str:
    """Return why a URL cannot be used, or ""; the text contains no part of the URL."""
    try:
        with_ascii_host(url)
    except ValueError as error:
        return str(error)
    return ""


def with_ascii_host(url: str) -> str:
    """Return a URL with its host name encoded by IDNA, as FFmpeg and servers need it."""
    parts = _split(url)
    login, at, host = parts.netloc.rpartition("@")
    if host.isascii():
        return url
    name, colon, port = host.partition(":")
    name = ascii_host(name)
    return parts._replace(netloc=f"{login}{at}{name}{colon}{port}").geturl()


def ascii_host(name: str) -> str:
    """Encode a host name by IDNA; a ValueError says why that is impossible."""
    if set(name) & set(_NOT_THE_SAME):
        raise ValueError("the host name differs between standards: write its xn-- form")
    try:
        return name.encode("idna").decode()
    except UnicodeError:
        raise ValueError(
            "the host name has characters or a length that host names may not have"
        ) from None


def request_of(url: str) -> tuple[str, dict[str, str]]:
    """Return a URL in ASCII without its login, and the header with the login."""
    parts = _split(with_ascii_host(url))
    login, at, host = parts.netloc.rpartition("@")
    bare = _NOT_ASCII.sub(_quoted, parts._replace(netloc=host).geturl())
    if not at:
        return bare, {}
    user, _, password = login.partition(":")
    words = f"{unquote(user)}:{unquote(password)}".encode()
    return bare, {"Authorization": f"Basic {base64.b64encode(words).decode()}"}


def _quoted(found: re.Match[str]) -> str:
    return quote(found[0], errors="surrogateescape")


def _split(url: str) -> SplitResult:
    """Split a URL; replace urllib's errors, which may quote a password."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(f"the address cannot be parsed{_hint_for(url)}") from None
    try:
        _ = parts.port
    except ValueError:
        problem = "expected a port from 0 to 65535 after the host name and its :"
        raise ValueError(f"{problem}{_hint_for(url)}") from None
    return parts


def _hint_for(url: str) -> str:
    return f". {_HINT}" if "@" in url else ""
