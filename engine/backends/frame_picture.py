"""A frame of a video in device memory, as a picture."""

from __future__ import annotations

import numpy as np

from engine.backends.base import DeviceFrame, DevicePixels
from engine.vision.image import EncodedPicture, Picture
from engine.vision.orientation import Layout

_CHANNELS = 3
_ORIENTATIONS = (1, 8, 3, 6)  # in EXIF, by quarter turns counter-clockwise


class FramePicture(EncodedPicture):
    """A picture whose pixels are copied to the host when something asks for them."""

    def __init__(
        self, frame: DeviceFrame, size: tuple[int, int], quarter_turns: int, path: str
    ) -> None:
        held = [frame]
        width, height = size
        layout = Layout(height, width, frame.row_step, _CHANNELS)
        layout = layout.upright(_ORIENTATIONS[quarter_turns])

        def copied() -> Picture:
            pixels = np.rot90(held[0].to_host(), quarter_turns)
            held.clear()  # and with it device memory
            return Picture(np.ascontiguousarray(pixels), path)

        super().__init__((layout.width, layout.height), path, copied)
        self.__dict__.update(_held=held, _layout=layout)

    def fetch(self) -> None:
        """Copy the pixels now: the device may be closed when they are needed."""
        _ = self.pixels

    def on_device(self) -> DevicePixels | None:
        """Wait for the pixels on the device; None if they were copied, and are there no more."""
        held: list[DeviceFrame] = self.__dict__["_held"]
        if not held:
            return None
        (frame,) = held
        frame.wait()
        height, width, row_step, column_step, first = self.__dict__["_layout"]
        shape, pointer = (height, width, _CHANNELS), frame.pointer + first
        return DevicePixels(shape, pointer, row_step, column_step, frame.owner, self)
