"""detect --ray on a local Ray: a thousand pictures, killed workers, interrupted runs."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from tests import needs

if not Path("/proc/self/statm").exists():
    pytest.skip("needs /proc, to find Ray's workers", allow_module_level=True)

from engine.errors import ImageError
from tests.cli.child import ENVIRONMENT, engine
from tests.fleet.expected import assert_rows_are, plain, write_pictures
from tests.fleet.processes import below, resident_mib, workers_among

PICTURES, BROKEN = 1000, range(7, 1000, 50)
SIZE = (160, 120)  # as pixels all of them would be 55 MiB
LONGEST = 900  # seconds: on a busy machine Ray alone takes minutes to start

pytestmark = [pytest.mark.slow, needs.installed("ray")]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster") / "pictures"
    return write_pictures(folder, PICTURES, size=SIZE, broken=BROKEN)


@pytest.fixture(scope="module")
def expected(model, paths):
    found = plain(model, paths, threshold=0.65, batch=4)
    assert sum(isinstance(each, ImageError) for each in found.values()) == len(BROKEN) == 20
    return found


@pytest.fixture
def command(model, paths, tmp_path):
    return [
        *(sys.executable, "-m", "engine", "detect", *model.options, "--names", str(model.names)),
        *(str(Path(paths[0]).parent), "--threshold", "0.65", "--batch", "4"),
        *("--ray", "--out", str(tmp_path / "out")),
    ]


@contextlib.contextmanager
def running(command):
    """Start a run; at the end of the block, check that it has left no process."""
    environment = {**ENVIRONMENT, "RAY_AUTH_MODE": "disabled"}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, **options)
    started = {}
    try:
        yield process, started
        process.wait(LONGEST)
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in started))
    finally:
        process.kill()
        process.communicate()


def until(is_so):
    end = time.monotonic() + LONGEST
    while not is_so():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.05)


def shards_in(folder):
    return sorted(folder.glob("shard-*"))


def rows_in(folder):
    return [row for each in shards_in(folder) for row in rows_of(each)]


def rows_of(shard):
    import pyarrow.parquet  # takes a second

    return pyarrow.parquet.read_table(shard).to_pylist()


INTERRUPTED = "(?m)^interrupted: at least [0-9]+ pictures? done; results are in {out}\n\\Z"


def test_a_terminated_run_ends_like_an_interrupted_one(command, tmp_path):
    out = tmp_path / "out"
    with running(command) as (process, started):
        until(lambda: shards_in(out))
        started |= below(process.pid)
        process.terminate()
        told = process.communicate(timeout=LONGEST)
    assert process.returncode == 143, told
    assert told[0] == ""
    assert re.search(INTERRUPTED.format(out=re.escape(str(out))), told[1]), told[1]
    kinds = r"Error: .*|.* per second|interrupted: .*"  # no stack trace
    assert all(re.fullmatch(kinds, line) for line in told[1].splitlines()), told[1]
    assert all(rows_of(each) for each in shards_in(out))


def test_killed_workers_lose_and_duplicate_nothing(command, expected, tmp_path):
    """Kill a worker, interrupt the run and resume it; memory stays bounded.

    The first run may start a second worker if Ray decides so; the second run has two.
    """
    out = tmp_path / "out"
    with running([*command, "--actors", "1:2"]) as (process, started):
        until(lambda: len(shards_in(out)) >= 4)
        started |= below(process.pid)
        os.kill(workers_among(below(process.pid))[0], signal.SIGKILL)
        there = len(shards_in(out))
        until(lambda: len(shards_in(out)) >= there + 8)  # it continues
        process.send_signal(signal.SIGINT)
        complaints = process.communicate(timeout=LONGEST)[1]
    assert process.returncode == 130
    assert re.search(INTERRUPTED.format(out=re.escape(str(out))), complaints), complaints
    written = shards_in(out)
    assert 12 <= len(written) < 32
    whole = [each for each in written if not any(row["error"] for row in rows_of(each))]
    untouched = {each: each.stat().st_mtime_ns for each in whole}  # others are tried again
    assert untouched

    resident = []  # of the largest worker, with the number of shards that were new
    most_workers = 0
    with running([*command, "--actors", "2"]) as (process, started):
        while process.poll() is None:
            processes = below(process.pid)
            started |= processes
            workers = workers_among(processes)
            most_workers = max(most_workers, len(workers))
            new = len(shards_in(out)) - len(written)
            resident.append((new, max(map(resident_mib, workers), default=0.0)))
            time.sleep(0.1)
        told, complaints = process.communicate()
    assert process.returncode == 1, complaints
    assert most_workers == 2
    early = max(size for new, size in resident if new <= 10)
    assert 0 < max(size for _, size in resident) < early + 32

    found = [each for each in expected.values() if not isinstance(each, ImageError)]
    boxes, with_boxes = sum(map(len, found)), sum(map(bool, map(len, found)))
    assert told.startswith(f"1000 pictures, {boxes} boxes in {with_boxes}, 20 failed, "), told
    assert re.search(f" per second, [0-9]+ done before: 32 files in {re.escape(str(out))}\n$", told)
    assert untouched.items() <= {each: each.stat().st_mtime_ns for each in shards_in(out)}.items()
    assert assert_rows_are(rows_in(out), expected) == 20
    assert [row["path"] for row in rows_in(out)] == list(expected)
    assert sorted(each.name for each in out.iterdir()) == sorted(
        ["pictures.parquet", "run.json", *(f"shard-{number:06}.parquet" for number in range(32))]
    )


def test_reasons_are_printed_and_a_finished_run_has_nothing_left(tiny_classifier, tmp_path):
    written = tiny_classifier
    write_pictures(tmp_path / "pictures", 30, broken=range(5, 30))
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        archive.add(tmp_path / "pictures/0001.png", "0001.png")
    words = ["classify", *written.options, "--names", written.names, "pictures", "set.tar", "--ray"]
    done = engine(*words, "--out", "out", cwd=tmp_path, timeout=LONGEST, RAY_AUTH_MODE="disabled")
    assert done.status == 1
    *reasons, rest = [line for line in done.err.splitlines() if " per second" not in line]
    assert rest == "5 more pictures failed: see the column error in out"
    assert len(reasons) == 20
    assert all(line.startswith(f"Error: {tmp_path}/pictures/00") for line in reasons)
    assert re.match("31 pictures, 25 failed, .* per second: 1 files in out\n", done.out)
    (row, *_) = (row for row in rows_in(tmp_path / "out") if "set.tar#0001.png" in row["path"])
    assert row["error"] is None
    assert "boxes" not in row
    shutil.rmtree(tmp_path / "pictures")
    write_pictures(tmp_path / "pictures", 31)  # mended, and one more
    again = engine(*words, "--out", "out", cwd=tmp_path, timeout=LONGEST, RAY_AUTH_MODE="disabled")
    assert re.match("32 pictures, 0 failed, .* per second: 2 files in out\n", again.out)
    assert again.status == 0
    assert len({row["path"] for row in rows_in(tmp_path / "out")}) == 32
    done = engine(*words, "--out", "out", cwd=tmp_path, timeout=LONGEST)
    assert (done.status, done.err) == (0, "nothing left to do\n")
