"""JPEGs with chroma at half height equal the result of darknet's decoder."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError
from engine.vision.chroma import has_440_chroma, round_as_darknet
from engine.vision.image import read
from tests import needs

IMAGES = Path(__file__).parents[3] / "shared" / "golden" / "real" / "images"
BLOCK = 8


def of_half_height(pixels, **options):
    """Return a JPEG with chroma at half height.

    Pillow cannot write one. A JPEG of half the height and twice the width with chroma at half width
    has the same blocks in the same order, so only the header is changed.
    """
    height, width, _ = pixels.shape
    blocks = pixels.reshape(height // (2 * BLOCK), 2, BLOCK, width // BLOCK, BLOCK, 3)
    lying = blocks.transpose(0, 2, 3, 1, 4, 5).reshape(height // 2, width * 2, 3)
    file = BytesIO()
    Image.fromarray(lying).save(file, "JPEG", subsampling="4:2:2", **options)
    content = bytearray(file.getvalue())
    head = next(k for k in range(len(content)) if content[k : k + 2] in (b"\xff\xc0", b"\xff\xc2"))
    content[head + 5 : head + 9] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    assert content[head + 11] == 0x21
    content[head + 11] = 0x12
    return bytes(content)


def flat_blocks(height=48, width=32):
    """Return pixels in which each chroma block has its own colour."""
    colours = np.random.default_rng(1).integers(
        60, 200, (height // 16, width // BLOCK, 3), np.uint8
    )
    return colours.repeat(16, axis=0).repeat(BLOCK, axis=1)


def libjpeg(content, mode="YCbCr"):
    image = Image.open(BytesIO(content))
    image.draft(mode, image.size)
    return np.array(image)


def upsampled(stored, height, *, addend):
    """Upsample as in the docstring of vision/chroma.py; `addend` is that of the upper row."""
    rows = np.zeros((height, *stored.shape[1:]), np.uint8)
    for y in range(height):
        near = int(y // 2)
        far = np.clip(near + (1 if y % 2 else -1), 0, len(stored) - 1)
        total = 3 * stored[near].astype(int) + stored[far] + (2 if y % 2 else addend)
        rows[y] = total >> 2
    return rows


def to_rgb(values):
    luma, blue, red = np.moveaxis(values.astype(float), -1, 0) - [[[0]], [[128]], [[128]]]
    green = luma - 0.344136 * blue - 0.714136 * red
    return np.stack([luma + 1.402 * red, green, luma + 1.772 * blue], axis=-1).clip(0, 255)


@pytest.mark.parametrize("height", [1, 2, 3, 9, 64, 65])
def test_every_rounding_difference_is_corrected_and_nothing_else(height):
    rng = np.random.default_rng(height)
    stored = rng.integers(0, 256, (-(-height // 2), 50, 3), np.uint8)
    luma = rng.integers(0, 256, (height, 50), np.uint8)
    values, expected = (upsampled(stored, height, addend=addend) for addend in (1, 2))
    values[..., 0] = expected[..., 0] = luma
    round_as_darknet(values)
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("options", [{}, {"progressive": True}], ids=str)
def test_a_jpeg_is_read_with_darknets_rounding(options):
    content = of_half_height(flat_blocks(), quality=95, **options)
    assert has_440_chroma(Image.open(BytesIO(content)))
    plain = libjpeg(content)
    stored = plain[8::16].repeat(BLOCK, axis=0)  # the middle of a block is not interpolated
    expected = upsampled(stored, len(plain), addend=2)
    expected[..., 0] = plain[..., 0]
    pixels = read(content).pixels
    assert pixels.flags.c_contiguous
    np.testing.assert_allclose(pixels, to_rgb(expected), atol=0.51)
    assert not np.allclose(pixels, to_rgb(plain), atol=0.51), "the two decoders agree here"


def test_other_jpegs_equal_libjpegs_result():
    for subsampling in ("4:4:4", "4:2:2", "4:2:0"):
        file = BytesIO()
        Image.fromarray(flat_blocks()).save(file, "JPEG", subsampling=subsampling)
        assert not has_440_chroma(Image.open(file))
        np.testing.assert_array_equal(read(file.getvalue()).pixels, np.asarray(Image.open(file)))


def test_orientation_grey_and_opened_images():
    exif = Image.Exif()
    exif[0x0112] = 6
    content = of_half_height(flat_blocks(), exif=exif)
    upright, stored = read(content).pixels, read(content, orient=False).pixels
    assert (upright.shape, stored.shape) == ((32, 48, 3), (48, 32, 3))
    np.testing.assert_array_equal(np.rot90(stored, -1), upright)
    assert read(content, channels=1).channels == 1
    mine = Image.open(BytesIO(content))
    read(mine)
    assert mine.mode == "RGB", "it belongs to the caller"


def test_truncated_or_large_file_is_refused():
    content = of_half_height(flat_blocks())
    with pytest.raises(ImageError, match="picture: cannot be decoded"):
        read(content[: len(content) - 200])
    with pytest.raises(ImageError, match="size: expected at most 100 pixels"):
        read(content, max_pixels=100)


@needs.shared("golden")
@pytest.mark.parametrize("name", ["dog", "eagle"])
def test_picture_is_close_to_darknets_decoding(name):
    """Allow the rounding of the inverse cosine transform."""
    ours = read(IMAGES / f"{name}.jpg", orient=False).pixels.astype(int)
    theirs = read(IMAGES / f"{name}.stb.png").pixels
    assert np.abs(ours - theirs).mean() < 0.02  # above 0.1 without the correction
