"""Ask web servers whether URLs without a known extension are pictures, videos or cameras."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from threading import Event

from engine.concurrency.thread_pool import ThreadPool
from engine.sources import remote_picture
from engine.sources.media import Media, MediaKind, has_unknown_kind, media_of
from engine.sources.remote_picture import RemotePicture

_SECONDS = 5.0  # timeout for each URL
_MOST = 16  # URLs; more of them are taken for pictures, each fetched once


class AddressKinds:
    """Replaces the kind of media at named URLs by that of the Content-Type.

    Only URLs named by the user are requested, all concurrently. Those in lists stay pictures: no
    server may turn a list into an endless stream. A URL that does not respond also stays a picture;
    its download will report the error.
    """

    def __init__(self, names: Iterable[str], stopped: Event | None = None) -> None:
        self._stopped = stopped or Event()
        self._kinds: dict[str, MediaKind] = {}
        media = map(media_of, filter(has_unknown_kind, names))
        asked = [each.address for each in media if each.kind is not MediaKind.BROKEN]
        if not 0 < len(asked) <= _MOST:
            return
        with closing(ThreadPool(len(asked), "ask-address")) as pool:
            try:
                kinds = [pool.submit(self._kind_of, each) for each in asked]
                self._kinds.update(
                    (each, kind.result()) for each, kind in zip(asked, kinds, strict=True)
                )
            except BaseException:  # an interrupt ends the requests
                self._stopped.set()
                raise

    def of(self, media: Media) -> Media:
        kind = self._kinds.get(media.address, media.kind)
        return media if kind is media.kind else replace(media, kind=kind)

    def _kind_of(self, address: str) -> MediaKind:
        picture = RemotePicture(address, total_timeout=_SECONDS, stopped=self._stopped)
        try:
            content_type = picture.content_type()
        except OSError:
            return MediaKind.URL
        if content_type.startswith(remote_picture.MANY_PICTURES):
            return MediaKind.LIVE
        return MediaKind.VIDEO if content_type.startswith(remote_picture.VIDEO) else MediaKind.URL
