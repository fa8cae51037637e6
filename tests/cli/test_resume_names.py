"""--resume with names that look alike in CSV and JSON, and with pictures named twice."""

import io
import json
import os
import re
import tarfile
from types import SimpleNamespace

import pytest

from engine import cli
from engine.cli._sinks.csv_rows import _cell_of
from engine.cli._sinks.earlier_lines import EarlierLines
from tests.pictures import write_picture


@pytest.fixture
def detect(tiny_detector, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        names = ["--names", str(tiny_detector.names), "--max-det", "2"]
        outputs = ["--progress", *arguments]
        status = cli.main(["detect", *tiny_detector.options, *names, *map(str, outputs)])
        return SimpleNamespace(status=status, err=capsys.readouterr().err)

    return run


NAMES = [
    "plain.jpg",
    "a\nb.jpg",
    "a\\nb.jpg",
    "a\\\\nb.jpg",
    "a\\\nb.jpg",
    "c\\d.jpg",
    "=e.jpg",
    "'=e.jpg",
    "''=e.jpg",
    "\x1b.jpg",
    "\\x1b.jpg",
    os.fsdecode(b"f\xe4.jpg"),
    "f\\udce4.jpg",
    "größe.jpg",
]


def test_no_two_names_are_one_in_csv():
    cells = [_cell_of(each) for each in NAMES]
    assert len(set(cells)) == len(NAMES)
    assert all(each.isprintable() and each[0] != "=" for each in cells)
    assert [_cell_of(each) for each in ("plain.jpg", "c\\d.jpg", "größe.jpg")] == [
        "plain.jpg",
        "c\\d.jpg",
        "größe.jpg",
    ]


@pytest.mark.slow
@pytest.mark.skipif(os.sep == "\\", reason="Windows has no such names")
def test_names_that_look_alike_are_resumed(detect, tmp_path):
    for number, name in enumerate(NAMES):
        write_picture(tmp_path / "pics" / "x.png", seed=number).rename(tmp_path / "pics" / name)
    for options in (["--csv", "a.csv"], ["--csv", "b.csv", "--csv-all"], ["--jsonl", "a.jsonl"]):
        assert detect("pics", *options, "--resume").status == 0
        whole = (tmp_path / options[1]).read_bytes()
        left = "nothing left to do, 14" if "--jsonl" in options else "1 picture, .*, 13"
        assert re.match(f"{left} done before", detect("pics", *options, "--resume").err)
        assert (tmp_path / options[1]).read_bytes() == whole
    # what is left is not taken for what has gone
    (tmp_path / "pics" / "a\nb.jpg").unlink()
    rows = (tmp_path / "a.csv").read_text().splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join(each for each in rows if "a\\\\nb" not in each))
    assert detect("pics", "--csv", "a.csv", "--resume").status == 0
    assert sorted((tmp_path / "a.csv").read_text().splitlines(keepends=True)) == sorted(rows)


def test_json_is_what_strict_parsers_read(detect, tmp_path):
    write_picture(tmp_path / "x.png").rename(tmp_path / os.fsdecode(b"f\xe4.jpg"))
    outputs = ("--json", "a.json", "--jsonl", "a.jsonl", "--coco-dataset", "coco.json")
    assert detect(".", *outputs).status == 0
    for name in outputs[1::2]:
        content = (tmp_path / name).read_text("utf-8")
        found = json.dumps(json.loads(content), ensure_ascii=False)
        assert "f\\\\udce4.jpg" in found.encode().decode()  # a lone surrogate cannot be encoded
    (tmp_path / "a.jsonl").write_text(content := (tmp_path / "a.jsonl").read_text())
    old = content.replace("\\\\udce4", "\\udce4")  # as earlier versions wrote it
    (tmp_path / "a.jsonl").write_text(old)
    assert "nothing left to do" in detect(".", "--jsonl", "a.jsonl", "--resume").err


@pytest.mark.parametrize("options", [[], ["--csv-all"], ["--save-txt", "labels"]])
def test_pictures_named_twice_are_read_once(detect, tmp_path, options):
    pictures = [write_picture(tmp_path / f"{number}.png", seed=number) for number in range(3)]
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        for number, name in ((0, "a"), (1, "b"), (1, "b"), (0, "a"), (2, "c")):
            content = pictures[number].read_bytes()
            info = tarfile.TarInfo(f"{name}.png")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    options = ["set.tar", "--csv", "a.csv", *options, "--resume"]
    assert detect(*options).status == 0
    whole = (tmp_path / "a.csv").read_bytes()
    for _ in range(2):
        done = detect(*options)
        # rows alone do not tell whether the last picture has all of its own
        left = "nothing left to do, 5" if "labels" in options else "1 picture, .*, 4"
        assert re.match(f"{left} done before", done.err.splitlines()[-1])
        assert (tmp_path / "a.csv").read_bytes() == whole


def test_the_second_of_two_last_pictures_of_one_name_loses_no_rows(detect, tmp_path):
    write_picture(tmp_path / "x.png")
    options = ["x.png", "x.png", "--csv", "a.csv", "--save-txt", "labels", "--resume"]
    assert detect(*options).status == 0
    rows = (tmp_path / "a.csv").read_text()
    assert rows.count("\n") == 5
    (tmp_path / "a.csv").write_text("".join(rows.splitlines(keepends=True)[:3]))
    (tmp_path / "labels/x-2.txt").unlink()
    assert detect(*options).status == 0
    assert (tmp_path / "a.csv").read_text() == rows


def test_lines_of_a_picture_named_twice_form_one_group():
    earlier = EarlierLines(None, has_groups=True)
    for key in ("a", "a", "b", "a"):
        earlier._keep((key, None), 1)
    asked = [("a", True), ("a", True), ("b", True), ("c", False), ("b", True), ("a", True)]
    assert [(key, earlier.has((key, None))) for key, _ in asked] == asked
    assert not earlier.has(("b", None))
