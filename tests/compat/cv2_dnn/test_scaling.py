"""OpenCV's INTER_LINEAR; test_blob.py compares it with OpenCV's bytes."""

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
