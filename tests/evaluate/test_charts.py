"""Precision-recall curves and confusion matrices show the values of the report."""

import numpy as np
import pytest
from PIL import Image

from engine.errors import ImageError, InputError
from engine.evaluate import charts, curves, plot, worst_pictures
from engine.evaluate.examples import Detections, Example, Objects
from engine.evaluate.score import Rules, score
from engine.vision.colours import colour_of
from tests.evaluate.random_examples import named, random_examples


@pytest.fixture(scope="module")
def report():
    return score(random_examples(1), [*named(3), "a/b ü", "never"], Rules("voc"))


CURVES = ["precision_recall.png", "f1.png", "precision.png", "recall.png"]


def test_each_class_with_a_curve_has_a_picture(tmp_path, report):
    paths = charts.write(tmp_path / "new" / "folder", report)
    names = ["000_class_0.png", "001_class_1.png", "002_class_2.png", "003_a_b_ü.png"]
    assert [path.name for path in paths] == [*CURVES, *names, "confusion.png"]
    for path in paths:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert min(picture.size) > 300


def test_a_curve_is_drawn_in_its_colour_where_precision_is(report):
    picture = np.asarray(curves.of_class(report, 1).draw())
    drawn = (np.abs(picture.astype(int) - colour_of(1)).max(axis=2) < 3).nonzero()
    ranking = report.classes[1].ranking
    in_plot = drawn[1] < plot.WIDTH - plot.RIGHT
    x, _ = plot.at(float(ranking.recall[-1]), 0)
    _, y = plot.at(0, float(ranking.precision[-1]))
    near = (abs(drawn[1] - x / plot.SUPERSAMPLING) < 3) & (
        abs(drawn[0] - y / plot.SUPERSAMPLING) < 3
    )
    assert (near & in_plot).any()
    assert drawn[1][in_plot].max() <= x / plot.SUPERSAMPLING + 3


def area_of(line):
    return float(np.sum(np.diff(line.x) * line.y[1:]))


@pytest.mark.parametrize("method", ["coco", "voc", "darknet"])
def test_the_legend_has_the_area_under_the_curve(method):
    """COCO's average precision over ten IoU thresholds is not that of the curve at one."""
    report = score(random_examples(3, classes=5), named(5), Rules(method))
    lines = curves.precision_recall(report).lines
    assert lines[0].label.startswith("mean of 5")
    for line in lines:
        assert float(line.label.split()[-1]) == pytest.approx(area_of(line), abs=0.012)


def test_ten_classes_are_named_and_the_rest_is_grey():
    report = score(random_examples(1, classes=14), named(14), Rules("voc"))
    lines = curves.precision_recall(report).lines
    labels = [line.label for line in lines if line.label]
    assert len(labels) == 12
    assert labels[-1] == "4 other classes"
    assert len({line.colour for line in lines}) == 12
    assert len({line.colour for line in lines[11:]}) == 1


def test_a_class_has_one_colour_in_all_plots():
    report = score(random_examples(1, classes=14), named(14), Rules("voc"))
    plots = [curves.precision_recall(report)]
    plots += [curves.over_score(report, name) for name in ("f1", "precision", "recall")]
    colours = [
        {line.label.rsplit(maxsplit=1)[0]: line.colour for line in each.lines[:11]}
        for each in plots
    ]
    assert len(colours[0]) == 11
    assert all(each == colours[0] for each in colours)
    orders = {tuple(line.label.rsplit(maxsplit=1)[0] for line in each.lines[:11]) for each in plots}
    assert len(orders) > 1  # each legend falls by its own value


def test_a_mark_is_a_dashed_line():
    plain = np.asarray(plot.Plot("x", "y", []).draw()).astype(int)
    marked = np.asarray(plot.Plot("x", "y", [], mark=0.3).draw()).astype(int)
    rows, columns = (np.abs(marked - plain).max(axis=2) > 60).nonzero()
    x = plot.at(0.3, 0)[0] / plot.SUPERSAMPLING
    assert len(rows) > 100
    assert np.abs(columns - x).max() < 2
    assert len(np.unique(rows)) < plot.HEIGHT - plot.TOP - plot.BOTTOM


@pytest.mark.parametrize(("count", "text"), [(0, "0 objects"), (1, "1 object"), (2, "2 objects")])
def test_counts_in_captions_are_grammatical(count, text):
    assert worst_pictures._counted(count, "object") == text


def test_curves_over_the_score_agree_with_counts_at_each_threshold(report):
    for each in report.classes[:3]:
        found = curves.ScoreCurves.of(each.ranking)
        for at in (0, 250, 500, 777, 1000):
            counts = each.ranking.counts(curves.GRID[at])
            assert found.precision[at] == pytest.approx(counts.precision)
            assert found.recall[at] == pytest.approx(counts.recall)
            assert found.f1[at] == pytest.approx(counts.f1)


def test_the_best_threshold_is_that_of_the_highest_mean(report):
    threshold, best = curves.best_threshold(report)
    known = [each for each in report.classes if each.ranking.objects]

    def mean_at(value):
        return np.mean([each.ranking.counts(value).f1 for each in known])

    assert mean_at(threshold) == pytest.approx(best)
    assert all(mean_at(other) <= best + 1e-12 for other in np.linspace(0, 1, 101))
    for name in ("f1", "precision", "recall"):
        drawn = curves.over_score(report, name)
        assert f"at a threshold of {threshold:.3f}" in drawn.notes
        assert drawn.mark == threshold


def test_nothing_to_find_gives_empty_plots(tmp_path):
    nothing = [Example(1, (10, 10), Objects.of([], []), Detections.of([], [], []))]
    report = score(nothing, ["thing"])
    assert curves.best_threshold(report) is None
    assert {path.name for path in charts.write(tmp_path, report)} == {*CURVES, "confusion.png"}


def test_matrix_of_too_many_classes_is_not_drawn():
    classes = charts._MAX_CLASSES + 1
    counts = np.eye(classes + 1, dtype=int)
    assert charts.matrix(counts, named(classes)) is None


@pytest.mark.slow
def test_existing_picture_is_replaced_only_if_asked(tmp_path, report):
    paths = charts.write(tmp_path, report)
    paths[0].write_bytes(b"mine")
    with pytest.raises(InputError, match=r"precision_recall\.png: exists already"):
        charts.write(tmp_path, report)
    assert paths[0].read_bytes() == b"mine"
    charts.write(tmp_path, report, overwrite=True)
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_the_matrix_shows_used_classes_only():
    counts = np.zeros((81, 81), int)
    counts[3, 80] = counts[3, 5] = 7
    names = named(80)
    full = charts.matrix(counts, names)
    assert max(full.size) < 500
    empty = charts.matrix(np.zeros((81, 81), int), names)
    assert empty.height < full.height


def picture_of(path):
    if path == "gone.png":
        raise ImageError("gone.png: cannot be read")
    return Image.new("RGB", (64, 48), "white")


def test_worst_pictures_come_first_and_good_ones_are_left_out():
    box = [10, 10, 20, 20]
    good = Example(
        1, (64, 48), Objects.of([box], [0]), Detections.of([box], [0.9], [0]), "good.png"
    )
    bad = Example(2, (64, 48), Objects.of([box], [0]), Detections.of([], [], []), "bad.png")
    gone = Example(3, (64, 48), Objects.of([box], [0]), Detections.of([], [], []), "gone.png")
    report = score([good, bad, gone], ["thing"])
    read = []

    def recorded(path):
        read.append(path)
        return picture_of(path)

    drawn = worst_pictures.draw_worst([good, bad, gone], report, recorded)
    assert read == ["bad.png", "gone.png"]
    assert drawn.width > 2 * worst_pictures._SIDE
    assert worst_pictures.draw_worst([good], score([good], ["thing"]), recorded) is None
    many = [bad] * 20
    read.clear()
    worst_pictures.draw_worst(many, score(many, ["thing"]), recorded)
    assert len(read) == worst_pictures.COUNT
