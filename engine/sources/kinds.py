"""What a name stands for, told by its looks and by what lies at that path."""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

VIDEOS = frozenset(
    (
        ".mp4",
        ".m4v",
        ".mov",
        ".mkv",
        ".webm",
        ".avi",
        ".mpg",
        ".mpeg",
        ".ts",
        ".m2ts",
        ".mts",
        ".wmv",
        ".flv",
        ".3gp",
        ".ogv",
    )
)

_PLAYLISTS = (".m3u8", ".mjpg", ".mjpeg", ".cgi")  # what cameras serve over HTTP
_WEB = ("http", "https")
_STREAMS = ("rtsp", "rtsps", "rtmp", "rtmps", "rtp", "udp", "tcp", "srt")


class Kind(Enum):
    PICTURE = "picture"
    ADDRESS = "address"
    VIDEO = "video"
    LIVE = "live"  # a camera or a stream: it does not wait for who watches it
    BROKEN = "broken"  # a name that leads to no picture


@dataclass(frozen=True)
class Place:
    """A name that stands for a picture or a video; `problem` is the message if for neither."""

    name: str
    kind: Kind
    problem: str = ""

    @property
    def is_moving(self) -> bool:
        return self.kind in (Kind.VIDEO, Kind.LIVE)


def place_of(name: str) -> Place:
    """What a single name stands for; folders, patterns and lists are names.places()'s."""
    return Place(name, _kind_of(name))


def is_address(name: str) -> bool:
    return "://" in name and _scheme_and_path(name)[0] in (*_WEB, *_STREAMS)


def path_of_address(name: str) -> str:
    return _scheme_and_path(name)[1]


def is_camera(name: str) -> bool:
    """A camera's number, unless there is a file of that name; or its device."""
    if name.startswith("/dev/video"):
        return True
    return name.isascii() and name.isdecimal() and not os.path.lexists(name)


def _kind_of(name: str) -> Kind:
    if is_camera(name):
        return Kind.LIVE
    if not is_address(name):
        return Kind.VIDEO if Path(name).suffix.lower() in VIDEOS else Kind.PICTURE
    scheme, path = _scheme_and_path(name)
    suffix = Path(path).suffix.lower()
    if scheme in _STREAMS or suffix in _PLAYLISTS:
        return Kind.LIVE
    return Kind.VIDEO if suffix in VIDEOS else Kind.ADDRESS


def _scheme_and_path(name: str) -> tuple[str, str]:
    """Of a malformed address nothing."""
    try:
        parts = urlsplit(name)
    except ValueError:
        return "", ""
    return parts.scheme.lower(), parts.path
