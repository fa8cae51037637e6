"""--track through the command line: real videos, folders of pictures, every output."""

import csv
import json
import tarfile
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from engine import cli
from engine.cli import _tracking
from engine.cli._sources import Feed, NamedMedia
from engine.errors import ImageError
from engine.evaluate.mot_files import read_tracks
from engine.picture_runs import PictureRuns
from engine.sources.item import Item
from engine.sources.media import media_of
from engine.sources.reader import FrameSelection
from engine.vision.boxes import Boxes
from engine.vision.frame import Frame
from engine.vision.result import Result
from tests import needs
from tests.pictures import write_picture, write_video

NO_BOXES = Result((64, 48), np.empty((0, 4)), np.empty(0), np.empty(0, int))
COUNT = 12  # frames of a video


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def watched(monkeypatch):
    """Let the detector find a cat that walks to the right and, at times, a weak dog.

    The cat's score falls below the threshold now and then; a second cat is seen only once.
    """
    seen = []

    def found(self, entry, boxes, timing, settings, *, keep):
        at = len(seen)
        seen.append(entry.picture.path)
        rows = [
            (0.1 + 0.06 * (at % COUNT), 0.5, 0.2 if at % 4 == 3 else 0.9, 0),
            (0.5, 0.2, 0.15, 1),
        ]
        if at % COUNT == 6:
            rows.append((0.8, 0.9, 0.9, 0))
        table = np.array(rows, np.float32)
        xywh = np.concatenate([table[:, :2], np.full((len(table), 2), 0.2, np.float32)], axis=1)
        threshold = settings.threshold
        boxes = Boxes(xywh, table[:, 2], table[:, 3].astype(np.int64), table[:, 2])
        return Result.of(
            boxes.take(table[:, 2] > threshold),
            entry.picture,
            names=self._labels,
            keep_picture=keep == "always",
        )

    monkeypatch.setattr(PictureRuns, "_outcome", found)
    return seen


@pytest.fixture
def detect(tiny_detector, here):
    def run(*words, status=0):
        names = ["--names", str(tiny_detector.names)]
        assert cli.main(["detect", *tiny_detector.options, *names, *words]) == status

    return run


def tracks_of(document):
    return [[each["track_id"] for each in image["detections"]] for image in document["images"]]


def test_a_video_in_every_output(detect, here, watched, capsys):
    av = needs.package("av")
    write_video("street.mp4", count=COUNT, size=(160, 120))
    detect(
        *("street.mp4", "--track", "--line", "door=0.5,0,0.5,1", "--zone", "0.6,0,1,0,1,1,0.6,1"),
        *("--json", "all.json", "--jsonl", "all.jsonl", "--csv", "all.csv", "-o", "drawn"),
        *("--save-mot", "tracks.txt"),
    )
    printed = capsys.readouterr()
    document = json.loads((here / "all.json").read_text())
    assert tracks_of(document) == [[1]] * COUNT
    assert (document["threshold"], document["track_low"]) == (0.25, 0.1)
    scores = [image["detections"][0]["score"] for image in document["images"]]
    assert min(scores) == pytest.approx(0.2)
    counts = document["images"][-1]["counts"]
    assert counts["lines"] == [{"name": "door", "in": {}, "out": {"cat": 1}}]
    (zone,) = counts["zones"]
    assert zone.pop("name") == "zone 1"
    assert zone == {name: {"cat": 1} for name in ("inside", "entered", "visitors")} | {"left": {}}
    lines = [json.loads(line) for line in (here / "all.jsonl").read_text().splitlines()]
    assert lines[-1]["counts"]["lines"] == counts["lines"]
    rows = list(csv.DictReader((here / "all.csv").read_text().splitlines()))
    assert {row["track_id"] for row in rows} == {"1"}
    tracks = read_tracks(here / "tracks.txt")
    assert (tracks.frames.tolist(), set(tracks.ids)) == ([*range(1, COUNT + 1)], {1})
    assert tracks.boxes[0] == pytest.approx([1, 49, 32, 24], abs=0.02)
    with av.open(str(here / "drawn/street.mp4")) as video:
        assert len(list(video.decode(video=0))) == COUNT
    assert "class  track  score" in printed.out
    assert "street.mp4\n  door: in          0\n  door: out         1 cat\n" in printed.out
    assert "tracks.txt" in printed.err


def test_each_video_has_identities_of_its_own(detect, here, watched):
    needs.package("av")
    for name in ("a.mp4", "b.mp4", "b.mkv"):
        write_video(name, count=COUNT, size=(160, 120))
    detect("a.mp4", "b.mp4", "--track", "--json", "all.json", "--save-mot", "mot", "--quiet")
    assert tracks_of(json.loads((here / "all.json").read_text())) == [[1]] * COUNT * 2
    detect("b.mkv", "b.mp4", "--track", "--json", "b.json", "--quiet")
    assert tracks_of(json.loads((here / "b.json").read_text())) == [[1]] * COUNT * 2
    assert sorted(path.name for path in (here / "mot").iterdir()) == ["a.txt", "b.txt"]
    assert len(read_tracks(here / "mot/b.txt")) == COUNT


def test_each_archive_has_identities_of_its_own(detect, here, watched):
    """Whether its pictures are in a folder or, as here, in none."""
    for number in range(COUNT):
        write_picture(here / f"{number}.png", size=(40, 30), seed=number)
    for name in ("a.tar", "b.tar"):
        with tarfile.open(here / name, "w") as archive:
            for number in range(COUNT):
                archive.add(here / f"{number}.png", f"{number}.png")
    names = (f"{number}.png" for number in range(COUNT))
    detect("a.tar", "b.tar", *names, "--json", "all.json", "--save-mot", "mot", "--quiet")
    assert tracks_of(json.loads((here / "all.json").read_text())) == [[1]] * COUNT * 3
    files = sorted((here / "mot").iterdir())
    assert [path.name for path in files] == ["a.txt", "b.txt", f"{here.name}.txt"]
    for path in files:
        assert read_tracks(path).frames.tolist() == [*range(1, COUNT + 1)]


def test_the_counts_of_each_folder_are_printed(detect, here, watched, capsys):
    for folder in ("one", "two"):
        for number in range(COUNT):
            write_picture(here / folder / f"{number}.png", size=(40, 30), seed=number)
    detect("one", "two", "--line", "door=0.5,0,0.5,1")
    crossed = "\n  door: in   0\n  door: out  1 cat\n"
    assert f"one{crossed}two{crossed}" in capsys.readouterr().out


def test_the_pictures_of_a_folder_are_frames_in_the_order_of_their_numbers(detect, here, watched):
    for number in range(1, COUNT + 1):
        write_picture(here / f"seq/img1/f{number}.png", size=(40, 30), seed=number)
    detect("seq/img1", "--track", "--save-mot", "mot", "--quiet")
    assert watched == [f"seq/img1/f{number}.png" for number in range(1, COUNT + 1)]
    tracks = read_tracks(here / "mot/seq.txt")
    assert (tracks.frames.tolist(), set(tracks.ids)) == ([*range(1, COUNT + 1)], {1})


def test_numbers_of_pictures_are_those_of_frames_and_missing_ones_take_their_time(
    detect, here, watched
):
    """The second gap is longer than --track-lost."""
    numbers = [3, 4, 5, 6, 9, 10, 70, 71, 72]
    for number in numbers:
        write_picture(here / f"seq/img1/{number:06}.png", size=(40, 30))
    (here / "seq/img1/000006.png").write_bytes(b"no picture")
    detect("seq/img1", "--track", "--save-mot", "mot", "--quiet", status=1)
    tracks = read_tracks(here / "mot/seq.txt")
    assert tracks.frames.tolist() == [3, 4, 5, 9, 10, 70, 71, 72]
    assert tracks.ids.tolist() == [1] * 5 + [2] * 3


@pytest.mark.parametrize(
    ("names", "numbers", "times"),
    [
        ("img008.jpg img10.jpg img12.jpg img18.jpg", [8, 10, 12, 18], [0, 1, 2, 5]),
        ("0.png 1.png 3.png", [1, 2, 4], [0, 1, 3]),
        ("7.png", [7], [0]),
        ("1.png 2.png cover.png", [None] * 3, [None] * 3),
        ("1.jpg 1.png 2.png", [None] * 3, [None] * 3),
        ("3.png 2.png 1.png", [None] * 3, [None] * 3),
        ("a_2.png b_1.png", [None] * 2, [None] * 2),
        ("0000000000012.png 0000000000013.png", [12, 13], [0, 1]),
        ("1700000000123.png 1700000000223.png", [None] * 2, [None] * 2),
    ],
)
def test_frames_have_numbers_where_all_pictures_of_a_folder_have(names, numbers, times):
    paths = [f"seq/{name}" for name in names.split()]
    known = [NamedMedia(media_of(path), path) for path in [*paths, "other/x.png", "v.mp4"]]
    found = _tracking.FrameNumbers(known)
    items = [Item(path, path) for path in paths]
    assert [found.of(item) for item in items] == numbers
    assert [found.frames_since_first(item) for item in items] == times
    assert found.of(Item("other/x.png", "other/x.png")) is None


def test_a_broken_picture_is_a_frame_without_boxes(detect, here, watched, capsys):
    for number in range(6):
        write_picture(here / f"seq/{number}.png", size=(40, 30))
    (here / "seq/2.png").write_bytes(b"no picture")
    detect("seq", "--track", "--save-mot", "mot.txt", "--jsonl", "all.jsonl", status=1)
    assert read_tracks(here / "mot.txt").frames.tolist() == [1, 2, 4, 5, 6]
    lines = [json.loads(line) for line in (here / "all.jsonl").read_text().splitlines()]
    assert ["error" in line for line in lines] == [False, False, True, False, False, False]


def test_a_broken_video_is_no_frame_of_the_folder_that_it_is_in(detect, here, watched):
    needs.package("av")
    for name in "abc":
        write_picture(here / f"seq/{name}.png", size=(40, 30))
    (here / "seq/v.mp4").write_bytes(b"no video")
    sources = [f"seq/{name}" for name in ("a.png", "v.mp4", "b.png", "c.png")]
    detect(*sources, "--track", "--save-mot", "mot", "--quiet", status=1)
    assert read_tracks(here / "mot/seq.txt").frames.tolist() == [1, 2, 3]


def test_without_track_outputs_are_as_before(detect, here, watched, capsys):
    write_picture("a.png")
    detect("a.png", "--json", "-", "--csv", "all.csv")
    assert "track" not in capsys.readouterr().out
    assert (here / "all.csv").read_text().startswith("path,class_id,label,score,left,top,right")
    assert "track" not in (here / "all.csv").read_text()


def test_annotated_pictures_show_lines_and_zones(detect, here, watched):
    for number in range(3):
        Image.new("RGB", (160, 120)).save(here / f"{number}.png")
    detect(*(f"{number}.png" for number in range(3)), "--line", "80,0,80,120", "-o", "drawn")
    drawn = np.array(Image.open(here / "drawn/2.png"))
    assert (drawn[110, 78:83] == 255).all(axis=1).any()


REFUSED = {
    "--line 1,2,3": "--line 1,2,3: expected pairs of X,Y, got 3 numbers",
    "--line 1,2,3,4,5,6": "--line 1,2,3,4,5,6: expected 2 points, got 3",
    "--line a=1,2,x,4": "--line a=1,2,x,4: expected numbers X1,Y1,X2,Y2, got '1,2,x,4'",
    "--zone 1,2,3,4": "zone: expected 3 or more points, got 2",
    "--zone a=1,2,3,4,5,7 --line a=1,2,3,4": "lines and zones: expected different names, got",
    "--line 1,2,3,4 --anchor top": "anchor: expected centre or bottom, got 'top'",
    "--track --track-low 2": "track_low: expected a number from 0 to 1, got 2.0",
    "--track --track-low 0.5": "--track-low: expected at most --threshold, 0.25, got 0.5",
    "--track --track-lost -1": "lost_seconds: expected a number of 0 or more",
    "--track-low 0.2": "--track-low: only with --track",
    "--anchor bottom": "--anchor: only with --track",
    "--track --resume --jsonl x.jsonl": "--track: not with --resume",
    "--save-mot -": "--save-mot -: expected a file or a folder",
    "--save-mot a.png": "--save-mot a.png: expected a folder, or a name that ends in .txt",
    "--save-mot x.csv": "--save-mot x.csv: expected a folder, or a name that ends in .txt",
    "--save-mot new/x.MP4": "--save-mot new/x.MP4: expected a folder, or a name that ends in .txt",
    "--save-mot a.png/x": "--save-mot a.png/x: cannot create the folder",
    "--save-mot old.txt": "--save-mot old.txt: exists already.",
    "--save-mot new.txt b/b.png": "--save-mot new.txt: one file for several videos or folders",
    "--track --threshold 3": "threshold: expected a number from 0 to 1",
}


@pytest.mark.parametrize("text", REFUSED)
def test_wrong_options_are_refused_in_one_line(detect, here, capsys, text):
    write_picture("a.png")
    write_picture("b/b.png")
    (here / "old.txt").write_text("old")
    detect("a.png", *text.split(), "--quiet", status=2)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {REFUSED[text]}")
    assert (here / "old.txt").read_text() == "old"
    assert sorted(path.name for path in here.iterdir()) == ["a.png", "b", "old.txt"]


def test_existing_tracks_are_not_said_to_be_resumed(detect, here, capsys):
    write_picture("a/a.png")
    (here / "mot").mkdir()
    (here / "mot/a.txt").write_text("old")
    detect("a/a.png", "--save-mot", "mot", "--quiet", status=2)
    line = "Error: --save-mot mot: mot/a.txt exists already. Name another, or add --overwrite\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("name", ["exists.csv", "new.csv/", "run.2"])
def test_folders_of_tracks_may_have_an_ending(detect, here, watched, name):
    (here / "exists.csv").mkdir()
    write_picture("a/a.png")
    detect("a/a.png", "--save-mot", name, "--quiet")
    assert (here / name / "a.txt").is_file()


@pytest.mark.parametrize(
    ("name", "output", "is_video", "expected"),
    [
        ("cams/a.mp4", "cams/a", True, "cams/a"),
        ("pictures/a.png", "a", False, "pictures"),
        ("x/pictures/a.png", "pictures/a", False, "pictures"),
        ("MOT17/M-02/img1/000001.jpg", "M-02/img1/000001", False, "M-02"),
        ("M-02/img1/000001.jpg", "000001", False, "M-02"),
        ("set.tar#in/a.png", "set/in/a", False, "set/in"),
    ],
)
def test_files_of_tracks_are_named_like_their_sequence(name, output, is_video, expected):
    assert _tracking.sequence_of(name, output, is_video=is_video).name == expected


@pytest.mark.parametrize("rate", [25, 90_000])
def test_objects_are_followed_whatever_rate_a_container_states(rate):
    """An object that shakes, moves and is hidden for 0.6 seconds keeps its identity."""
    following = _tracking.Following(cli.parser_of("detect").parse(["--track", "x.mp4"]))
    random = np.random.default_rng(1)
    for number in [*range(30), *range(45, 60)]:
        frame = Frame("x.mp4", number, number / 25, Fraction(rate))
        x, y = np.array([0.2 + 0.002 * number, 0.5]) + random.normal(0, 0.01, 2)
        xywhn = np.array([[x, y, 0.1, 0.2]], np.float32)
        found = Result((640, 480), xywhn, np.array([0.9], np.float32), np.array([0]))
        followed = following.take(Item("x.mp4#0", "x.mp4", frame, "x"), found)
        assert followed.track_ids.tolist() == [1]


def test_a_failure_of_an_unknown_source_changes_nothing():
    arguments = cli.parser_of("detect").parse(["--track", "x.mp4"])
    following = _tracking.Following(arguments)
    following.fail(Item("x.mp4", ImageError("x.mp4: broken")))
    assert not following._scenes


def test_only_pictures_that_fail_take_the_time_of_a_frame():
    arguments = cli.parser_of("detect").parse(["--track", "x/a.png"])
    following = _tracking.Following(arguments)
    following.take(Item("x/a.png", "x/a.png"), NO_BOXES)
    (scene,) = following._scenes.values()
    following.fail(Item("x/v.mp4", ImageError("x/v.mp4: broken"), is_picture=False))
    assert scene.tracker.seconds == 0
    following.fail(Item("x/b.png", ImageError("x/b.png: broken")))
    assert scene.tracker.seconds == pytest.approx(1 / 30)


@pytest.mark.parametrize("at_once", [1, 3])
def test_what_is_known_of_videos_that_have_ended_is_dropped(at_once):
    words = ["--track", "x.mp4", "--at-once", str(at_once)]
    following = _tracking.Following(cli.parser_of("detect").parse(words))
    box = np.array([[0.5, 0.5, 0.1, 0.2]], np.float32)
    found = Result((640, 480), box, np.array([0.9], np.float32), np.array([0]))
    following.take(Item("x/a.png", "x/a.png"), found)  # its folder may go on at any time
    # The frames of some videos take turns; a video that ends makes room for the next one.
    for number in range(9):
        for name in range(number, number + at_once):
            frame = Frame(f"{name}.mp4", number, number / 25, Fraction(25))
            followed = following.take(Item("", "", frame, str(name)), found)
            assert followed.track_ids.tolist() == [1]
    assert len(following._scenes) == 1 + at_once
    assert following.take(Item("x/b.png", "x/b.png"), found).track_ids.tolist() == [1]


def test_a_video_keeps_its_identities_if_its_frame_fails_while_another_video_ends():
    words = ["--track", "x.mp4", "--at-once", "2"]
    following = _tracking.Following(cli.parser_of("detect").parse(words))
    box = np.array([[0.5, 0.5, 0.1, 0.2]], np.float32)
    found = Result((640, 480), box, np.array([0.9], np.float32), np.array([0]))

    def item(name: str, number: int) -> Item:
        frame = Frame(f"{name}.mp4", number, number / 25, Fraction(25))
        return Item(f"{name}.mp4#{number}", "", frame, name)

    for name, number in [("a", 0), ("b", 0), ("a", 1), ("b", 1)]:
        following.take(item(name, number), found)
    key = _tracking.sequence_of_item(item("a", 0)).key
    scene = following._scenes[key]
    following.fail(item("a", 2))  # b has ended, so c begins
    following.take(item("c", 0), found)
    following.take(item("a", 3), found)
    assert following._scenes[key] is scene
    assert len(following._scenes) == 2


def test_live_videos_keep_their_identities_while_others_come_and_go():
    following = _tracking.Following(cli.parser_of("detect").parse(["--track", "0"]))
    cameras = tuple(NamedMedia(media_of(name), name) for name in ("0", "1"))
    following.in_frame_order(Feed(cameras, FrameSelection(), None, ("0", "1"), cameras))
    box = np.array([[0.5, 0.5, 0.1, 0.2]], np.float32)
    found = Result((640, 480), box, np.array([0.9], np.float32), np.array([0]))
    for number in range(4):
        for name in ("0", "1", f"{number}.mp4"):
            item = Item("", "", Frame(name, number, number / 25, Fraction(25)), name)
            assert following.take(item, found).track_ids.tolist() == [1]
    assert len(following._scenes) == 3
