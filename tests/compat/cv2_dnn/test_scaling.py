"""OpenCV's INTER_LINEAR; test_blob.py compares it with OpenCV's bytes."""

import tracemalloc

import numpy as np
import pytest

from engine.compat.cv2_dnn.scaling import resize
from tests import needs
from tests.compat.cv2_dnn import networks


def test_the_same_size_changes_nothing():
    image = networks.noise(5, 7)
    assert resize(image, (7, 5)) is image


def test_half_the_size_averages_four_pixels():
    image = networks.noise(6, 8)
    quads = image.reshape(3, 2, 4, 2, 3).astype(int).sum(axis=(1, 3))
    np.testing.assert_array_equal(resize(image, (4, 3)), (quads + 2) // 4)
    np.testing.assert_allclose(resize(image.astype(np.float32), (4, 3)), quads / 4)


def test_a_ramp_stays_a_ramp():
    ramp = np.arange(0, 200, 10, dtype=np.float32)[None, :, None]
    wide = resize(ramp, (40, 1))[0, :, 0]
    np.testing.assert_allclose(np.diff(wide)[1:-1], 5, atol=1e-4)


@pytest.mark.parametrize("size", [(5, 9), (64, 31), (33, 100), (30, 24)])
@pytest.mark.parametrize(
    ("kind", "tolerance"),
    [(np.uint8, 0), (np.float32, 0.02), (np.float64, 0.02), (np.uint16, 1), (np.int16, 1)],
)
def test_it_equals_opencv(size, kind, tolerance):
    """On x86 OpenCV leaves all types but bytes to IPP, which rounds in another way."""
    cv2 = needs.package("cv2")
    image = networks.noise(48, 60).astype(kind)
    expected = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    assert resize(image, size).dtype == kind
    np.testing.assert_allclose(resize(image, size), expected, atol=tolerance)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.int16, np.float32, np.float64])
def test_a_part_has_the_bytes_that_it_has_in_the_whole_picture(kind):
    random = np.random.default_rng(3)
    for seed in range(40):
        height, width, *size = map(int, random.integers(1, 120, 4))
        image = networks.noise(height, width, int(random.choice([1, 3, 4])), seed).astype(kind)
        factor = float(np.float32(max(size[0] / width, size[1] / height)))
        inner = round(width * factor), round(height * factor)
        whole = resize(image, inner, factor)
        columns, rows = (
            range(length)[start : start + 50]
            for length, start in zip(inner, random.integers(0, size), strict=True)
        )
        part = resize(image, inner, factor, (columns, rows))
        expected = whole[rows.start : rows.stop, columns.start : columns.stop]
        assert part.dtype == kind
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("size", [(60, 48), (30, 24)])
def test_a_part_of_the_same_and_of_half_the_size(size):
    image = networks.noise(48, 60)
    part = resize(image, size, None, (range(3, 20), range(5, 9)))
    np.testing.assert_array_equal(part, resize(image, size)[5:9, 3:20])


def test_a_part_takes_no_memory_for_the_whole_picture():
    tracemalloc.start()
    try:
        part = resize(networks.noise(3, 3000), (416_000, 416), None, (range(8), range(416)))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert part.shape == (416, 8, 3)
    assert peak < 2**20
