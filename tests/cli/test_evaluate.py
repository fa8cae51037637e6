"""python -m engine evaluate, as a user runs it."""

import contextlib
import errno
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.outputs.record import OutputRecord, Owned, add_file, files_in
from tests import needs

ROOT = Path(__file__).parents[2]
NAMES = ["cat", "dog", "cow"]


@pytest.fixture
def dataset(tmp_path):
    """Write four pictures; the third has an empty label file, the fourth has none."""
    random = np.random.default_rng(0)
    for folder in ("set/images", "set/labels"):
        (tmp_path / folder).mkdir(parents=True)
    for number in range(1, 5):
        pixels = random.integers(0, 256, (40, 50 + number, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "set" / "images" / f"{number:04}.png")
    (tmp_path / "set/labels/0001.txt").write_text("0 0.5 0.5 0.6 0.8\n1 0.2 0.2 0.3 0.3\n")
    (tmp_path / "set/labels/0002.txt").write_text("2 0.4 0.6 0.5 0.5\n")
    (tmp_path / "set/labels/0003.txt").write_text("")
    return tmp_path / "set"


@pytest.fixture
def evaluate(tiny_detector, capsys):
    def run(*arguments, model=True):
        options = [*tiny_detector.options, "--names", str(tiny_detector.names)] if model else []
        status = cli.main(["evaluate", *options, *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


def report_of(evaluate, *arguments, **keywords):
    status, out, _ = evaluate(*arguments, "--json", "-", **keywords)
    return status, json.loads(out)


@pytest.mark.slow
def test_child_process_prints_the_conditions_and_the_result(tiny_detector, dataset):
    names = ["--names", str(tiny_detector.names)]
    command = [sys.executable, "-m", "engine", "evaluate", str(dataset)]
    done = subprocess.run(
        [*command, *tiny_detector.options, *names],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == f"{dataset}: 4 pictures, 3 objects of 3 classes"
    assert lines[1] == (
        "method      COCO, 101 recalls, IoU 0.50 to 0.95, at most 100 detections of a class"
    )
    assert lines[2] == "detections  score above 0.005, nms default 0.45, cpu"
    assert lines[3] == "counts      score above 0.25, IoU 0.5"
    assert [line.split()[0] for line in lines if line.startswith("AP")] == [
        "AP",
        "AP50",
        "AP75",
    ] + ["AP"] * 3
    assert {"cat", "dog", "cow", "all"} <= {line.split()[0] for line in lines if line}
    assert "1 of 4 pictures have no label file: they count as empty" in done.stderr


def test_pictures_without_any_label_file_are_a_failure(evaluate, dataset):
    for file in (dataset / "labels").iterdir():
        file.unlink()
    status, _, err = evaluate(dataset)
    assert status == 1
    assert err.splitlines()[-1] == (
        "Error: no picture has a label file: nothing was measured. See --labels"
    )


def test_labels_that_a_run_wrote_are_announced(evaluate, dataset):
    """They would give a network nearly the best figures there are."""
    owned = Owned("0002", str(dataset / "images" / "0002.png"))
    OutputRecord(str(dataset / "labels"), str, ("labels",)).claim(owned, is_written=True)
    OutputRecord(str(dataset), str, ("pictures",)).claim(Owned("labels/0001", owned.picture))
    status, _, told = evaluate(dataset)
    warning = f"Warning: detect wrote 1 of 3 label files, such as {dataset}/labels/0002.txt. Unless"
    assert (status, warning in told) == (0, True)


@pytest.mark.parametrize("labels", ["labels", "elsewhere/found"])
def test_labels_that_a_run_gave_numbers_are_those_of_their_pictures(
    evaluate, dataset, tmp_path, labels
):
    """Detect writes 0001.txt for 0001.bmp and 0001-2.txt for 0001.png."""
    (dataset / "images/0001.bmp").write_bytes((dataset / "images/0002.png").read_bytes())
    target = dataset / labels
    target.mkdir(parents=True, exist_ok=True)
    given = {each.name: each.read_text() for each in (dataset / "labels").glob("*.txt")}
    numbered = {**given, "0001.txt": given["0002.txt"], "0001-2.txt": given["0001.txt"]}
    record = OutputRecord(str(target), str, ("labels",))
    for name, picture in (("0001", "0001.bmp"), ("0001-2", "0001.png")):
        owned = Owned(name, str((dataset / "images" / picture).resolve()))
        record.claim(owned, is_written=True)
    for name, text in numbered.items():
        (target / name).write_text(text)
    where = () if labels == "labels" else ("--labels", target)
    status, document = report_of(evaluate, dataset, *where)
    assert status == 0
    assert document["counts"]["objects"] == sum(
        len(text.splitlines()) for text in numbered.values()
    )


@pytest.mark.parametrize("method", ["coco", "voc", "voc11", "darknet"])
def test_json_holds_the_report_and_its_conditions(evaluate, dataset, method):
    status, document = report_of(evaluate, dataset, "--method", method, "--threshold", "0.1")
    assert status == 0
    assert (document["method"], document["threshold"], document["min_score"]) == (
        method,
        0.1,
        0.005,
    )
    assert (document["nms"], document["nms_kind"], document["device"]) == (0.45, "default", "cpu")
    assert [each["name"] for each in document["classes"]] == NAMES
    assert (
        sum(each["objects"] for each in document["classes"]) == document["counts"]["objects"] == 3
    )
    assert [each["image_id"] for each in document["images"]] == [1, 2, 3, 4]
    best = document["best_mean_f1"]
    _, out, _ = evaluate(dataset, "--method", method, "--threshold", "0.1")
    line = f"best mean F1: {best['f1']:.3f} at a score threshold of {best['threshold']:.3f}"
    assert line in out
    assert len(document["images"]) == document["pictures"] == 4
    assert document["unlabelled"] == 1


def test_a_list_gives_the_same_as_its_folder(evaluate, dataset, tmp_path):
    listing = tmp_path / "list.txt"
    listing.write_text("\n".join(map(str, sorted((dataset / "images").iterdir()))))
    (_, folder), (_, listed) = report_of(evaluate, dataset), report_of(evaluate, listing)
    assert folder["classes"] == listed["classes"]
    assert folder["summary"] == listed["summary"]


def test_what_a_folder_holds_besides_its_pictures_is_left_out_with_a_line(
    evaluate, dataset, caplog
):
    before = report_of(evaluate, dataset)
    for name in ("predictions.png", "more/0005.png"):
        (dataset / "images" / name).parent.mkdir(exist_ok=True)
        shutil.copy(dataset / "images/0001.png", dataset / "images" / name)
    add_file(dataset / "images/predictions.png")
    assert report_of(evaluate, dataset) == before
    told = caplog.text
    assert "images: subfolders with 1 picture are skipped. Name one of them" in told
    assert "images: pictures that another run wrote are skipped: 1. A list" in told


def test_compared_data_is_saved_for_pycocotools(evaluate, dataset, tmp_path):
    needs.package("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    saved = tmp_path / "coco"
    _, document = report_of(evaluate, dataset, "--save-coco", saved)
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO(saved / "ground_truth.json")
        judge = COCOeval(truth, truth.loadRes(str(saved / "detections.json")), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    ours = [-1 if each is None else each for each in document["summary"].values()]
    np.testing.assert_array_equal(ours, judge.stats)


def test_a_results_file_is_scored_like_the_detector_that_wrote_it(evaluate, dataset, tmp_path):
    saved = tmp_path / "coco"
    _, live = report_of(evaluate, dataset, "--save-coco", saved)
    results = ["--detections", saved / "detections.json"]
    names = tmp_path / "x.names"
    names.write_text("\n".join(NAMES) + "\n")
    sources = (
        [saved / "ground_truth.json", *results],
        [dataset, *results, "--names", names],
    )
    for source in sources:
        status, document = report_of(evaluate, *source, model=False)
        assert status == 0
        assert document["classes"] == live["classes"]
        assert document["confusion"] == live["confusion"]


@pytest.mark.parametrize(
    ("categories", "status", "lacking"),
    [((1, 2, 3), 0, ""), ((0, 1, 2), 0, "0"), ((0, 90), 2, "0, 90"), ((1, 90), 0, "90")],
)
def test_categories_that_a_folder_lacks_are_told(
    evaluate, dataset, tmp_path, categories, status, lacking
):
    detection = {"image_id": 1, "bbox": [1, 1, 20, 20], "score": 0.9}
    results, names = tmp_path / "results.json", tmp_path / "x.names"
    results.write_text(json.dumps([{**detection, "category_id": each} for each in categories]))
    names.write_text("\n".join(NAMES) + "\n")
    words = [dataset, "--detections", results, "--names", names]
    ended, out, err = evaluate(*words, model=False)
    lines = [line for line in err.splitlines() if "category_ids" in line]
    assert (ended, bool(out), len(lines)) == (status, status == 0, int(bool(lacking)))
    for line in lines:
        kind = "Error" if status else "Warning"
        assert line.startswith(f"{kind}: {results}: ")
        assert f"category_ids that {dataset} lacks: {lacking}. It has 3, from 1 to 3." in line
        assert line.endswith("counted from 0?" if 0 in categories else "place of the pictures")


@pytest.mark.parametrize("options", [[], ["--no-exif"]])
def test_swapped_sides_point_to_the_exif_orientation(evaluate, dataset, tmp_path, options):
    saved = tmp_path / "coco"
    evaluate(dataset, "--save-coco", saved)
    document = json.loads((saved / "ground_truth.json").read_text())
    first = document["images"][0]
    first["width"], first["height"] = first["height"], first["width"]
    (saved / "swapped.json").write_text(json.dumps(document))
    status, _, err = evaluate(saved / "swapped.json", "--images", dataset / "images", *options)
    sizes = "labelled as 40 x 51, the picture is 51 x 40. See EXIF in docs/evaluate.md"
    assert (status, f"0001.png: size: {sizes}" in err) == (1, True)


def test_a_data_set_that_detect_wrote_is_announced_as_ground_truth(
    tiny_detector, evaluate, dataset, tmp_path, capsys
):
    labelled = tmp_path / "labelled.json"
    words = [*tiny_detector.options, "--names", tiny_detector.names, "--coco-dataset", labelled]
    assert cli.main(["detect", *map(str, [dataset / "images", *words, "--threshold", 0.01])]) == 0
    capsys.readouterr()
    _, _, err = evaluate(labelled, "--images", dataset / "images")
    assert f"Warning: {labelled}: " in err
    assert "annotations have a score, as detect writes them. Unless you corrected them" in err


def test_coco_file_names_the_classes_of_a_model_without_names(
    tiny_detector, evaluate, dataset, tmp_path
):
    saved = tmp_path / "coco"
    _, live = report_of(evaluate, dataset, "--save-coco", saved)
    truth = [saved / "ground_truth.json", "--images", dataset / "images"]
    document = json.loads((saved / "ground_truth.json").read_text())
    for image in document["images"]:
        image["file_name"] = Path(image["file_name"]).name
    (saved / "ground_truth.json").write_text(json.dumps(document))
    status, named = report_of(evaluate, *truth, *tiny_detector.options, model=False)
    assert status == 0
    assert named["classes"] == live["classes"]


@pytest.mark.slow
@pytest.mark.parametrize("first", [None, 0, 1])
def test_categories_in_another_order_are_matched_by_name(
    tiny_detector, evaluate, dataset, tmp_path, first
):
    """A network without names has class 0, class 1, …, which other programs count from 1."""
    has_names = first is None
    saved = tmp_path / "coco"
    _, live = report_of(evaluate, dataset, "--save-coco", saved)
    document = json.loads((saved / "ground_truth.json").read_text())
    for each in document["images"]:
        each["file_name"] = Path(each["file_name"]).name
    numbers = [each["id"] for each in document["categories"]]
    other = dict(zip(numbers, reversed(numbers), strict=True))
    for place, each in enumerate(document["categories"]):
        each["id"] = other[each["id"]]
        if not has_names:
            each["name"] = f"class {first + place}"
    for each in document["annotations"]:
        each["category_id"] = other[each["category_id"]]
    (saved / "ground_truth.json").write_text(json.dumps(document))
    files = {"x.cfg": tiny_detector.cfg, "x.weights": tiny_detector.weights}
    if has_names:
        files["x.names"] = tiny_detector.names
    for name, path in files.items():
        shutil.copy(path, tmp_path / name)
    model = ["--cfg", tmp_path / "x.cfg", "--weights", tmp_path / "x.weights"]
    truth = [saved / "ground_truth.json", "--images", dataset / "images"]
    status, named = report_of(evaluate, *truth, *model, model=False)
    assert status == 0
    assert [each.pop("name") for each in live["classes"]] == NAMES
    expected = NAMES if has_names else ["class 0", "class 1", "class 2"]
    assert [each.pop("name") for each in named["classes"]] == expected
    assert named["classes"] == live["classes"]


def test_annotations_of_voc_are_read(evaluate, dataset, tmp_path):
    (dataset / "images").rename(dataset / "JPEGImages")
    (dataset / "Annotations").mkdir()
    box = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>30</xmax><ymax>20</ymax></bndbox>"
    for place, name in enumerate(["cat", "horse"], start=3):
        (dataset / "labels" / f"{place:04}.txt").unlink(missing_ok=True)
        text = f"<annotation><object><name>{name}</name>{box}</object></annotation>"
        (dataset / "Annotations" / f"{place:04}.xml").write_text(text)
    status, out, err = evaluate(dataset, "--method", "voc11")
    assert status == 1
    assert "0004.xml: object 1: name: no class is called 'horse'." in err
    assert "4 pictures, 4 objects" in out


def test_broken_labels_and_pictures_are_reported_and_the_rest_is_scored(evaluate, dataset):
    (dataset / "labels/0002.txt").write_text("2 0.4 0.6 0.5 0.5\n3 0.5 0.5 0.1 0.1\nx\n")
    (dataset / "images/0003.png").write_bytes(b"no picture")
    status, out, err = evaluate(dataset)
    assert status == 1
    assert f"Warning: {dataset}/labels/0002.txt:2: class: expected 0 to 2, got 3" in err
    assert f"Warning: {dataset}/labels/0002.txt:3: expected class x y width height" in err
    assert "1 of 4 pictures could not be read and are left out" in err
    assert "3 pictures, 3 objects" in out
    assert "Traceback" not in err


def test_nothing_is_printed_of_pictures_that_cannot_be_read(evaluate, dataset):
    for path in (dataset / "images").iterdir():
        path.write_bytes(b"no picture")
    status, out, err = evaluate(dataset)
    assert (status, out) == (1, "")
    assert err.endswith("Error: no picture could be read: nothing was measured\n")


def test_many_broken_lines_are_summarised(evaluate, dataset):
    (dataset / "labels/0002.txt").write_text("x\n" * 100)
    status, _, err = evaluate(dataset)
    assert status == 1
    assert "Warning: … and 80 more" in err
    assert len(err.splitlines()) < 30


def unread_stdout():
    """Return a stream whose reader has left, as head does; a line fails at once."""
    read, write = os.pipe()
    os.close(read)
    return os.fdopen(write, "w", buffering=1)


@pytest.mark.parametrize("report", ["report.json", "-"])
def test_files_are_written_though_nobody_reads_the_table(
    evaluate, dataset, tmp_path, monkeypatch, report
):
    monkeypatch.chdir(tmp_path)
    with unread_stdout() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert evaluate(dataset, "--json", report, "--save-coco", "saved")[0] == cli.CLOSED_PIPE
    assert len(list(Path("saved").iterdir())) == 2
    if report != "-":
        assert json.loads((tmp_path / report).read_text())["pictures"] == 4


@pytest.mark.slow
def test_what_was_measured_is_printed_though_a_file_cannot_be_written(
    evaluate, dataset, tmp_path, monkeypatch
):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "saved")

    def leave(*_):
        raise BrokenPipeError

    monkeypatch.setattr("engine.evaluate.coco_files.write", fail)
    options = ("--save-coco", tmp_path / "saved", "--curves", tmp_path / "curves")
    status, out, err = evaluate(dataset, *options)
    assert (status, "4 pictures" in out) == (cli.FAILED, True)
    assert err.endswith("Error: saved: No space left on device\n")
    assert [*(tmp_path / "curves").iterdir()]  # which is written after it

    monkeypatch.setattr("engine.cli.evaluate._lines", leave)
    status, _, err = evaluate(dataset, *options, "--overwrite")  # the user can mend the file
    assert (status, err.splitlines()[-1]) == (cli.FAILED, "Error: saved: No space left on device")


@pytest.mark.slow
def test_curves_are_written_once(evaluate, dataset, tmp_path):
    curves = tmp_path / "curves"
    arguments = (dataset, "--curves", curves)
    assert evaluate(*arguments)[0] == 0
    written = {path.name for path in curves.glob("*.png")}
    assert {"precision_recall.png", "confusion.png"} <= written == files_in(str(curves))
    status, _, err = evaluate(*arguments)
    assert status == 2
    assert f"--curves {curves}: is not empty. Name another, or add --overwrite" in err
    assert evaluate(*arguments, "--overwrite")[0] == 0
    taken = tmp_path / "file"
    taken.touch()
    status, _, err = evaluate(dataset, "--curves", taken)
    reason = "cannot create the folder: there is a file of that name, or above it"
    assert (status, err) == (2, f"Error: --curves {taken}: {reason}. Name another folder\n")


def test_a_folder_is_not_stdout(evaluate, dataset, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, _, err = evaluate(dataset, "--curves", "-")
    assert (status, list(tmp_path.glob("-"))) == (2, [])
    assert err == "Error: --curves -: expected a folder: this output does not go to stdout\n"


def test_inputs_are_not_replaced(evaluate, dataset, tmp_path):
    saved, listing = tmp_path / "saved", tmp_path / "list.txt"
    assert evaluate(dataset, "--save-coco", saved)[0] == 0
    listing.write_text("".join(f"{path}\n" for path in sorted(dataset.glob("images/*"))))
    truth, found = saved / "ground_truth.json", saved / "detections.json"
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    judged = (truth, "--detections", found, "--images", dataset / "images")
    for words in (
        (listing, "--json", listing),
        (listing, "--json", dataset / "labels/0001.txt"),
        (listing, "--json", dataset / "images/0001.png"),
        (*judged, "--json", truth),
        (*judged, "--json", found),
        (*judged, "--save-coco", saved),
    ):
        has_model = "--detections" not in words
        status, _, err = evaluate(*words, "--overwrite", model=has_model)
        assert (status, err.count("would replace a file that is read")) == (2, 1), words
    status, _, err = evaluate(listing, "--curves", dataset / "images", "--overwrite")
    assert (status, err.count("a curve could replace one. Name another folder")) == (2, 1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_options_of_another_kind_of_ground_truth_are_refused(evaluate, dataset, tmp_path):
    saved = tmp_path / "saved"
    assert evaluate(dataset, "--save-coco", saved)[0] == 0
    status, _, err = evaluate(dataset, "--images", dataset / "images")
    assert (status, err) == (2, f"Error: --images: belongs to a COCO .json file, got {dataset}\n")
    truth = saved / "ground_truth.json"
    status, _, err = evaluate(truth, "--images", dataset / "images", "--labels", dataset)
    problem = f"--labels: {truth} holds its labels itself. Leave --labels out"
    assert (status, err) == (2, f"Error: {problem}\n")


def test_two_outputs_are_not_one_file(evaluate, dataset, tmp_path):
    saved = tmp_path / "saved"
    document = saved / "detections.json"
    status, _, err = evaluate(dataset, "--save-coco", saved, "--json", document)
    assert (status, err) == (
        2,
        "Error: --save-coco and --json: expected different files, got one\n",
    )
    assert not document.exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "ranked", "counted"),
    [
        ([], 0.005, 0.25),
        (["--min-score", "0.5"], 0.5, 0.5),
        (["--threshold", "0.001"], 0.001, 0.001),
        (["--min-score", "0.001", "--threshold", "0.3"], 0.001, 0.3),
    ],
)
def test_counts_are_those_of_the_threshold_that_is_told(
    evaluate, dataset, tmp_path, options, ranked, counted
):
    _, found = report_of(evaluate, dataset, *options)
    assert (found["min_score"], found["threshold"]) == (ranked, counted)
    lowest = ("--min-score", "0.0001", "--save-coco", tmp_path / "all")
    _, all_boxes = report_of(evaluate, dataset, *lowest, "--threshold", str(counted))
    assert found["counts"] == all_boxes["counts"]
    files = ("--detections", tmp_path / "all/detections.json", "--names", tmp_path / "names")
    (tmp_path / "names").write_text("\n".join(NAMES))
    _, scored = report_of(
        evaluate, dataset, *files, "--min-score", str(ranked), *options, model=False
    )
    for part in ("counts", "summary"):
        assert scored[part] == found[part]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "cocoo"], "method: expected coco, voc, voc11, darknet, got 'cocoo'."),
        (["--points", "11"], "points: only with the method darknet"),
        (["--match-iou", "0"], "match_iou: expected above 0"),
        (["--min-score", "-1"], "--min-score: expected a number from 0 to 1, got -1.0"),
        (
            ["--min-score", ".5", "--threshold", ".25"],
            "--threshold 0.25: is below --min-score 0.5, and boxes between them would not be",
        ),
        (["more"], "expected one LIST, DIR or .json file, got 2"),
        (["--labels", "/none/such"], "--labels /none/such: expected a folder"),
        (["--detections", "/none/such.json"], "/none/such.json: cannot be read: No such file"),
    ],
)
def test_misuse_is_one_error_line(evaluate, dataset, arguments, message):
    status, out, err = evaluate(dataset, *arguments)
    assert status == 2
    assert message in err
    assert not out
    assert len(err.splitlines()) == 1


def test_other_misuse_is_one_error_line(evaluate, tiny_classifier, dataset, tmp_path, capsys):
    assert evaluate()[0] == 2
    results = tmp_path / "results.json"
    results.write_text("[]")
    status, _, err = evaluate("--detections", results, model=False)
    assert (status, "no ground truth named" in err) == (2, True)
    status, _, err = evaluate(dataset, "--detections", results, model=False)
    assert (status, "Name the classes with --names" in err) == (2, True)
    assert cli.main(["evaluate", str(dataset), *tiny_classifier.options]) == 2
    assert "Try: classify --list" in capsys.readouterr().err


def test_names_for_another_network_are_refused(evaluate, dataset, tmp_path):
    names = tmp_path / "two.names"
    names.write_text("cat\ndog\n")
    status, _, err = evaluate(dataset, "--names", names)
    assert status == 3
    assert "two.names: expected 3 names, one for each class of the network, got 2." in err


def test_a_data_file_names_the_pictures(evaluate, tiny_detector, dataset, tmp_path):
    pictures = sorted((dataset / "images").glob("*.png"))
    (tmp_path / "valid.txt").write_text("".join(f"{each}\n" for each in pictures[:2]))
    data = tmp_path / "obj.data"
    data.write_text(f"classes=3\nvalid=valid.txt\nnames={tiny_detector.names}\n")
    words = [data, tiny_detector.cfg, tiny_detector.weights]
    status, out, err = evaluate(*words, "--method", "darknet", model=False)
    assert (status, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'valid.txt'}: 2 pictures, 3 objects of 3 classes")
    assert out.splitlines()[-1].startswith(" mean average precision (mAP@0.50) = 0.")
    assert " for conf_thresh = 0.25, TP = " in out


def test_a_data_file_without_pictures_is_refused(evaluate, tiny_detector, tmp_path):
    data = tmp_path / "obj.data"
    data.write_text(f"classes=3\nnames={tiny_detector.names}\n")
    words = [data, tiny_detector.cfg, tiny_detector.weights]
    status, _, err = evaluate(*words, model=False)
    assert status in (2, 3)
    assert "obj.data" in err
    assert "valid" in err
    assert len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes with limits")
def test_untrusted_pictures_are_decoded_in_no_other_process(
    evaluate, dataset, tmp_path, monkeypatch
):
    pytest.importorskip("matplotlib")
    from engine.vision import image

    def refuse(*_, **__):
        raise AssertionError("decoded here")

    monkeypatch.setattr(image, "_read_encoded_here", refuse)
    options = ("--untrusted", "--curves", tmp_path / "curves", "--method", "voc")
    assert evaluate(dataset, *options)[0] == 0
    assert (tmp_path / "curves/worst.png").exists()
