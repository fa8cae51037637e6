"""`detector recall` prints darknet's counts."""

from engine import cli
from tests.cli.darknet.parcel_set import MODEL, recorded, with_greedynms

COMMAND = ["detector", "recall", *MODEL, "-nogpu"]


def test_the_lines_are_darknets(capsys):
    assert cli.main(COMMAND) == 0
    shown = capsys.readouterr()
    assert shown.out == recorded("recall.txt")
    assert shown.err == recorded("recall.err")


def test_the_kind_of_nms_makes_no_difference(here, capsys):
    """Darknet takes plain overlaps for this command."""
    assert cli.main(["detector", "recall", *with_greedynms(here), "-nogpu"]) == 0
    assert capsys.readouterr().err == recorded("recall.err")


def test_pictures_without_labels_and_broken_ones_are_told(here, capsys):
    (here / "set/2.txt").unlink()
    (here / "set/3.png").write_bytes(b"no picture")
    (here / "set/4.txt").write_text("0 0.5 0.5 0.2\n")
    assert cli.main(COMMAND) == 1
    shown = capsys.readouterr()
    assert "(This can be normal only if you use MSCOCO): set/2.txt " in shown.out
    assert "Error: set/3.png: " in shown.err
    assert "Warning: set/4.txt:1: expected class x y width height, got 4 columns" in shown.err
    assert shown.err.splitlines()[-1].startswith("    3     7     8\tRPs/Img: ")
