"""A network that overflows in one picture of many: an error of this one, and the others go on."""

import json
import logging
import pickle
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.compat import darknet
from engine.compat.ultralytics import YOLO
from engine.errors import ImageError, InputError
from tests import needs

REASON = "scores: expected numbers, got NaN or infinity. The network's values overflow"


def picture(*, is_bright):
    pixels = np.zeros((48, 64, 3), np.uint8)
    if is_bright:
        pixels[:20, :20] = 255
    return pixels


@pytest.fixture
def pictures(tmp_path):
    """Return five files with label files, the third one bright."""
    folder = tmp_path / "set"
    folder.mkdir()
    for number in range(5):
        file = folder / f"{number}.png"
        Image.fromarray(picture(is_bright=number == 2)).save(file)
        file.with_suffix(".txt").write_text("0 0.5 0.5 0.6 0.8\n")
    return [str(folder / f"{number}.png") for number in range(5)]


@pytest.fixture
def model(overflowing_when_bright):
    return overflowing_when_bright


def test_the_error_has_a_result_without_boxes(model):
    with engine.load(model.cfg, model.weights, model.names, device="cpu", batch=3) as detector:
        frames = [picture(is_bright=number == 1) for number in range(3)]
        before, error, after = detector.stream(frames, on_error="yield")
        assert len(before) == len(after) > 0
        assert isinstance(error, ImageError)
        assert (len(error.result), error.result.size) == (0, (64, 48))
        (unread,) = detector.stream([b"none"], on_error="yield")
        assert unread.result is None


def write_video(path, pictures):
    av = needs.package("av")
    with av.open(str(path), "w") as container:
        stream = container.add_stream("png", rate=10)
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "rgb24"
        for each in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(each, format="rgb24")))
        container.mux(stream.encode())


def test_names_on_stdin_whose_pictures_all_overflow_replace_no_output(
    model, pictures, tmp_path, monkeypatch, capsys
):
    old, names = tmp_path / "old.json", tmp_path / "names"
    old.write_text("results")
    names.write_text(pictures[2])
    options = [*model.options, "--names", str(model.names), "--quiet", "--json", str(old)]
    with names.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        assert cli.main(["detect", "-", *options, "--overwrite"]) == cli.USAGE
    assert capsys.readouterr().err.splitlines() == [
        f"Error: {pictures[2]}: {REASON}",
        "Error: -: no picture has a result, so no output is written and none is replaced",
    ]
    assert old.read_text() == "results"


def test_a_video_goes_on(model, tmp_path, capsys):
    write_video(tmp_path / "v.avi", [picture(is_bright=number == 4) for number in range(12)])
    files = [str(tmp_path / name) for name in ("v.avi", "o.mp4", "o.jsonl")]
    command = ["detect", *model.options, "--names", str(model.names), files[0]]
    assert cli.main([*command, "-o", files[1], "--jsonl", files[2]]) == 1
    done = capsys.readouterr()
    assert done.err.count(f"Error: {files[0]}: video: frame 4: {REASON}\n") == 1
    assert "in 1 of 12 pictures the network's values overflow\n" in done.err
    assert "could not be read" not in done.err
    with engine.load(model.cfg, model.weights, device="cpu") as detector:
        assert sum(1 for _ in detector.stream(files[1], on_error="yield")) == 12
    lines = [json.loads(line) for line in (tmp_path / "o.jsonl").read_text().splitlines()]
    assert ["error" in line for line in lines] == [number == 4 for number in range(12)]


def test_darknets_demo_names_the_frame(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_video("v.avi", [picture(is_bright=number == 2) for number in range(4)])
    Path("n.data").write_text(f"classes=3\nnames={model.names}\n")
    files = "n.data", str(model.cfg), str(model.weights), "v.avi"
    assert cli.main(["detector", "demo", *files, "-nogpu", "-dont_show"]) == 1
    assert f"Error: v.avi: video: frame 2: {REASON}\n" in capsys.readouterr().err


def test_evaluate_counts_its_objects_as_missed(model, pictures, tmp_path, capsys):
    out = tmp_path / "e.json"
    folder = str(tmp_path / "set")
    command = ["evaluate", *model.options, "--names", str(model.names), folder]
    assert cli.main([*command, "--json", str(out)]) == 1
    done = capsys.readouterr()
    assert REASON in done.err
    assert "left out" not in done.err
    document = json.loads(out.read_text())
    assert (document["pictures"], document["counts"]["objects"]) == (5, 5)
    assert document["unreadable"] == []
    assert document["overflowing"] == [f"{pictures[2]}: {REASON}"]


@pytest.mark.parametrize("command", ["valid", "map", "recall"])
def test_darknets_commands_go_on(model, pictures, command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.txt").write_text("".join(f"{each}\n" for each in pictures))
    data = f"classes=3\nvalid=list.txt\nnames={model.names}\nresults=results\n"
    (tmp_path / "n.data").write_text(data)
    (tmp_path / "results").mkdir()
    files = "n.data", str(model.cfg), str(model.weights)
    assert cli.main(["detector", command, *files, "-nogpu"]) == 1
    done = capsys.readouterr()
    assert f"Error: {pictures[2]}: {REASON}\n" in done.err
    if command == "valid":
        (lines,) = {
            tuple(sorted({line.split()[0] for line in file.read_text().splitlines()}))
            for file in (tmp_path / "results").iterdir()
        }
        assert lines == ("0", "1", "3", "4")
    elif command == "map":
        assert "unique_truth_count = 5" in done.out
    else:
        assert "\n    4 " in done.err


def test_scripts_for_ultralytics_get_a_result_for_each_picture(model, caplog):
    yolo = YOLO(str(model.cfg), weights=str(model.weights)).to("cpu")
    frames = [picture(is_bright=number == 1) for number in range(3)]
    with closing(yolo), caplog.at_level(logging.WARNING, "engine"):
        found = yolo.predict(frames)
        assert [len(each) > 0 for each in found] == [True, False, True]
        assert REASON in caplog.text
        (alone,) = yolo.predict(frames[1])
        assert (len(alone), alone.orig_shape) == (0, (48, 64))


def test_scripts_for_darknet_get_no_boxes_and_a_warning(model, tmp_path, caplog):
    darknet.set_gpu(-1)
    (tmp_path / "n.data").write_text(f"classes=3\nnames={model.names}\n")
    network, names, _ = darknet.load_network(
        str(model.cfg), str(tmp_path / "n.data"), str(model.weights)
    )
    for is_bright in (False, True):
        image, _ = darknet.array_to_image(picture(is_bright=is_bright))
        with caplog.at_level(logging.WARNING, "engine"):
            found = darknet.detect_image(network, names, image, thresh=0.3)
        assert (not found) == is_bright
        assert (f"image: {REASON}" in caplog.text) == is_bright


@pytest.mark.parametrize("way", ["blur", "pixelate"])
def test_hiding_hides_all_of_the_picture(model, way):
    with engine.load(model.cfg, model.weights, model.names, device="cpu") as detector:
        striped = picture(is_bright=False)
        striped[:, ::2] = 255
        (error,) = detector.stream([striped], on_error="yield")
    for given in ("all", ["cat"]):
        result = error.result.hide(striped, **{way: given})
        for drawn in (result.plot(array="rgb"), error.result.plot(striped, **{way: given})):
            assert np.ptp(np.asarray(drawn).astype(int)) < 40
        with pytest.raises(InputError, match="would show them"):
            result.plot(striped)
        assert pickle.loads(pickle.dumps(result)).picture is not None


def test_no_class_to_hide_hides_nothing(model):
    with engine.load(model.cfg, model.weights, model.names, device="cpu") as detector:
        striped = picture(is_bright=False)
        striped[:, ::2] = 255
        (error,) = detector.stream([striped], on_error="yield")
    result = error.result.hide(striped, blur=[])
    assert np.array_equal(result.picture.pixels, striped)
    assert not result.hidden


NO_PROBABILITIES = f"probabilities{REASON.removeprefix('scores')}"


@pytest.fixture
def classifier(classifier_overflowing_when_bright):
    return classifier_overflowing_when_bright


def test_the_error_of_a_classifier_has_a_result_without_classes(classifier):
    files = classifier.cfg, classifier.weights, classifier.names
    with engine.load(*files, device="cpu", batch=3) as detector:
        frames = [picture(is_bright=number == 1) for number in range(3)]
        before, error, after = detector.stream(frames, on_error="yield")
    assert len(before) == len(after) == 5
    assert str(error) == f"picture: {NO_PROBABILITIES}"
    assert (len(error.result), error.result.size) == (0, (64, 48))
    assert error.result.probabilities.tolist() == [0] * 6
    assert error.result.to_dict()["classes"] == []


def test_scripts_for_ultralytics_get_a_classification_of_each_picture(classifier, caplog):
    yolo = YOLO(str(classifier.cfg), weights=str(classifier.weights)).to("cpu")
    with closing(yolo), caplog.at_level(logging.WARNING, "engine"):
        found = yolo([picture(is_bright=number == 1) for number in range(3)])
    assert [each.probs.top1conf > 0 for each in found] == [True, False, True]
    assert found[1].verbose() == "(no classes), "
    assert found[1].summary() == []
    assert NO_PROBABILITIES in caplog.text


def test_classify_says_that_values_overflow(classifier, pictures, capsys):
    assert cli.main(["classify", *classifier.options, *pictures]) == 1
    error = capsys.readouterr().err
    assert f"Error: {pictures[2]}: {NO_PROBABILITIES}\n" in error
    assert "in 1 of 5 pictures the network's values overflow\n" in error
    assert "could not be read" not in error


def test_measures_of_a_classifier_count_the_picture_as_wrong(classifier, tmp_path, capsys):
    """Each path contains the first class, which a result without classes must not match."""
    paths = [tmp_path / f"qq{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        Image.fromarray(picture(is_bright=number == 1)).save(path)
    (tmp_path / "list.txt").write_text("".join(f"{each}\n" for each in paths))
    (tmp_path / "l.names").write_text("qq\nX1\nX2\nX3\nX4\nX5\n")
    given = ["--list", str(tmp_path / "list.txt"), "--labels", str(tmp_path / "l.names")]
    assert cli.main(["classify", *classifier.options, *given, "--top-k", "6"]) == 1
    done = capsys.readouterr()
    assert "3 pictures, top1 " in done.out
    assert "top6 0.6667" in done.out
    assert "left out" not in done.err
    names = tmp_path / "l.names"
    (tmp_path / "n.data").write_text(
        f"classes=6\nvalid={tmp_path}/list.txt\nlabels={names}\nnames={names}\ntop=6\n"
    )
    files = str(tmp_path / "n.data"), str(classifier.cfg), str(classifier.weights)
    assert cli.main(["classifier", "valid", *files, "-nogpu"]) == 1
    assert capsys.readouterr().out.rstrip().endswith("top 6: 0.666667")
