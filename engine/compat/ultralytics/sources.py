"""The sources of predict(): pictures in BGR order, names, lists, videos and cameras."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any, TypeAlias

import numpy as np

from engine.arguments import check_kind, whole
from engine.errors import InputError
from engine.files.naming import shown
from engine.sources.item import Item
from engine.sources.pictures import items_of, name_of
from engine.sources.reader import FrameSelection
from engine.vision.image import Source

_log = logging.getLogger("engine")

Sources: TypeAlias = "Source | int | Iterable[Source | int]"

_ONE = (str, Path, bytes, bytearray, memoryview, int, np.ndarray)  # single sources


def is_single(source: Any) -> bool:
    """Return whether this is one source, or raise unless it is a series of them."""
    if source is None:
        raise InputError("source: expected a picture, got None. Could imread() not read it?")
    is_one = isinstance(source, _ONE) or hasattr(source, "size") or hasattr(source, "read")
    if not (is_one or hasattr(source, "__getitem__")):  # which suffices for iteration
        check_kind("source", source, Iterable, "a picture, a name or several of them")
    return is_one


class Pictures:
    """The pictures of sources, with arrays converted to RGB; stop() ends cameras.

    A detector reads ahead; items_again() yields the items of what it has read, without the pixels.
    """

    def __init__(self, sources: Iterable[Any], stride: int) -> None:
        self._stopped = Event()
        selection = FrameSelection(whole("vid_stride", stride))
        self._items = items_of(sources, selection, stopped=self._stopped)
        self._read: deque[Item] = deque()

    def __iter__(self) -> Iterator[Any]:
        has_warned = False
        for number, item in enumerate(self._items):
            if item.name.lower().endswith(".gif") and not has_warned:
                what = "%s: only the first frame of a GIF is read. Convert it to a video for others"
                _log.warning(what, shown(item.name))
                has_warned = True
            name = f"image{number}.jpg" if name_of(item.source) is None else item.name
            self._read.append(replace(item, name=name, source=name))
            yield _in_rgb(item.source)

    def items_again(self) -> Iterator[Item]:
        while self._read:
            yield self._read.popleft()

    def stop(self) -> None:
        self._stopped.set()


def _in_rgb(source: Any) -> Any:
    """Convert an array in BGR or BGRA order, as in ultralytics, to RGB or RGBA."""
    if isinstance(source, np.ndarray) and source.ndim == 3 and source.shape[2] in (3, 4):
        return source[:, :, [2, 1, 0, 3][: source.shape[2]]]
    return source
