"""Precision-recall curves and confusion matrices show the values of the report."""

import numpy as np
import pytest
from PIL import Image

from engine.errors import InputError
from engine.evaluate import charts
from engine.evaluate.score import Rules, score
from engine.vision.colours import colour_of
from tests.evaluate.random_examples import named, random_examples


@pytest.fixture(scope="module")
def report():
    return score(random_examples(1), [*named(3), "a/b ü", "never"], Rules("voc"))


def test_each_class_with_a_curve_has_a_picture(tmp_path, report):
    paths = charts.write(tmp_path / "new" / "folder", report)
    names = ["precision_recall.png"]
    names += ["000_class_0.png", "001_class_1.png", "002_class_2.png", "003_a_b_ü.png"]
    assert [path.name for path in paths] == [*names, "confusion.png"]
    for path in paths:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert min(picture.size) > 300


def test_a_curve_is_drawn_in_its_class_colour_where_precision_is(report):
    picture = np.asarray(charts.curves([(1, report.classes[1])], "title"))
    drawn = (np.abs(picture.astype(int) - colour_of(1)).max(axis=2) < 3).nonzero()
    ranking = report.classes[1].ranking
    plot = drawn[1] < charts._WIDTH - charts._RIGHT
    scale = charts._SUPERSAMPLING
    x, _ = charts._at(float(ranking.recall[-1]), 0)
    _, y = charts._at(0, float(ranking.precision[-1]))
    near = (abs(drawn[1] - x / scale) < 3) & (abs(drawn[0] - y / scale) < 3)
    assert (near & plot).any()
    assert drawn[1][plot].max() <= x / scale + 3


def test_matrix_of_too_many_classes_is_not_drawn(tmp_path):
    report = score(random_examples(1), named(charts._MAX_MATRIX_CLASSES + 1), Rules("voc"))
    assert "confusion.png" not in [path.name for path in charts.write(tmp_path, report)]


def test_existing_picture_is_replaced_only_if_asked(tmp_path, report):
    paths = charts.write(tmp_path, report)
    paths[0].write_bytes(b"mine")
    with pytest.raises(InputError, match=r"precision_recall\.png: exists already"):
        charts.write(tmp_path, report)
    assert paths[0].read_bytes() == b"mine"
    charts.write(tmp_path, report, overwrite=True)
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@pytest.mark.parametrize("classes", [1, 80])
def test_a_matrix_has_a_cell_for_each_pair(classes):
    counts = np.zeros((classes + 1, classes + 1), int)
    blank = charts.matrix(counts, named(classes))
    counts[0, classes] = 7
    full = charts.matrix(counts, named(classes))
    changed = np.argwhere(np.asarray(blank) != np.asarray(full))[:, :2]
    assert len(changed)
    assert changed[:, 1].min() > np.argwhere(np.asarray(blank) != 255)[:, 1].max() / 2 - 60
