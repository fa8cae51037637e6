"""Drawing for Results: pixels in BGR order, Pillow images, and the classes of a classifier."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from PIL import Image

from engine.arrays import Array
from engine.vision.classification import Ranked
from engine.vision.colours import colour_of
from engine.vision.image import Picture


def in_bgr(picture: Picture) -> Array:
    """Return the pixels as bytes, (height, width, 3), in BGR order."""
    pixels = picture.with_channels(3).pixels
    if pixels.dtype != np.uint8:
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return np.ascontiguousarray(pixels[:, :, ::-1])


def as_image(drawn: Array | Image.Image) -> Image.Image:
    """Return what plot() has drawn as a Pillow image."""
    return Image.fromarray(drawn[:, :, ::-1]) if isinstance(drawn, np.ndarray) else drawn


def with_classes(image: Image.Image, classes: Iterable[Ranked]) -> Image.Image:
    """Return the picture with a line of text for each class, the best one first."""
    from engine.vision.draw import draw_text  # fonts are slow to import

    bottom = 0.0
    for each in classes:
        text = f"{each.label} {each.score:.2f}"
        *_, bottom = draw_text(image, (0, bottom), text, colour_of(each.class_id))
        if bottom >= image.height:
            break
    return image
