"""Turn what a caller names (folders, patterns, lists, videos, cameras, URLs) into pictures."""

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

from engine.errors import ImageError
from engine.sources.expand import expand
from engine.sources.item import Item
from engine.sources.media import MediaKind, is_camera, is_url, kind_of, media_of
from engine.sources.reader import FrameSelection, read_items, read_together
from engine.vision.image import Source

_LIST = ".txt"
# Neither a pattern nor a URL, and with the ending of pictures: most names of a long stream.
_USUAL = re.compile(r"(?!/dev/)[^*?\[:]+\.(?:jpe?g|png|bmp|webp|tiff?)", re.IGNORECASE)
_has_usual_form = _USUAL.fullmatch


def name_of(source: object) -> str | None:
    """Return a source that is a name as text: a path, a URL or the number of a camera."""
    if isinstance(source, str):
        return str.__str__(source)  # of a subclass, such as numpy.str_, too
    if isinstance(source, os.PathLike):
        return os.fsdecode(source)
    if isinstance(source, Integral) and not isinstance(source, bool):
        return str(int(source))
    return None


def is_file(name: str) -> bool:
    """Tell whether a name is that of one picture in a file, which image.read() can read."""
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
    """Tell whether a name stands for one picture: a file or the URL of a picture."""
    return is_file(name) or (is_url(name) and kind_of(name) is MediaKind.URL)


def are_at_hand(sources: object) -> bool:
    """Tell whether no source has to be waited for: they are a list without live ones."""
    if not isinstance(sources, (list, tuple)):
        return isinstance(sources, np.ndarray)
    return not any(is_endless(name_of(each) or "") for each in sources if not _is_ready(each))


def is_endless(name: str) -> bool:
    """Tell whether a name is a camera or a live stream."""
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
    """Yield the pictures that `sources` stand for; what is no name is passed on unchanged.

    Untrusted videos are errors. Adjacent cameras and streams of a list take turns, and so do videos
    if several are read at once. `stopped` ends their reading.
    With `defers_folders` a name that ends like a picture's is yielded even if it is a folder's:
    reading finds out. A look at the disk for each name would give up the interpreter's lock.
    """
    for is_ready, group in groupby(sources, _is_ready if defers_folders else _is_array):
        if is_ready:
            yield from group
            continue
        items = items_of(
            *(group, selection),
            recursive=recursive,
            is_untrusted=is_untrusted,
            stopped=stopped,
            are_listed=isinstance(sources, (list, tuple)),
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
    are_listed: bool = False,
) -> Iterator[Item]:
    """Yield the same pictures with their names and positions in videos.

    `are_listed` tells of an iterator that it does not wait before the next source.
    """
    selection = selection or FrameSelection()
    may_group = (are_listed or isinstance(sources, (list, tuple))) and not is_untrusted

    def kind_together(source: Any) -> MediaKind | None:
        return _kind_together(source, selection) if may_group else None

    for kind, group in groupby(sources, kind_together):
        if kind is not None:
            media = [media_of(str(name_of(each))) for each in group]
            for _, item in read_together(media, selection, stopped=stopped):
                yield item
            continue
        for source in group:
            name = name_of(source)
            if name is None or is_file(name):
                yield Item("picture" if name is None else name, source)
            else:
                found = expand([name], recursive=recursive)
                yield from read_items(found, selection, is_untrusted=is_untrusted, stopped=stopped)


def _kind_together(source: object, selection: FrameSelection) -> MediaKind | None:
    """Return the kind of a source that is read together with others of that kind."""
    name = name_of(source)
    if name is None or _has_usual_form(name):
        return None
    kind = kind_of(name)
    return kind if selection.reads_together(kind) else None
