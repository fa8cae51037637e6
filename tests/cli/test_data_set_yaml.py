"""A .yaml of ultralytics in any place of the command line is one line that says what to pass."""

import pytest

from engine import cli
from tests.pictures import write_picture

VAL = "Pass what the .yaml names at val:, such as images/val"
PICTURES = f"pictures, folders or lists. {VAL}"
LABELLED = f"a folder, a list or a COCO .json file. {VAL}"
NAMES = "a .names file. Write what the .yaml has at names: into one, a name per line"
DATA = (
    "a .data file of darknet. Pass what the .yaml names at val: as pictures, and its names: as a"
    " .names file, a name per line"
)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("evaluate CFG WEIGHTS ds.yaml", LABELLED),
        ("evaluate ds.yaml CFG WEIGHTS", LABELLED),
        ("evaluate CFG WEIGHTS pics --names ds.yaml", NAMES),
        ("evaluate pics --names ds.yaml --detections found.json", NAMES),
        ("evaluate CFG WEIGHTS --data ds.yaml", DATA),
        ("evaluate CFG WEIGHTS --data valid.data", LABELLED),
        ("detect CFG WEIGHTS ds.YML", PICTURES),
        ("detect ds.yaml CFG WEIGHTS pics", PICTURES),
        ("detect CFG WEIGHTS pics --names ds.yaml", NAMES),
        ("detect CFG WEIGHTS pics --data ds.yaml", DATA),
        ("detector map ds.yaml CFG WEIGHTS", DATA),
    ],
)
def test_what_to_pass(tiny_detector, tmp_path, monkeypatch, capsys, words, expected):
    monkeypatch.chdir(tmp_path)
    for name in ("ds.yaml", "ds.YML"):
        (tmp_path / name).write_text("path: d\nval: images/val\nnames:\n  0: cat\n")
    (tmp_path / "valid.data").write_text(f"names = {tiny_detector.names}\nvalid = ds.yaml\n")
    write_picture(tmp_path / "pics/a.png")
    files = {"CFG": str(tiny_detector.cfg), "WEIGHTS": str(tiny_detector.weights)}
    assert cli.main([files.get(word, word) for word in words.split()]) in (2, 3)
    name = "ds.YML" if "YML" in words else "ds.yaml"
    assert capsys.readouterr().err == f"Error: {name}: expected {expected}\n"
