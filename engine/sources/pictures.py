"""Resolve a caller's names (folders, patterns, lists, videos, cameras, URLs) to pictures."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from numbers import Integral
from threading import Event
from typing import Any

import numpy as np

from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.sources.address_kinds import AddressKinds
from engine.sources.expand import expand
from engine.sources.item import Item
from engine.sources.media import (
    Media,
    MediaKind,
    has_unknown_kind,
    is_camera,
    is_url,
    kind_of,
)
from engine.sources.reader import FrameSelection, read_items, read_together
from engine.vision.image import Source

_LIST = ".txt"
# Neither a pattern nor a URL, and with a picture's extension: most names of a long stream.
_USUAL = re.compile(r"(?!/dev/)[^*?\[:]+\.(?:jpe?g|png|bmp|webp|tiff?)", re.IGNORECASE)
_has_usual_form = _USUAL.fullmatch


def name_of(source: object) -> str | None:
    """Return a source that is a name as text: a path, a URL or the number of a camera."""
    if isinstance(source, str):
        return str.__str__(source)  # also for a subclass, such as numpy.str_
    if isinstance(source, os.PathLike):
        return os.fsdecode(source)
    if isinstance(source, Integral) and not isinstance(source, bool):
        return str(int(source))
    return None


def is_file(name: str) -> bool:
    """Return whether a name is that of a single picture file, which image.read() can read."""
    if not (_has_usual_form(name) or _may_be_file(name)):
        return False
    return not os.path.isdir(name)  # noqa: PTH112 - raises nothing: reading reports it


def _may_be_file(name: str) -> bool:
    if glob.has_magic(name) and not os.path.lexists(name):
        return False
    if is_url(name) or name.lower().startswith("file://") or name.lower().endswith(_LIST):
        return False
    return kind_of(name) is MediaKind.PICTURE


def is_single(name: str) -> bool:
    """Return whether a name stands for a single picture: a file or a URL."""
    return is_file(name) or (is_url(name) and kind_of(name) is MediaKind.URL)


def are_at_hand(sources: object) -> bool:
    """Return whether all sources are available at once: a list without live ones."""
    if not isinstance(sources, (list, tuple)):
        return isinstance(sources, np.ndarray)
    names = (name_of(each) or "" for each in sources if not _is_ready(each))
    return not any(is_endless(each) or has_unknown_kind(each) for each in names)


def is_endless(name: str) -> bool:
    """Return whether a name is a camera or a live stream."""
    return is_camera(name) or (is_url(name) and kind_of(name) is MediaKind.LIVE)


def pictures_of(
    sources: Iterable[Any],
    selection: FrameSelection | None = None,
    *,
    recursive: bool = False,
    is_untrusted: bool = False,
    stopped: Event | None = None,
    defers_folders: bool = False,
) -> Iterator[Source | ImageError]:
    """Yield the pictures that `sources` stand for; anything but names is passed on unchanged.

    Untrusted videos are errors. Adjacent cameras and streams of a list are interleaved, as are
    videos if several are read at once. `stopped` ends their reading. With `defers_folders`, a name
    with a picture's extension is yielded even if it may be a folder, which reading will find out.
    Checking the disk for each name would release the GIL.
    """
    is_listed = isinstance(sources, (list, tuple))
    kinds = AddressKinds(_addresses_among(sources), stopped) if is_listed else None
    for is_ready, group in groupby(sources, _is_ready if defers_folders else _is_array):
        if is_ready:
            yield from group
            continue
        items = items_of(
            *(group, selection),
            recursive=recursive,
            is_untrusted=is_untrusted,
            stopped=stopped,
            kinds=kinds,
        )
        for item in items:
            yield item.source


def _is_array(source: object) -> bool:
    return type(source) is np.ndarray


def _is_ready(source: object) -> bool:
    return _is_array(source) or (type(source) is str and _has_usual_form(source) is not None)


def items_of(
    sources: Iterable[Any],
    selection: FrameSelection | None = None,
    *,
    recursive: bool = False,
    is_untrusted: bool = False,
    stopped: Event | None = None,
    kinds: AddressKinds | None = None,
) -> Iterator[Item]:
    """Yield the same pictures with their names and positions in videos.

    `kinds` are those of the URLs if `sources` is an iterator over a list, which never waits.
    """
    selection = selection or FrameSelection()
    is_listed = kinds is not None or isinstance(sources, (list, tuple))
    may_group = is_listed and not is_untrusted

    def kind_together(given: Item | Media) -> MediaKind | None:
        if may_group and isinstance(given, Media) and selection.reads_together(given.kind):
            return given.kind
        return None

    kinds = kinds or AddressKinds(_addresses_among(sources), stopped)
    given = _expanded(sources, kinds, recursive=recursive)
    if not selection.may_be_endless:
        given = map(_with_an_end, given)
    for kind, group in groupby(given, kind_together):
        if kind is not None:
            media = [each for each in group if isinstance(each, Media)]
            for _, item in read_together(media, selection, stopped=stopped):
                yield item
            continue
        for each in group:
            if isinstance(each, Item):
                yield each
            else:
                yield from read_items([each], selection, is_untrusted=is_untrusted, stopped=stopped)


def _addresses_among(sources: object) -> list[str]:
    if not isinstance(sources, (list, tuple)):
        return []
    return [each for each in sources if isinstance(each, str) and "://" in each]


def _expanded(
    sources: Iterable[Any], kinds: AddressKinds, *, recursive: bool
) -> Iterator[Item | Media]:
    """Yield pictures as they are, and the media that all other names stand for."""
    for source in sources:
        name = name_of(source)
        if name is None or is_file(name):
            yield Item("picture" if name is None else name, source)
        else:
            yield from map(kinds.of, expand([name], recursive=recursive))


def _with_an_end(given: Item | Media) -> Item | Media:
    if isinstance(given, Media) and given.is_live:
        raise _no_end_error(given.name)
    return given


def refuse_endless(name: str) -> None:
    """Raise an error for a camera or a live stream, whose results would never fit into a list."""
    if is_endless(name):
        raise _no_end_error(name)


def _no_end_error(name: str) -> InputError:
    return InputError(f"{shown(name)}: has no end. Use stream()")
