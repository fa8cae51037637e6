"""Ask web servers what is at addresses whose names do not tell: a picture, a video or a camera."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from threading import Event

from engine.concurrency.thread_pool import ThreadPool
from engine.sources import remote_picture
from engine.sources.media import Media, MediaKind, has_unknown_kind, media_of
from engine.sources.remote_picture import RemotePicture

_SECONDS = 5.0  # for each address
_MOST = 16  # addresses; more of them are a list of pictures, each of which is fetched once


class AddressKinds:
    """Replaces the kind of media by that of the Content-Type, for the named addresses.

    Only addresses that a person has named are asked, and all at once. Those in lists stay pictures:
    no server may turn a list into a stream without end. What does not answer stays a picture, too;
    its download tells what is wrong.
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
            except BaseException:  # an interrupt ends the questions
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
