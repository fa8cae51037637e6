"""Pixels of any kind turn into the grey that Pillow makes of them."""

import numpy as np
import pytest
from PIL import Image

from engine.codes.grey import grey_of


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (300, 500, 3), np.uint8)


def test_colours_have_the_weights_of_pillow(pixels):
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    with_alpha = np.concatenate([pixels, pixels[..., :1]], axis=2)
    for each in (pixels, with_alpha, np.asfortranarray(pixels), np.float32(pixels / 255)):
        assert np.abs(grey_of(each) - expected.astype(int)).max() <= 1
    assert (grey_of(pixels) == expected).mean() > 0.999


def test_one_channel_is_grey_as_it_is(pixels):
    one = pixels[..., 1:2]
    assert np.array_equal(grey_of(one), one[..., 0])
    assert np.array_equal(grey_of(np.float32(one / 255)), one[..., 0])


@pytest.mark.parametrize("shape", [(1, 1), (3, 70_000), (70_000, 1)])
def test_white_is_white_in_a_picture_of_any_shape(shape):
    assert np.all(grey_of(np.full((*shape, 3), 255, np.uint8)) == 255)
    assert np.all(grey_of(np.ones((*shape, 3), np.float32)) == 255)
