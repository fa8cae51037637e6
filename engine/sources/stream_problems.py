"""Explain why a video at a URL cannot be read, or why a stream broke off."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine.files.naming import line_of, shown
from engine.sources.remote_picture import RemotePicture

if TYPE_CHECKING:
    from av.error import FFmpegError

_ASKING_SECONDS = 5.0
_SERVER_RETURNED = "Server returned "  # FFmpeg's text before the status
_OTHERS = ("text/html", "text/xml", "application/json", "image/")  # content types other than videos


def problem_of(name: str, error: FFmpegError, *, has_begun: bool, timeout: float) -> str:
    """Return what went wrong at the URL `name`.

    FFmpeg reports "Input/output error" for a host that does not exist, for a web page and for the
    end of a stream alike. If there was no frame yet, the URL is checked.
    """
    from av.error import ExitError, InvalidDataError, ProtocolNotFoundError

    text = str(error.strerror)
    if isinstance(error, ExitError):  # PyAV ended FFmpeg's wait
        return f"no data for {timeout:g} s"
    if isinstance(error, ProtocolNotFoundError):
        return f"this FFmpeg cannot read addresses with {urlsplit(name).scheme}://"
    if text.startswith(_SERVER_RETURNED):
        return f"the server answered {line_of(text.removeprefix(_SERVER_RETURNED))}"
    is_unclear = error.errno == errno.EIO
    if not has_begun and (is_unclear or isinstance(error, InvalidDataError)):
        found = _what_is_at(name)
        if found:
            return found
    if is_unclear:
        return (
            "the stream has ended" if has_begun else "the stream has ended before its first frame"
        )
    return line_of(text)


def _what_is_at(name: str) -> str:
    """Return why there is no video at a URL, or "" if there seems to be one."""
    import socket  # rarely needed, and not loaded with the package

    parts = urlsplit(name)
    try:
        socket.getaddrinfo(parts.hostname, None)
    except (OSError, UnicodeError):
        return "host name not found"
    if parts.scheme.lower() not in ("http", "https"):
        return ""
    try:
        kind = RemotePicture(name, total_timeout=_ASKING_SECONDS).content_type()
    except OSError as error:
        return line_of(error)
    if kind.startswith(_OTHERS):
        return f"expected a video, got {shown(kind)}. Name the address of the stream itself"
    return ""
