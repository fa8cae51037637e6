"""Parts of a picture that can be 2-D codes are found, and nothing else is."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engine.codes.busy import busy_parts
from tests.codes.made import page, symbol

SIZE = (1600, 1200)


def parts(pixels):
    return busy_parts(np.asarray(Image.fromarray(pixels).convert("L")))


@pytest.mark.parametrize("angle", [0, 20, 45])
@pytest.mark.parametrize(
    ("name", "scale"),
    [("QRCode", 2), ("QRCode", 5), ("DataMatrix", 2), ("Aztec", 3), ("PDF417", 1), ("PDF417", 4)],
)
def test_a_code_is_inside_a_part(name, scale, angle):
    pixels = page((symbol("what it says", name, scale=scale), (700, 500), angle), size=SIZE)
    ((left, top, right, bottom),) = parts(pixels)
    dark = pixels[..., 0] < 100
    inside = dark[top:bottom, left:right]
    assert inside.sum() == dark.sum() > 0
    assert inside.size < (np.ptp(np.argwhere(dark), axis=0) + 160).prod()


def test_a_small_code_with_little_contrast_under_a_line_is_inside_a_part():
    image = Image.fromarray(
        page((symbol("small", "DataMatrix", scale=3), (700, 500), 30), size=SIZE)
    )
    pale = image.point(lambda value: 120 + value // 6)
    ImageDraw.Draw(pale).line((0, 450, 1600, 560), (0, 0, 0), 5)
    (part,) = parts(np.asarray(pale))
    assert part[0] < 670
    assert part[1] < 470
    assert part[2] > 730
    assert part[3] > 530


def test_paper_lines_and_noise_are_no_parts():
    image = Image.fromarray(page(size=SIZE))
    ImageDraw.Draw(image).line((100, 40, 1500, 1100), (0, 0, 0), 7)
    noise = np.random.default_rng(0).normal(0, 3, (*SIZE[::-1], 3))
    assert parts(np.uint8(np.clip(np.asarray(image) + noise, 0, 255))) == []


@pytest.mark.parametrize("shape", [(1, 70_000), (20, 60_000), (60_000, 31)])
def test_a_strip_of_a_few_pixels_is_one_part(shape):
    assert busy_parts(np.zeros(shape, np.uint8)) == [(0, 0, *shape[::-1])]


def test_a_picture_full_of_detail_is_one_part():
    pixels = np.random.default_rng(0).integers(0, 256, (1200, 1600, 3), np.uint8)
    assert parts(pixels) == [(0, 0, *SIZE)]


def test_a_picture_of_very_many_parts_is_one_part():
    pixels = np.full((3000, 4000, 3), 255, np.uint8)
    detail = np.random.default_rng(0).integers(0, 256, (24, 24, 1), np.uint8)
    for y in range(100, 2900, 160):
        for x in range(100, 3900, 160):
            pixels[y : y + 24, x : x + 24] = detail
    assert parts(pixels) == [(0, 0, 4000, 3000)]
    pixels[1000:] = 255
    assert 100 < len(parts(pixels)) < 200


def test_parts_begin_where_zxing_looks_in_the_whole_picture():
    """It has blocks of 8 pixels, every third row, and every 16th row and column from the middle."""
    codes = [(symbol("a", "QRCode"), (x, x // 2), x) for x in (200, 513, 841, 1130)]
    found = parts(page(*codes, size=SIZE))
    assert len(found) == 4
    for left, top, right, bottom in found:
        assert left % 8 == top % 24 == 0
        assert (left + right - SIZE[0]) % 32 == (top + bottom - SIZE[1]) % 32 == 0
