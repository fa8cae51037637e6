"""blobFromImage() and blobFromImages(): sizes, order of channels, mean and scale."""

from hashlib import sha256

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.errors import InputError
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import BLOBS, CV_8U, blob_of
from tests.compat.cv2_dnn.figures import FIGURES


@pytest.mark.parametrize("name", BLOBS)
def test_bytes_are_those_of_opencv(name):
    blob = np.ascontiguousarray(blob_of(cv2_dnn, name))
    assert sha256(blob).hexdigest()[:16] == FIGURES["blobs"][name]


def test_the_result_is_float32_with_the_channels_first():
    image = networks.noise(6, 8)
    blob = cv2_dnn.blobFromImage(image)
    assert blob.dtype == np.float32
    np.testing.assert_array_equal(blob, image.transpose(2, 0, 1)[None])


def test_swap_mean_and_scale():
    image = networks.noise(4, 4)
    blob = cv2_dnn.blobFromImage(image, 0.5, mean=(10, 20, 30), swapRB=True)
    expected = (image[:, :, ::-1].astype(np.float32) - (10, 20, 30)) * 0.5
    np.testing.assert_allclose(blob[0], expected.transpose(2, 0, 1))


def test_a_lone_mean_belongs_to_the_first_channel():
    """cv::Scalar(7) is (7, 0, 0, 0)."""
    image = networks.noise(4, 4)
    blob = cv2_dnn.blobFromImage(image, mean=7)
    np.testing.assert_array_equal(blob[0, 0], image[:, :, 0].astype(np.float32) - 7)
    np.testing.assert_array_equal(blob[0, 1], image[:, :, 1])


def test_a_scale_for_each_channel():
    image = networks.noise(4, 4)
    blob = cv2_dnn.blobFromImage(image, (1, 2, 3))
    np.testing.assert_array_equal(blob[0, 2], image[:, :, 2].astype(np.float32) * 3)


@pytest.mark.parametrize("channels", [None, 1, 4])
def test_grey_and_four_channels(channels):
    image = networks.noise(5, 7, channels or 1)
    image = image if channels else image[:, :, 0]
    blob = cv2_dnn.blobFromImage(image, size=(3, 2))
    assert blob.shape == (1, channels or 1, 2, 3)


def test_several_pictures_of_different_sizes():
    images = [networks.noise(5, 7), networks.noise(9, 4)]
    blob = cv2_dnn.blobFromImages(images, size=(8, 6))
    assert blob.shape == (2, 3, 6, 8)
    np.testing.assert_array_equal(blob[1:], cv2_dnn.blobFromImage(images[1], size=(8, 6)))


def test_floats_are_scaled_as_floats():
    image = networks.noise(30, 20)
    exact = cv2_dnn.blobFromImage(image.astype(np.float32), size=(17, 13))
    rounded = cv2_dnn.blobFromImage(image, size=(17, 13))
    assert 0 < np.abs(exact - rounded).max() <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": None}, "Could imread"),
        ({"image": np.zeros((2, 2, 2), np.uint8)}, "1, 3 or 4"),
        ({"image": np.zeros((0, 2, 3), np.uint8)}, "1, 3 or 4"),
        ({"image": np.zeros((2, 2, 3), np.int64)}, "uint8 or float32"),
        ({"image": networks.noise(2, 2), "size": (4,)}, "width and height"),
        ({"image": networks.noise(2, 2), "size": (4, -1)}, "width and height"),
        ({"image": networks.noise(2, 2), "size": 32}, r"such as \(416, 416\), got 32"),
        ({"image": networks.noise(2, 2), "mean": "red"}, "numbers"),
        ({"image": networks.noise(2, 2), "mean": (1, 2, 3, 4, 5)}, "up to four"),
        ({"image": networks.noise(2, 2, 1), "swapRB": True}, "3 or 4 channels"),
        ({"image": networks.noise(2, 2), "ddepth": 3}, "ddepth"),
        ({"image": networks.noise(2, 2), "ddepth": CV_8U, "mean": 3}, "ddepth"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        cv2_dnn.blobFromImage(**arguments)


def test_pictures_with_different_channels_are_refused():
    with pytest.raises(InputError, match="same number of channels"):
        cv2_dnn.blobFromImages([networks.noise(2, 2), networks.noise(2, 2, 1)])
    with pytest.raises(InputError, match="at least one"):
        cv2_dnn.blobFromImages([])
