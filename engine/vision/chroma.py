"""Upsample the chroma of 4:4:0 JPEGs with the rounding of darknet's decoder.

These files store chroma at half height. Both decoders weight a stored row a[k] and its neighbour by
3 to 1. libjpeg-turbo computes
    above[k] = (3 a[k] + a[k-1] + 1) >> 2          below[k] = (3 a[k] + a[k+1] + 2) >> 2
and stb_image, which darknet uses, adds 2 in both. The difference moves scores by up to 0.01.

The stored rows can be recovered from libjpeg's output: above[0] is a[0], and above[k] + below[k-1]
is exactly a[k] + a[k-1]. The sums wrap around at 256, which the differences cancel.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

_SAMPLING_440 = [(1, 1, 2), (2, 1, 1), (3, 1, 1)]  # component, horizontal and vertical samples

_BAND_PIXELS = 1 << 18  # pixels converted at a time

# JFIF: R = Y + 1.402 (Cr - 128), G = Y - 0.344136 (Cb - 128) - 0.714136 (Cr - 128),
# B = Y + 1.772 (Cb - 128)
_CR_TO_RED, _CB_TO_BLUE = 1.402, 1.772
_CB_TO_GREEN, _CR_TO_GREEN = -0.344136, -0.714136
_YCBCR_TO_RGB = (
    *(1, 0, _CR_TO_RED, -128 * _CR_TO_RED),
    *(1, _CB_TO_GREEN, _CR_TO_GREEN, -128 * (_CB_TO_GREEN + _CR_TO_GREEN)),
    *(1, _CB_TO_BLUE, 0, -128 * _CB_TO_BLUE),
)


def has_440_chroma(image: Image.Image) -> bool:
    """Return whether an opened, not yet loaded picture is a 4:4:0 JPEG."""
    from PIL import features

    return (
        image.format == "JPEG"
        and image.mode == "RGB"
        and [tuple(each[:3]) for each in getattr(image, "layer", ())] == _SAMPLING_440
        and image.info.get("adobe_transform", 1) == 1
        and features.check_feature("libjpeg_turbo") is True
    )


def load_440(image: Image.Image) -> Image.Image:
    """Load such a picture as RGB, with darknet's rounding."""
    from PIL import Image

    image.draft("YCbCr", image.size)
    values = np.array(image)
    round_as_darknet(values)
    converted = Image.new("RGB", image.size)
    rows = max(_BAND_PIXELS // image.width, 1)
    for top in range(0, image.height, rows):  # in bands, because a conversion makes two copies
        part = Image.fromarray(values[top : top + rows]).convert("RGB", _YCBCR_TO_RGB)
        converted.paste(part, (0, top))
    return converted


def round_as_darknet(values: NDArray[np.uint8]) -> None:
    """Add 1, in place, where libjpeg's smaller addend rounded down."""
    height, width, channels = values.shape
    rows = values.reshape(height, width * channels)
    above, below = rows[0::2], rows[1::2]
    stored = above.copy()
    stored[1:] += below[: len(above) - 1]
    for previous, row in pairwise(stored):
        row -= previous
    rounded_down = (stored[:-1] - stored[1:]) & 3 == 2
    rounded_down[:, ::channels] = False  # luma has full height
    above[1:] += rounded_down
