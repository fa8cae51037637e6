"""COCO files: reading, matching with a network's classes, errors."""

import json

import numpy as np
import pytest

from engine.errors import InputError
from engine.evaluate import coco_files
from engine.evaluate.score import score
from engine.vision.serialize import COCO_CATEGORIES
from tests.evaluate.random_examples import named, random_examples


def instances(**changes):
    return {
        "images": [
            {"id": 9, "file_name": "b.jpg", "width": 20, "height": 10},
            {"id": 4, "file_name": "a.jpg"},
        ],
        "categories": [{"id": 7, "name": "Traffic Light"}, {"id": 3, "name": "cat"}],
        "annotations": [
            {"id": 1, "image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 4], "area": 9.5},
            {"id": 2, "image_id": 9, "category_id": 3, "bbox": [0, 0, 5, 5], "iscrowd": 1},
        ],
        **changes,
    }


def read(tmp_path, document, names=None):
    path = tmp_path / "truth.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return coco_files.read_truth(str(path), names)


def test_pictures_come_by_number_and_categories_in_order(tmp_path):
    truth = read(tmp_path, instances())
    assert truth.names == ("cat", "Traffic Light")
    assert truth.categories == (3, 7)
    assert [(entry.image_id, entry.size) for entry in truth.entries] == [(4, None), (9, (20, 10))]
    assert truth.entries[0].path == str(tmp_path / "a.jpg")
    objects = truth.entries[1].objects((20, 10))
    assert objects.boxes.tolist() == [[1, 2, 3, 4], [0, 0, 5, 5]]
    assert objects.class_ids.tolist() == [1, 0]
    assert objects.areas.tolist() == [9.5, 25]
    assert objects.optional.tolist() == [False, True]


@pytest.mark.parametrize(
    ("names", "categories"),
    [
        (["trafficlight", "cat"], (7, 3)),  # by name, ignoring blanks
        (["dog", "trafficlight", "cat"], (8, 7, 3)),  # one class more than the file
        (["class 0", "class 1"], (3, 7)),  # equal numbers: in order
        (["kitten", "traffic light"], (3, 7)),
    ],
)
def test_categories_become_the_classes_of_a_network(tmp_path, names, categories):
    truth = read(tmp_path, instances(), names)
    assert truth.names == tuple(names)
    assert truth.categories == categories


@pytest.mark.parametrize(
    ("categories", "names", "count", "pairs"),
    [
        (["apple", "pear"], ["dog", "cat"], "2 of 2", "apple = dog, pear = cat. See --names"),
        ([*"abcd"], [*"efgh"], "4 of 4", "a = e, b = f, c = g, …. See --names"),
        (["apple", "1"], ["dog", "class 1"], "1 of 2", "apple = dog. See --names"),
        (["apple", "dog"], ["pear", "dog"], "1 of 2", "apple = pear. See --names"),
        (
            ["apple", "class 0"],
            ["pear", "dog"],
            "2 of 2",
            "apple = pear, class 0 = dog. See --names",
        ),
        (["apple", "class 1"], ["pear", "dog"], "1 of 2", "apple = pear. See --names"),
        (
            ["class 2", "class 3"],
            ["pear", "dog"],
            "2 of 2",
            "class 2 = pear, class 3 = dog. See --names",
        ),
        (["1", "2"], ["dog", "cat"], None, None),
        ([None, None], ["dog", "cat"], None, None),
        (["apple", "pear"], None, None, None),
    ],
)
def test_categories_that_are_matched_in_order_are_announced(
    tmp_path, categories, names, count, pairs
):
    listed = [{"id": id_} | ({"name": each} if each else {}) for id_, each in enumerate(categories)]
    truth = read(tmp_path, instances(categories=listed, annotations=[]), names)
    assert truth.categories == tuple(range(len(categories)))
    what = "categories have the number of a class with another name, and count as that"
    expected = [f"{truth.source}: {count} {what}: {pairs}"] if pairs else []
    assert truth.remarks == expected


@pytest.mark.parametrize(
    "names", [["cat", "dog"], ["cat", "dog", "Dog"], ["Dog", "cat", "dog"], ["dog", "Dog", "cat"]]
)
def test_two_categories_of_one_name_are_refused(tmp_path, names):
    listed = [{"id": number, "name": name} for number, name in enumerate(["dog", "cat", "Dog"])]
    with pytest.raises(InputError, match="categories: two are called 'dog', and the classes have"):
        read(tmp_path, instances(categories=listed, annotations=[]), names)


@pytest.mark.parametrize("has_names", [True, False])
def test_categories_of_one_name_are_matched_in_order_if_the_classes_have_the_same(
    tmp_path, has_names
):
    names = ["dog", "Dog", "dog", "cat"]
    listed = [{"id": 9 - number, "name": name} for number, name in enumerate(reversed(names))]
    annotations = [{"id": 1, "image_id": 9, "category_id": 8, "bbox": [1, 2, 3, 4]}]
    document = instances(categories=listed, annotations=annotations)
    truth = read(tmp_path, document, names if has_names else None)
    assert (truth.categories, truth.remarks) == ((6, 7, 8, 9), [])
    assert truth.entries[1].objects((20, 10)).class_ids.tolist() == [2]


def test_a_file_name_of_two_images_is_announced(tmp_path):
    images = [{"id": each, "file_name": "a.jpg", "width": 20, "height": 10} for each in (4, 9)]
    truth = read(tmp_path, instances(images=images))
    what = f"images of one file_name: 1, such as {tmp_path}/a.jpg for the ids 4 and 9"
    assert truth.remarks == [f"{truth.source}: {what}"]


def test_names_for_the_classes_of_a_network_without_names_are_announced(tmp_path):
    listed = [{"id": number, "name": name} for number, name in enumerate(["apple", "pear"])]
    truth = read(tmp_path, instances(categories=listed, annotations=[]), ["class 0", "class 1"])
    what = "the network's classes have no names, and count as the categories in their order"
    pairs = "class 0 = apple, class 1 = pear. See --names"
    assert truth.remarks == [f"{truth.source}: {what}: {pairs}"]


def test_categories_without_a_name_are_matched_by_their_number(tmp_path):
    listed = [{"id": 10 + each, "name": f"class {each}"} for each in (2, 0, 1)]
    truth = read(tmp_path, instances(categories=listed, annotations=[]), ["cat", "dog", "cow"])
    assert (truth.categories, truth.remarks) == ((10, 11, 12), [])
    shuffled = [{"id": each, "name": f"class {2 - each}"} for each in range(3)]
    truth = read(tmp_path, instances(categories=shuffled, annotations=[]), ["cat", "dog", "cow"])
    assert (truth.categories, truth.remarks) == ((2, 1, 0), [])


@pytest.mark.parametrize("names", [["cat", "dog", "cow"], ["class 0", "class 1", "class 2"]])
def test_categories_that_count_from_one_are_matched_so_and_announced(tmp_path, names):
    listed = [{"id": 10 + each, "name": f"class {each}"} for each in (2, 1, 3)]
    truth = read(tmp_path, instances(categories=listed, annotations=[]), names)
    assert truth.categories == (11, 12, 13)
    what = (
        "categories class 1 to class 3 count from 1, so class 1 is the first class of the network"
    )
    assert truth.remarks == [f"{truth.source}: {what}, {names[0]}"]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cat"], "has 2 categories, the network 1 classes, none of which is called 'Traffic"),
        (["dog", "cat"], "'cat' is number 0 in order, but number 1 of the network's classes"),
    ],
)
def test_classes_that_do_not_match_are_refused(tmp_path, names, message):
    with pytest.raises(InputError, match="See --names") as caught:
        read(tmp_path, instances(), names)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_id": 5}, "annotation 1: image_id: no image has the id 5"),
        ({"image_id": "5"}, "annotation 1: image_id: no image has the id '5'"),
        ({"category_id": 5}, "annotation 1: category_id: no category has the id 5"),
        ({"category_id": "cat"}, "category_id: expected an integer, got 'cat'"),
        ({"category_id": 1.5}, "category_id: expected an integer, got 1.5"),
        ({"bbox": [1, 2, 3]}, "annotation 1: bbox: expected left, top, width, height"),
        ({"bbox": [1, 2, 3, "4"]}, "annotation 1: bbox: expected left, top, width, height"),
        ({"bbox": [1, 2, -3, 4]}, "annotation 1: bbox: has no area: -3 x 4"),
        ({"area": None}, "annotation 1: area: expected a number, got 'None'"),
    ],
)
def test_broken_annotation_is_reported_and_the_others_are_read(tmp_path, change, message):
    first, second = instances()["annotations"]
    truth = read(tmp_path, instances(annotations=[{**first, **change}, second]))
    (problem,) = truth.problems
    assert message in problem
    assert len(truth.entries[1].objects((20, 10))) == 1


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "truth.json:1: is not JSON"),
        ('{\n"images": [}', "truth.json:2: is not JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ("[]", "expected images, annotations and categories, got list"),
        ({}, "categories: expected a list of objects"),
        (instances(images=[]), "names no picture"),
        (instances(images=[{"id": 1}], annotations=[]), "image 1: file_name: expected a name"),
        (instances(images=[{"id": None}]), "images: id: expected an integer, got 'None'"),
        (instances(images=[{"id": 1, "file_name": "x"}] * 2), "images: two have the same id"),
        (instances(categories=[{"id": "x"}]), "id: expected an integer, got 'x'"),
    ],
)
def test_malformed_file_is_refused_in_one_line(tmp_path, document, message):
    with pytest.raises(InputError) as caught:
        read(tmp_path, document)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("detection", "message"),
    [
        ({"image_id": 5}, "detection 0: image_id: 5 is not in"),
        ({"image_id": "5"}, "detection 0: image_id: '5' is not in"),
        ({"score": float("nan")}, "detection 0: score: expected a number, got nan"),
        ({"score": None}, "detection 0: score: expected a number, got 'None'"),
        ({"category_id": None}, "category_id: expected an integer, got 'None'"),
        ({"bbox": []}, "detection 0: bbox: expected left, top, width, height"),
    ],
)
def test_a_broken_detection_is_refused(tmp_path, detection, message):
    truth = read(tmp_path, instances())
    good = {"image_id": 9, "category_id": 7, "bbox": [1, 2, 3, 4], "score": 0.5}
    path = tmp_path / "results.json"
    path.write_text(json.dumps([{**good, **detection}]))
    with pytest.raises(InputError) as caught:
        coco_files.read_results(str(path), truth)
    assert message in str(caught.value)


def found(tmp_path, truth, *categories):
    """Read one detection of each category."""
    detection = {"image_id": 9, "bbox": [1, 2, 3, 4], "score": 0.5}
    path = tmp_path / "results.json"
    path.write_text(json.dumps([{**detection, "category_id": each} for each in categories]))
    return coco_files.read_results(str(path), truth)


@pytest.mark.parametrize(
    ("categories", "told", "hint"),
    [
        (
            [12, 3, 9, 12, 7],
            "3 of 5 detections have category_ids that {truth} lacks: 9, 12. It has 2, from 3 to 7.",
            "Are they of another file? detect --images-json {truth} writes the ids of this one",
        ),
        ([0, 3], "1 of 2 detections have", "Are they counted from 0?"),
        ([7, *range(20, 50)], "30 of 31 detections have", "38, 39, …. It has 2"),
    ],
)
def test_detections_of_unknown_categories_are_left_out_with_a_remark(
    tmp_path, categories, told, hint
):
    truth = read(tmp_path, instances())
    known = [truth.categories.index(each) for each in categories if each in truth.categories]
    assert found(tmp_path, truth, *categories)[9].class_ids.tolist() == known
    (remark,) = truth.remarks
    for part in (told, hint):
        assert part.format(truth=truth.source) in remark
    assert not truth.problems


def test_category_of_a_class_that_the_file_lacks_is_unknown_too(tmp_path):
    """Detect has a new id for it, which any other program may mean otherwise."""
    truth = read(tmp_path, instances(), ["dog", "traffic light", "cat"])
    assert found(tmp_path, truth, 3, 8)[9].class_ids.tolist() == [2, 0]
    (remark,) = truth.remarks
    assert "1 of 2 detections have category_ids that" in remark
    assert "lacks: 8. It has 2, from 3 to 7." in remark


def test_detections_of_unknown_categories_alone_are_refused(tmp_path):
    truth = read(tmp_path, instances())
    with pytest.raises(InputError) as caught:
        found(tmp_path, truth, 999, 0)
    assert "results.json: 2 of 2 detections have category_ids that" in str(caught.value)
    assert str(caught.value).endswith(
        "lacks: 0, 999. It has 2, from 3 to 7. Are they counted from 0?"
    )


def test_known_categories_and_no_detections_need_no_remark(tmp_path):
    truth = read(tmp_path, instances())
    assert list(found(tmp_path, truth, 3, 7)) == [9]
    assert found(tmp_path, truth) == {}
    assert truth.remarks == []


@pytest.mark.parametrize(("scored", "remarks"), [(0, 0), (1, 0), (2, 1), (3, 1)])
def test_annotations_with_scores_are_announced(tmp_path, scored, remarks):
    annotation = instances()["annotations"][0]
    annotations = [{**annotation, "score": 0.9}] * scored + [annotation] * (3 - scored)
    told = read(tmp_path, instances(annotations=annotations)).remarks
    hint = "Unless you corrected them, a network is measured by its own results"
    what = f"truth.json: {scored} of 3 annotations have a score, as detect writes them. {hint}"
    assert [what in each for each in told] == [True] * remarks


@pytest.mark.parametrize(
    ("ids", "classes"),
    [
        ((12, 80), [11, 79]),  # 12 is in a gap of COCO's
        ((11, 13, 80), [10, 11, 70]),
        ((13, 90), [11, 79]),
    ],
)
def test_results_of_cocos_classes_that_are_counted_from_one_are_read_so(tmp_path, ids, classes):
    """A network without names has 80 classes in COCO's order, and knows no gaps."""
    entry = coco_files.Entry(9, "9.jpg", lambda size: coco_files.Objects.of([], []))
    names = ("person", *map(str, range(1, 80)))
    truth = coco_files.GroundTruth("pictures", names, COCO_CATEGORIES, (entry,), [])
    assert found(tmp_path, truth, *ids)[9].class_ids.tolist() == classes
    what = f"{tmp_path}/results.json: category_ids count from 1 to 80 without COCO's gaps"
    assert truth.remarks == [f"{what}, and are read that way"] * (12 in ids)


def test_written_results_give_the_same_report(tmp_path):
    examples, names = random_examples(3), tuple(named(4))
    truth_of = coco_files.GroundTruth("x", names, (1, 2, 3, 4), (), [])
    truth_file, results_file = coco_files.write(tmp_path, truth_of, examples)
    assert sorted(tmp_path.iterdir()) == sorted([truth_file, results_file])
    with pytest.raises(InputError, match="exists already"):
        coco_files.write(tmp_path, truth_of, examples)
    truth = coco_files.read_truth(str(truth_file))
    found = coco_files.read_results(str(results_file), truth)
    again = [
        coco_files.Example(
            *(entry.image_id, entry.size, entry.objects(entry.size)),
            found.get(entry.image_id, coco_files.Detections.of([], [], [])),
        )
        for entry in truth.entries
    ]
    first, second = score(examples, names), score(again, names)
    assert first.to_dict() == second.to_dict()
    for before, after in zip(examples, again, strict=True):
        np.testing.assert_array_equal(before.detections.boxes, after.detections.boxes)
