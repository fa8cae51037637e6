"""The inputs of detect and classify on the command line."""

import fcntl
import gzip
import json
import os
import pty
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from PIL import Image

from tests import needs
from tests.cli.child import ENVIRONMENT, engine, engine_here, names_in
from tests.pictures import write_picture

pytestmark = pytest.mark.slow


@pytest.fixture
def tree(tmp_path):
    for seed, name in enumerate(("a.jpg", "b.png", "deep/c.jpg", "deep/d.jpg")):
        write_picture(tmp_path / name, seed=seed)
    return tmp_path


@pytest.fixture
def detect(tiny_detector, tree):
    def run(*arguments, by=engine_here, **more):
        return by("detect", *tiny_detector.options, *arguments, cwd=tree, **more)

    return run


def test_folders_patterns_lists_and_files_in_one_run(detect, tree):
    (tree / "list.txt").write_bytes(b'\xef\xbb\xbf"a.jpg"\r\n\r\ndeep/d.jpg\r\n')
    done = detect("deep", "*.png", "list.txt", "a.jpg", "--workers", "3", "--batch", "2")
    assert done.status == 0
    (summary,) = done.err.splitlines()
    assert summary.startswith("6 pictures, ")
    expected = ["deep/c.jpg", "deep/d.jpg", "b.png", "a.jpg", "deep/d.jpg", "a.jpg"]
    assert names_in(done.out) == expected


def test_recursive_looks_into_folders_of_folders(detect):
    assert len(names_in(detect(".", "--recursive").out)) == 4


def test_names_come_from_stdin(detect):
    done = detect("-", stdin="a.jpg\n\nnone.jpg\r\ndeep\n")
    assert names_in(done.out) == ["a.jpg", "deep/c.jpg", "deep/d.jpg"]
    assert done.status == 1
    assert done.err.splitlines()[-2] == "1 of 4 pictures could not be read"


@pytest.mark.parametrize("names", ["", "\n\r\n"])
def test_no_names_on_stdin_are_an_error_as_an_empty_list_is(detect, names):
    done = detect("-", stdin=names)
    assert (done.status, done.out) == (2, "")
    assert done.err == "Error: no picture named: the lists are empty\n"


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_a_picture_on_stdin_is_refused_once(detect, tree, kind):
    with Image.open(tree / "a.jpg") as picture:
        picture.save(tree / "piped", kind)
    with (tree / "piped").open("rb") as piped:
        done = detect("-", stdin=piped)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line == f"Error: -: expected names of pictures, one per line, got a {kind}"


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_an_archive_on_stdin_is_refused(detect, tree, kind):
    """The first name in a tar ends with NUL, as a name of `find -print0` does."""
    archive = shutil.make_archive(str(tree / "archive"), kind, tree, "a.jpg")
    with Path(archive).open("rb") as piped:
        done = detect("-", stdin=piped)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        f"Error: -: expected names of pictures, one per line, got a {kind} archive. "
        "Write it to a file, and name that\n"
    )


@pytest.mark.parametrize("end", ["\n", "\0"])
def test_names_on_stdin_may_have_the_letters_of_an_archive_where_it_has_them(detect, tree, end):
    (tree / "m").mkdir()
    write_picture(tree / "m" / "mustard.jpg")
    names = f"./a.jpg{end}" * 31 + f"./m/././mustard.jpg{end}"
    assert names.index("ustar") == 257
    assert names_in(detect("-", stdin=names).out)[-1] == "./m/././mustard.jpg"


def test_names_on_stdin_may_begin_like_a_picture_file(detect, tree):
    for name in ("BM.jpg", "P6", "éclair.jpg", "P1 2024 05 holiday.jpg"):
        write_picture(tree / "b.png").rename(tree / name)
    assert names_in(detect("-", stdin="P1 2024 05 holiday.jpg\n").out) == ["P1 2024 05 holiday.jpg"]
    assert names_in(detect("-", stdin="BM.jpg\nP6\n").out) == ["BM.jpg", "P6"]
    assert names_in(detect("-", stdin="éclair.jpg\n").out) == ["éclair.jpg"]


def test_a_name_on_stdin_that_does_not_end_is_refused(detect, tree):
    done = detect("-", stdin="a" * (3 << 20), by=engine)
    assert (done.status, done.out) == (2, "")
    assert done.err == (
        "Error: -: expected names of pictures, one per line, got a line without end\n"
    )


def test_names_on_stdin_may_end_with_nul(detect, tree):
    """As `find -print0` writes them, and because names may have line ends."""
    (tree / "a.jpg").rename(tree / "two\nlines.jpg")
    write_picture(tree / "b.jfif")
    found = detect("-", "--jsonl", "-", stdin="./two\nlines.jpg\0b.jfif\0")
    rows = [json.loads(line) for line in found.out.splitlines()]
    assert [each["path"] for each in rows] == ["./two\nlines.jpg", "b.jfif"]


@pytest.mark.parametrize(
    "name", [" in front.jpg", "at its end.jpg ", "'quoted.jpg'", "\ufeffa.jpg"]
)
def test_names_that_end_with_nul_are_taken_as_they_are(detect, tree, name):
    (tree / "a.jpg").rename(tree / name)
    found = detect("-", "--jsonl", "-", stdin=f"{name}\0")
    assert [json.loads(line)["path"] for line in found.out.splitlines()] == [name]
    found = detect("-", "--jsonl", "-", stdin=f"b.png\0{name}\0")
    assert [json.loads(line)["path"] for line in found.out.splitlines()] == ["b.png", name]


@pytest.mark.parametrize(
    "gone",
    [
        "./gone é.jpg",
        "P1000123.JPG",
        "BMW.jpg",
        "at 3.00.00\u202fPM.png",
        "caf\udce9.jpg",
        "a\nb.jpg",
    ],
)
def test_the_first_of_the_names_that_end_with_nul_may_be_gone(detect, gone):
    done = detect("-", "--jsonl", "-", stdin=f"{gone}\0./a.jpg\0")
    paths = [json.loads(line)["path"] for line in done.out.splitlines()]
    assert (done.status, paths[1:]) == (1, ["./a.jpg"])
    assert "picture: cannot be read: No such file or directory" in done.err
    assert "1 of 2 pictures could not be read" in done.err


def test_a_compressed_list_on_stdin_is_refused_once(detect):
    content = gzip.compress(b"a.jpg\n" * 50, mtime=0x650A4142)  # which has a line end
    done = detect("-", stdin=content)
    line = "Error: -: expected names of pictures, one per line, got a gzip archive\n"
    assert (done.status, done.out, done.err) == (2, "", line)


def test_the_first_name_on_stdin_may_arrive_in_parts(tiny_detector, tree):
    command = [
        sys.executable,
        "-m",
        "engine",
        "detect",
        *tiny_detector.options,
        "-",
        "--jsonl",
        "-",
    ]
    child = subprocess.Popen(
        command, cwd=tree, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    for part in (b"a", b".jpg\0b.p", b"ng\0"):
        child.stdin.write(part)
        child.stdin.flush()
        time.sleep(0.3)
    out, _ = child.communicate(timeout=60)
    assert [json.loads(line)["path"] for line in out.splitlines()] == ["a.jpg", "b.png"]


def test_names_on_stdin_are_answered_one_ahead(tiny_detector, tree):
    command = [sys.executable, "-u", "-m", "engine", "detect", *tiny_detector.options, "-"]
    child = subprocess.Popen(
        [*command, "--jsonl", "-", "--json", "kept.json"],
        cwd=tree,
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        child.stdin.write("a.jpg\nb.png\n")
        child.stdin.flush()
        assert '"a.jpg"' in child.stdout.readline()
        child.send_signal(signal.SIGINT)  # stdin stays open: the signal must interrupt its reader
        assert child.wait(20) == 130
        assert json.loads((tree / "kept.json").read_text())["images"][0]["path"] == "a.jpg"
    finally:
        child.kill()
        child.communicate()


def test_addresses_are_fetched(detect, tree):
    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *arguments):
            super().__init__(*arguments, directory=tree)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        done = detect(f"{address}/a.jpg?x=1", f"{address}/none.jpg", "-o", "out")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert names_in(done.out) == [f"{address}/a.jpg?x=1"]
    assert "none.jpg: picture: cannot be read: the server answered 404" in done.err
    assert [path.name for path in (tree / "out").glob("[!.]*")] == ["a.jpg"]


def test_missing_inputs_are_reported_once_and_the_rest_is_read(detect, tree):
    (tree / "list.txt").write_text("gone.jpg\na.jpg\n")
    (tree / "empty").mkdir()
    done = detect("list.txt", "empty", "*.gif", "b.png", "none.txt")
    assert names_in(done.out) == ["a.jpg", "b.png"]
    assert done.status == 1
    *reasons, count, sources, summary = done.err.splitlines()
    told = [reason.split(": ")[1] for reason in reasons]
    assert told == ["gone.jpg", "empty", "*.gif", "none.txt"]
    assert count == "1 of 3 pictures could not be read"
    assert sources == "3 sources have no pictures or could not be read to the end"
    assert summary.startswith("3 pictures, ")
    assert ", 1 failed, " in summary


def test_a_folder_without_pictures_is_no_picture(detect, tree):
    (tree / "empty").mkdir()
    done = detect("empty")
    assert done.status == 1
    *_, last = done.err.splitlines()
    assert last == "1 source has no pictures or could not be read to the end"


def test_fail_fast_stops_at_the_first(detect):
    done = detect("none.jpg", "a.jpg", "b.png", "--fail-fast")
    assert (done.status, names_in(done.out)) == (1, [])
    assert len(done.err.splitlines()) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-", "-"], "standard input can be read only once"),
        (["blank.txt"], "the lists are empty"),
        (["--stride", "0", "a.jpg"], "stride: expected an integer of 1 or more, got 0"),
        (["--max-frames", "-1", "a.jpg"], "max_frames: expected an integer of 1 or more, got -1"),
        (["--workers", "99999", "a.jpg"], "workers: expected at most 1024, got 99999"),
        (["--workers", "0", "a.jpg"], "workers: expected an integer of 1 or more, got 0"),
        (["a.jpg", "-out", "x.json"], "Here it is --json FILE --json-style darknet"),
        (["a.jpg", "--max-dets", "1"], "Did you mean '--max-det'?"),
        (["a.jpg", "b.png", "my.cfg"], "my.cfg: name the model once, before the pictures"),
        (["other.WEIGHTS", "a.jpg"], "other.WEIGHTS: name the model once, before the pictures"),
        (["a.jpg", "--save-conf"], "--save-conf: only with --save-txt"),
        (["a.jpg", "--json-style", "coco"], "--json-style: only with --json"),
        (
            ["a.jpg", "--json-style", "darknot"],
            "expected engine, darknet, coco, got 'darknot'. See",
        ),
    ],
)
def test_misuse_is_one_line_and_status_2(detect, tree, arguments, message):
    (tree / "blank.txt").write_text("\n \n")
    done = detect(*arguments)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert message in line


def test_classify_reads_the_same_sources(tiny_classifier, tree):
    done = engine_here(
        "classify", *tiny_classifier.options, "deep", "*.png", "--top-k", "2", cwd=tree
    )
    assert done.status == 0
    assert names_in(done.out) == ["deep/c.jpg", "deep/d.jpg", "b.png"]


def test_progress_is_shown_on_a_terminal_only(tiny_detector, tree):
    needs.package("tqdm")
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [sys.executable, "-m", "engine", "detect", *tiny_detector.options, "deep"]
    child = subprocess.Popen(
        command, cwd=tree, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=follower
    )
    os.close(follower)
    out = child.communicate(timeout=60)[0].decode()
    shown = b""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            piece = os.read(leader, 4096)
        except OSError:  # the other end is closed, so everything has been read
            break
        shown += piece
    os.close(leader)
    assert b"0/2" in shown
    assert b"pictures/s" in shown
    assert names_in(out) == ["deep/c.jpg", "deep/d.jpg"]
