"""COCO's metrics agree with pycocotools."""

import contextlib
import io

import numpy as np
import pytest

from engine.evaluate import coco, coco_files
from engine.evaluate.examples import Detections, Example, Objects, split_by_class
from engine.evaluate.ground_truth import GroundTruth, coco_category_ids
from engine.evaluate.score import Rules, score
from tests import needs
from tests.evaluate.random_examples import named, random_examples
from tests.evaluate.real_examples import real_examples


def judged_by_pycocotools(folder, examples, names):
    needs.package("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    truth = GroundTruth("random", tuple(names), coco_category_ids(names), (), [])
    truth_file, results_file = coco_files.write(folder, truth, examples)
    with contextlib.redirect_stdout(io.StringIO()):
        theirs = COCO(truth_file)
        judge = COCOeval(theirs, theirs.loadRes(str(results_file)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge


def assert_equal_to_pycocotools(folder, examples, names):
    judge = judged_by_pycocotools(folder, examples, names)
    tables = coco.tables(split_by_class(examples, len(names)))
    np.testing.assert_array_equal(tables.precision, judge.eval["precision"][..., -1])
    np.testing.assert_array_equal(tables.recall, judge.eval["recall"])
    ours = [-1 if each is None else each for each in tables.summary().values()]
    np.testing.assert_array_equal(ours, judge.stats)


@pytest.mark.parametrize("seed", range(6))
def test_random_detections_match_pycocotools_bit_for_bit(tmp_path, seed):
    examples = random_examples(seed, optional=0.2 * (seed % 3), ties=seed % 2 == 0)
    assert_equal_to_pycocotools(tmp_path, examples, named(4))


def test_more_than_a_hundred_detections_are_cut_like_in_pycocotools(tmp_path):
    random = np.random.default_rng(5)
    boxes = random.uniform(10, 80, (180, 4))
    there = Objects.of(boxes[::3], [0] * 60)
    examples = [
        Example(number, (200, 200), there, Detections.of(boxes, random.random(180), [0] * 180), "x")
        for number in (3, 7)
    ]
    assert_equal_to_pycocotools(tmp_path, examples, named(2))


def test_crowds_may_match_any_number_of_detections(tmp_path):
    there = Objects.of([[0, 0, 100, 100], [150, 0, 20, 20]], [0, 0], optional=[True, False])
    found = Detections.of(
        [[0, 0, 30, 30], [40, 40, 30, 30], [150, 0, 20, 20]], [0.9, 0.8, 0.7], [0] * 3
    )
    examples = [Example(1, (200, 200), there, found, "x")]
    assert_equal_to_pycocotools(tmp_path, examples, ["thing"])
    assert score(examples, ["thing"]).summary["AP"] == pytest.approx(1)


def test_without_objects_there_is_no_average_precision():
    found = Detections.of([[0, 0, 9, 9]], [0.5], [0])
    report = score([Example(1, (10, 10), Objects.of([], []), found)], ["thing"])
    assert set(report.summary.values()) == {None}
    assert report.counts.false_positives == 1


def test_ranking_at_one_overlap_matches_the_table():
    examples = random_examples(11)
    report = score(examples, named(4), Rules("coco", match_iou=0.75))
    tables = coco.tables(split_by_class(examples, 4))
    for class_id, each in enumerate(report.classes):
        best = np.append(each.ranking.envelope(), 0)
        read = best[np.searchsorted(each.ranking.recall, coco.RECALL_THRESHOLDS)]
        np.testing.assert_allclose(read, tables.precision[5, :, class_id, 0], rtol=1e-12)


@pytest.mark.slow
def test_real_detections_match_pycocotools(tmp_path):
    examples, names = real_examples()
    assert sum(len(example.objects) for example in examples) > 100
    assert_equal_to_pycocotools(tmp_path, examples, names)
    assert score(examples, names).summary["AP50"] > 0.2
