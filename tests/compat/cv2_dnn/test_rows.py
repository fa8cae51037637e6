"""Rows of [yolo] and [region]; test_net.py compares them with OpenCV's."""

import numpy as np
import pytest

from engine.compat import cv2_dnn
from engine.errors import ConfigError
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.cases import small_model


def rows_of(tmp_path, name, old, new):
    cfg, weights = small_model(tmp_path, name)
    assert old in cfg.read_text()
    cfg.write_text(cfg.read_text().replace(old, new))
    net = cv2_dnn.readNetFromDarknet(str(cfg), str(weights))
    net.setInput(networks.small_blob(name))
    return net.forward()


def test_scores_are_products_cut_at_the_threshold(tmp_path):
    whole = rows_of(tmp_path, "detector", "nms_threshold=0.3", "thresh=0")
    cut = rows_of(tmp_path, "detector", "nms_threshold=0.3", "thresh=0.4")
    usual = rows_of(tmp_path, "detector", "nms_threshold=0.3", "")
    assert (whole[:, 5:] > 0).all()
    assert (whole[:, 5:] <= whole[:, 4:5]).all()
    for rows, threshold in ((cut, 0.4), (usual, 0.2)):
        expected = np.where(whole[:, 5:] > threshold, whole[:, 5:], 0)
        np.testing.assert_array_equal(rows[:, 5:], expected)
        assert 0 < (expected == 0).sum() < expected.size


def test_nms_of_a_yolo_layer(tmp_path):
    whole = rows_of(tmp_path, "detector", "nms_threshold=0.3", "")
    kept = rows_of(tmp_path, "detector", "nms_threshold=0.3", "nms_threshold=0.3")
    assert 0 < (kept[:, 5:] > 0).sum() < (whole[:, 5:] > 0).sum()


def test_classfix_drops_weak_objects(tmp_path):
    rows = rows_of(tmp_path, "region", "coords=4", "coords=4\nclassfix=-1")
    weak = rows[:, 4] < 0.5
    assert weak.any()
    assert not weak.all()
    assert (rows[weak, 5:] == 0).all()


def test_a_threshold_that_is_no_number(tmp_path):
    with pytest.raises(ConfigError, match="thresh: expected a number, got 'much'"):
        rows_of(tmp_path, "detector", "nms_threshold=0.3", "thresh=much")


def test_new_coords(tmp_path):
    rows = rows_of(tmp_path, "detector", "nms_threshold=0.3", "new_coords=1\nthresh=-9")
    assert np.isfinite(rows).all()
    assert (rows[:, 2:4] >= 0).all()
