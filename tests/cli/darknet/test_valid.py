"""`detector valid` writes the files of darknet."""

import json

import pytest

from engine import cli
from tests.cli.darknet.parcel_set import MODEL, assert_same_numbers, recorded, with_greedynms

COMMAND = ["detector", "valid", *MODEL, "-nogpu"]


def choose(here, *lines):
    """Add options to the .data file."""
    with (here / "codes.data").open("a") as data:
        data.writelines(f"{line}\n" for line in lines)


def test_voc(here, capsys):
    assert cli.main(COMMAND) == 0
    shown = capsys.readouterr()
    assert shown.out == recorded("valid.txt")
    assert shown.err.splitlines()[0] == "4"
    assert shown.err.splitlines()[1].startswith("Total Detection Time: ")
    written = sorted((here / "results").iterdir())
    assert [each.name for each in written] == [
        f"comp4_det_test_{name}.txt" for name in ("aztec", "barcode", "datamatrix", "pdf417", "qr")
    ]
    for each in written:
        assert_same_numbers(each.read_text(), recorded(f"results/{each.name}"))


def test_nms_by_distance_is_that_of_pixels(here):
    """One of the pictures is not square, so distances between boxes depend on the unit."""
    assert cli.main(["detector", "valid", *with_greedynms(here), "-nogpu"]) == 0
    written = sorted((here / "results").iterdir())
    text = "".join(each.read_text() for each in written)
    assert_same_numbers(text, recorded("valid-greedynms.txt"))


def test_coco(here):
    choose(here, "eval=coco", "results=elsewhere")
    assert cli.main([*COMMAND, "-out", "mine"]) == 0
    text = (here / "elsewhere/mine.json").read_text()
    assert_same_numbers(text, recorded("results/coco_results.json"))
    assert {each["image_id"] for each in json.loads(text)} == {1, 2, 3, 4}


def test_imagenet_numbers_pictures_and_classes_from_one(here):
    choose(here, "eval=imagenet")
    (here / "list.txt").write_text("set/none.png\nset/2.png\n")
    assert cli.main(COMMAND) == 1
    lines = (here / "results/imagenet-detection.txt").read_text().splitlines()
    best = max(lines, key=lambda line: float(line.split()[2]))
    aztec = recorded("results/comp4_det_test_aztec.txt").splitlines()
    score, *box = next(map(float, line.split()[1:]) for line in aztec if line.startswith("2 "))
    assert [float(each) for each in best.split()] == pytest.approx(
        [2, 3, score, *(edge - 1 for edge in box)], abs=1e-3
    )


def test_files_are_complete_or_not_there(here, capsys):
    (here / "results").mkdir()
    (here / "results/comp4_det_test_qr.txt").write_text("earlier")
    assert cli.main([*COMMAND, "-nms", "nan"]) == 2
    assert (here / "results/comp4_det_test_qr.txt").read_text() == "earlier"
    assert cli.main(COMMAND) == 0  # darknet replaces its files, too
    assert_same_numbers(
        (here / "results/comp4_det_test_qr.txt").read_text(),
        recorded("results/comp4_det_test_qr.txt"),
    )
    assert len(list((here / "results").iterdir())) == 5


@pytest.mark.parametrize(
    ("line", "status", "message"),
    [
        ("eval=kitti", 2, "eval: expected voc, coco, imagenet, got 'kitti'"),
        ("map=coco9k.map", 2, "map: renumbered classes are not supported"),
        ("results=list.txt", 2, "list.txt: expected a folder, got a file"),
    ],
)
def test_what_is_not_supported_is_refused(here, capsys, line, status, message):
    choose(here, line)
    assert cli.main(COMMAND) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_classes_whose_files_would_have_one_name_are_refused(here, capsys):
    (here / "other.names").write_text("a/b\na_b\nc\nd\ne\n")
    data = here / "codes.data"
    lines = [each for each in data.read_text().splitlines() if not each.startswith("names")]
    data.write_text("\n".join([*lines, "names=other.names\n"]))
    assert cli.main(COMMAND) == 2
    assert "comp4_det_test_a_b.txt: would hold the boxes of two classes" in capsys.readouterr().err
