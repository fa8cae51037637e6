"""JPEGs that store colour at half height: the rows between, rounded as darknet's decoder does.

Both decoders weigh a stored row a[k] and its neighbour 3 to 1. libjpeg-turbo:
    above[k] = (3 a[k] + a[k-1] + 1) >> 2          below[k] = (3 a[k] + a[k+1] + 2) >> 2
and stb_image, which darknet reads with, adds 2 in both. So libjpeg's colour is an eighth of a step
darker on average, which moves scores by up to 0.01. Nothing is lost: above[k] + below[k-1] is
a[k] + a[k-1] exactly, above[0] is a[0], and the stored rows follow one after the other. Sums below
wrap around at 256, which differences undo.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

_HALF_HEIGHT = [(1, 1, 2), (2, 1, 1), (3, 1, 1)]  # component, samples across and down in a block
_RED, _BLUE = (
    1.402,
    1.772,
)  # JFIF: red = luma + 1.402 * (Cr - 128), blue = luma + 1.772 * (Cb - 128)
_GREEN_OF_BLUE, _GREEN_OF_RED = -0.344136, -0.714136
_TO_RGB = (
    *(1, 0, _RED, -128 * _RED),
    *(1, _GREEN_OF_BLUE, _GREEN_OF_RED, -128 * (_GREEN_OF_BLUE + _GREEN_OF_RED)),
    *(1, _BLUE, 0, -128 * _BLUE),
)


def is_of_half_height(image: Image.Image) -> bool:
    """Whether an opened picture, not yet loaded, is such a JPEG."""
    from PIL import features

    return (
        image.format == "JPEG"
        and image.mode == "RGB"
        and [tuple(each[:3]) for each in getattr(image, "layer", ())] == _HALF_HEIGHT
        and image.info.get("adobe_transform", 1) == 1
        and features.check_feature("libjpeg_turbo") is True
    )


def load_rgb(image: Image.Image) -> Image.Image:
    """Load such a picture, with darknet's rounding."""
    from PIL import Image

    image.draft("YCbCr", image.size)
    values = np.array(image)
    round_as_darknet(values)
    return Image.fromarray(values).convert("RGB", _TO_RGB)


def round_as_darknet(values: NDArray[np.uint8]) -> None:
    """Add 1, in place, where libjpeg's smaller addend lost it."""
    height, width, channels = values.shape
    rows = values.reshape(height, width * channels)
    above, below = rows[0::2], rows[1::2]
    stored = above.copy()
    stored[1:] += below[: len(above) - 1]
    for before, row in pairwise(stored):
        row -= before
    lost = (stored[:-1] - stored[1:]) & 3 == 2
    lost[:, ::channels] = False  # luma is whole
    above[1:] += lost
