"""A stand-in for PyAV with NVDEC: FFmpeg decodes on the CPU, and frames pose as a card's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from weakref import finalize

import numpy as np

from engine.sources import card_decoder, video

_PITCH = 512  # lines are longer than the picture is wide


class HostNvdec:
    """Counts what it opens and decodes; `break_at` makes it fail, `kind` changes its frames."""

    def __init__(self) -> None:
        self.opened = 0
        self.frames = 0
        self.break_at: int | None = None
        self.error: Callable[[], Exception] = _broken
        self.kind = "nv12"
        self.format = "cuda"
        self._open = video._open

    def open(self, name: str, hwaccel: Any = None) -> Any:
        container = self._open(name)
        if hwaccel is None:
            return container
        self.opened += 1
        return _Container(self, container)


class _Container:
    def __init__(self, nvdec: HostNvdec, container: Any) -> None:
        self._nvdec = nvdec
        self._container = container
        (self._stream,) = container.streams.video
        self.streams = SimpleNamespace(video=[_Stream(self._stream)])
        self.duration, self.format = container.duration, container.format

    def decode(self, _: Any) -> Iterator[Any]:
        for number, frame in enumerate(self._container.decode(self._stream)):
            if number == self._nvdec.break_at:
                raise self._nvdec.error()
            self._nvdec.frames += 1
            yield _Frame(frame, self._nvdec)

    def demux(self, stream: Any) -> Iterator[Any]:
        for frame in self.decode(stream):
            yield SimpleNamespace(size=1, decode=lambda frame=frame: [frame])

    def __enter__(self) -> _Container:
        return self

    def __exit__(self, *_: object) -> None:
        self._container.close()


class _Stream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream
        name = stream.codec_context.name
        self.codec_context = SimpleNamespace(name=name, is_hwaccel=True)

    def decode(self) -> list[Any]:
        return []  # demux() has given all

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Frame:
    """Its memory changes once nobody holds it: the decoder uses it again."""

    def __init__(self, frame: Any, nvdec: HostNvdec) -> None:
        self._frame = frame
        self.format = SimpleNamespace(name=nvdec.format)
        self.sw_format = SimpleNamespace(name=nvdec.kind)
        width, height = frame.width, frame.height
        y, u, v = map(_values, frame.planes)
        luma = np.zeros((height, _PITCH), np.uint8)
        luma[:, :width] = y
        chroma = np.zeros(((height + 1) // 2, _PITCH), np.uint8)
        pairs = np.stack([u, v], axis=-1).reshape(len(u), -1)
        chroma[:, : pairs.shape[1]] = pairs
        self.planes = [
            SimpleNamespace(buffer_ptr=each.ctypes.data, line_size=_PITCH)
            for each in (luma, chroma)
        ]
        finalize(self, _overwrite, luma, chroma)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._frame, name)


def _values(plane: Any) -> Any:
    return np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)[:, : plane.width]


def _overwrite(*planes: Any) -> None:
    for each in planes:
        each.fill(99)


def _broken() -> Exception:
    from av.error import ExternalError

    return ExternalError(542398533, "Generic error in an external library")


@contextmanager
def posing(monkeypatch: Any) -> Iterator[HostNvdec]:
    made = HostNvdec()
    monkeypatch.setattr(video, "_open", made.open)
    monkeypatch.setattr(card_decoder, "_hardware", lambda number: f"card {number}")  # of any PyAV
    yield made
