"""The record in a folder of outputs: a resumed run matches each output with its picture."""

import json
import os
import re
import shutil
import tarfile
import zlib

import pytest

from engine import cli
from engine.cli._sinks.json_documents import JsonLines
from engine.errors import InputError
from engine.outputs.record import FILE, OutputRecord, Owned
from engine.outputs.written_labels import WrittenLabels
from tests.pictures import write_picture

OUTPUTS = ("-o", "drawn", "--save-txt", "labels", "--crops", "crops", "--csv", "a.csv")


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def detect(tiny_detector, capsys, caplog):
    def run(*arguments):
        names = ["--names", str(tiny_detector.names), "--max-det", "2", "--quiet"]
        caplog.clear()
        status = cli.main(["detect", *tiny_detector.options, *names, *map(str, arguments)])
        return status, "\n".join([capsys.readouterr().err, caplog.text])

    return run


def add(here, *names):
    """Write pictures that differ in size and content."""
    for name in names:
        seed = zlib.crc32(name.encode())
        write_picture(here / "pics" / name, size=(40 + seed % 97, 48), seed=seed)
    return [f"pics/{name}" for name in names]


class Rewound:
    """Standard input that gives the same file to each run."""

    def __init__(self, path):
        self._path = path

    def fileno(self):
        with self._path.open("rb") as file:
            return os.dup(file.fileno())


def results(here, tmp_path, detect):
    """Return what each picture must give: its labels and its annotated copy, run on its own."""
    expected = {}
    for number, path in enumerate(sorted((here / "pics").rglob("*.*"))):
        folder = tmp_path / f"alone{number}"
        detect(path, "-o", folder / "drawn", "--save-txt", folder / "labels")
        expected[path] = tuple(
            next((folder / kind).glob("[!.]*")).read_bytes() for kind in ("drawn", "labels")
        )
    return expected


def matches(here, expected):
    """Return the names of outputs by the pictures that they show; each is complete."""
    names = {}
    for path in (here / "drawn").rglob("[!.]*.*"):
        labels = (here / "labels" / path.relative_to(here / "drawn")).with_suffix(".txt")
        (picture,) = (
            each
            for each, has in expected.items()
            if has == (path.read_bytes(), labels.read_bytes())
        )
        name = path.relative_to(here / "drawn").as_posix()
        names.setdefault(picture.relative_to(here / "pics").as_posix(), []).append(name)
    return names


@pytest.mark.slow
def test_outputs_stay_with_their_pictures_when_others_come_and_go(here, tmp_path, detect):
    options = ("pics", "--recursive", "--flat", *OUTPUTS, "--resume")
    add(here, "b/x.jpg", "c/x.jpg")
    assert detect(*options)[0] == 0
    add(here, "a/x.jpg", "b/x.png")
    (here / "pics/b/y.jpg").write_bytes(b"no picture")
    assert detect(*options)[0] == 1
    (here / "pics/b/y.jpg").unlink()
    expected = results(here, tmp_path, detect)
    wanted = {
        "b/x.jpg": ["x.jpg"],
        "c/x.jpg": ["x-2.jpg"],
        "a/x.jpg": ["x-3.jpg"],
        "b/x.png": ["x-4.png"],
    }
    assert matches(here, expected) == wanted
    rows = (here / "a.csv").read_text()
    (here / "pics/b/x.jpg").unlink()
    (here / "drawn/x-2.jpg").unlink()
    add(here, "a/a/x.jpg")
    status, told = detect(*options)
    assert (status, "1 of 4 sources" in told, "x-5 for pics/a/a/x.jpg" in told) == (0, True, True)
    expected |= results(here, tmp_path / "later", detect)
    assert matches(here, expected) == {**wanted, "a/a/x.jpg": ["x-5.jpg"]}
    added = (here / "a.csv").read_text().removeprefix(rows)
    assert {row.split(",")[0] for row in added.splitlines()} == {"pics/a/a/x.jpg"}
    assert len(list((here / "crops").rglob("x-5*.jpg"))) == len(added.splitlines()) > 0


def test_a_picture_of_an_inner_folder_is_not_taken_for_one_of_the_outer(here, tmp_path, detect):
    add(here, "x.jpg", "day/x.jpg", "day/new/x.jpg")
    assert detect("pics/x.jpg", "pics/day/x.jpg", *OUTPUTS)[0] == 0
    status, told = detect("pics/day/x.jpg", "pics/day/new/x.jpg", *OUTPUTS, "--resume")
    assert (status, "sources have" in told) == (0, False)
    names = matches(here, results(here, tmp_path, detect))
    assert names == {
        "x.jpg": ["x.jpg"],
        "day/x.jpg": ["day/x.jpg"],
        "day/new/x.jpg": ["new/x.jpg"],
    }


def test_members_of_archives_stay_with_their_labels(here, detect):
    def pack(archive, *names):
        (here / archive).parent.mkdir(exist_ok=True)
        with tarfile.open(here / archive, "w") as file:
            for name in names:
                file.add(here / "pics" / name, name.rpartition("/")[2])

    def labels():
        return {path.name: path.read_bytes() for path in (here / "labels").rglob("[!.]*.txt")}

    options = ("--flat", "--save-txt", "labels", "--resume")
    add(here, "a.jpg", "b.jpg", "b/a.png", "c/a.jpg")
    pack("2/set.tar", "a.jpg", "b.jpg")
    assert detect("2/set.tar", *options)[0] == 0
    before = labels()
    pack("1/set.tar", "c/a.jpg")
    pack("2/set.tar", "b/a.png", "b.jpg", "a.jpg")
    assert detect("1/set.tar", "2/set.tar", *options)[0] == 0
    assert sorted(
        each.relative_to(here).as_posix() for each in (here / "labels").rglob("*.txt")
    ) == [
        "labels/a-2.txt",
        "labels/a-3.txt",
        "labels/a.txt",
        "labels/b.txt",
    ]
    assert labels()["a.txt"] == before["a.txt"]
    assert labels()["b.txt"] == before["b.txt"]


def test_flat_members_of_archives_replace_no_other_picture(here, detect):
    add(here, "a.jpg", "one/a.jpg", "two/a.jpg", "two/b.jpg", "set.jpg")
    with tarfile.open(here / "pics/set.tar", "w") as file:
        file.add(here / "pics/one", "one")
        file.add(here / "pics/two", "two")
        file.add(here / "pics/set.jpg", "set.jpg")
    sources = ("pics/a.jpg", "pics/set.tar")
    outputs = ("-o", "drawn", "--save-txt", "labels", "--flat")
    assert detect(*sources, *outputs)[0] == 0
    drawn = here / "drawn"
    before = {path.name: path.read_bytes() for path in drawn.rglob("*.jpg")}
    assert sorted(before) == ["a-2.jpg", "a-3.jpg", "a.jpg", "b.jpg", "set-2.jpg"]
    assert not [path for path in drawn.iterdir() if path.is_dir()]
    assert len(set(before.values())) == 5
    assert not [path for path in (here / "labels").iterdir() if path.is_dir()]
    status, told = detect("pics/set.tar", *outputs)
    assert status == 2
    assert "exist already" in told
    assert not list(here.glob("drawn/*.part*"))
    for more in ("--resume", "--overwrite"):
        assert detect(*sources, *outputs, more)[0] == 0
        assert {path.name: path.read_bytes() for path in drawn.rglob("*.jpg")} == before


def test_a_folder_from_before_the_record_is_resumed(here, tmp_path, detect):
    options = ("pics", "--recursive", "--flat", *OUTPUTS[:6], "--resume")
    add(here, "a/x.jpg", "b/x.jpg")
    assert detect(*options)[0] == 0
    for record in here.rglob(FILE):
        record.unlink()
    before = {path: path.stat().st_mtime_ns for path in here.rglob("x*.*")}
    assert detect(*options)[0] == 0
    expected = results(here, tmp_path, detect)
    (here / "pics/a/x.jpg").unlink()
    assert detect(*options)[0] == 0
    assert matches(here, expected) == {"a/x.jpg": ["x.jpg"], "b/x.jpg": ["x-2.jpg"]}
    assert {path: path.stat().st_mtime_ns for path in here.rglob("x*.*")}.items() < before.items()


def test_folders_may_move_together_and_be_named_in_another_way(here, detect):
    add(here, "a/x.jpg", "b/x.jpg")
    options = ("--recursive", "--flat", "--save-txt", "labels", "--resume")
    assert detect("pics", *options)[0] == 0
    (here / "link").symlink_to(here / "pics")
    for name in ("./pics/../pics", here / "pics", "link"):
        status, told = detect(name, *options)
        assert (status, "sources" in told) == (0, False)
    inner = here / "moved"
    inner.mkdir()
    for name in ("pics", "labels"):
        shutil.move(here / name, inner / name)
    status, told = detect("moved/pics", *options[:2], "--save-txt", "moved/labels", "--resume")
    assert (status, "sources" in told) == (0, False)
    assert sorted(path.name for path in inner.rglob("*.txt")) == ["x-2.txt", "x.txt"]
    shutil.move(inner / "pics", here / "elsewhere")
    status, told = detect("elsewhere", *options[:2], "--save-txt", "moved/labels", "--resume")
    hint = f"such as {inner}/pics/a/x.jpg. If pictures have moved since, remove {FILE} from"
    assert (status, "2 of 2 sources" in told, hint in told) == (0, True, True)


def test_a_run_that_overwrites_and_stops_leaves_a_record_of_what_it_wrote(here, tmp_path, detect):
    add(here, "a/x.jpg", "a/y.jpg", "b/w.jpg", "b/x.jpg", "b/y.jpg")
    (here / "pics/b/xx.jpg").write_bytes(b"no picture")
    outputs = ("--flat", "-o", "drawn", "--save-txt", "labels")
    assert detect("pics/a", *outputs)[0] == 0
    assert detect("pics/b", *outputs, "--overwrite", "--fail-fast")[0] == 1
    assert detect("pics/a", *outputs, "--resume")[0] == 0
    (here / "pics/b/xx.jpg").unlink()
    names = matches(here, results(here, tmp_path, detect))
    assert names == {
        "b/w.jpg": ["w.jpg"],
        "b/x.jpg": ["x.jpg"],
        "a/x.jpg": ["x-2.jpg"],
        "a/y.jpg": ["y.jpg"],
    }


def files_below(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("[!.]*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("has_record", [True, False])
@pytest.mark.parametrize("more", [[], ["--csv", "a.csv"], ["--jsonl", "a.jsonl"]])
@pytest.mark.parametrize("by_stdin", [False, True])
def test_a_run_that_overwrites_and_stops_is_completed_by_resume(
    here, detect, by_stdin, has_record, more, monkeypatch
):
    names = add(here, "a/x.jpg", "b/x.jpg", "c/x.jpg", "d/x.jpg")
    run = ("pics", "--recursive", "-o", "out", "--save-txt", "texts", *more)
    if by_stdin:
        run = ("-", *run[2:])
        (here / "names").write_text("\n".join(names))
        monkeypatch.setattr("sys.stdin", Rewound(here / "names"))
    other, wanted = ("--threshold", "0.9"), ("--threshold", "0.01")
    assert detect(*run, *wanted)[0] == 0
    expected = files_below(here / "out") | files_below(here / "texts")
    rows = [path.read_text() for path in here.glob("a.csv")]
    assert detect(*run, *other, "--overwrite")[0] == 0
    assert files_below(here / "out") | files_below(here / "texts") != expected
    if not has_record:
        for record in here.rglob(FILE):
            record.unlink()
    good = (here / "pics/b/x.jpg").read_bytes()
    (here / "pics/b/x.jpg").write_bytes(b"no picture")
    assert detect(*run, *wanted, "--overwrite", "--fail-fast")[0] == 1
    (here / "pics/b/x.jpg").write_bytes(good)
    assert detect(*run, *wanted, "--resume")[0] == 0
    assert files_below(here / "out") | files_below(here / "texts") == expected
    assert [path.read_text() for path in here.glob("a.csv")] == rows
    before = {path: path.stat().st_mtime_ns for path in here.glob("*/*/*.*")}
    assert detect(*run, *wanted, "--resume")[0] == 0  # all of them are done
    assert {path: path.stat().st_mtime_ns for path in here.glob("*/*/*.*")} == before


@pytest.mark.parametrize("by_stdin", [False, True])
def test_a_run_that_dies_as_it_empties_its_rows_is_completed_by_resume(
    here, detect, by_stdin, monkeypatch
):
    names = add(here, "a/x.jpg", "b/x.jpg")
    run = ("pics", "--recursive", "-o", "out", "--save-txt", "texts", "--jsonl", "a.jsonl")
    if by_stdin:
        run = ("-", *run[2:])
        (here / "names").write_text("\n".join(names))
        monkeypatch.setattr("sys.stdin", Rewound(here / "names"))
    wanted = ("--threshold", "0.01")
    assert detect(*run, *wanted)[0] == 0
    expected = files_below(here / "out") | files_below(here / "texts")
    assert detect(*run, "--threshold", "0.9", "--overwrite")[0] == 0
    assert files_below(here / "out") | files_below(here / "texts") != expected

    def die(self, about, labels):
        self._out.open()
        os._exit(9)

    child = os.fork()
    if not child:
        monkeypatch.setattr(JsonLines, "begin", die)
        detect(*run, *wanted, "--overwrite")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert not (here / "a.jsonl").read_text()
    assert detect(*run, *wanted, "--resume")[0] == 0
    assert files_below(here / "out") | files_below(here / "texts") == expected


def test_names_on_stdin_leave_others_done_if_the_run_ends(here, detect, monkeypatch):
    add(here, "x.jpg", "y.jpg", "z.jpg")
    assert detect("pics", "-o", "out")[0] == 0
    (here / "names").write_text("pics/y.jpg")
    monkeypatch.setattr("sys.stdin", Rewound(here / "names"))
    assert detect("-", "-o", "out", "--flat", "--overwrite")[0] == 0
    before = {path: path.stat().st_mtime_ns for path in here.glob("out/*.jpg")}
    assert len(before) == 3
    assert detect("pics", "-o", "out", "--resume")[0] == 0
    assert {path: path.stat().st_mtime_ns for path in here.glob("out/*.jpg")} == before


def test_all_outputs_are_due_until_the_runs_that_reopened_them_are_over(here):
    old, new = Owned("x", "/a/x.jpg"), Owned("y", "/a/y.jpg")
    OutputRecord("", lambda each: each.name).claim(old)
    stopped, second = (OutputRecord("", lambda each: each.name) for _ in range(2))
    assert stopped.reopen_all() is False
    stopped.claim(new)
    assert second.reopen_all() is True  # so it does not say that the first one is over
    second.claim(new)
    later = OutputRecord("", lambda each: each.name)
    assert (later.is_due(old), later.is_due(new), *later.owners) == (True, False, "x", "y")
    later.claim(old)
    assert not later.is_due(old)
    again = OutputRecord("", lambda each: each.name)
    assert (again.is_due(old), again.is_due(new)) == (False, False)
    again.reopen_all()
    again.close_all()
    assert not OutputRecord("", lambda each: each.name).is_due(old)


@pytest.mark.parametrize("more", [(), ("-o", "drawn")])
def test_labels_that_were_there_before_a_run_belong_to_others(here, detect, more):
    """They are done for --resume, and neither replaced nor taken for results later."""
    add(here, "x.jpg", "y.jpg")
    mine = here / "labels" / "x.txt"
    mine.parent.mkdir()
    mine.write_text("0 .5 .5 1 1\n")
    run = ("pics", "--save-txt", "labels", *more)
    for _ in range(2):
        assert detect(*run, "--resume")[0] == 0
    label_files = sorted(here.glob("labels/*.txt"))
    assert [each.name for each in list(filter(WrittenLabels().is_as_written, label_files))] == [
        "y.txt"
    ]
    status, told = detect(*run, "--overwrite")
    assert (status, "would replace x.txt, which was not written by a run" in told) == (2, True)
    assert mine.read_text() == "0 .5 .5 1 1\n"
    mine.unlink()
    for option in ("--resume", "--overwrite"):
        assert detect(*run, option)[0] == 0
        assert list(filter(WrittenLabels().is_as_written, label_files)) == label_files


def test_labels_of_others_are_not_replaced_wherever_they_are(here, detect):
    add(here, "x.jpg")
    mine = here / "elsewhere" / "x.txt"
    mine.parent.mkdir()
    mine.write_text("0 .5 .5 1 1\n")
    run = ("pics", "--save-txt", "elsewhere")
    for option in ("--overwrite", "--resume", "--overwrite"):
        status, told = detect(*run, option)
        is_refused = (
            "would replace x.txt, which was not written by a run or was edited since. Name" in told
        )
        assert (status, is_refused) == ((0, False) if option == "--resume" else (2, True))
        assert mine.read_text() == "0 .5 .5 1 1\n"


HAND = "0 .111 .5 .1 .1\n"


@pytest.mark.parametrize("change", ["added", "corrected", "copied"])
def test_labels_that_somebody_has_changed_are_not_replaced(here, detect, change):
    add(here, "x.jpg", "y.jpg")
    run = ("--save-txt", "texts", "-o", "drawn")
    assert detect("pics/x.jpg" if change == "added" else "pics", *run)[0] == 0
    mine = here / "texts" / "y.txt"
    if change == "copied":
        for each in here.glob("texts/*.txt"):
            each.unlink()
    mine.write_text(HAND)
    status, told = detect("pics", *run, "--overwrite")
    assert (
        status,
        "would replace y.txt, which was not written by a run or was edited since" in told,
    ) == (2, True)
    assert detect("pics", *run, "--resume")[0] == 0
    assert mine.read_text() == HAND
    mine.unlink()
    for option in ("--overwrite", "--resume", "--overwrite"):
        assert detect("pics", *run, option)[0] == 0


def test_an_earlier_version_of_labels_is_not_replaced(here, detect):
    """No box is what a stricter run found, and how somebody corrects false alarms."""
    add(here, "x.jpg")
    run = ("pics", "--save-txt", "texts")
    assert detect(*run, "--threshold", "1")[0] == 0
    mine = here / "texts" / "x.txt"
    assert not mine.read_text()
    assert detect(*run, "--overwrite", "--threshold", "0.01")[0] == 0
    assert mine.read_text()
    mine.write_text("")
    status, told = detect(*run, "--overwrite")
    assert (status, "would replace x.txt" in told, mine.read_text()) == (2, True, "")


def test_a_run_that_goes_on_keeps_labels_that_were_made_before_another_was_stopped(here, detect):
    names = [f"{name}.jpg" for name in "abcd"]
    add(here, *names)
    assert detect("pics", "-o", "out")[0] == 0
    labels = [here / "out" / f"{name[0]}.txt" for name in names]
    for each in labels:
        each.write_text(HAND)
    good = (here / "pics/b.jpg").read_bytes()
    (here / "pics/b.jpg").write_bytes(b"no picture")
    assert detect("pics", "-o", "out", "--overwrite", "--fail-fast")[0] == 1
    (here / "pics/b.jpg").write_bytes(good)
    assert detect("pics", "-o", "out", "--save-txt", "out", "--resume")[0] == 0
    assert {each.read_text() for each in labels} == {HAND}


def test_damaged_digests_protect_labels(here, detect):
    add(here, "x.jpg", "y.jpg")
    run = ("pics", "--save-txt", "texts")
    assert detect(*run)[0] == 0
    digests = here / "texts" / ".engine-labels.jsonl"
    first, second = digests.read_bytes().splitlines(keepends=True)
    digests.write_bytes(b"[]\n\xff\n" + first + second[:20])
    status, told = detect(*run, "--overwrite")
    assert (status, "would replace y.txt, which was not written by a run" in told) == (2, True)
    (here / "texts" / "y.txt").unlink()
    assert detect(*run, "--overwrite")[0] == 0
    size = digests.stat().st_size
    assert detect(*run, "--overwrite")[0] == 0
    assert digests.stat().st_size == size


def test_labels_of_others_are_kept_whatever_name_the_next_run_gives(here, detect):
    """A run over the folder above gives its outputs other names, so --overwrite is not refused."""
    add(here, "a/x.jpg", "a/y.jpg")
    mine = here / "labels" / "x.txt"
    mine.parent.mkdir()
    mine.write_text("0 .5 .5 1 1\n")
    (here / "list").write_text("pics/a/x.jpg\npics/a/y.jpg\n")
    (here / "list").rename(here / "list.txt")
    for run in (
        ("list.txt", "--resume"),
        ("pics", "--recursive", "--flat", "--overwrite"),
        (".", "--recursive", "--overwrite"),
        ("list.txt", "--resume"),
        (".", "--recursive", "--resume"),
    ):
        detect(*run, "--save-txt", "labels")
        assert mine.read_text() == "0 .5 .5 1 1\n", run


@pytest.mark.parametrize("again", [("pics", "--recursive"), ("pics/a",)])
@pytest.mark.parametrize("more", [(), ("--flat",)])
def test_outputs_under_an_earlier_name_are_neither_due_nor_replaced(here, detect, more, again):
    """A run over the folder above, or with --flat, gives the pictures other names."""
    add(here, "a/x.jpg", "a/y.jpg", "b/x.jpg")
    first = ("pics", "--recursive") if more else ("pics/a",)
    outputs = ("--save-txt", "labels", "-o", "out")
    assert detect(*first, *outputs)[0] == 0
    (corrected,) = here.glob("labels/**/y.txt")
    corrected.write_text("0 .5 .5 1 1\n")
    assert detect("pics", "--recursive", *more, *outputs, "--overwrite")[0] == 0
    if corrected != here / "labels" / "y.txt" or not more:
        assert corrected.read_text() == "0 .5 .5 1 1\n"
    before = {each: each.stat().st_mtime_ns for each in here.glob("[lo]*/**/*.*")}
    assert detect(*again, *more, *outputs, "--resume")[0] == 0
    assert {each: each.stat().st_mtime_ns for each in before} == before
    assert {*here.glob("[lo]*/**/*.*")} == {*before}


@pytest.mark.parametrize("option", ["--csv", "--json", "--jsonl", "--coco-dataset"])
def test_files_of_results_do_not_replace_labels(here, detect, option):
    add(here, "x.jpg")
    for name in ("pics/x.txt", "labels/x.txt", "pics/x.xml"):
        labels = here / name
        labels.parent.mkdir(exist_ok=True)
        labels.write_text("mine")
        for source in ("pics", "pics/x.jpg"):
            status, told = detect(source, option, name, "--overwrite")
            assert (status, "would replace labels of pics/x.jpg" in told) == (2, True)
            assert labels.read_text() == "mine"
    (here / "other.txt").write_text("not of a picture")
    assert detect("pics", option, "other.txt", "--overwrite")[0] == 0


@pytest.mark.parametrize("before", [False, True])
def test_crops_that_somebody_has_made_or_changed_are_kept(here, detect, before):
    add(here, "x.jpg", "y.jpg")
    run = ("pics", "--crops", "crops", "--csv", "found.csv")
    assert detect(*run)[0] == 0
    (mine, *_) = (each for each in here.glob("crops/*/y*.jpg"))
    if before:
        shutil.rmtree(here / "crops")
        (here / "found.csv").unlink()
        mine.parent.mkdir(parents=True)
    mine.write_bytes(b"mine")
    for _ in range(2):
        assert detect(*run, "--resume")[0] == 0
        assert mine.read_bytes() == b"mine"
    assert detect(*run, "--overwrite")[0] == 0
    assert mine.read_bytes() != b"mine"


@pytest.mark.parametrize("output", [("-o", "out"), ("--jsonl", "rows"), ("--save-txt", "texts")])
def test_crops_that_are_added_later_are_written(here, detect, output):
    add(here, "x.jpg", "y.jpg")
    assert detect("pics", *output)[0] == 0
    assert detect("pics", *output, "--crops", "crops", "--resume")[0] == 0
    written = sorted(here.glob("crops/*/*.jpg"))
    assert {each.name[0] for each in written} == {"x", "y"}
    before = {each: each.stat().st_mtime_ns for each in written}
    assert detect("pics", *output, "--crops", "crops", "--resume")[0] == 0
    assert {each: each.stat().st_mtime_ns for each in before} == before


def test_an_archive_that_was_to_be_replaced_is_completed(here, detect):
    add(here, "x.jpg", "y.jpg", "z.jpg")
    with tarfile.open(here / "set.tar", "w") as file:
        for name in ("x.jpg", "y.jpg", "z.jpg"):
            file.add(here / "pics" / name, name)
    run = ("set.tar", "--save-txt", "labels")
    assert detect(*run, "--threshold", "0.01")[0] == 0
    expected = files_below(here / "labels")
    assert detect(*run, "--threshold", "0.9", "--overwrite")[0] == 0
    whole = (here / "set.tar").read_bytes()
    (here / "set.tar").write_bytes(whole[:2000])
    assert detect(*run, "--threshold", "0.01", "--overwrite")[0] == 1
    (here / "set.tar").write_bytes(whole)
    assert detect(*run, "--threshold", "0.01", "--resume")[0] == 0
    assert files_below(here / "labels") == expected


def test_a_folder_without_pictures_gets_no_name(here, detect):
    (here / "pics").mkdir()
    assert detect("pics", "--save-txt", "labels", "--resume")[0] == 1
    assert not (here / "labels" / FILE).exists()


def lines_of(folder):
    return [json.loads(line) for line in (folder / FILE).read_text().splitlines()]


def test_the_record_says_which_picture_each_name_belongs_to(here, detect):
    add(here, "a/x.jpg", "b/x.jpg")
    assert detect("pics", "--recursive", "--flat", *OUTPUTS)[0] == 0
    for folder, kind in (("drawn", "pictures"), ("labels", "labels"), ("crops", "crops")):
        assert lines_of(here / folder) == [
            {"output": "x", "picture": "../pics/a/x.jpg", "holds": [kind]},
            {"output": "x-2", "picture": "../pics/b/x.jpg", "holds": [kind]},
        ]


def read_by(here, detect, *sources):
    """Return the pictures that a run reads, and what it tells."""
    status, told = detect(*sources, "--recursive", "--jsonl", "read.jsonl", "--overwrite")
    assert status == 0
    lines = (here / "read.jsonl").read_text().splitlines()
    return sorted(json.loads(each)["path"] for each in lines), told


def test_labels_alone_do_not_make_a_folder_one_of_outputs(here, detect):
    add(here, "a.jpg", "b.jpg")
    assert detect("pics", "--save-txt", "root/train")[0] == 0
    for picture in (here / "pics").iterdir():
        shutil.move(picture, here / "root/train")
    found, told = read_by(here, detect, "root")
    assert (found, "not read" in told) == (["root/train/a.jpg", "root/train/b.jpg"], False)


@pytest.mark.parametrize(
    "options", [["-o"], ["--crops"], ["-o", "--save-txt"], ["--crops", "--save-txt", "-o"]]
)
@pytest.mark.parametrize("source", ["data", "data/*/*.jpg", "data/**/*.jpg"])
def test_only_the_outputs_in_a_folder_of_pictures_are_left_out(here, detect, options, source):
    add(here, "x.jpg", "y.png")
    own = [f"data/day1/{name}.jpg" for name in ("a", "x-3", "y")]
    if "--crops" not in options and source != "data/*/*.jpg":
        own.insert(1, "data/day1/dog/x.jpg")
    for name in own:
        write_picture(here / name)
    folders = [word for each in options for word in (each, "data/day1")]
    assert detect("pics/x.jpg", "pics/y.png", "--threshold", "0.01", *folders)[0] == 0
    there = [*here.rglob("data/**/*.[jp][pn]g")] if source == "data" else [*here.glob(source)]
    found, told = read_by(here, detect, source)
    assert found == own
    count = len(there) - len(own)
    what = f"data/day1: pictures that another run wrote are skipped: {count}."
    assert (what in told) == bool(count)


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\x00 no line\n",
        b"[1, 2]\n",
        b'{"output": "../../x", "picture": "../pics/a/x.jpg"}\n',
        b'{"output": "/tmp/x", "picture": "../pics/a/x.jpg"}\n',
        b'{"output": "x\\u0000", "picture": "../pics/a/x.jpg"}\n',
        b'{"output": "", "picture": "../pics/a/x.jpg"}\n',
        b'{"output": "x", "picture": 3}\n',
    ],
)
def test_a_damaged_record_is_one_line(here, detect, damage):
    add(here, "a/x.jpg")
    assert detect("pics", "--recursive", "--save-txt", "labels")[0] == 0
    with (here / "labels" / FILE).open("ab") as file:
        file.write(damage)
    status, told = detect("pics", "--recursive", "--save-txt", "labels", "--resume")
    what = "line 2: expected an output and its picture. Remove this file: then names alone"
    assert (status, told.strip().count("\n")) == (2, 0)
    assert f"labels/{FILE}: {what}" in told


def test_a_search_goes_on_without_a_record_that_cannot_be_read(here, detect):
    """It may be that of another user, whose pictures are read nevertheless."""
    add(here, "a/x.jpg", "b/y.jpg")
    (here / "pics" / "a" / FILE).mkdir()
    status, told = detect("pics", "--recursive", "--save-txt", "labels")
    what = f"pics/a/{FILE}: expected a file, got a folder. What earlier runs wrote is not known"
    assert (status, what in told) == (0, True)
    assert len(list(here.glob("labels/*/*.txt"))) == 2


def test_a_record_that_is_no_file_is_one_line(here, detect):
    add(here, "a/x.jpg")
    (here / "labels" / FILE).mkdir(parents=True)
    status, told = detect("pics", "--recursive", "--save-txt", "labels", "--resume")
    assert (status, f"labels/{FILE}: expected a file, got a folder" in told) == (2, True)


def test_a_line_without_an_end_is_left_out(here, detect):
    add(here, "a/x.jpg", "b/x.jpg")
    options = ("pics", "--recursive", "--flat", "--save-txt", "labels", "--resume")
    assert detect(*options)[0] == 0
    whole = (here / "labels" / FILE).read_bytes()
    (here / "labels" / FILE).write_bytes(whole[:-5])
    (here / "labels/x-2.txt").unlink()
    assert detect(*options)[0] == 0
    assert (here / "labels" / FILE).read_bytes() == whole


def test_runs_at_once_do_not_take_one_name_for_two_pictures(tmp_path):
    first, second = (OutputRecord(str(tmp_path), lambda owned: owned.name) for _ in range(2))
    first.claim(Owned("x", "/a/x.jpg"))
    second.claim(Owned("y", "/b/y.jpg"))
    second.claim(Owned("x", "/a/x.jpg"))
    with pytest.raises(
        InputError, match=re.escape(f"{tmp_path}/y: another run has taken this name, for /b/y.jpg")
    ):
        first.claim(Owned("y", "/c/y.jpg"))
    first.claim(Owned("x", "/a/x.jpg"))
    with pytest.raises(InputError, match=r"x: another run .* for /a/x\.jpg"):
        second.claim(Owned("x", "/b/x.jpg"))
    third_run = OutputRecord(str(tmp_path), lambda owned: owned.name)
    third_run.claim(Owned("z", "/d/z.jpg"))
    first.claim(Owned("w", "/a/w.jpg"))  # reads what the third run has added
    with pytest.raises(InputError, match=r"z: another run .* for /d/z\.jpg"):
        first.claim(Owned("z", "/a/z.jpg"))
    assert len(lines_of(tmp_path)) == 4
    third = OutputRecord(str(tmp_path), lambda owned: owned.name)
    assert {each: owned.picture for each, owned in third.owners.items()} == {
        "x": "/a/x.jpg",
        "y": "/b/y.jpg",
        "z": "/d/z.jpg",
        "w": "/a/w.jpg",
    }
