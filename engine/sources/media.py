"""Classify a name as a picture, video, camera or URL, by its form and by the files at its path."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import Enum
from urllib.parse import unquote, urlsplit

from engine.files.naming import shown, stem_and_suffix, without_login
from engine.sources import addresses, archive
from engine.vision.extensions import VIDEO_EXTENSIONS, is_picture

_PLAYLISTS = (".m3u8", ".mjpg", ".mjpeg", ".cgi")  # live streams that cameras serve over HTTP
_FILE_SCHEME = "file://"
_WEB = ("http", "https")
_STREAMS = ("rtsp", "rtsps", "rtmp", "rtmps", "rtp", "udp", "tcp", "srt")


class MediaKind(Enum):
    PICTURE = "picture"
    URL = "url"  # a picture at a URL
    VIDEO = "video"
    LIVE = "live"  # a camera or a stream, which drops frames that are not read in time
    ARCHIVE = "archive"  # a .tar file of pictures
    BROKEN = "broken"  # neither a picture nor a video


@dataclass(frozen=True)
class Media:
    """A name that refers to a picture or a video; if it is broken, `problem` says why.

    Messages and results show the name, without a user and password: these are only in the
    `address`, which opens it.
    """

    name: str
    kind: MediaKind
    problem: str = ""
    root: str | None = None  # the folder that was searched, if a search found it
    address: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.address:
            object.__setattr__(self, "address", self.name)
            if "@" in self.name and not os.path.lexists(self.name):
                object.__setattr__(self, "name", without_login(self.name))

    @property
    def has_frames(self) -> bool:
        return self.kind in (MediaKind.VIDEO, MediaKind.LIVE)

    @property
    def is_live(self) -> bool:
        return self.kind is MediaKind.LIVE


def without_file_scheme(name: str) -> str:
    """Return the path of a local file:// URL; return any other name unchanged."""
    if not name.lower().startswith(_FILE_SCHEME):
        return name
    path = name[len(_FILE_SCHEME) :].removeprefix("localhost")
    return unquote(path, errors="surrogateescape") if path.startswith("/") else name


def media_of(name: str, *, root: str | None = None) -> Media:
    """Classify a single name; see expand() for folders, patterns and lists."""
    if is_address(name) and (problem := addresses.problem_of(name)):
        return Media(name, MediaKind.BROKEN, f"{shown(name)}: {problem}")
    return Media(name, kind_of(name), root=root)


def is_address(name: str) -> bool:
    """Return whether a name begins like a URL; is_url() refuses malformed ones."""
    scheme, colon, _ = name.partition("://")
    return bool(colon) and scheme.lower() in (*_WEB, *_STREAMS)


def is_url(name: str) -> bool:
    return "://" in name and _scheme_and_path(name)[0] in (*_WEB, *_STREAMS)


def url_path(url: str) -> str:
    return _scheme_and_path(url)[1]


def is_camera(name: str) -> bool:
    """Return whether a name is a camera's device or number; a file of that name takes priority."""
    if name.startswith("/dev/video"):
        return True
    return name.isascii() and name.isdecimal() and not os.path.lexists(name)


def kind_of(name: str) -> MediaKind:
    """Classify a single name, without its Media."""
    if is_camera(name):
        return MediaKind.LIVE
    if not is_url(name):
        if archive.is_archive(name):
            return MediaKind.ARCHIVE
        is_video = _suffix_of(name) in VIDEO_EXTENSIONS
        return MediaKind.VIDEO if is_video else MediaKind.PICTURE
    scheme, path = _scheme_and_path(name)
    suffix = _suffix_of(path)
    if scheme in _STREAMS or suffix in _PLAYLISTS:
        return MediaKind.LIVE
    return MediaKind.VIDEO if suffix in VIDEO_EXTENSIONS else MediaKind.URL


def has_unknown_kind(name: str) -> bool:
    """Return whether a name is a URL without a known extension; most of these are pictures."""
    return is_url(name) and kind_of(name) is MediaKind.URL and not is_picture(url_path(name))


def _suffix_of(path: str) -> str:
    return stem_and_suffix(path.rstrip("/"))[1].lower()


def _scheme_and_path(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
    except ValueError:  # a malformed URL
        return "", ""
    return parts.scheme.lower(), parts.path
