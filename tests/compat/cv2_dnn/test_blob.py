"""blobFromImage() and blobFromImages(): sizes, order of channels, mean and scale."""

import tracemalloc
from hashlib import sha256

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.compat.cv2_dnn.scaling import resize
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


@pytest.mark.parametrize("size", [(64, 64), (90, 20), (31, 77), (200, 160)])
def test_a_crop_is_the_middle_of_the_resized_picture(size):
    image = networks.noise(48, 60)
    factor = float(np.float32(max(size[0] / 60, size[1] / 48)))
    inner = round(60 * factor), round(48 * factor)
    left, top = (inner[0] - size[0]) // 2, (inner[1] - size[1]) // 2
    middle = resize(image, inner, factor)[top : top + size[1], left : left + size[0]]
    blob = cv2_dnn.blobFromImage(image, size=size, crop=True)
    np.testing.assert_array_equal(blob[0], middle.transpose(2, 0, 1))


def test_a_crop_of_a_long_picture_takes_no_memory_for_all_of_it():
    image = networks.noise(30, 3000)
    tracemalloc.start()
    try:
        blob = cv2_dnn.blobFromImage(image, size=(416, 416), crop=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert blob.shape == (1, 3, 416, 416)
    assert peak < 32 * 2**20


def test_a_grey_picture_has_nothing_to_swap():
    image = networks.noise(5, 7, 1)
    blob = cv2_dnn.blobFromImage(image[:, :, 0], 2.0, mean=(1, 2, 3), swapRB=True)
    np.testing.assert_array_equal(blob[0, 0], (image[:, :, 0].astype(np.float32) - 1) * 2)


@pytest.mark.parametrize("kind", [np.uint16, np.int16, np.float64])
def test_other_types_are_resized_without_a_scale(kind):
    image = (networks.noise(6, 8).astype(kind) * 100)[:, ::2]
    blob = cv2_dnn.blobFromImage(image, size=(4, 6))
    assert blob.dtype == np.float32
    np.testing.assert_array_equal(blob[0], image.transpose(2, 0, 1))
    halved = cv2_dnn.blobFromImage(image, size=(2, 3))
    quads = image.reshape(3, 2, 2, 2, 3).astype(int).sum(axis=(1, 3))
    np.testing.assert_array_equal(halved[0].transpose(1, 2, 0), quads / 4)
    middle = cv2_dnn.blobFromImage(image[:, :2], size=(3, 6))[0, :, :, 1]
    np.testing.assert_array_equal(middle, image[:, :2].transpose(2, 0, 1).mean(axis=2))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
def test_types_that_opencv_does_not_resize(kind):
    image = (networks.noise(6, 8) // 2).astype(kind)
    np.testing.assert_array_equal(cv2_dnn.blobFromImage(image)[0], image.transpose(2, 0, 1))
    with pytest.raises(InputError, match="to be resized: expected uint8, uint16, int16"):
        cv2_dnn.blobFromImage(image, size=(4, 4))


def test_bytes_of_other_types_are_the_lowest_eight_bits():
    image = np.array([[[-1, 300, 7], [256, 255, 1000]]], np.int16)
    blob = cv2_dnn.blobFromImage(image, ddepth=CV_8U)
    assert blob[0, :, 0].T.tolist() == [[255, 44, 7], [0, 255, 232]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"image": None}, "Could imread"),
        ({"image": np.zeros((2, 2, 2), np.uint8)}, "1, 3 or 4"),
        ({"image": np.zeros((0, 2, 3), np.uint8)}, "1, 3 or 4"),
        ({"image": np.zeros((2, 2, 3), np.uint32)}, "uint8, uint16, int16, .* got uint32"),
        ({"image": np.zeros((2, 2, 3), np.float16)}, "float32 or float64, got float16"),
        ({"image": np.zeros((2, 2, 3), bool)}, "uint8, uint16, int16, .* got bool"),
        ({"image": networks.noise(2, 2), "size": (4,)}, "width and height"),
        ({"image": networks.noise(2, 2), "size": (4, -1)}, "width and height"),
        ({"image": networks.noise(2, 2), "size": 32}, r"such as \(416, 416\), got 32"),
        ({"image": networks.noise(2, 2), "mean": "red"}, "numbers"),
        ({"image": networks.noise(2, 2), "mean": (1, 2, 3, 4, 5)}, "up to four"),
        ({"image": networks.noise(2, 2), "ddepth": 3}, "ddepth"),
        ({"image": networks.noise(2, 2), "ddepth": CV_8U, "mean": 3}, "ddepth"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(InputError, match=message):
        cv2_dnn.blobFromImage(**arguments)


def test_pictures_of_different_kinds_are_refused():
    with pytest.raises(InputError, match="same number of channels"):
        cv2_dnn.blobFromImages([networks.noise(2, 2), networks.noise(2, 2, 1)])
    with pytest.raises(InputError, match="of the same type"):
        cv2_dnn.blobFromImages([networks.noise(2, 2), networks.noise(2, 2).astype(np.uint16)])
    with pytest.raises(InputError, match="at least one"):
        cv2_dnn.blobFromImages([])
