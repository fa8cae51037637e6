"""A stand-in for nvJPEG over host memory: Pillow decodes, and rare kinds are refused as there."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engine.backends.cuda.driver import nvjpeg
from engine.errors import DeviceError
from engine.vision.plain_jpeg import PlainJpeg

LARGEST_SIDE = 16384


def install(patch: pytest.MonkeyPatch, library: Callable[[], HostNvjpeg]) -> None:
    """Let decoders that are opened from now on use this library."""
    patch.setattr(nvjpeg, "BatchDecoder", library)
    patch.setattr(nvjpeg, "check_version", lambda: None)


class HostNvjpeg:
    """Counts what it decodes; `refuse` and `break_at` make it fail."""

    def __init__(self) -> None:
        self.batches: list[int] = []  # JPEGs of each
        self.break_at: int | None = None  # the number of a batch
        self.refuse: set[bytes] = set()  # contents that stop a batch, in spite of their header
        self.made = 0
        self.open = 0
        self.inside = 0
        self._lock = threading.Lock()

    def __call__(self) -> HostNvjpeg:
        self.made += 1
        self.open += 1
        return self

    def supports(self, jpeg: PlainJpeg) -> bool:
        return max(Image.open(BytesIO(bytes(jpeg.content))).size) <= LARGEST_SIDE

    def decode(self, jpegs: Sequence[PlainJpeg], images: np.ndarray[Any, Any], stream: int) -> bool:
        with self._lock:
            self.batches.append(len(jpegs))
            number = len(self.batches) - 1
        if number == self.break_at:
            raise DeviceError("nvjpegDecodeBatched: execution failed")
        if any(bytes(each.content) in self.refuse or not self.supports(each) for each in jpegs):
            return False
        for jpeg, image in zip(jpegs, images, strict=True):
            content = bytes(jpeg.content)
            if jpeg.address is not None:
                assert ctypes.string_at(jpeg.address, len(content)) == content
            pixels = np.asarray(Image.open(BytesIO(content)).convert("RGB"))
            height, width, _ = pixels.shape
            pitch = int(image["pitch"][0])
            assert pitch >= width * 3
            for row in range(height):
                place = int(image["channel"][0]) + row * pitch
                ctypes.memmove(place, np.ascontiguousarray(pixels[row]).ctypes.data, width * 3)
        return True

    def close(self) -> None:
        self.open -= 1
