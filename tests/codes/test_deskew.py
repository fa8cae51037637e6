"""Crops of codes are turned upright, whatever is next to the code."""

from math import degrees

import numpy as np
import pytest
from PIL import Image, ImageDraw

from engine.codes.deskew import Crop, View, direction
from engine.vision.detection import Box


def turned(pattern, angle):
    """Return a pattern on a label with black edges that are not parallel to it."""
    image = Image.new("L", (300, 300), 90)
    ImageDraw.Draw(image).line((10, 40, 290, 20), 0, 6)
    code = Image.fromarray(pattern).rotate(angle, Image.Resampling.BICUBIC, expand=True)
    mask = Image.new("L", pattern.shape[::-1], 255).rotate(angle, expand=True)
    image.paste(code, (150 - code.width // 2, 150 - code.height // 2), mask)
    return np.asarray(image)


def random_modules(rows, columns, width, height, seed=0):
    modules = np.random.default_rng(seed).integers(0, 2, (rows, columns), np.uint8) * 255
    return modules.repeat(height, 0).repeat(width, 1)


@pytest.mark.parametrize("angle", [-80, -50, -20, 0, 7, 33, 45, 71])
def test_direction_is_that_across_bars(angle):
    bars = random_modules(1, 90, 2, 60)
    found = degrees(direction(Image.fromarray(turned(bars, -angle)), has_squares=False))
    assert abs((found - angle + 90) % 180 - 90) < 2


@pytest.mark.parametrize("angle", [-25, 5, 15, 20, 25, 40])
def test_sharp_edges_do_not_shift_the_direction(angle):
    paper = np.full((700, 700), 255, np.uint8)
    paper[250:450, 86:614] = random_modules(1, 132, 4, 200)
    image = Image.fromarray(paper).rotate(-angle, Image.Resampling.BICUBIC, fillcolor=255)
    assert degrees(direction(image, has_squares=False)) == pytest.approx(angle, abs=0.5)


@pytest.mark.parametrize("angle", [-40, -20, 0, 7, 33])
def test_direction_of_squares_repeats_with_a_quarter_turn(angle):
    squares = random_modules(24, 24, 5, 5)
    for quarter in (0, 90):
        found = degrees(
            direction(Image.fromarray(turned(squares, quarter - angle)), has_squares=True)
        )
        assert abs(found - angle) < 2


def test_an_even_picture_has_no_direction():
    assert direction(Image.new("L", (80, 50), 7), has_squares=False) == 0
    assert direction(Image.new("L", (4, 4), 7), has_squares=True) == 0


def test_points_of_the_upright_code_are_mapped_back():
    picture = turned(random_modules(1, 60, 2, 50), -30)
    crop = Crop.of(picture, Box(60, 70, 240, 230), has_squares=False, is_close=False)
    upright = crop.upright(1.5)
    height, width = upright.grey.shape
    assert upright.in_picture((width / 2, height / 2)) == pytest.approx((150, 150), abs=1)
    rows = upright.grey[20:-20].astype(np.float32)
    height = len(rows)
    inside = rows[height // 2 - 15 : height // 2 + 15, width // 2 - 60 : width // 2 + 60]
    assert inside.std(axis=0).mean() < 0.2 * inside.std()  # bars are vertical


def test_some_lines_of_bars_are_all_over_their_height():
    picture = turned(random_modules(1, 60, 2, 50), -30)
    crop = Crop.of(picture, Box(60, 70, 240, 230), has_squares=False, is_close=False)
    every, some = crop.upright(2, share=0.4), crop.upright(2, share=0.4, most_lines=7)
    (height, width), few = every.grey.shape, len(some.grey)
    assert some.grey.shape == (7, width)
    for x, share in ((0, 0), (width / 2, 0.5), (width, 1)):
        expected = every.in_picture((x, share * height))
        assert some.in_picture((x, share * few)) == pytest.approx(expected, abs=1)


def test_a_box_outside_the_picture_has_no_crop():
    for size, box in (((60, 50), Box(500, 10, 560, 40)), ((60, 2), Box(0, 0, 60, 2))):
        crop = Crop.of(np.zeros(size[::-1], np.uint8), box, has_squares=True, is_close=True)
        assert crop is None


@pytest.mark.parametrize("angle", [-75, -30, -10, 0, 20, 45, 60, 90])
def test_a_close_box_tells_how_long_the_sides_of_a_code_are(angle):
    picture = turned(random_modules(1, 80, 2, 40), -angle)
    c, s = abs(np.cos(np.deg2rad(angle))), abs(np.sin(np.deg2rad(angle)))
    across, down = 160 * c + 40 * s, 160 * s + 40 * c
    box = Box(150 - across / 2, 150 - down / 2, 150 + across / 2, 150 + down / 2)
    close, loose = (
        Crop.of(picture, box, has_squares=False, is_close=is_close).upright(1).grey.shape
        for is_close in (True, False)
    )
    assert close[1] > 170
    assert close[0] > 50
    share = close[0] * close[1] / (loose[0] * loose[1])
    most = {45: 1, 0: 0.9, 90: 0.9}
    assert share <= most.get(angle, 0.75)


def test_points_of_parts_and_lines_of_a_view_are_at_the_same_places():
    pixels = np.random.default_rng(0).integers(0, 256, (30, 50), np.uint8)
    view = View.scaled(pixels, 1, (7, 4, 40, 26))
    third = view.turned(every=3)
    part = view.around([(15, 12), (18, 12), (18, 10), (15, 10)])
    some = view.lines(every=2)
    assert third.grey.shape == (11, 22)
    assert part.grey.shape == (14, 15)
    assert some.grey.shape == (11, 33)
    for each in (view, third, part, some, view.turned(), view.turned().turned()):
        for x, y in ((0, 0), (12, 5), (3, 9)):
            left, top = each.in_picture((x, y))
            assert each.grey[y, x] == pixels[int(top), int(left)]
    assert View.scaled(pixels, 3, (7, 4, 40, 26)).in_picture((1, 2)) == (24, 18)
