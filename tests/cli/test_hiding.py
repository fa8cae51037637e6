"""--blur and --pixelate refuse whatever would leave something visible, before any work."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.outputs.record import FILE
from engine.outputs.written_labels import WrittenLabels
from tests import needs
from tests.pictures import write_picture, write_video
from tests.small_models import DETECTOR, write_model


@pytest.fixture
def words(tmp_path, tmp_path_factory, monkeypatch):
    """Return a command whose network finds objects everywhere."""
    model = write_model(tmp_path_factory.mktemp("model"), DETECTOR, ["cat", "dog", "cow"])
    monkeypatch.chdir(tmp_path)
    write_picture("a.png", (64, 48))
    return ["detect", *model.options, "--names", str(model.names), "a.png", "--quiet"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("-o out --blur cta", "blur: no class is called 'cta'. Did you mean 'cat'?"),
        ("-o out --pixelate 9", "pixelate: expected a number below 3, got 9"),
        ("-o out --blur ,", "blur: expected at least one, got none"),
        ("-o out --blur cat --classes dog", "--blur cat: is excluded by --classes or --exclude"),
        ("-o out --blur all --classes dog", "--blur all: --classes or --exclude omits"),
        (
            "--crops c --pixelate all --exclude cat",
            "--pixelate all: --classes or --exclude omits",
        ),
        ("--crops c --pixelate cat --exclude cat", "--pixelate cat: is excluded by --classes or"),
        ("-o out --blur all --max-det 5", "--blur: not with --max-det, which leaves boxes out"),
        ("--blur cat", "--blur: only with --output or --crops"),
        ("--tiles 20 --show-tiles", "--show-tiles: only with --output"),
        ("--tiles 2x", "tiles: expected auto, none, SIZE in pixels or COLUMNSxROWS such as 4x3"),
        ("--overlap 0.3", "--overlap: only with --tiles"),
    ],
)
def test_refusals(words, flags, message, capsys, tmp_path):
    assert cli.main([*words, *flags.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {message}")
    assert not [each for each in tmp_path.rglob("*.png") if each.name != "a.png"]


def test_a_class_whose_name_is_a_number_is_hidden(words, tmp_path):
    (tmp_path / "numbers.names").write_text("1\n0\ncow\n")
    words[words.index("--names") + 1] = "numbers.names"
    assert cli.main([*words, "-o", "out", "--classes", "1", "--blur", "1", "--json", "1.json"]) == 0
    (found,) = json.loads((tmp_path / "1.json").read_text())["images"]
    assert {each["class_id"] for each in found["detections"]} == {0}
    assert cli.main([*words, "-o", "more", "--exclude", "1,2", "--blur", "0"]) == 0


def test_resume_hides_in_pictures_that_an_earlier_run_wrote(words, tmp_path, caplog):
    def pixels(*more):
        assert cli.main([*words, "-o", "out", "--save-txt", "labels", *more]) == 0
        return (tmp_path / "out" / "a.png").read_bytes()

    visible = pixels()
    hidden = pixels("--resume", "--blur", "all")
    told = "a.png: an earlier run hid no or other classes here"
    assert told in caplog.text
    caplog.clear()
    assert hidden != visible
    assert pixels("--resume", "--blur", "all") == pixels("--resume") == hidden
    assert told not in caplog.text
    assert pixels("--resume", "--pixelate", "cat") not in (hidden, visible)
    assert pixels("--overwrite") == visible
    assert pixels("--resume", "--blur", "all") == hidden


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["labels", "out"])
def test_resume_that_hides_keeps_labels(words, tmp_path, folder):
    """Labels hold no pixels, and may have been made or corrected by hand."""
    labels = tmp_path / folder / "a.txt"
    labels.parent.mkdir()
    labels.write_text("0 .5 .5 1 1\n")
    outputs = ["-o", "out", "--save-txt", folder]
    assert cli.main([*words, *outputs, "--resume"]) == 0
    visible = (tmp_path / "out" / "a.png").read_bytes()
    for hidden in ("cat", "all"):
        assert cli.main([*words, *outputs, "--resume", "--blur", hidden]) == 0
        assert (tmp_path / "out" / "a.png").read_bytes() != visible
        assert labels.read_text() == "0 .5 .5 1 1\n"
        assert list(filter(WrittenLabels().is_as_written, [labels])) == []
    assert cli.main([*words, "-o", "out", "--save-txt", "new"]) == 2
    assert cli.main([*words, "-o", "out", "--save-txt", "new", "--resume", "--blur", "dog"]) == 0
    assert (tmp_path / "new" / "a.txt").read_text().count("\n") > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "written"),
    [
        (["-o", "one.png"], "one.png"),
        (["--crops", "crops", "--jsonl", "rows"], "crops/cat/a.png"),
    ],
)
def test_resume_hides_in_a_single_file_and_in_crops(words, tmp_path, outputs, written, caplog):
    path = tmp_path / written
    assert cli.main([*words, *outputs]) == 0
    visible = path.read_bytes()
    assert not caplog.text
    for hidden in ("cat,dog,cow", "dog, cow,cat"):
        assert cli.main([*words, *outputs, "--resume", "--blur", hidden]) == 0
        assert path.read_bytes() != visible
        now = path.stat().st_mtime_ns
    assert caplog.text.count("an earlier run hid no or other classes here") == 1
    assert cli.main([*words, *outputs, "--resume", "--blur", "cow,cat,dog"]) == 0
    assert path.stat().st_mtime_ns == now
    (tmp_path / "mine.png").write_bytes(b"not of a run")
    assert cli.main([*words, "-o", "mine.png", "--resume", "--blur", "all"]) == 2
    assert (tmp_path / "mine.png").read_bytes() == b"not of a run"


@pytest.mark.slow
@pytest.mark.parametrize("more", [[], ["--blur", "cat"]])
@pytest.mark.parametrize("has_source", [True, False])
def test_a_single_file_of_another_picture_is_not_resumed(words, capsys, more, has_source):
    write_picture("b.png", (64, 48), seed=5)
    output = ["-o", "one.png"]
    others = ["b.png" if each == "a.png" else each for each in words]
    assert cli.main([*words, *output, *more]) == 0
    before = Path("one.png").read_bytes()
    assert cli.main([*words, *output, *more, "--resume"]) == 0
    record = Path(FILE)
    if not has_source:  # as earlier versions wrote it
        lines = [json.loads(line) for line in record.read_text().splitlines()]
        kept = [{key: each[key] for key in each if key != "source"} for each in lines]
        record.write_text("".join(json.dumps(each) + "\n" for each in kept))
    assert cli.main([*others, *output, *more, "--resume"]) == (2 if has_source else 0)
    assert Path("one.png").read_bytes() == before
    error = capsys.readouterr().err
    assert ("one.png: holds what a run made of" in error) == has_source
    assert cli.main([*others, *output, *more, "--overwrite"]) == 0
    assert cli.main([*others, *output, *more, "--resume"]) == 0
    assert cli.main([*words, *output, *more, "--resume"]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "outputs", [["-o", "out"], ["-o", "out/a.png"], ["--crops", "out", "--save-txt", "texts"]]
)
def test_resume_does_not_take_pictures_without_a_record_for_hidden(
    words, tmp_path, outputs, capsys
):
    assert cli.main([*words, *outputs]) == 0
    before = {path: path.read_bytes() for path in tmp_path.glob("out/**/*.png")}
    assert before
    (tmp_path / "out" / FILE).unlink()
    for _ in range(2):
        assert cli.main([*words, *outputs, "--blur", "all", "--resume"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "no record tells whether --blur or --pixelate hid anything in it. Name" in line
    assert {path: path.read_bytes() for path in before} == before
    assert cli.main([*words, *outputs, "--blur", "all", "--overwrite"]) == 0
    assert all(path.read_bytes() != content for path, content in before.items())
    assert cli.main([*words, *outputs, "--blur", "all", "--resume"]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("is_known", [True, False])
def test_resume_keeps_crops_that_hide_already(words, tmp_path, is_known):
    """Somebody has edited one since; crops that no record names may show anything."""
    write_picture("b.png", (64, 48), seed=2)
    outputs = ["--crops", "crops", "--csv", "rows.csv", "--blur", "all"]
    assert cli.main([*words, "b.png", *outputs]) == 0
    edited = tmp_path / "crops" / "cat" / "a.png"
    expected = edited.read_bytes()
    edited.write_bytes(b"edited")
    (tmp_path / "rows.csv").unlink()
    if not is_known:
        record = tmp_path / "crops" / FILE
        record.write_text("".join(record.read_text().splitlines(keepends=True)[1:]))
    assert cli.main([*words, "b.png", *outputs, "--resume"]) == 0
    assert edited.read_bytes() == (b"edited" if is_known else expected)


def test_all_of_several_classes_is_hidden_in_pictures(words):
    assert cli.main([*words, "-o", "plain"]) == 0
    assert cli.main([*words, "-o", "hidden", "--blur", "all"]) == 0
    assert cli.main([*words, "-o", "both", "--blur", "cat", "--blur", "dog,cow"]) == 0
    plain, hidden, both = (
        np.asarray(Image.open(f"{each}/a.png")) for each in ("plain", "hidden", "both")
    )
    np.testing.assert_array_equal(hidden, both)
    assert (hidden != plain).mean() > 0.3


def test_every_frame_of_a_video_is_hidden(words):
    av = needs.package("av")
    write_video("a.mp4", count=3)
    command = [each.replace("a.png", "a.mp4") for each in words]
    means = []
    for name, flags in (("plain", []), ("hidden", ["--pixelate", "all"])):
        assert cli.main([*command, "-o", name, *flags]) == 0
        with av.open(f"{name}/a.mp4") as container:
            frames = container.decode(video=0)
            means.append([each.to_ndarray(format="gray").astype(float) for each in frames])
    assert len(means[0]) == len(means[1]) == 3
    plain, hidden = (frames[2] for frames in means)  # grey 80, which a hidden area rounds to 88
    assert np.median(hidden - plain) > 4
