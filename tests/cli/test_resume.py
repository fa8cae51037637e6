"""--resume: a run goes on where another one stopped, after any kind of end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path

import pytest

from engine.files import part_names
from engine.outputs.record import FILE as RECORD
from tests.cli.child import ENVIRONMENT, engine_here
from tests.pictures import write_picture

pytestmark = pytest.mark.slow

COUNT = 12
LONG = 40  # pictures of a run that is stopped before it ends


@pytest.fixture
def folder(tmp_path, request):
    for number in range(getattr(request, "param", COUNT)):
        write_picture(tmp_path / f"pics/{number % 3}/{number:03}.jpg", seed=number)
    return tmp_path


@pytest.fixture
def command(tiny_detector):
    names = ["--names", tiny_detector.names, "--max-det", "4"]
    return ["detect", *map(str, tiny_detector.options), *map(str, names), "pics", "--recursive"]


@pytest.fixture
def detect(command, folder):
    return lambda *more: engine_here(*command, *more, cwd=folder)


ALL = [
    "--csv",
    "a.csv",
    "--jsonl",
    "a.jsonl",
    "-o",
    "drawn",
    "--save-txt",
    "labels",
    "--crops",
    "crops",
]


def contents(folder):
    """Return what a run wrote, without times."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and "pics" not in path.parts and path.name not in ("train.txt", RECORD):
            content = path.read_bytes()
            if path.suffix == ".jsonl":
                lines = [json.loads(line) for line in content.splitlines()]
                content = [each | {"timing_ms": None} for each in lines]
            found[path.relative_to(folder).as_posix()] = content
    return found


@pytest.mark.parametrize("folder", [LONG], indirect=True)
def test_a_killed_run_is_completed_exactly(command, detect, folder):
    assert detect(*ALL, "--quiet").status == 0
    expected = contents(folder)
    for name in ("a.csv", "a.jsonl"):
        (folder / name).unlink()
    for name in ("drawn", "labels", "crops"):
        (folder / name).rename(folder.parent / f"{folder.name}-{name}")
    run = subprocess.Popen(
        [sys.executable, "-m", "engine", *command, *ALL, "--quiet"], cwd=folder, env=ENVIRONMENT
    )
    limit = time.monotonic() + 60
    while len(list((folder / "labels").rglob("*.txt"))) < 5 and time.monotonic() < limit:
        time.sleep(0.005)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait(60) == -signal.SIGKILL
    done_before = len(list((folder / "labels").rglob("*.txt")))
    assert 5 <= done_before < LONG
    for name in ("a.csv", "a.jsonl"):
        with (folder / name).open("ab") as file:  # a line that was cut off
            file.write(b'{"path": "pics/0/0')
    part_names.remove_abandoned.cache_clear()  # this process has looked before, for the first run
    done = detect(*ALL, "--resume")
    assert done.status == 0
    # The picture before the torn line is done again, as a part of it may be missing.
    assert any(f", {count} done before: " in done.err for count in (done_before - 1, done_before))
    assert contents(folder) == expected
    again = detect(*ALL, "--resume")
    assert (again.status, again.out) == (0, "")
    outputs = "drawn, a.jsonl, a.csv, labels, crops"
    assert again.err == f"nothing left to do, {LONG} done before: {outputs}\n"
    assert contents(folder) == expected


def open_files(process):
    """Return the names of the files that a process has open."""
    links = Path(f"/proc/{process}/fd")
    if not links.parent.exists():
        pytest.skip("without /proc nobody tells which files a process has open")
    names = set()
    for each in links.iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            names.add(each.readlink().name)
    return names


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_stopped_before_its_first_picture_changes_nothing(
    command, detect, folder, number
):
    assert detect(*ALL, "--quiet").status == 0
    before = contents(folder)
    options = [*command[: command.index("pics")], "-", *ALL, "--quiet", "--overwrite"]
    run = subprocess.Popen(
        [sys.executable, "-m", "engine", *options],
        cwd=folder,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    limit = time.monotonic() + 60
    while "a.jsonl" not in open_files(run.pid) and time.monotonic() < limit:
        time.sleep(0.005)
    time.sleep(0.5)  # it has locked its outputs, and waits for names
    run.send_signal(number)
    _, told = run.communicate(timeout=60)
    if number != signal.SIGKILL:
        what = "interrupted: 0 pictures done, so no output is written and none is replaced"
        assert what in told.decode()
    part_names.remove_abandoned.cache_clear()
    assert detect(*ALL, "--resume").err.startswith("nothing left to do")
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (["--csv", "a.csv"], "a.csv"),
        (["--csv", "a.csv", "--csv-all"], "a.csv"),
        (["--jsonl", "a.jsonl"], "a.jsonl"),
    ],
)
@pytest.mark.parametrize("kept", [0, 3, 0.4, 0.41, 0.415])
def test_a_file_cut_anywhere_is_completed(detect, folder, options, name, kept):
    assert detect(*options, "--quiet").status == 0
    expected = contents(folder)[name]
    whole = (folder / name).read_bytes()
    size = kept if isinstance(kept, int) else int(kept * len(whole))
    (folder / name).write_bytes(whole[:size])
    assert detect(*options, "--resume", "--quiet").status == 0
    assert contents(folder)[name] == expected


def test_missing_labels_and_pictures_are_written(detect, folder):
    options = ["-o", "drawn", "--save-txt", "labels", "--jsonl", "a.jsonl", "--quiet"]
    assert detect(*options).status == 0
    expected = contents(folder)
    (folder / "drawn/0/003.jpg").unlink()
    (folder / "labels/1/007.txt").unlink()
    assert detect(*options, "--resume").status == 0
    assert contents(folder) == expected


def test_broken_pictures_are_tried_again(detect, folder):
    broken = folder / "pics/0/003.jpg"
    good = broken.read_bytes()
    broken.write_bytes(good[:50])
    options = ["--jsonl", "a.jsonl", "--csv", "a.csv", "--csv-all"]
    assert detect(*options).status == 1
    rows = (folder / "a.csv").read_text().splitlines()
    (failed,) = (row for row in rows if row.startswith("pics/0/003.jpg"))
    assert failed.startswith('pics/0/003.jpg,,,,,,,,,"pics/0/003.jpg: picture: cannot be decoded')
    assert detect(*options, "--resume").status == 1
    assert sorted((folder / "a.csv").read_text().splitlines()) == sorted(rows)
    broken.write_bytes(good)
    done = detect(*options, "--resume")
    assert (done.status, f"{COUNT - 1} done before" in done.err) == (0, True)
    lines = [json.loads(line) for line in (folder / "a.jsonl").read_text().splitlines()]
    assert Counter(each["path"] for each in lines).most_common(1)[0][1] == 1
    assert (len(lines), any("error" in each for each in lines)) == (COUNT, False)


def test_pictures_that_came_later_are_added(detect, folder):
    options = ["--csv", "a.csv", "--quiet"]
    assert detect(*options).status == 0
    rows = (folder / "a.csv").read_text().splitlines()
    write_picture(folder / "pics/0/000-new.jpg", seed=99)
    assert detect(*options, "--resume").status == 0
    added = Counter((folder / "a.csv").read_text().splitlines()) - Counter(rows)
    assert {row.split(",")[0] for row in added} == {"pics/0/000-new.jpg"}
    assert not Counter(rows) - Counter((folder / "a.csv").read_text().splitlines())


@pytest.mark.parametrize("other", [["--jsonl", "a.jsonl"], ["--save-txt", "a"], ["-o", "a"]])
@pytest.mark.parametrize("more", [[], ["--csv-all"]])
@pytest.mark.parametrize("cut", ["head", "row"])
def test_rows_that_were_lost_are_written_again(detect, folder, other, more, cut):
    for number in range(COUNT - 6):  # the fewer the faster
        (folder / f"pics/{number % 3}/{number:03}.jpg").unlink()
    options = [*other, "--csv", "a.csv", *more, "--quiet"]
    assert detect(*options).status == 0
    whole = (folder / "a.csv").read_bytes()
    lines = whole.splitlines(keepends=True)
    kept = 1 if cut == "head" else len(lines) - 2  # at the end of a row of the last picture
    (folder / "a.csv").write_bytes(b"".join(lines[:kept]))
    assert detect(*options, "--resume").status == 0
    if cut == "row" and other[0] == "-o":
        return  # annotated pictures do not tell how many rows there were
    assert (folder / "a.csv").read_bytes() == whole


@pytest.mark.parametrize("change", ["emptied", "with one more"])
@pytest.mark.parametrize("kept", [0, 2, 3, 6])
def test_corrected_labels_do_not_tell_how_many_rows_there_are(detect, folder, change, kept):
    for number in range(COUNT - 6):  # the fewer the faster
        (folder / f"pics/{number % 3}/{number:03}.jpg").unlink()
    options = ["--save-txt", "a", "--csv", "a.csv", "--quiet"]
    assert detect(*options).status == 0
    whole = (folder / "a.csv").read_bytes()
    head, *rows = whole.splitlines(keepends=True)
    groups = [[*each] for _, each in groupby(rows, lambda row: row.partition(b",")[0])]
    assert len(groups) == 6
    (folder / "a.csv").write_bytes(b"".join([head, *chain(*groups[:kept])]))
    for file in (folder / "a").rglob("*.txt"):
        written = file.read_text()
        file.write_text("" if change == "emptied" else f"{written}0 .1 .1 .1 .1\n")
    corrected = contents(folder / "a")
    for is_left in (kept < 6, False):
        done = detect(*options[:-1], "--resume")
        assert (done.status, "nothing left to do" in done.err) == (0, not is_left)
        assert (folder / "a.csv").read_bytes() == whole
        assert contents(folder / "a") == corrected


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv"])
def test_a_file_of_somebody_else_is_kept(detect, folder, name):
    content = json.dumps({"annotations": ["hand-made"] * 9})
    (folder / name).write_text(content)
    done = detect(f"--{name[2:]}", name, "--resume", "--quiet")
    assert (done.status, (folder / name).read_text()) == (2, content)
    assert "line 1: expected a line that this command writes" in done.err


@pytest.mark.parametrize("folder", [LONG], indirect=True)
@pytest.mark.parametrize("existing", ["--resume", "--overwrite"])
def test_two_runs_do_not_write_one_file(command, detect, folder, existing):
    options = ["--jsonl", "a.jsonl", existing, "--quiet"]
    for _ in range(5):  # a first run that ends before it is stopped is in nobody's way
        (folder / "a.jsonl").unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "-m", "engine", *command, *options], cwd=folder, env=ENVIRONMENT
        ) as first:
            limit = time.monotonic() + 60
            while not (folder / "a.jsonl").exists() and time.monotonic() < limit:
                time.sleep(0.005)
            os.kill(first.pid, signal.SIGSTOP)
            try:
                second = detect(*options)
            finally:
                os.kill(first.pid, signal.SIGCONT)
            statuses = first.wait(60), second.status
        assert 0 in statuses  # the first run may have been stopped before it locks the file
        if statuses == (0, 2):
            break
    assert statuses == (0, 2)
    assert "a.jsonl: another run is writing it. Wait until it ends" in second.err
    lines = (folder / "a.jsonl").read_text().splitlines()
    assert len([json.loads(each) for each in lines]) == LONG


def test_a_name_that_is_not_utf8_is_done_once(detect, folder):
    name = os.fsdecode(b"pics/0/lat\xe4n.jpg")
    write_picture(folder / name, seed=1)
    options = ["--jsonl", "a.jsonl", "--csv", "a.csv", "--quiet"]
    assert detect(*options).status == 0
    expected = contents(folder)
    done = detect(*options[:-1], "--resume")
    assert f"nothing left to do, {COUNT + 1} done before" in done.err
    assert contents(folder) == expected


def test_crops_of_a_picture_that_came_later_replace_no_other(detect, folder):
    options = ["--crops", "crops", "--csv", "a.csv", "--quiet"]
    write_picture(folder / "pics/photo.jpg", seed=1)
    assert detect(*options).status == 0
    before = contents(folder)
    labels = {path.parent.name for path in (folder / "crops").rglob("photo-2.jpg")}
    assert labels, "no class was found twice"
    write_picture(folder / "pics/photo-2.jpg", seed=2)
    assert detect(*options, "--resume").status == 0
    after = contents(folder)
    assert {name: after[name] for name in before if name != "a.csv"} == {
        name: content for name, content in before.items() if name != "a.csv"
    }
    boxes = after["a.csv"].count(b"\n") - 1
    assert sum(name.startswith("crops/") for name in after) == boxes


@pytest.mark.parametrize(
    "line", ["[" * 100_000, '{"path": "x", "frame": [1], "detections": []}'], ids=["deep", "list"]
)
def test_foreign_lines_of_json_are_refused(detect, folder, line):
    (folder / "a.jsonl").write_text(line + "\n")
    done = detect("--jsonl", "a.jsonl", "--resume", "--quiet")
    assert (done.status, (folder / "a.jsonl").read_text()) == (2, line + "\n")
    assert "line 1: expected a line that this command writes" in done.err


@pytest.mark.parametrize("cell", ["a\rb", "a" * 200_000], ids=["return", "long"])
def test_foreign_lines_of_csv_are_refused(detect, folder, cell):
    assert detect("--csv", "a.csv", "--quiet").status == 0
    head = (folder / "a.csv").read_text().splitlines()[0]
    (folder / "a.csv").write_text(f"{head}\n{cell},0\n", newline="")
    done = detect("--csv", "a.csv", "--resume", "--quiet")
    assert done.status == 2
    assert "line 2: expected a line that this command writes" in done.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--json a.json --resume", "--resume: not with --json, written at the end. Use --jsonl"),
        ("--csv a.csv --resume --overwrite", "--resume and --overwrite: expected one of them"),
        ("--resume", "--resume: expected a file from --jsonl or --csv or --save-txt or --output"),
        ("--crops c --resume", "--resume: expected a file from"),
        ("--csv - --resume", "--resume: expected a file from"),
        ("--csv train.txt --resume", "--csv train.txt: line 1: expected path,class_id,"),
        ("--jsonl train.txt --resume", "train.txt: line 1: expected a line that this command"),
    ],
)
def test_what_cannot_be_resumed_is_refused(detect, folder, options, message):
    (folder / "train.txt").write_text("mine\n")
    done = detect(*options.split())
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert message in line
    assert (folder / "train.txt").read_text() == "mine\n"


def test_classify_resumes(tiny_classifier, folder):
    names = ["--names", tiny_classifier.names]
    options = ["--recursive", "--csv", "a.csv", "--jsonl", "a.jsonl", "--quiet"]
    words = ["classify", *tiny_classifier.options, *names, "pics", *options]
    assert engine_here(*words, cwd=folder).status == 0
    expected = contents(folder)
    for name in ("a.csv", "a.jsonl"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: len(whole) // 2])
    assert engine_here(*words, "--resume", cwd=folder).status == 0
    assert contents(folder) == expected


@pytest.mark.parametrize("output", [("--csv", "a.csv", "--csv-all"), ("--jsonl", "a.jsonl")])
def test_a_picture_is_the_same_however_its_path_is_spelled(command, folder, output):
    (folder / "link").symlink_to("pics")
    lines = []
    for spelled in ("pics", "./pics", str(folder / "pics"), "pics/../link"):
        words = [spelled if each == "pics" else each for each in command]
        assert engine_here(*words, *output, "--resume", cwd=folder).status == 0
        lines.append((folder / output[1]).read_text().count("\n"))
    assert lines == lines[:1] * 4


@pytest.mark.parametrize("output", [("--csv", "a.csv"), ("--jsonl", "a.jsonl")])
def test_lines_of_other_pictures_only_are_announced(command, folder, output):
    """A relative path names another picture if a run goes on in another folder."""
    (folder / "sub").mkdir()
    more = ("--resume", output[0])
    assert engine_here(*command, *output, cwd=folder).status == 0
    words = ["../pics" if each == "pics" else each for each in command]
    done = engine_here(*words, *more, f"../{output[1]}", cwd=folder / "sub")
    what = f"../{output[1]}: has lines of other pictures only, such as pics/"
    assert (done.status, what in done.err) == (0, True)
    for _ in range(2):
        done = engine_here(*command, *more, output[1], cwd=folder)
        assert (done.status, "of other pictures" in done.err) == (0, False)
