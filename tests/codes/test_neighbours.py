"""Lines of the same bars are told from those of neighbours, in turned and tilted pictures."""

import numpy as np
import pytest
from PIL import Image

from engine.codes.neighbours import are_of_one_code

BARS = np.repeat(np.random.default_rng(0).choice(np.uint8([30, 220]), 90), 2)
SIZE = 640
CORNERS = np.array([(0, 0), (SIZE, 0), (SIZE, SIZE), (0, SIZE)], np.float64)


def sheet(*places, height=70):
    """Return paper with the same bars at some places (left, top)."""
    pixels = np.full((SIZE, SIZE), 220, np.uint8)
    for left, top in places:
        pixels[top : top + height, left : left + BARS.size] = BARS
    return pixels


def photographed(pixels, angle, tilt=0.0):
    """Return a picture of the sheet, turned around its middle and tilted, and its map of points."""
    c, s, half = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle)), SIZE / 2
    to_middle = np.array([(1, 0, -half), (0, 1, -half), (0, 0, 1)])
    turn = np.array([(c, -s, 0), (s, c, 0), (tilt / half, 0, 1)])
    there = np.linalg.inv(to_middle) @ turn @ to_middle
    back = np.linalg.inv(there)
    method = Image.Transform.PERSPECTIVE, (back / back[2, 2]).ravel()[:8].tolist()
    picture = Image.fromarray(pixels).transform(
        (SIZE, SIZE), *method, Image.Resampling.BICUBIC, fillcolor=120
    )

    def place(x, y):
        u, v, w = there @ (x, y, 1)
        return u / w, v / w

    return np.asarray(picture), place


def line(place, left, top, slope=0):
    return place(left, top), place(left + BARS.size, top + slope)


@pytest.mark.parametrize("tilt", [0, 0.15])
@pytest.mark.parametrize("angle", range(0, 360, 36))
def test_lines_through_the_same_bars_are_of_one_code(angle, tilt):
    picture, place = photographed(sheet((220, 200), height=240), angle, tilt)
    first = line(place, 220, 210)
    for top, slope in ((210, 0), (230, 60), (320, 0), (430, -80)):
        assert are_of_one_code(picture, first, line(place, 220, top, slope))
        assert are_of_one_code(picture, line(place, 220, top, slope), first)


@pytest.mark.parametrize("tilt", [0, 0.15])
@pytest.mark.parametrize("angle", range(0, 360, 36))
@pytest.mark.parametrize("other", [(420, 280), (220, 365), (230, 365), (400, 200)])
def test_neighbours_that_say_the_same_are_two_codes(angle, tilt, other):
    picture, place = photographed(sheet((220, 280), other), angle, tilt)
    left, top = other
    one, two = line(place, 220, 290, 50), line(place, left, top + 60, -50)
    assert not are_of_one_code(picture, one, two)
    assert not are_of_one_code(picture, two, one)


@pytest.mark.parametrize("height", [240, 420])
def test_a_scratch_does_not_make_two_codes_of_one(height):
    pixels = sheet((220, 200), height=height)
    pixels[199 + height // 2 : 201 + height // 2] = 30
    bottom = 190 + height
    assert are_of_one_code(pixels, ((220, 210), (400, 210)), ((220, bottom), (400, bottom)))


def test_lines_may_leave_the_picture_and_be_points():
    pixels = sheet((0, 0))
    assert are_of_one_code(pixels, ((5, 5), (5, 5)), ((5, 5), (5, 5)))
    assert are_of_one_code(pixels, ((-9, 5), (171, 5)), ((-9, 5), (171, 5)))
    assert not are_of_one_code(pixels, ((-9, -5), (171, -5)), ((-9, 690), (171, 690)))
