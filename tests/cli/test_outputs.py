"""Outputs of detect through the command line, read back by the programs they are for."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from itertools import product
from pathlib import Path

import pytest
from PIL import Image

from engine import bundled
from engine.cli._output_files import ReservedPaths, check_output
from engine.cli._output_names import OutputNames
from engine.cli._sinks.json_documents import Document
from engine.errors import InputError
from engine.files.atomic import write_new
from engine.outputs.record import files_in
from engine.sources.media import media_of
from tests import needs
from tests.cli.child import ENVIRONMENT, engine, engine_here, engines_in_turn, names_in
from tests.pictures import write_picture

pytestmark = pytest.mark.slow

NO_RESULT = "Error: -: no picture has a result, so no output is written and none is replaced\n"


@pytest.fixture
def tree(tmp_path):
    for seed, name in enumerate(("one/7.jpg", "two/7.jpg", "two/000000000009.png")):
        write_picture(tmp_path / name, seed=seed)
    (tmp_path / "broken.jpg").write_bytes(b"\xff\xd8\xff no more")
    return tmp_path


@pytest.fixture
def detect(tiny_detector, tree):
    def run(*arguments, by=engine_here, **more):
        names = ["--names", tiny_detector.names]
        return by("detect", *tiny_detector.options, *names, *arguments, cwd=tree, **more)

    return run


def boxes_of(document):
    return [found for image in document["images"] for found in image.get("detections", ())]


def test_all_outputs_together_agree(detect, tree):
    done = detect(
        *("one", "two", "broken.jpg", "-o", "drawn", "--json", "all.json", "--jsonl", "all.jsonl"),
        *("--csv", "all.csv", "--save-txt", "labels", "--save-conf", "--crops", "crops"),
    )
    assert (done.status, len(names_in(done.out))) == (1, 3)
    document = json.loads((tree / "all.json").read_text())
    assert document["version"] == 1
    assert [image.get("error") is not None for image in document["images"]] == [False] * 3 + [True]
    found = boxes_of(document)
    assert found

    lines = [json.loads(line) for line in (tree / "all.jsonl").read_text().splitlines()]
    assert [line.get("detections") for line in lines] == [
        image.get("detections") for image in document["images"]
    ]

    with (tree / "all.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == [each["label"] for each in found]
    assert [float(row["left"]) for row in rows] == [each["box"]["left"] for each in found]

    drawn = files_below(tree / "drawn")
    assert drawn == ["one/7.jpg", "two/000000000009.png", "two/7.jpg"]
    with Image.open(tree / "drawn" / "one" / "7.jpg") as image:
        assert image.size == (50, 40)

    labels = files_below(tree / "labels")
    assert labels == ["one/7.txt", "two/000000000009.txt", "two/7.txt"]
    for line in (tree / "labels" / labels[0]).read_text().splitlines():
        class_id, *numbers = line.split()
        assert class_id in ("0", "1", "2")
        assert len(numbers) == 5
        assert all(0 <= float(number) <= 1 for number in numbers)

    crops = list((tree / "crops").rglob("[!.]*.*"))
    crops = [path for path in crops if path.is_file()]
    assert {path.parts[-3] for path in crops} <= {"cat", "dog", "cow"}
    assert len(crops) == sum(is_inside(each["box"]) for each in found)


def files_below(folder):
    """Return the paths of all files below a folder, relative to it."""
    found = (path for path in folder.rglob("[!.]*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found)


def is_inside(box):
    return min(box["right"], 50) > max(box["left"], 0) and min(box["bottom"], 40) > max(
        box["top"], 0
    )


def test_darknets_own_json(detect, tree):
    done = detect("two", "--json", "-", "--json-style", "darknet")
    entries = json.loads(done.out)
    assert [entry["frame_id"] for entry in entries] == [1, 2]
    assert set(entries[0]["objects"][0]) == {
        "class_id",
        "name",
        "relative_coordinates",
        "confidence",
    }


@pytest.mark.parametrize("option", ["--json", "--jsonl", "--csv"])
def test_dash_writes_only_that_output_to_stdout(detect, option):
    done = detect("one", option, "-")
    assert done.status == 0
    if option == "--csv":
        head, *rows = csv.reader(io.StringIO(done.out))
        assert head[:3] == ["path", "class_id", "label"]
        assert {row[0] for row in rows} == {"one/7.jpg"}
    else:
        assert "one/7.jpg" in done.out
        json.loads(done.out)


def test_classify_writes_csv_and_jsonl(tiny_classifier, tree):
    options = [*tiny_classifier.options, "--names", tiny_classifier.names, "--top-k", "2"]
    done = engine_here("classify", *options, "one", "--csv", "-", "--jsonl", "c.jsonl", cwd=tree)
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert [row["rank"] for row in rows] == ["1", "2"]
    (line,) = (tree / "c.jsonl").read_text().splitlines()
    assert [each["label"] for each in json.loads(line)["classes"]] == [row["label"] for row in rows]


def test_quiet_prints_nothing(detect):
    done = detect("one", "--quiet")
    assert (done.status, done.out, done.err) == (0, "", "")


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        (["--classes", "cat,dog"], {"cat", "dog"}),
        (["--classes", "cat", "--classes", "2"], {"cat", "cow"}),
        (["--exclude", "cat,1"], {"cow"}),
        (["--classes", "cat,cow", "--exclude", "cow"], {"cat"}),
    ],
)
def test_classes_are_chosen_by_name_or_number(detect, options, allowed):
    document = json.loads(detect("one", "two", "--threshold", "0.01", *options, "--json", "-").out)
    assert {found["label"] for found in boxes_of(document)} == allowed


def test_max_det_and_agnostic_nms_leave_fewer_boxes(detect):
    def count(*options):
        done = detect("one", "--thresh", "0.01", "--json", "-", *options)
        return len(boxes_of(json.loads(done.out)))

    every = count()
    assert count("--max-det", "2") == 2 < every
    assert 0 < count("--agnostic-nms") < every
    assert count("--iou", "1") > every


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--classes", "dgo"], "no class is called 'dgo'. Did you mean 'dog'?"),
        (["--classes", "dog", "--exclude", "1"], "--classes and --exclude: leave no class"),
        (["--exclude", "0,1,2"], "--classes and --exclude: leave no class"),
        (["--exclude", "3"], "classes: expected a number below 3, got 3"),
        (["--classes", ","], "classes: expected at least one, got none"),
        (["--max-det", "0"], "max_detections: expected an integer of 1 or more, got 0"),
        (["--json", "-", "--csv", "-"], "expected different files"),
        (["--json", "x", "--jsonl", "x"], "expected different files"),
        (["--json", "x", "--csv", "./x", "--overwrite"], "expected different files"),
        (["-o", "x.png", "--jsonl", "one/../x.png"], "expected different files"),
        (["-o", "new/x.jpg", "--crops", "new/x.jpg"], "make a folder of the file that -o writes"),
        (["--jsonl", "new/x", "--save-txt", "new/../new/x/y"], "folder of the file that --jsonl"),
        (["--csv", "new/x", "-o", "new/x"], "make a folder of the file that --csv writes"),
        (["--csv", "one/7.jpg"], "would replace a file that is read"),
        (["--csv", "old.csv"], "exists already. Name another, or add --overwrite"),
        (["--jsonl", "old.csv/x.jsonl"], "cannot create the folder"),
        (["--json", "two"], "expected a file, got a folder"),
        (["-o", "s3://b/x"], "s3://b/x: expected a path on this machine, got an address"),
        (["-o", "s3://b/x.png"], "expected a path on this machine, got an address"),
        (["--crops", "file:///x"], "expected a path on this machine, got an address"),
        (["--save-txt", "gs://b/l"], "expected a path on this machine, got an address"),
        (["--csv", "gs://b/x.csv"], "expected a path on this machine, got an address"),
        (["--save-mot", "s3://b/x.txt"], "expected a path on this machine, got an address"),
        (["--save-txt", "old.csv"], "cannot create the folder"),
        (["--crops", "old.csv/x"], "cannot create the folder"),
        (["-o", "old.png"], "exists already"),
        (["--json", "to-nothing"], "exists already"),
        (["two/7.jpg", "-o", "x.png", "--jsonl", "x.jsonl"], "one file for several pictures"),
        (["-o", "ann.pdf"], "-o ann.pdf: cannot write .pdf files: expected a folder, or a name"),
        (["-o", "found.json"], "-o found.json: cannot write .json files"),
        (["-o", "-"], "-o -: expected a folder or a file"),
        (["--crops", "-"], "--crops -: expected a folder: this output does not go to stdout"),
        (["--save-txt", "-"], "--save-txt -: expected a folder: this output does not go to stdout"),
        (["-o", "one/7.jpg", "--overwrite"], "would replace a file that is read"),
    ],
)
def test_impossible_outputs_are_one_error_line(detect, tree, arguments, message):
    (tree / "old.csv").write_text("kept")
    write_picture(tree / "old.png")
    (tree / "to-nothing").symlink_to("nothing")
    before = snapshot(tree)
    done = detect("one/7.jpg", *arguments)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert message in line
    assert snapshot(tree) == before


def test_outputs_do_not_appear_for_nothing(detect, tree):
    before = snapshot(tree)
    outputs = ("--csv", "a.csv", "--save-txt", "texts", "-o", "drawn")
    done = detect("no.jpg", *outputs)
    assert (done.status, done.out) == (2, "")
    assert "no.jpg: no such file or folder. Nothing is read, so nothing is written" in done.err
    assert snapshot(tree) == before
    assert detect("one/7.jpg", *outputs).status == 0


def test_outputs_are_not_replaced_for_nothing(detect, tree):
    (tree / "old.csv").write_text("kept")
    (tree / "list.txt").write_text("no.jpg\nno/*.jpg\nno\nno.txt\nno.mp4\nno\0.jpg\n")
    done = detect("list.txt", "--csv", "old.csv", "--overwrite")
    assert (done.status, done.out) == (2, "")
    end = "no.jpg: no such file or folder, and 5 more. Nothing is read, so nothing is written\n"
    assert done.err.endswith(end)
    assert (tree / "old.csv").read_text() == "kept"
    (tree / "empty").mkdir()
    done = detect("empty", "--csv", "old.csv", "--overwrite")
    assert done.err.endswith("/**/*.*'. Nothing is read, so nothing is written\n")
    assert detect("list.txt", "one/7.jpg", "--csv", "old.csv", "--overwrite").status == 1
    assert (tree / "old.csv").read_text() != "kept"


def test_missing_folders_are_made(detect, tree):
    options = ["--json", "--jsonl", "--csv", "--coco-dataset"]
    assert detect("one/7.jpg", *(f"{each}=no/such/x{each}" for each in options)).status == 0
    assert all((tree / f"no/such/x{each}").stat().st_size for each in options)


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


def test_nothing_is_overwritten_unless_asked(detect, tree):
    outputs = ["-o", "out", "--save-txt", "out", "--crops", "out/crops"]
    assert detect("one", *outputs).status == 0
    first = snapshot(tree)
    for option in (outputs[:2], outputs[2:4], outputs[2:]):  # crops alone cannot be resumed
        done = detect("two/7.jpg", *option)
        assert (done.status, done.out) == (2, "")
        (line,) = done.err.splitlines()
        assert "exist" in line
        assert line.endswith("add --overwrite, or --resume to continue a stopped run")
    assert snapshot(tree) == first
    assert detect("two/7.jpg", *outputs, "--overwrite").status == 0
    assert snapshot(tree) != first
    assert files_below(tree / "out") == sorted({*files_below(tree / "out")})


@pytest.mark.parametrize(
    "options", ["--crops out", "-o out --json all.json", "-o out --track", "--csv rows.csv --track"]
)
def test_a_hint_names_resume_only_where_it_helps(detect, tree, options):
    words = ["two/7.jpg", *options.split(), "--quiet"]
    assert detect(*words).status == 0
    (tree / "all.json").unlink(missing_ok=True)
    done = detect(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err.endswith(" already. Name another, or add --overwrite\n")
    assert detect(*words, "--resume").status == 2
    assert detect(*words, "--overwrite").status == 0


def test_results_are_kept_if_another_run_was_faster(tmp_path):
    path = tmp_path / "all.json"
    sink = Document(str(path), existing="refuse")
    sink.begin({}, ())
    path.write_text("theirs")
    with pytest.raises(
        InputError, match=r"all\.json: exists by now\. The results are in .*-2\.json"
    ):
        sink.finish()
    sink.discard()
    assert path.read_text() == "theirs"
    assert json.loads((tmp_path / "all-2.json").read_text())["images"] == []
    assert len(list(tmp_path.iterdir())) == 2


def test_name_used_thousands_of_times_is_numbered_quickly():
    names = OutputNames(None, is_flat=True, needs_stems=False)
    sources = [media_of("3/7-3.jpg"), *(media_of(f"{number}/7.jpg") for number in range(4000))]
    start = time.process_time()
    found = [names.name_of(each)[0] for each in sources]
    assert time.process_time() - start < 10
    assert found == ["7-3", "7", "7-2", *(f"7-{number}" for number in range(4, 4002))]


def test_picture_its_format_cannot_hold_becomes_a_png(detect, tree):
    for name, size in (("wide.jpg", (70_000, 3)), ("flat.webp", (20_000, 1))):
        write_picture(tree / "as.png", size=size).rename(tree / "one" / name)
    write_picture(tree / "one" / "wide.png", size=(30, 20))
    options = ("one", "-o", "out", "--crops", "crops", "--threshold", "0.5")
    done = detect(*options, "--quiet")
    assert (done.status, done.out, done.err) == (0, "", "")
    written = {path.name: path for path in (tree / "out").glob("[!.]*")}
    assert written.keys() == {"7.jpg", "flat.webp.png", "wide.jpg.png", "wide.png"}
    assert "nothing left to do, 4 done before" in detect(*options, "--resume").err
    for name, size in (("wide.jpg.png", (70_000, 3)), ("wide.png", (30, 20))):
        with Image.open(written[name]) as image:
            assert image.size == size


@pytest.mark.parametrize("option", ["-o", "--save-txt", "--crops"])
def test_runs_that_share_a_folder_do_not_replace_each_others_files(tiny_detector, tmp_path, option):
    """Only one of several runs writes a file; the others end with a line that says so."""
    for number in range(12):
        write_picture(tmp_path / "many" / f"{number}.jpg", seed=number)
    words = ["detect", *tiny_detector.options, "many", "--thresh", "0.5", "--quiet", option]
    assert engine_here(*words, "alone", cwd=tmp_path).status == 0

    def run():
        command = [sys.executable, "-m", "engine", *words, "shared"]
        pipes = {"stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, cwd=tmp_path, env=ENVIRONMENT, **pipes)

    for each in [run() for _ in range(3)]:
        told = each.communicate(timeout=60)[1]
        assert (each.returncode, told) == (0, "") or (
            each.returncode == 2 and re.fullmatch(r"Error: .* exists? already\. .*\n", told)
        )
    alone, shared = (snapshot(tmp_path / folder) for folder in ("alone", "shared"))
    assert list(shared.values()) == [
        alone[tmp_path / "alone" / path.relative_to(tmp_path / "shared")] for path in shared
    ]


@pytest.mark.parametrize("option", ["-o", "--crops"])
@pytest.mark.parametrize("target", ["two", "two/../one"])
def test_pictures_are_not_written_into_a_folder_that_is_read(detect, tree, option, target):
    before = snapshot(tree)
    done = detect("one", "two/7.jpg", option, target, "--overwrite")
    assert (done.status, done.out) == (2, "")
    assert "is a folder that pictures are read from" in done.err
    assert snapshot(tree) == before


@pytest.mark.parametrize("option", ["--json", "--jsonl", "--csv"])
@pytest.mark.parametrize("kind", ["cfg", "weights", "names", "data", "its names", "list"])
def test_inputs_are_never_replaced(tiny_detector, tree, kind, option):
    for each in ("cfg", "weights", "names"):
        shutil.copy(getattr(tiny_detector, each), tree / f"my.{each}")
    (tree / "of.data").write_text("names = my.names\n")
    (tree / "list.txt").write_text("one/7.jpg\n")
    before = snapshot(tree)
    names = ["--data", "of.data"] if kind in ("data", "its names") else ["--names", "my.names"]
    target = {"data": "of.data", "its names": "my.names", "list": "list.txt"}
    done = engine_here(
        *("detect", "my.cfg", "my.weights", "list.txt", *names, "--device", "cpu"),
        *(option, target.get(kind, f"my.{kind}"), "--overwrite"),
        cwd=tree,
    )
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.endswith("would replace a file that is read")
    assert snapshot(tree) == before


def test_default_model_is_not_replaced(tree):
    box = bundled.default_model()
    before = [path.read_bytes() for path in box]
    for path in box:
        done = engine_here("detect", "one", "--json", path, "--overwrite", cwd=tree)
        assert (done.status, "would replace" in done.err) == (2, True)
    assert [path.read_bytes() for path in box] == before


def test_labels_keep_the_list_and_files_next_to_pictures(detect, tree):
    (tree / "lab").mkdir()
    (tree / "lab" / "7.txt").write_text("one/7.jpg\n")
    (tree / "one" / "7.txt").write_text("mine")
    before = snapshot(tree)
    done = detect("lab/7.txt", "--save-txt", "lab", "--overwrite")
    assert (done.status, "would replace a file that is read" in done.err) == (2, True)
    for source, names in (("one", ""), ("-", "one/7.jpg\n")):
        target = "." if source == "-" else "./one"
        done = detect(source, "--save-txt", target, "--overwrite", "--quiet", stdin=names)
        assert done.status == 2
        (line,) = done.err.splitlines()
        assert "would replace labels of one/7.jpg. Name another folder" in line
    done = detect("one", "--save-txt", "one")
    assert (done.status, "one/7.txt exists already" in done.err) == (2, True)
    assert snapshot(tree) == before


def test_links_in_a_folder_of_outputs_are_replaced_and_not_their_files(detect, tree):
    (tree / "store").write_text("mine")
    link, labels = tree / "drawn" / "7.jpg", tree / "texts" / "7.txt"
    for each in (link, labels):
        each.parent.mkdir()
        each.symlink_to("../store")
    drawn = ("one/7.jpg", "-o", "drawn")
    assert detect(*drawn).status == 2
    assert detect(*drawn, "--save-txt", "texts", "--overwrite").status == 2  # its labels are mine
    assert detect(*drawn, "--overwrite").status == 0
    assert (tree / "store").read_text() == "mine"
    assert (link.is_symlink(), labels.is_symlink()) == (False, True)


def test_labels_keep_those_next_to_a_folder_of_any_name(detect, tree):
    (tree / "labels").mkdir()
    labels = tree / "labels" / "7.txt"
    labels.write_text("mine")
    for source in ("one", str(tree / "one" / "7.jpg")):
        done = detect(source, "--save-txt", "labels", "--overwrite")
        assert (done.status, "would replace 7.txt, which was not" in done.err) == (2, True)
        assert labels.read_text() == "mine"
    labels.unlink()
    for _ in range(2):  # the second run replaces what the first one wrote
        assert detect("one", "--save-txt", "labels", "--overwrite").status == 0
    assert labels.exists()


def test_labels_keep_those_of_inner_folders(detect, tree):
    """`photos/day1/x.jpg` may have its labels in `labels/day1/x.txt`."""
    picture = tree / "photos" / "day1" / "x.png"
    write_picture(picture)
    labels = tree / "labels" / "day1" / "x.txt"
    labels.parent.mkdir(parents=True)
    labels.write_text("mine")
    for source in (("photos", "--recursive"), ("photos/day1/x.png", "one/7.jpg")):
        out = detect(*source, "--save-txt", "labels", "--overwrite")
        assert labels.read_text() == "mine", out.err


def test_labels_do_not_take_the_place_of_those_in_another_folder(detect, tree):
    """Labels next to a picture count before those in `labels`, for darknet as well."""
    write_picture(tree / "set" / "images" / "1.png")
    (tree / "set" / "labels").mkdir()
    (tree / "set" / "labels" / "1.txt").write_text("mine")
    before = snapshot(tree)
    done = detect("set/images", "--save-txt", "set/images")
    what = "would take the place of set/labels/1.txt, the labels of a picture. Name another folder"
    assert (done.status, what in done.err) == (2, True)
    assert snapshot(tree) == before


def test_labels_keep_those_of_a_data_set(detect, tree):
    write_picture(tree / "set" / "images" / "1.png")
    (tree / "set" / "labels").mkdir()
    labels = tree / "set" / "labels" / "1.txt"
    labels.write_text("mine")
    done = detect("set/images", "--save-txt", "set/labels", "--overwrite")
    assert (done.status, "would replace 1.txt, which was not written by a run" in done.err) == (
        2,
        True,
    )
    (tree / "set" / "images" / "1.txt").touch()  # darknet would read it as labels
    assert detect("set/images", "--save-txt", "set/labels", "--overwrite").status == 2
    assert labels.read_text() == "mine"
    labels.unlink()
    names = "set/images/1.png\n" * 2
    assert detect("-", "--save-txt", "set/labels", "--overwrite", stdin=names).status == 0
    assert files_below(labels.parent) == ["set/images/1-2.txt", "set/images/1.txt"]


def test_longest_possible_names_work_for_outputs(detect, tree):
    name = "é" * 125 + ".png"
    write_picture(tree / "long" / name)
    done = detect("long", "one", "-o", "out", "--save-txt", "labels", "--crops", "crops")
    assert done.status == 0
    assert done.err.endswith(" per second: out, labels, crops\n")
    assert len(files_below(tree / "out")) == len(files_below(tree / "labels")) == 2


@pytest.mark.parametrize("option", ["--json", "--jsonl", "--csv"])
def test_machine_readable_output_is_always_utf8(detect, tree, option):
    write_picture(tree / "ü" / "é.png")
    done = detect("ü", option, "-", encoding="latin-1")
    assert done.status == 0
    assert "é.png" in done.out


def test_a_picture_named_on_stdin_is_not_replaced(detect, tree):
    before = snapshot(tree)
    done = detect("-", "-o", "one/7.jpg", "--overwrite", stdin="one/7.jpg\n")
    assert (done.status, "would replace" in done.err) == (2, True)
    assert snapshot(tree) == before


@pytest.mark.parametrize(
    ("option", "names"),
    [
        *((each, "two/7.jpg one/7.jpg") for each in ("--json", "--coco-dataset", "--csv", "-o")),
        *(("--jsonl", each) for each in ("one/7.jpg two", "two one", "list.txt")),
        ("-o", "two one"),
    ],
)
def test_names_that_arrive_late_protect_their_files(detect, tree, option, names):
    (tree / "list.txt").write_text("two/7.jpg\none/7.jpg\n")
    before = snapshot(tree)
    stdin = names.replace(" ", "\n")
    done = detect("-", option, "one/7.jpg", "--overwrite", stdin=stdin)
    assert done.status == 2
    *_, line = done.err.splitlines()
    assert re.search("would replace a file that is read$|one file for several pictures", line)
    assert snapshot(tree) == before
    assert not list(tree.rglob("*.part"))
    assert not files_in(tree / "one")


@pytest.mark.parametrize("option", ["--json", "--coco-dataset", "--jsonl", "--csv"])
def test_list_on_stdin_is_not_replaced(detect, tree, monkeypatch, option):
    (tree / "list").write_text("one/7.jpg\n")
    with (tree / "list").open() as names:
        monkeypatch.setattr("sys.stdin", names)
        done = detect("-", option, "list", "--overwrite")
    assert done.status == 2
    assert done.err.endswith(f"Error: {option} list: would replace a file that is read\n")
    assert (tree / "list").read_text() == "one/7.jpg\n"


def test_outputs_that_a_search_names_on_stdin_are_not_read(detect, tree):
    command = ["-", "-o", "out", "--crops", "out/crops", "--overwrite"]
    assert detect(*command, stdin="one/7.jpg\n").status == 0
    found = files_below(tree / "out")
    assert len(found) > 1
    names = ["one/7.jpg", *(f"./out/{each}" for each in found)]
    done = detect(*command, stdin="\n".join(names))
    for folder, count in (("out", 1), ("out/crops", len(found) - 1)):
        what = f"{folder}: pictures in this folder of outputs are skipped: {count}"
        assert (done.status, what in done.err) == (0, True)
    assert files_below(tree / "out") == found


def test_new_outputs_are_known(tmp_path):
    (tmp_path / "old.jpg").touch()
    reserved = ReservedPaths([tmp_path / "in.jpg"], stdin=True)
    for name in ("old.jpg", "new.jpg"):
        assert reserved.take("-o", tmp_path / name)
    names = ("new.jpg", "old.jpg", "in.jpg", "other.jpg")
    assert [reserved.is_new_output(tmp_path / each) for each in names] == [True, *[False] * 3]


def test_existing_output_is_never_taken_for_a_new_one(tmp_path, monkeypatch):
    old = tmp_path / "old.jpg"
    old.touch()
    reserved = ReservedPaths(stdin=True)
    with ThreadPoolExecutor(1) as names:
        asked = []

        def is_file(path):  # it lets other threads run
            asked.append(names.submit(reserved.is_new_output, old))
            wait(asked, timeout=0.2)
            return Path(path).is_file()

        monkeypatch.setattr("os.path.isfile", is_file)
        assert reserved.take("-o", old)
        assert [each.result() for each in asked] == [False]


@pytest.mark.parametrize("option", ["--json", "--jsonl", "--csv", "--coco-dataset"])
def test_names_on_stdin_replace_old_results_but_not_for_nothing(detect, tree, option):
    (tree / "old").write_text("results")
    for names in ("", "no.jpg\nno\n", "broken.jpg\n"):
        done = detect("-", option, "old", "--overwrite", stdin=names)
        assert (done.status, (tree / "old").read_text()) == (2, "results")
        assert done.err.endswith(NO_RESULT) == bool(names)
    done = detect("-", option, "old", "--overwrite", stdin="one/7.jpg\n")
    assert (done.status, "one/7.jpg" in (tree / "old").read_text()) == (0, True)
    assert not list(tree.rglob("*.part"))


def test_new_outputs_do_not_appear_for_nothing_on_stdin(detect, tree):
    before = snapshot(tree)
    outputs = ("--json", "a.json", "--jsonl", "a.jsonl", "--csv", "a.csv", "--csv-all")
    for names in ("", "no.jpg\nno\n"):
        done = detect("-", *outputs, stdin=names)
        assert (done.status, done.err.endswith(NO_RESULT)) == (2, bool(names))
        assert snapshot(tree) == before
    assert detect("-", *outputs, stdin="broken.jpg\n").status == 1
    assert all("broken.jpg" in (tree / each).read_text() for each in outputs[1::2])


def test_folders_stay_as_they_are_for_nothing_on_stdin(detect, tree):
    command = ("-", "-o", "drawn", "--save-txt", "texts", "--crops", "cut", "--overwrite")
    assert detect(*command, stdin="one/7.jpg\n").status == 0
    before = snapshot(tree)
    for names, status in (("no.jpg\n", 2), ("broken.jpg\n", 1)):
        assert detect(*command, stdin=names).status == status
        assert snapshot(tree) == before


@pytest.mark.parametrize("outputs", [["--csv", "a.csv", "--resume"], ["--jsonl", "-"]])
def test_a_run_that_resumes_or_writes_to_stdout_may_read_nothing(detect, tree, outputs):
    done = detect("-", *outputs, stdin="no.jpg\n")
    assert (done.status, NO_RESULT in done.err) == (1, False)


def test_single_picture_is_written_to_a_named_file(detect, tree):
    assert detect("one", "-o", "found.png").status == 0
    assert files_in(tree) == {"found.png"}
    with Image.open(tree / "found.png") as image:
        assert (image.format, image.size) == ("PNG", (50, 40))
    done = detect("-", "-o", "again.png", stdin="one/7.jpg\ntwo/7.jpg\n")
    assert done.status == 2
    assert "one file for several pictures. Name a folder" in done.err


@pytest.mark.parametrize("option", ["--json", "--jsonl", "--csv"])
def test_a_full_disk_is_one_line(detect, option):
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    done = detect("one", option, "/dev/full", "--quiet")
    assert done.status == 1
    (line,) = done.err.splitlines()
    assert line == "Error: /dev/full: cannot be written: No space left on device"


def test_output_that_does_not_fit_on_the_disk_is_removed(tiny_detector, tree):
    words = ["detect", *tiny_detector.options, "--threshold", "0", "--nms", "1", "one", "--quiet"]
    outputs = (["-o", "out"], ["-o", "out.png"], ["--json", "out.json"])
    done = engines_in_turn(
        *([*words, *options] for options in outputs),
        before="import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (256, 256))",
        cwd=tree,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert lines[1::2] == ["1"] * len(outputs)
    assert len(lines) == 2 * len(outputs)
    assert all(line.endswith("cannot be written: File too large") for line in lines[::2])
    assert not [path for path in tree.rglob("[!.]*") if path.is_file() and "out" in str(path.name)]


def test_unwritable_folder_is_refused(detect, tree):
    closed = tree / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip(needs.AS_ROOT)
    done = detect("one", "-o", "closed")
    assert (done.status, "is not writable" in done.err) == (2, True)


def test_a_file_that_could_not_be_replaced_is_refused_before_the_run(tmp_path, monkeypatch):
    """What is written at the end of a run takes the place of the file, and needs its folder."""
    file = str(tmp_path / "found.json")
    Path(file).write_text("old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # a superuser may write everywhere
    with pytest.raises(InputError, match="the folder is not writable"):
        check_output("--json", file, ReservedPaths(), overwrite=True)
    check_output("--csv", file, ReservedPaths(), overwrite=True, in_place=True)
    check_output("--json", os.devnull, ReservedPaths(), overwrite=True)


def test_the_folder_of_a_linked_output_is_made(tmp_path):
    link = tmp_path / "link.json"
    link.symlink_to("missing/found.json")
    check_output("--json", str(link), ReservedPaths(), overwrite=True)
    write_new(link, b"[]", overwrite=True)
    assert (tmp_path / "missing/found.json").read_text() == "[]"


def test_device_files_are_written_in_place(detect):
    done = detect("one", "--json", "/dev/stdout", "--quiet", by=engine)
    assert done.status == 0
    json.loads(done.out)


LINES = ["--json", "--jsonl", "--csv"]
ROTATIONS = [LINES[at:] + LINES[:at] for at in range(len(LINES))]


@pytest.mark.skipif(os.name == "nt", reason="/dev is of POSIX systems")
@pytest.mark.parametrize(
    ("overwrite", "third"), [([], "/dev/fd/{}"), (["--overwrite"], "/proc/PARENT/fd/{}")]
)
@pytest.mark.parametrize("options", ROTATIONS, ids=lambda options: options[0])
def test_streams_that_are_redirected_to_files_are_written_in_place(
    tiny_detector, tree, options, overwrite, third
):
    if "PARENT" in third and not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    third = third.replace("PARENT", str(os.getpid()))  # whose descriptor the engine inherits
    with redirected(tree, detect_alone(tiny_detector, tree), options) as files:
        number = files[2].fileno()
        names = ("/dev/stdout", "/dev/stderr", third.format(number))
        words = [word for pair in zip(options, names, strict=True) for word in pair]
        done = subprocess.run(
            [sys.executable, "-m", "engine", *tiny_detect(tiny_detector), *words, *overwrite],
            cwd=tree,
            env=ENVIRONMENT,
            stdout=files[0],
            stderr=files[1],
            pass_fds=[number],
            timeout=60,
        )
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("overwrite", [[], ["--overwrite"]])
@pytest.mark.parametrize("options", ROTATIONS, ids=lambda options: options[0])
@pytest.mark.parametrize(
    "names",
    [
        ("/dev/fd/{}", "//dev//fd/{}", "/proc/self/fd/{}"),
        ("/dev/./fd/{}", "/proc/thread-self/fd/{}", "streams/{}"),
        ("link", "link-to-link", "/dev/fd/{}"),
    ],
)
def test_every_name_of_a_stream_is_written_in_place(tiny_detector, tree, names, options, overwrite):
    with redirected(tree, detect_alone(tiny_detector, tree), options) as files:
        first, second, _ = (file.fileno() for file in files)
        (tree / "link").symlink_to(f"/dev/fd/{first}")
        (tree / "link-to-link-itself").symlink_to(f"/dev/fd/{second}")
        (tree / "link-to-link").symlink_to("link-to-link-itself")
        (tree / "streams").symlink_to("/dev/fd")
        outputs = [
            word
            for option, name, file in zip(options, names, files, strict=True)
            for word in (option, name.format(file.fileno()))
        ]
        done = engine_here(*tiny_detect(tiny_detector), *outputs, *overwrite, cwd=tree)
    assert (done.status, done.out, done.err) == (0, "", "")


def tiny_detect(tiny_detector):
    return ["detect", *tiny_detector.options, "one", "--quiet"]


def detect_alone(tiny_detector, tree):
    """Return what each option writes to a file of its own."""
    names = {option: tree / f"alone{option}" for option in LINES}
    words = [word for pair in names.items() for word in pair]
    assert engine_here(*tiny_detect(tiny_detector), *words, cwd=tree).status == 0
    return {option: path.read_text() for option, path in names.items()}


@contextmanager
def redirected(tree, alone, options):
    """Open a file with a line in it for each option; afterwards the option's output follows."""
    paths = [tree / f"found{option}" for option in options]
    with ExitStack() as stack:
        files = []
        for path in paths:
            path.write_text("before\n")
            files.append(stack.enter_context(path.open("a")))
        yield files
    for path, option in zip(paths, options, strict=True):
        written = without_milliseconds(path.read_text())
        assert written == "before\n" + without_milliseconds(alone[option]), option


@pytest.mark.skipif(os.name == "nt", reason="/dev is of POSIX systems")
def test_two_outputs_do_not_go_to_one_stream(tiny_detector, tree):
    (tree / "link").symlink_to("/dev/stdout")
    words = ["detect", *tiny_detector.options, "one", "--overwrite"]
    pairs = product(["/dev/stdout", "/dev/./fd/1", "link"], ["-", "/dev/fd/1", "found"])
    with (tree / "found").open("w") as file:
        done = engines_in_turn(
            *([*words, "--jsonl", stream, "--csv", other] for stream, other in pairs),
            cwd=tree,
            stdout=file,
            stderr=subprocess.PIPE,
            text=True,
        )
    message = "Error: --jsonl and --csv: expected different files, got one\n"
    assert (done.returncode, done.stderr) == (0, f"{message}2\n" * 9)
    assert not (tree / "found").read_text()


@pytest.mark.skipif(os.name == "nt", reason="/dev is of POSIX systems")
def test_two_outputs_may_go_to_the_null_device(tiny_detector, tree):
    options = ["one", "--jsonl", "-", "--csv", "/dev/null"]
    command = [sys.executable, "-m", "engine", "detect", *tiny_detector.options, *options]
    null = subprocess.DEVNULL
    assert subprocess.run(command, cwd=tree, env=ENVIRONMENT, stdout=null).returncode == 0


def test_no_table_is_printed_between_the_lines_of_a_stream(detect):
    done = detect("one", "--jsonl", "/dev/stdout")
    assert done.status == 0
    for line in done.out.splitlines():
        json.loads(line)


def without_milliseconds(text):
    return re.sub(r'"(prepare|network|suppress|[a-z_]*ms)": [0-9.]+', "", text)


def test_a_stream_that_is_open_for_reading_only_is_refused_before_the_run(detect, tmp_path):
    (tmp_path / "kept").write_text("kept")
    with (tmp_path / "kept").open() as file:
        name = f"/dev/fd/{file.fileno()}"
        done = detect("one", "--json", name, "--overwrite")
    assert done.err == f"Error: --json {name}: cannot be written: is open for reading only\n"
    assert (done.status, done.out) == (2, "")
    assert (tmp_path / "kept").read_text() == "kept"


def test_a_stream_that_is_not_open_or_resumed_is_refused(detect):
    done = detect("one", "--json", "/dev/fd/987")
    message = "Error: --json /dev/fd/987: cannot be written: Bad file descriptor\n"
    assert (done.status, done.err) == (2, message)
    done = detect("one", "--jsonl", "/dev/stdout", "--resume")
    assert (done.status, "--resume: expected a file from --jsonl" in done.err) == (2, True)


@pytest.mark.skipif(os.name == "nt", reason="/dev is of POSIX systems")
@pytest.mark.parametrize(("name", "shown"), [("/dev/stdout", "--jsonl /dev/stdout"), ("-", "-")])
def test_a_stream_that_was_closed_from_the_start_is_refused(tiny_detector, tree, name, shown):
    command = [sys.executable, "-m", "engine", "detect", *tiny_detector.options, "one"]
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *command, "--jsonl", name]
    done = subprocess.run(
        closed, cwd=tree, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, timeout=60
    )
    message = f"Error: {shown}: cannot be written: Bad file descriptor\n"
    assert (done.returncode, done.stderr) == (2, message)


def test_unusual_labels_stay_inside_the_crops_folder(detect, tree, tmp_path):
    names = tmp_path / "odd.names"
    names.write_text("../../cat\n..\na/b: c*?\n")
    assert detect("one", "--names", names, "--threshold", "0.3", "--crops", "c/in").status == 0
    assert {path.name for path in (tree / "c").glob("[!.]*")} == {"in"}
    assert len(list((tree / "c" / "in").glob("[!.]*"))) == 3
