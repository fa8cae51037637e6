"""Crops of codes are turned upright, whatever is next to the code."""

from math import degrees

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engine.codes.deskew import Crop, direction
from engine.vision.detection import Box


def turned(pattern, angle):
    """Return a pattern on a label with black edges that are not parallel to it."""
    image = Image.new("L", (300, 300), 90)
    ImageDraw.Draw(image).line((10, 40, 290, 20), 0, 6)
    code = Image.fromarray(pattern).rotate(angle, Image.Resampling.BICUBIC, expand=True)
    mask = Image.new("L", pattern.shape[::-1], 255).rotate(angle, expand=True)
    image.paste(code, (150 - code.width // 2, 150 - code.height // 2), mask)
    return image


def random_modules(rows, columns, width, height, seed=0):
    modules = np.random.default_rng(seed).integers(0, 2, (rows, columns), np.uint8) * 255
    return modules.repeat(height, 0).repeat(width, 1)


@pytest.mark.parametrize("angle", [-80, -50, -20, 0, 7, 33, 45, 71])
def test_direction_is_that_across_bars(angle):
    bars = random_modules(1, 90, 2, 60)
    found = degrees(direction(turned(bars, -angle), has_squares=False))
    assert abs((found - angle + 90) % 180 - 90) < 2


@pytest.mark.parametrize("angle", [-40, -20, 0, 7, 33])
def test_direction_of_squares_repeats_with_a_quarter_turn(angle):
    squares = random_modules(24, 24, 5, 5)
    for quarter in (0, 90):
        found = degrees(direction(turned(squares, quarter - angle), has_squares=True))
        assert abs(found - angle) < 2


def test_an_even_picture_has_no_direction():
    assert direction(Image.new("L", (80, 50), 7), has_squares=False) == 0
    assert direction(Image.new("L", (4, 4), 7), has_squares=True) == 0


def test_points_of_the_upright_code_are_mapped_back():
    pixels = np.asarray(turned(random_modules(1, 60, 2, 50), -30))[..., None].copy()
    pixels[150, 180] = 255  # the place is checked below
    crop = Crop.of(pixels, Box(60, 70, 240, 230), has_squares=False)
    upright = crop.upright(1.5)
    middle = upright.in_picture((upright.image.width / 2, upright.image.height / 2))
    assert middle == pytest.approx((150, 150), abs=1)
    rows = np.asarray(upright.image, np.float32)[20:-20]
    height, width = rows.shape
    inside = rows[height // 2 - 15 : height // 2 + 15, width // 2 - 60 : width // 2 + 60]
    assert inside.std(axis=0).mean() < 0.2 * inside.std()  # bars are vertical


def test_a_box_outside_the_picture_has_no_crop():
    pixels = np.zeros((50, 60, 3), np.uint8)
    assert Crop.of(pixels, Box(500, 10, 560, 40), has_squares=True) is None
    assert Crop.of(pixels[:2], Box(0, 0, 60, 2), has_squares=True) is None
