"""Darknet's resize, letterbox and crop, compared with loops over pixels and with darknet."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from engine.vision.image import Picture, read
from engine.vision.resize import Placement, centre_crop, letterbox, stretch
from tests import needs
from tests.pictures import ODD_SIZES

GOLDEN = Path(__file__).parents[3] / "shared" / "golden" / "real"
needs_golden = needs.shared("golden/real")
ONE_STEP = 1.2e-7  # darknet's compiler uses FMA, so the last bit may differ


def picture(width, height, channels=3, kind=np.uint8, seed=0):
    random = np.random.default_rng(seed)
    if kind == np.uint8:
        return Picture(random.integers(0, 256, (height, width, channels), dtype=np.uint8))
    return Picture(random.random((height, width, channels), dtype=np.float32))


def by_the_definition(image, width, height):
    """Resize float32 planes by loops in darknet's order and precision."""
    channels, in_height, in_width = image.shape
    one = np.float32(1)
    part = np.zeros((channels, in_height, width), np.float32)
    scale = np.float32(in_width - 1) / np.float32(width - 1) if width > 1 else one
    for x in range(width):
        place = np.float32(x) * scale
        low = int(place)
        share = place - np.float32(low)
        if x == width - 1 or in_width == 1:
            part[:, :, x] = image[:, :, in_width - 1]
        else:
            part[:, :, x] = (one - share) * image[:, :, low] + share * image[:, :, low + 1]
    out = np.zeros((channels, height, width), np.float32)
    scale = np.float32(in_height - 1) / np.float32(height - 1) if height > 1 else one
    for y in range(height):
        place = np.float32(y) * scale
        low = int(place)
        share = place - np.float32(low)
        if y == height - 1 or in_height == 1:
            out[:, y] = part[:, in_height - 1]
        else:
            out[:, y] = (one - share) * part[:, low] + share * part[:, low + 1]
    return out


def planes(source):
    values = source.pixels.transpose(2, 0, 1).astype(np.float32)
    return values / np.float32(255) if source.pixels.dtype == np.uint8 else values


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("source", "network"), ODD_SIZES)
def test_stretch_equals_the_definition_bit_for_bit(source, network, channels, kind):
    image = picture(*source, channels, kind)
    got, _ = stretch(image, network)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, by_the_definition(planes(image), *network))


@needs_golden
def test_every_darknet_case_agrees():
    cases = json.loads((GOLDEN / "resize_cases.json").read_text())
    arrays = np.load(GOLDEN / "resize_cases.npz")
    assert len(cases) >= 22
    for case in cases:
        source = Picture(np.ascontiguousarray(arrays[case["input"]].transpose(1, 2, 0)))
        function = {"resize": stretch, "letterbox": letterbox}[case["op"]]
        got, _ = function(source, (case["w"], case["h"]), exact=True)
        np.testing.assert_allclose(
            got, arrays[case["key"]], rtol=0, atol=ONE_STEP, err_msg=case["key"]
        )


@needs_golden
@pytest.mark.parametrize(("suffix", "function"), [("", stretch), ("_letterbox", letterbox)])
@pytest.mark.parametrize("name", ["dog", "eagle", "giraffe"])
def test_real_pictures_reach_the_network_as_in_darknet(name, suffix, function):
    samples = np.load(GOLDEN / "yolov3-tiny" / "network_input_samples.npz")
    got, _ = function(read(GOLDEN / "images" / f"{name}.stb.png"), (416, 416))
    places, values = samples[f"{name}{suffix}_pos"], samples[f"{name}{suffix}_val"]
    np.testing.assert_allclose(got.ravel()[places], values, rtol=0, atol=ONE_STEP)


@pytest.mark.parametrize(
    ("source", "network"), [(800, 320), (1280, 320), (2048, 416), (2048, 608), (1024, 640)]
)
def test_black_bottom_row_is_repaired_unless_exact(source, network):
    white = Picture(np.full((source, 2, 1), 255, np.uint8))
    repaired, _ = stretch(white, (2, network))
    assert (repaired == 1).all()
    exact, _ = stretch(white, (2, network), exact=True)
    assert (exact[:, :-1] == 1).all()
    assert (exact[:, -1] < 1e-3).all()


def test_exact_differs_nowhere_but_in_the_bottom_row():
    image = picture(30, 800)
    repaired, _ = stretch(image, (20, 320))
    exact, _ = stretch(image, (20, 320), exact=True)
    np.testing.assert_array_equal(repaired[:, :-1], exact[:, :-1])
    assert not np.array_equal(repaired[:, -1], exact[:, -1])


@pytest.mark.parametrize(
    ("source", "network", "inner", "offset"),
    [
        ((768, 576), (416, 416), (416, 312), (0, 52)),
        ((576, 768), (416, 416), (312, 416), (52, 0)),
        ((500, 375), (416, 320), (416, 312), (0, 4)),
        ((100, 33), (32, 32), (32, 10), (0, 11)),
        ((100, 30), (32, 32), (32, 9), (0, 11)),  # an odd margin: 11 above, 12 below
        ((33, 33), (32, 64), (32, 32), (0, 16)),
        ((1, 9), (8, 8), (0, 8), (4, 0)),  # shrinks to nothing
    ],
)
def test_letterbox_places_the_picture_and_fills_with_grey(source, network, inner, offset):
    image = picture(*source)
    got, placement = letterbox(image, network)
    assert (placement.inner, placement.offset) == (inner, offset)
    (left, top), (width, height) = offset, inner
    expected = np.full((3, network[1], network[0]), 0.5, np.float32)
    if width and height:
        expected[:, top : top + height, left : left + width] = by_the_definition(
            planes(image), *inner
        )
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("source", "network", "inner"),
    [
        ((100, 60), (32, 32), (53, 32)),
        ((60, 100), (32, 32), (32, 53)),
        ((32, 32), (32, 32), (32, 32)),
        ((50, 40), (20, 32), (25, 20)),  # lower than the network: the border is repeated
        ((40, 50), (33, 20), (33, 41)),
        ((50, 20), (15, 22), (37, 15)),
    ],
)
def test_centre_crop_equals_resize_then_cut(source, network, inner):
    image = picture(*source)
    got, placement = centre_crop(image, network)
    assert placement.inner == inner
    scaled = by_the_definition(planes(image), *inner)
    first_x, first_y = (int((a - b) / 2) for a, b in zip(inner, network, strict=True))
    xs = np.clip(np.arange(network[0]) + first_x, 0, inner[0] - 1)
    ys = np.clip(np.arange(network[1]) + first_y, 0, inner[1] - 1)
    np.testing.assert_array_equal(got, scaled[:, ys][:, :, xs])


def test_extreme_crop_computes_only_its_cut():
    got, placement = centre_crop(picture(1, 100_000, 1), (64, 64))
    assert placement.inner == (64, 6_400_000)
    assert got.shape == (1, 64, 64)


@pytest.mark.parametrize("function", [stretch, letterbox, centre_crop])
def test_out_may_be_a_row_of_a_batch(function):
    image = picture(50, 37)
    batch = np.full((2, 3, 32, 40), np.nan, np.float32)
    got, _ = function(image, (40, 32), out=batch[1])
    assert got.base is batch
    np.testing.assert_array_equal(batch[1], function(image, (40, 32))[0])
    assert np.isnan(batch[0]).all()


def test_threads_get_their_own_answers():
    images = [picture(40 + 7 * i, 30 + 5 * i, seed=i) for i in range(8)]
    expected = [stretch(each, (64, 64))[0] for each in images]
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda each: stretch(each, (64, 64))[0], images * 10))
    for i, each in enumerate(got):
        np.testing.assert_array_equal(each, expected[i % 8])


def test_a_stretched_picture_covers_the_network():
    placement = Placement((768, 576), (416, 320))
    assert (placement.inner, placement.offset) == ((416, 320), (0, 0))
