"""Videos through the command line: frames in, boxes and an annotated video out."""

import csv
import io
import itertools
import json
import os
import shutil
import signal
import sys

import pytest

from engine import extras
from engine.errors import ImageError
from engine.outputs.record import FILE as RECORD
from engine.sources import video
from engine.sources.video_writer import VideoWriter
from tests import needs
from tests.cli.child import ROOT, engine, engine_here, names_in
from tests.pictures import write_picture, write_video

av = needs.package("av")
pytestmark = pytest.mark.slow


@pytest.fixture
def tree(tmp_path):
    write_video(tmp_path / "clip.mp4")
    write_video(tmp_path / "odd.mkv", size=(62, 50))
    write_picture(tmp_path / "a.jpg")
    return tmp_path


@pytest.fixture
def detect(tiny_detector, tree):
    def run(*arguments, by=engine_here, **more):
        return by("detect", *tiny_detector.options, *arguments, cwd=tree, **more)

    return run


def frames_of(path):
    with av.open(str(path)) as container:
        return [(frame.time, (frame.width, frame.height)) for frame in container.decode(video=0)]


def test_frames_are_distinguished_in_every_output(detect, tree):
    done = detect(
        *("clip.mp4", "a.jpg", "--stride", "2", "--max-frames", "2", "--jsonl", "x.jsonl"),
        *("--save-txt", "labels", "--csv", "x.csv", "--crops", "crops"),
    )
    assert done.status == 0
    assert done.err.endswith(" per second: x.jsonl, x.csv, labels, crops\n")
    assert names_in(done.out) == ["clip.mp4#0", "clip.mp4#2", "a.jpg"]
    lines = [json.loads(line) for line in (tree / "x.jsonl").read_text().splitlines()]
    told = [(line["path"], line.get("frame"), line.get("seconds")) for line in lines]
    assert told == [("clip.mp4", 0, 0.0), ("clip.mp4", 2, 0.2), ("a.jpg", None, None)]
    labels = sorted(path.name for path in (tree / "labels").glob("[!.]*"))
    assert labels == ["a.txt", "clip_000000.txt", "clip_000002.txt"]
    rows = csv.DictReader(io.StringIO((tree / "x.csv").read_text()))
    assert {row["frame"] for row in rows} <= {"0", "2", ""}


@pytest.mark.parametrize("before", [(), ("--stride", "2"), ("--resume",)])
@pytest.mark.parametrize("by_stdin", [False, True])
def test_labels_of_frames_that_somebody_has_made_are_not_replaced(detect, tree, before, by_stdin):
    mine = tree / "labels" / "clip_000001.txt"
    mine.parent.mkdir()
    hand = "0 .111 .5 .1 .1\n"
    if before[:1] != ("--stride",):
        mine.write_text(hand)
    if before:
        assert detect("clip.mp4", "--save-txt", "labels", *before).status == 0
    mine.write_text(hand)
    source, more = ("-", {"stdin": "clip.mp4\n"}) if by_stdin else ("clip.mp4", {})
    done = detect(source, "--save-txt", "labels", "--overwrite", **more)
    told = "would replace clip_000001.txt, which was not written by a run or was edited since"
    assert (done.status, told in done.err) == (2, True)
    assert mine.read_text() == hand
    mine.unlink()
    for _ in range(2):
        assert detect("clip.mp4", "--save-txt", "labels", "--overwrite").status == 0


def test_an_annotated_video_plays_as_long_as_its_source(detect, tree):
    done = detect("clip.mp4", "odd.mkv", "a.jpg", "-o", "out", "--stride", "2")
    assert done.status == 0
    assert done.err.startswith("7 pictures, ")
    assert done.err.endswith(" per second: out\n")
    found = sorted(path.name for path in (tree / "out").glob("[!.]*"))
    assert found == ["a.jpg", "clip.mp4", "odd.mkv"]
    frames = frames_of(tree / "out" / "clip.mp4")
    assert [time for time, _ in frames] == pytest.approx([0, 0.2, 0.4], abs=0.01)
    assert {size for _, size in frames} == {(64, 48)}


def test_videos_read_at_once_are_written_like_those_read_one_by_one(detect, tree):
    write_video(tree / "short.mp4", count=3)
    (tree / "broken.mp4").write_bytes(b"no video")
    names = ["short.mp4", "broken.mp4", "clip.mp4", "odd.mkv", "a.jpg"]
    assert detect(*names, "-o", "one", "--jsonl", "one.jsonl").status == 1
    done = detect(*names, "-o", "two", "--jsonl", "two.jsonl", "--at-once", "2")
    assert done.status == 1
    assert [*map(frames_of, (tree / "two").glob("*.m*"))] == [
        *map(frames_of, (tree / "one").glob("*.m*"))
    ]
    lines = [(tree / f"{each}.jsonl").read_text().splitlines() for each in ("one", "two")]
    paths = [[json.loads(each)["path"] for each in of] for of in lines]
    assert paths[1] != paths[0]
    assert sorted(paths[1]) == sorted(paths[0])


@pytest.mark.parametrize("at_once", ["1", "2"])
def test_videos_with_one_stem_are_two_videos(detect, tree, at_once):
    write_video(tree / "clip.mkv", count=4, size=(32, 24))
    outputs = ("-o", "out", "--crops", "crops", "--coco-dataset", "set.json")
    done = detect("clip.mp4", "clip.mkv", *outputs, "--threshold", "0.3", "--at-once", at_once)
    assert (done.status, "clip-2 for clip.mkv" in done.err) == (0, True)
    assert {size for _, size in frames_of(tree / "out/clip.mp4")} == {(64, 48)}
    assert {size for _, size in frames_of(tree / "out/clip-2.mkv")} == {(32, 24)}
    assert [len(frames_of(tree / "out" / each)) for each in ("clip.mp4", "clip-2.mkv")] == [6, 4]
    names = [each["file_name"] for each in json.loads((tree / "set.json").read_text())["images"]]
    first = [f"clip_{number:06d}.jpg" for number in range(6)]
    assert sorted(names) == sorted([*first, *(f"clip-2_{each:06d}.jpg" for each in range(4))])
    stems = {path.name.partition("_")[0] for path in (tree / "crops").glob("*/*.jpg")}
    assert stems <= {"clip", "clip-2"}
    again = detect("clip.mp4", "clip.mkv", "-o", "out", "--resume")
    assert "nothing left to do" in again.err


def test_single_video_is_written_to_a_named_file(detect, tree):
    assert detect("clip.mp4", "-o", "found.webm", "--max-frames", "2").status == 0
    assert len(frames_of(tree / "found.webm")) == 2
    again = detect("clip.mp4", "-o", "found.webm")
    assert (again.status, "exists already" in again.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["clip.mp4", "-o", "x.jpg"], "expected a picture, got a video"),
        (["a.jpg", "-o", "x.mp4"], "expected a video, got a picture"),
        (["clip.mp4", "odd.mkv", "-o", "x.mp4"], "one file for several pictures"),
        (["clip.mp4", "a.jpg", "-o", "x.mp4"], "one file for several pictures"),
        (["clip.mp4", "-o", "x.3gp"], "expected one of .avi, "),
    ],
)
def test_files_that_do_not_match_are_refused(detect, tree, arguments, message):
    done = detect(*arguments, "--quiet")
    assert done.status == 2
    (line,) = done.err.splitlines()
    assert message in line
    assert {path.name for path in tree.iterdir()} == {"clip.mp4", "odd.mkv", "a.jpg"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("found.png", "expected a picture, got a video"),
        (
            "found.3gp",
            "expected one of .avi, .m4v, .mkv, .mov, .mp4, .mts, .ts, .webm, got '.3gp'",
        ),
    ],
)
def test_a_file_for_no_video_is_refused_before_the_model_is_read(detect, tree, name, message):
    (tree / "unread.weights").write_bytes(b"")
    done = detect("clip.mp4", "-o", name, "--weights", "unread.weights")
    assert (done.status, done.out) == (2, "")
    assert done.err == f"Error: -o {name}: {message}\n"


def test_broken_video_is_counted_and_the_rest_is_read(detect, tree):
    (tree / "broken.mp4").write_bytes(b"\0" * 1000)
    done = detect("broken.mp4", "a.jpg")
    assert (done.status, names_in(done.out)) == (1, ["a.jpg"])
    assert done.err.startswith("Error: broken.mp4: video: cannot be read: ")


def test_a_video_with_a_gap_is_counted(detect, tree):
    path = write_video(tree / "gap.webm", count=60, rate=5)
    whole = path.read_bytes()
    half = len(whole) // 2
    path.write_bytes(whole[: half - 400] + bytes(800) + whole[half + 400 :])
    done = detect("gap.webm", "a.jpg", "-o", "out")
    assert (done.status, names_in(done.out)[-1]) == (1, "a.jpg")
    assert "gap.webm: video: is damaged: frames are missing before its end" in done.err
    assert 0 < len(frames_of(tree / "out/gap.webm")) < 60


def test_missing_pyav_is_one_line_with_an_install_hint(detect, tree):
    (tree / "av.py").write_text("raise ImportError\n")
    done = detect("clip.mp4", by=engine, PYTHONPATH=f"{tree}{os.pathsep}{ROOT}")
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert line.endswith(f"video: PyAV is not installed. Run: {extras.command('video')}")


@pytest.fixture
def interrupted(detect, monkeypatch):
    """Run and send a signal in the third frame of an annotated video, which has six."""

    def run(number, *arguments):
        add, count = VideoWriter.add, itertools.count(1)

        def adding(*given):
            if next(count) == 3:
                signal.raise_signal(number)
            add(*given)

        with monkeypatch.context() as patch:
            patch.setattr(VideoWriter, "add", adding)
            done = detect(*arguments)
        assert done.status == 128 + number
        assert "interrupted: 3 pictures done" in done.err
        return done

    return run


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "outputs",
    [
        ("-o", "out"),
        ("-o", "out/clip.mp4"),
        ("-o", "out", "--save-txt", "labels", "--crops", "crops"),
        ("-o", "out", "--jsonl", "x.jsonl", "--csv", "x.csv"),
    ],
)
def test_an_interrupted_video_is_annotated_again(
    interrupted, detect, tree, outputs, overwrite, number
):
    run = ("clip.mp4", *outputs, "--threshold", "0.5")
    assert detect(*run).status == 0
    expected = contents(tree)
    if overwrite:
        assert detect(*run, "--threshold", "0.9", "--overwrite").status == 0
    else:
        for name in {path.relative_to(tree).parts[0] for path in contents(tree)}:
            shutil.rmtree(tree / name) if (tree / name).is_dir() else (tree / name).unlink()
    interrupted(number, *run, *["--overwrite"] * overwrite)
    assert len(frames_of(tree / "out/clip.mp4")) == 3  # can be played
    interrupted(number, *run, "--resume")
    done = detect(*run, "--resume")
    assert done.status == 0
    assert contents(tree) == expected
    assert "nothing left to do, 6 done before" in detect(*run, "--resume").err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
def test_a_recorded_camera_is_whole_when_it_is_stopped(interrupted, tree, monkeypatch):
    def endless(name, **more):
        while True:
            yield from video.frames("clip.mp4")

    monkeypatch.setattr(video, "live_frames", endless)
    interrupted(signal.SIGINT, "0", "-o", "out")
    (recorded,) = (tree / "out").glob("[!.]*")
    assert len(frames_of(recorded)) == 3
    assert '"done"' not in (tree / "out" / RECORD).read_text()


def contents(tree):
    """Return what a run wrote, without times."""
    found = {}
    for path in tree.rglob("[!.]*"):
        if (path.is_file() and path.parent != tree) or path.suffix in (".jsonl", ".csv"):
            lines = path.read_bytes().splitlines()
            if path.suffix == ".jsonl":
                lines = [json.loads(line) | {"timing_ms": None} for line in lines]
            found[path] = lines
    return found


@pytest.mark.parametrize("cause", ["fail-fast", "broken"])
def test_videos_that_other_ends_cut_short_are_annotated_again(detect, tree, monkeypatch, cause):
    run = ("--at-once", "2", "-o", "out")
    write_video(tree / "long.mkv", count=12)
    if cause == "broken":
        frames = video.frames

        def breaking(name, **more):
            yield from itertools.islice(frames(name, **more), 4)
            raise ImageError(f"{name}: damaged")

        with monkeypatch.context() as patch:
            patch.setattr(video, "frames", breaking)
            assert detect("clip.mp4", "long.mkv", *run).status == 1
    else:
        (tree / "empty.mp4").write_bytes(b"no video")
        assert detect("long.mkv", "empty.mp4", "clip.mp4", *run, "--fail-fast").status == 1
    assert len(frames_of(tree / "out/long.mkv")) < 12
    assert detect("clip.mp4", "long.mkv", *run, "--resume").status == 0
    assert [len(frames_of(tree / "out" / name)) for name in ("clip.mp4", "long.mkv")] == [6, 12]
