"""Ask web servers what is at addresses whose names do not tell: a picture, a video or a camera."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event

from engine.sources import remote_picture
from engine.sources.media import Media, MediaKind, has_unknown_kind
from engine.sources.remote_picture import RemotePicture

_SECONDS = 10.0  # for all addresses of a run: those of a long list are taken for pictures then


class AddressKinds:
    """Replaces the kind of media by that of the Content-Type, for addresses of unknown kind.

    What does not answer stays a picture, whose download tells what is wrong.
    """

    def __init__(self, stopped: Event | None = None) -> None:
        self._left = _SECONDS
        self._stopped = stopped

    def of(self, media: Media) -> Media:
        if self._left <= 0 or not has_unknown_kind(media.name) or media.kind is MediaKind.BROKEN:
            return media
        start = time.monotonic()
        asked = RemotePicture(media.address, total_timeout=self._left, stopped=self._stopped)
        try:
            content_type = asked.content_type()
        except OSError:
            return media
        finally:
            self._left -= time.monotonic() - start
        if content_type.startswith(remote_picture.MANY_PICTURES):
            return replace(media, kind=MediaKind.LIVE)
        if content_type.startswith(remote_picture.VIDEO):
            return replace(media, kind=MediaKind.VIDEO)
        return media
