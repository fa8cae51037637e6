"""DetectionModel and ClassificationModel; test_programs.py compares them with OpenCV."""

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.errors import InputError
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import small_model

IMAGE = networks.noise(80, 120)


@pytest.fixture
def files(tmp_path):
    return list(map(str, small_model(tmp_path, "detector")))


def test_it_reads_files_or_takes_a_net(files):
    net = cv2_dnn.readNet(*files)
    expected = cv2_dnn.DetectionModel(net).setInputParams(1 / 255).detect(IMAGE, 0.1, 0.4)
    assert len(expected[0]) > 0
    for model in (cv2_dnn.DetectionModel(*files), cv2_dnn.DetectionModel(*files[::-1])):
        model.setInputScale(1 / 255)
        for got, wanted in zip(model.detect(IMAGE, 0.1, 0.4), expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


def test_a_net_by_keyword(files):
    net = cv2_dnn.readNet(*files)
    for kind in (cv2_dnn.DetectionModel, cv2_dnn.ClassificationModel):
        assert kind(network=net).net is net
        assert kind(model=net).net is net
        for given in ({}, {"model": files[0], "network": net}):
            with pytest.raises(TypeError, match=f"^{kind.__name__}.*: expected model or network"):
                kind(**given)


class UMat:
    """OpenCV's array that may lie on a device."""

    def __init__(self, values):
        self.get = lambda: values


def test_frames_in_an_umat(files):
    model = cv2_dnn.DetectionModel(*files).setInputParams(1 / 255)
    expected = model.detect(IMAGE, 0.1, 0.4)
    assert len(expected[0]) > 0
    for got, wanted in zip(model.detect(UMat(IMAGE), 0.1, 0.4), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(cv2_dnn.blobFromImage(UMat(IMAGE)), cv2_dnn.blobFromImage(IMAGE))


@pytest.mark.parametrize("kind", [np.uint16, np.int16, np.float32, np.float64])
def test_pictures_of_other_types(files, kind):
    model = cv2_dnn.DetectionModel(*files).setInputParams(1 / 255)
    image = networks.noise(64, 96)  # the size of the network
    expected = model.detect(image, 0.1, 0.4)
    for got, wanted in zip(model.detect(image.astype(kind), 0.1, 0.4), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_boxes_lie_inside_the_picture(files):
    model = cv2_dnn.DetectionModel(*files).setInputParams(1 / 255, (64, 64), swapRB=True)
    classes, scores, boxes = model.detect(IMAGE, 0.05)
    assert len(classes) == len(scores) == len(boxes) > 0
    assert boxes.dtype == np.int32
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= (120, 80)).all()
    assert (boxes[:, 2:] >= 1).all()


def test_nms_within_or_across_classes(files):
    model = cv2_dnn.DetectionModel(*files).setInputParams(1 / 255)
    within = model.detect(IMAGE, 0.05, 0.3)[0]
    assert (np.diff(within) >= 0).all()  # sorted by class
    across = model.setNmsAcrossClasses(True).detect(IMAGE, 0.05, 0.3)
    assert model.getNmsAcrossClasses()
    assert len(across[0]) <= len(within)
    assert (np.diff(np.asarray(across[1])) <= 0).all()  # sorted by score


def test_nothing_found(files):
    model = cv2_dnn.DetectionModel(*files).setInputParams(1 / 255)
    for overlap in (0, 0.4):
        for across in (False, True):
            found = model.setNmsAcrossClasses(across).detect(IMAGE, 0.9999, overlap)
            assert found == ((), (), ())


def test_a_crop_and_setters(files):
    model = cv2_dnn.DetectionModel(*files)
    model.setInputSize(64, 32).setInputMean((1, 2, 3)).setInputSwapRB(True).setInputCrop(True)
    model.setInputScale(1 / 255).setOutputNames(["yolo_9"])
    (rows,) = model.predict(IMAGE)
    assert rows.shape == (8 * 16 * 2, 7)


@pytest.mark.parametrize("size", [32, (32,), (32, -1), "32"])
def test_a_size_is_width_and_height(files, size):
    model = cv2_dnn.DetectionModel(*files)
    with pytest.raises(InputError, match=r"^size: expected width and height, such as \(416, 416\)"):
        model.setInputParams(size=size)
    usual = model.setInputParams(1 / 255).predict(IMAGE)
    empty = model.setInputParams(1 / 255, (0, 0)).predict(IMAGE)
    np.testing.assert_array_equal(usual[0], empty[0])


@pytest.mark.parametrize("across", [False, True])
def test_nms_refuses_negative_thresholds(files, across):
    model = cv2_dnn.DetectionModel(*files).setInputParams(1 / 255).setNmsAcrossClasses(across)
    with pytest.raises(InputError, match="score_threshold: expected 0 or more, got -1"):
        model.detect(IMAGE, -1, 0.4)
    with pytest.raises(InputError, match=r"nms_threshold: expected 0 or more, got -0\.4"):
        model.detect(IMAGE, 0.05, -0.4)


def test_classes(tmp_path):
    model = cv2_dnn.ClassificationModel(*map(str, small_model(tmp_path, "classifier")))
    number, score = model.setInputParams(1 / 255).classify(IMAGE)
    (scores,) = model.predict(IMAGE)
    assert number == scores.argmax()
    assert score == pytest.approx(scores.max())
    assert model.setEnableSoftmaxPostProcessing(True).getEnableSoftmaxPostProcessing()
    assert model.classify(IMAGE) == (number, pytest.approx(0.3, abs=0.2))


def test_a_classifier_detects_nothing(tmp_path):
    model = cv2_dnn.DetectionModel(*map(str, small_model(tmp_path, "classifier")))
    with pytest.raises(InputError, match=r"ends in \[yolo\] or \[region\]"):
        model.detect(IMAGE)


@pytest.mark.parametrize(
    ("name", "outputs"), [("detector", []), ("detector", ["yolo_9"]), ("region", [])]
)
def test_a_detector_has_no_classes_of_a_picture(tmp_path, name, outputs):
    model = cv2_dnn.ClassificationModel(*map(str, small_model(tmp_path, name)))
    with pytest.raises(InputError, match=r"^classify: .* such as \[softmax\]\. .*DetectionModel$"):
        model.setOutputNames(outputs).classify(IMAGE)


def test_several_outputs_are_not_the_classes_of_a_picture(tmp_path):
    model = cv2_dnn.ClassificationModel(*map(str, small_model(tmp_path, "classifier")))
    model.setOutputNames(["softmax_4", "conv_0"])
    with pytest.raises(InputError, match=r"^classify: expected a network with one output"):
        model.classify(IMAGE)
