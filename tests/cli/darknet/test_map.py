"""`detector map` prints what darknet does."""

import pytest

from engine import cli
from engine.cli._darknet.map import _share as share
from engine.outputs.record import OutputRecord, Owned
from tests.cli.darknet.parcel_set import MODEL, recorded

COMMAND = ["detector", "map", *MODEL, "-nogpu"]


def test_the_lines_at_eleven_points(capsys):
    options = ["-points", "11", "-thresh", "0.5", "-iou_thresh", "0.6", "-dont_show"]
    assert cli.main([*COMMAND, *options]) == 0
    shown = capsys.readouterr()
    assert shown.out == recorded("map11.txt")
    assert shown.err.startswith("\r4Total Detection Time: ")


def test_the_lines_for_the_area_under_the_curve(capsys):
    assert cli.main(COMMAND) == 0
    assert capsys.readouterr().out == recorded("map.txt")


@pytest.mark.slow
def test_difficult_objects_need_not_be_found(here, capsys):
    (here / "hard").mkdir()
    for number in range(1, 5):
        (here / f"hard/{number}.txt").write_text("")
    lines = (here / "set/2.txt").read_text().splitlines(keepends=True)
    aztec = [line for line in lines if line.startswith("2 ")]  # the best box of this class
    (here / "hard/2.txt").write_text("".join(aztec))
    (here / "set/2.txt").write_text("".join(line for line in lines if line not in aztec))
    (here / "hard.txt").write_text("".join(f"hard/{number}.png\n" for number in range(1, 5)))
    assert cli.main([*COMMAND, "-points", "11"]) == 0
    without = capsys.readouterr().out
    with (here / "codes.data").open("a") as data:
        data.write("difficult = hard.txt\n")
    assert cli.main([*COMMAND, "-points", "11"]) == 0
    text = capsys.readouterr().out
    assert "name = aztec, ap = 50.00%" in without
    assert "name = aztec, ap = 100.00%" in text
    assert "unique_truth_count = 12" in text


def test_labels_that_detect_wrote_for_another_picture_are_announced(here, capsys):
    record = OutputRecord("set", lambda owned: owned.name, ("labels",))
    for name, picture in (("1", "1.jpg"), ("2", "2.png")):
        record.claim(Owned(name, str(here / "set" / picture)), is_written=True)
    assert cli.main(COMMAND) == 0
    shown = capsys.readouterr()
    assert shown.out == recorded("map.txt")
    what = (
        "Warning: label files that detect wrote for pictures of other names: 1, such as set/1.txt"
    )
    assert f"{what} for set/1.png, written for {here}/set/1.jpg" in shown.err


def test_nothing_found_and_nothing_labelled(here, capsys):
    for number in range(1, 5):
        (here / f"set/{number}.txt").write_text("")
    assert cli.main([*COMMAND, "-thresh", "1"]) == 0
    text = capsys.readouterr().out
    assert " precision = -nan, recall = -nan, F1-score = -nan \n" in text  # as C prints it
    assert "(mAP@0.50) = 0.000000, or 0.00 % \n" in text


@pytest.mark.parametrize(
    ("words", "line", "message"),
    [
        (["-points", "12"], "", "points: expected 0, 11 or 101, got 12"),
        (["-iou_thresh", "2"], "", "match_iou: expected above 0, at most 1, got 2.0"),
        ([], "difficult = one.txt", "difficult: expected 4 pictures as in valid, got 1"),
    ],
)
def test_mistakes_are_one_line(here, capsys, words, line, message):
    (here / "one.txt").write_text("set/1.png\n")
    with (here / "codes.data").open("a") as data:
        data.write(f"{line}\n")
    assert cli.main([*COMMAND, *words]) == 2
    assert message in capsys.readouterr().err


def test_a_broken_picture_is_left_out(here, capsys):
    (here / "set/2.png").write_bytes(b"")
    assert cli.main(COMMAND) == 1
    shown = capsys.readouterr()
    assert "Error: set/2.png: " in shown.err
    assert "unique_truth_count = 12" in shown.out


def closing_lines(text):
    return text[text.index("\n for conf_thresh") : text.index("(mAP@")]


@pytest.mark.slow
def test_evaluate_has_the_same_counts(capsys):
    """Test an NMS that leaves many boxes of an object, of which darknet's order names the first."""
    assert cli.main([*COMMAND, "-nms", "0.95"]) == 0
    expected = closing_lines(capsys.readouterr().out)
    assert "TP = 12, " in expected
    options = ["--method", "darknet", "--device", "cpu", "--nms", "0.95"]
    assert cli.main(["evaluate", *MODEL, *options]) == 0
    assert closing_lines(capsys.readouterr().out) == expected


def test_shares_are_rounded_from_float32():
    assert f"{share(26, 80):1.2f}" == "0.32"
