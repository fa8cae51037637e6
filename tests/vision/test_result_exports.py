"""Results for other programs: supervision, pycocotools."""

import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine.errors import InputError
from engine.vision.code import Code
from engine.vision.result import Result
from engine.vision.serialize import csv_rows
from tests import needs


def result(count=2):
    return Result(
        size=(100, 50),
        xywhn=np.array([[0.5, 0.5, 0.2, 0.4], [0.1, 0.9, 0.4, 0.4]], np.float32)[:count],
        scores=np.array([0.9, 0.5], np.float32)[:count],
        class_ids=np.array([1, 0])[:count],
        names=("dog", "cat"),
        path="000012.jpg",
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # warnings of packages that supervision imports
@pytest.mark.parametrize("count", [2, 0])
def test_supervision_takes_the_detections(count):
    supervision = needs.package("supervision")
    found = result(count).to_supervision()
    assert isinstance(found, supervision.Detections)
    assert len(found) == count
    np.testing.assert_array_equal(found.xyxy, result(count).boxes)
    assert list(found.data["class_name"]) == ["cat", "dog"][:count]
    assert len(found[found.confidence > 0.6]) == min(count, 1)
    assert found.tracker_id is None
    followed = replace(result(count), track_ids=np.arange(count)).to_supervision()
    assert followed.tracker_id.tolist() == list(range(count))


def test_supervision_gets_arrays_that_it_may_change(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", SimpleNamespace(Detections=SimpleNamespace))
    given = replace(result(), track_ids=np.arange(2))
    expected, found = given.to_dict(), given.to_supervision()
    for each in (found.xyxy, found.confidence, found.class_id, found.tracker_id):
        each[:] = 0
    assert given.to_dict() == expected


def test_missing_supervision_is_one_line_with_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "supervision", None)
    with pytest.raises(InputError, match=r"is not installed\. Run: pip install '.+\[super"):
        result().to_supervision()


def test_coco_takes_the_detections():
    first, second = result().to_coco()
    assert first["image_id"] == second["image_id"] == 12
    assert (first["category_id"], second["category_id"]) == (2, 1)
    assert first["bbox"] == pytest.approx([40, 15, 20, 20])
    assert result().to_coco("x", categories=[7, 8])[0]["category_id"] == 8


def test_corners_keep_their_decimals_in_wide_pictures():
    corners = ((1234.567, 2.5), (12345.125, 3), (1e-9, -0.25), (100000.0, 1234567.891))
    codes = (Code("a", "QR Code", corners, b"a"), None)
    (row, _) = csv_rows(replace(result(), codes=codes))
    assert row[-1] == "1234.567 2.5 12345.125 3 0 -0.25 100000 1234567.891"
