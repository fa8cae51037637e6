"""python -m engine detect, as a user runs it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import bundled, cli
from engine.vision.result import Result

ROOT = Path(__file__).parents[2]


@pytest.fixture
def pictures(tmp_path):
    """Return two pictures of the same name in two folders, and a broken one."""
    random = np.random.default_rng(0)
    paths = [tmp_path / "a" / "dog.jpg", tmp_path / "b" / "dog.jpg", tmp_path / "broken.jpg"]
    for path in paths[:2]:
        path.parent.mkdir()
        Image.fromarray(random.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(path)
    paths[2].write_bytes(b"\xff\xd8\xff\xe0 no more")
    return [str(path) for path in paths]


@pytest.fixture
def detect(tiny_detector, capsys):
    def run(*arguments):
        names = ["--names", str(tiny_detector.names)]
        status = cli.main(["detect", *tiny_detector.options, *names, *arguments])
        return status, *capsys.readouterr()

    return run


def test_the_table_has_label_score_box_and_time(detect, pictures):
    status, out, err = detect(pictures[0])
    assert (status, err) == (0, "")
    title, headings, *rows = out.splitlines()
    assert title.startswith(pictures[0])
    assert title.endswith(" ms")
    assert headings.split() == ["class", "score", "left", "top", "right", "bottom"]
    for heading, end in ((each, headings.index(each) + len(each)) for each in headings.split()[1:]):
        assert all(row[end - 1].isdigit() and not row[end : end + 1].strip() for row in rows), (
            heading
        )
    for row in rows:
        label, score, *box = row.split()
        assert label in ("cat", "dog", "cow")
        assert 0.25 < float(score) <= 1
        assert len([int(edge) for edge in box]) == 4


@pytest.fixture
def too_large(pictures, monkeypatch, tmp_path):
    """Let memory run out when the first picture is drawn, cropped or hidden."""
    monkeypatch.chdir(tmp_path)

    def limited(draw):
        def limited_draw(result, *given, **named):
            if result.path == pictures[0]:
                raise MemoryError
            return draw(result, *given, **named)

        return limited_draw

    for draw in (Result.plot, Result.crops, Result.hide):
        monkeypatch.setattr(Result, draw.__name__, limited(draw))
    return pictures[0]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("-o drawn", ["-o"]),
        ("--crops drawn", ["--crops"]),
        ("-o drawn --crops drawn", ["--crops", "-o"]),
    ],
)
def test_a_picture_that_cannot_be_drawn_does_not_end_a_run(
    detect, pictures, too_large, options, told
):
    status, _, err = detect(*pictures[:2], *options.split(), "--json", "all.json", "--quiet")
    what = "the picture to draw on does not fit into memory"
    *complaints, count = err.splitlines()
    assert complaints == [f"Error: {too_large}: {option}: {what}" for option in told]
    assert (status, count) == (1, "1 of 2 pictures could not be drawn")
    images = json.loads(Path("all.json").read_text())["images"]
    assert all(each["detections"] for each in images)
    drawn = [path.relative_to("drawn").as_posix() for path in Path("drawn").rglob("*.jpg")]
    assert drawn
    assert all("b/dog" in each for each in drawn)


def test_a_picture_that_cannot_be_hidden_is_shown_nowhere(detect, pictures, too_large):
    words = ("-o", "drawn", "--crops", "crops", "--blur", "all", "--quiet")
    status, _, err = detect(*pictures[:2], *words)
    complaint, count = err.splitlines()
    what = "the picture to draw on does not fit into memory"
    assert complaint == f"Error: {too_large}: --blur or --pixelate: {what}"
    assert (status, count) == (1, "1 of 2 pictures could not be drawn")
    assert [path.parent.name for path in Path("drawn").rglob("*.jpg")] == ["b"]
    assert all("b/dog" in path.as_posix() for path in Path("crops").rglob("*.jpg"))


def test_a_picture_of_too_many_tiles_was_read(detect, pictures):
    status, out, err = detect(*pictures[1:], pictures[0], "--tiles", "1")
    assert (status, out) == (1, "")
    *complaints, unread, cut, summary = err.splitlines()
    assert len(complaints) == 3
    assert unread == "1 of 3 pictures could not be read"
    assert cut == "2 of 3 pictures would be cut into too many tiles"
    assert summary.startswith("3 pictures, 0 boxes in 0, 3 failed, ")


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_quiet_does_not_tell_the_model(pictures, quiet, capsys):
    words = ["detect", pictures[0], "--size", "64", "--device", "cpu", *quiet]
    assert cli.main(words) == 0
    assert capsys.readouterr().err.startswith("model: codes (bundled)") is not bool(quiet)


def test_no_detections_is_reported(detect, pictures):
    status, out, err = detect("--threshold", "1", pictures[0])
    assert status == 0
    assert out.splitlines()[1] == "  nothing found"
    (hint,) = err.splitlines()
    for option in ("--threshold 0.1", "--tiles auto", "--model"):
        assert option in hint


def test_a_broken_picture_is_reported_and_the_others_go_on(detect, pictures):
    status, out, err = detect(pictures[2], pictures[0])
    assert status == 1
    assert out.startswith(pictures[0])
    complaint, count, summary = err.splitlines()
    assert complaint.startswith(f"Error: {pictures[2]}: ")
    assert count == "1 of 2 pictures could not be read"
    assert re.fullmatch(r"2 pictures, \d+ boxes in 1, 1 failed, [\d.]+ per second", summary)


def test_json_is_the_only_output_on_stdout(detect, pictures):
    status, out, _ = detect("--json", "-", pictures[0], pictures[2])
    document = json.loads(out)
    assert status == 1
    assert document["version"] == 1
    good, bad = document["images"]
    assert (good["path"], good["width"], good["height"]) == (pictures[0], 50, 40)
    assert {"label", "class_id", "score", "box"} <= set(good["detections"][0])
    assert bad["path"] == pictures[2]
    assert "broken.jpg" in bad["error"]


def test_json_in_a_file_comes_with_the_table_and_replaces_nothing(detect, pictures, tmp_path):
    path = tmp_path / "out.json"
    status, out, _ = detect("--json", str(path), pictures[0])
    assert status == 0
    assert out
    first = path.read_text()
    status, _, err = detect("--json", str(path), pictures[1])
    assert status == 2
    assert "exists already" in err
    assert path.read_text() == first
    assert detect("--json", str(path), "--overwrite", pictures[1])[0] == 0
    assert path.read_text() != first


def test_json_refuses_a_picture(detect, pictures):
    before = Path(pictures[0]).read_bytes()
    assert detect("--json", pictures[0], "--overwrite", pictures[0])[0] == 2
    assert Path(pictures[0]).read_bytes() == before


def test_pictures_of_equal_names_get_different_outputs(detect, pictures, tmp_path):
    folder = tmp_path / "new" / "out"
    assert detect("-o", str(folder), *pictures[:2])[0] == 0
    assert len(list(folder.rglob("dog.jpg"))) == 2
    flat = tmp_path / "flat"
    for more, status in (([], 0), ([], 2), (["--overwrite"], 0)):
        assert detect("-o", str(flat), "--flat", *pictures[:2], *more)[0] == status
        assert sorted(path.name for path in flat.glob("[!.]*")) == ["dog-2.jpg", "dog.jpg"]
    with Image.open(flat / "dog.jpg") as image:
        assert image.size == (50, 40)


@pytest.mark.parametrize("more", [[], ["--overwrite"]])
def test_an_input_is_never_written_over(detect, pictures, more):
    before = Path(pictures[0]).read_bytes()
    assert detect("-o", str(Path(pictures[0]).parent), *more, pictures[0])[0] == 2
    assert Path(pictures[0]).read_bytes() == before
    assert not (Path(pictures[0]).parent / "dog-2.jpg").exists()


def test_link_loop_is_an_unreadable_picture(detect, pictures, tmp_path):
    loop = tmp_path / "loop.jpg"
    loop.symlink_to(loop)
    folder = tmp_path / "out"
    status, _, err = detect("-o", str(folder), str(loop), pictures[0])
    assert status == 1
    assert "loop.jpg: picture: cannot be read" in err
    assert [path.name for path in folder.rglob("*.jpg")] == ["dog.jpg"]


def test_an_output_folder_that_is_a_file_is_refused(detect, pictures):
    status, _, err = detect("-o", pictures[2], pictures[0])
    assert status == 2
    assert "exists already" in err
    assert detect("-o", f"{pictures[2]}/out", pictures[0])[2].count("cannot create the folder") == 1


def test_darknets_argument_order_is_accepted(tiny_detector, pictures, capsys):
    model = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["detect", "--device", "cpu", *model, pictures[0]]) == 0
    assert capsys.readouterr().out.startswith(pictures[0])


def test_name_with_a_leading_dash_follows_two_dashes(detect, pictures, monkeypatch):
    folder = Path(pictures[0]).parent
    (folder / "-x.jpg").write_bytes(Path(pictures[0]).read_bytes())
    monkeypatch.chdir(folder)
    status, out, _ = detect("--", "-x.jpg", "dog.jpg")
    assert status == 0
    assert out.count(" ms\n") == 2


def test_options_may_stand_between_pictures(detect, pictures):
    status, out, _ = detect(pictures[0], "--threshold", ".5", pictures[1])
    assert status == 0
    assert out.count(" ms\n") == 2


@pytest.mark.parametrize(
    "more",
    [
        ["--batch", "2"],
        ["--resize", "letterbox"],
        ["--resize", "exact"],
        ["--size", "96x64"],
        ["--size", "64"],
        ["--threads", "1"],
        ["--no-passes"],
        ["--no-exif"],
        ["--nms", "1"],
        ["--hierarchy", "0.1"],
    ],
)
def test_every_other_option_runs(detect, pictures, more):
    assert detect(*more, *pictures[:2])[0] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "no picture named"),
        (["--size", "0x", "dog.jpg"], 2, "expected N or WxH"),
        (["--size", "0", "dog.jpg"], 2, "expected 1 pixel or more, got '0'"),
        (["--cfg", "none.cfg", "dog.jpg"], 3, "none.cfg: cannot be read"),
        (["--weights", "none.weights", "dog.jpg"], 3, "none.weights: cannot be read"),
        (["--device", "abacus", "dog.jpg"], 4, "abacus"),
        (["--threshold", "50", "dog.jpg"], 2, "threshold: expected a number from 0 to 1, got 50.0"),
        (["--nms", "2", "dog.jpg"], 2, "nms: expected a number from 0 to 1, got 2.0"),
        (["--threshold", "-1", "dog.jpg"], 2, "threshold: expected a number from 0 to 1"),
    ],
)
def test_unusable_arguments_are_one_line_and_a_status(detect, arguments, status, message):
    got, out, err = detect(*arguments)
    assert (got, out) == (status, "")
    (line,) = err.splitlines()
    assert line.startswith("Error: ")
    assert message in line


def test_missing_model_is_reported_with_a_hint(capsys, monkeypatch):
    monkeypatch.setattr(bundled, "default_model", lambda: None)
    assert cli.main(["detect", "dog.jpg"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--cfg and --weights" in line
    assert "weights/README.md" in line


def test_classifier_is_referred_to_classify(tiny_classifier, pictures, capsys):
    assert cli.main(["detect", *tiny_classifier.options, pictures[0]]) == 2
    assert "Try: classify" in capsys.readouterr().err


@pytest.mark.slow
def test_unusual_names_and_labels_are_printable_in_ascii(tiny_detector, pictures, tmp_path):
    odd = os.fsencode(tmp_path) + b"/\xff\n\xf0\x9f\x90\x95 -x.jpg"
    Path(os.fsdecode(odd)).write_bytes(Path(pictures[0]).read_bytes())
    names = tmp_path / "odd.names"
    names.write_text("Käfer\n犬\nłoś\n", encoding="utf-8")
    command = ["detect", *tiny_detector.options, "--names", str(names), odd]
    done = subprocess.run(
        [sys.executable, "-m", "engine", *command],
        cwd=ROOT,
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        capture_output=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(done.stdout.splitlines()[0].split(b"50 x 40")) == 2
