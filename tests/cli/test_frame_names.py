"""No output of a picture has the name of one of a video's frame."""

import json
import logging
from types import SimpleNamespace

import pytest

from engine.cli._frame_names import FrameNames
from engine.cli._output_names import OutputNames
from engine.outputs.record import FILE, OutputRecord, Owned
from engine.sources.media import media_of
from tests import needs
from tests.cli.child import engine_here
from tests.pictures import write_picture, write_video

LABELS, CROPS, PICTURES = ("labels",), ("crops",), ("pictures",)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    return tmp_path


def naming(here, holds=LABELS, **options):
    stems = "labels" in holds
    return OutputNames(
        str(here), is_flat=False, needs_stems=stems, folders={"out": holds}, **options
    )


def assigned(names, *sources):
    return [each.output for each in names.assign([*map(media_of, sources)])]


def lazily(names, *sources):
    return [each.output for each in names.assign_lazily(map(media_of, sources))]


def record(here, holds, **pictures):
    lines = OutputRecord(str(here / "out"), lambda owned: owned.name, holds)
    for name, picture in pictures.items():
        lines.claim(Owned(name, str(here / picture)))


def test_only_pictures_and_videos_clash():
    names = FrameNames()
    names.add("day1/v", is_video=True)
    names.add("w_000012", is_video=False)
    assert names.clash("day1/v_000000", is_video=False)
    assert names.clash("day1/v_1000000", is_video=False)
    assert names.clash("w", is_video=True)
    for each in ("v_000000", "day1/v", "day1/v_1", "day1/v_000000-2", "day1/v_000000_1"):
        assert not names.clash(each, is_video=False)
    assert not names.clash("day1/v_000000", is_video=True)
    assert not names.clash("w_000012", is_video=True)


@pytest.mark.parametrize("holds", [LABELS, CROPS])
@pytest.mark.parametrize("sources", [("v.mp4", "v_000001.jpg"), ("v_000001.jpg", "v.mp4")])
def test_a_video_gets_the_number_and_a_line(here, caplog, holds, sources):
    names = naming(here, holds)
    with caplog.at_level(logging.WARNING, "engine"):
        found = dict(zip(sources, assigned(names, *sources), strict=True))
    assert found == {"v.mp4": "v-2", "v_000001.jpg": "v_000001"}
    assert caplog.messages == [
        "Outputs of 1 of 2 sources get a number, because another source has their names:"
        " v-2 for v.mp4"
    ]


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        (("v_000001.jpg", "v.mp4"), ["v_000001", "v-2"]),
        (("v.mp4", "v_000001.jpg"), ["v", "v_000001-2"]),
    ],
)
def test_the_second_one_on_stdin_gets_the_number_and_a_line(here, caplog, sources, expected):
    with caplog.at_level(logging.WARNING, "engine"):
        assert lazily(naming(here), *sources) == expected
    assert caplog.messages == [
        f"{sources[1]}: another source has the names of its outputs, so they are called "
        f"{expected[1]}"
    ]


def test_a_picture_in_an_archive_gets_the_number(here):
    names = naming(here)
    assert assigned(names, "set/v.mp4", "set.tar") == ["set/v", "set"]
    member = SimpleNamespace(name="set.tar#v_000001.jpg", member="v_000001.jpg")
    assert names.name_of_member("set/v_000001", member) == "set/v_000001-2"


def test_names_stay_without_files_of_frames_or_without_such_pictures(here, caplog):
    assert assigned(naming(here, PICTURES), "v.mp4", "v_000001.jpg") == ["v", "v_000001"]
    others = ("v.mp4", "v_1.jpg", "w_000001.jpg", "a/v_000001.jpg", "v_000001.mp4")
    expected = ["v", "v_1", "w_000001", "a/v_000001", "v_000001"]
    assert assigned(naming(here), *others) == expected
    assert not caplog.messages


@pytest.mark.parametrize("option", ["resumes", "replaces"])
@pytest.mark.parametrize("holds", [LABELS, CROPS, ("labels of others",)])
def test_a_video_leaves_names_alone_that_earlier_pictures_have(here, caplog, option, holds):
    record(here, holds, v_000001="v_000001.jpg")
    assert assigned(naming(here, **{option: True}), "v.mp4") == ["v-2"]
    assert lazily(naming(here, **{option: True}), "v.mp4") == ["v-2"]
    # without the record, labels of the pictures would be taken for those of frames
    assert not any("remove" in each for each in caplog.messages)


@pytest.mark.parametrize("option", ["resumes", "replaces"])
def test_pictures_leave_names_alone_that_frames_of_an_earlier_video_have(here, option):
    record(here, LABELS, v="v.mp4")
    sources = ("v.mp4", "v_000001.jpg")
    assert assigned(naming(here, **{option: True}), *sources) == ["v", "v_000001-2"]
    assert lazily(naming(here, **{option: True}), *sources) == ["v", "v_000001-2"]


@pytest.mark.parametrize("option", ["resumes", "replaces"])
def test_annotated_pictures_and_videos_of_earlier_runs_keep_their_names(here, option):
    record(here, PICTURES, v="v.mp4", v_000001="v_000001.jpg")
    assert assigned(naming(here, **{option: True}), "v.mp4") == ["v"]
    assert assigned(naming(here, **{option: True}), "v_000001.jpg") == ["v_000001"]


@pytest.mark.parametrize("holds", [LABELS, CROPS, PICTURES])
@pytest.mark.parametrize("name", [assigned, lazily])
def test_videos_differ_by_more_than_their_extension(here, holds, name):
    sources = ("v.mkv", "v.mp4", "other/v.mp4", "rtsp://cam/v", "v.tar")
    expected = ["v", "v-2", "other/v", "v-3", "v"]
    assert name(naming(here, holds), *sources)[:-1] == expected[:-1]
    if holds != LABELS:  # what archives and pictures write has other paths
        assert name(naming(here, holds), *sources) == expected
        assert name(naming(here, holds), "v.png", "v.jpg", "v.mp4") == ["v", "v", "v"]


def test_a_video_keeps_its_name_when_another_with_its_stem_arrives(here):
    record(here, PICTURES, v="v.mp4")
    assert assigned(naming(here, PICTURES, resumes=True), "v.avi", "v.mp4") == ["v-2", "v"]


PLAIN = [f"v_{number:06d}" for number in range(3)]
NUMBERED = [f"v-2_{number:06d}" for number in range(3)]
OWNERS = {"v-2": "v.mp4", **{each: f"{each}.jpg" for each in PLAIN}}
TOLD = "Outputs of 1 of 4 sources get a number, because another source has their names"


@pytest.fixture
def detect(tiny_detector, here):
    needs.package("av")
    for seed, name in enumerate(PLAIN):
        write_picture(here / "fr/images" / f"{name}.jpg", size=(40, 48), seed=seed)
    write_video(here / "fr/images/v.mp4", count=3, size=(40, 48))

    def run(*arguments, **more):
        options = [*tiny_detector.options, "--names", tiny_detector.names, "--threshold", "0.5"]
        return engine_here("detect", *options, *arguments, cwd=here, **more)

    return run


def labels_in(folder):
    return {each.stem: each.read_text() for each in sorted(folder.glob("[!.]*.txt"))}


def owners_in(folder):
    lines = [json.loads(each) for each in (folder / FILE).read_text().splitlines()]
    return {each["output"]: each["picture"].rpartition("/")[2] for each in lines}


@pytest.mark.slow
@pytest.mark.parametrize("sources", ["fr/images/*", "list.txt"])
def test_a_video_and_its_frames_keep_their_own_labels(here, detect, sources):
    assert detect("fr/images", "--save-txt", "alone", "--quiet").status == 0
    assert detect("fr/images/v.mp4", "--save-txt", "alone/video", "--quiet").status == 0
    names = ["v.mp4", *(f"{each}.jpg" for each in PLAIN)]
    (here / "list.txt").write_text("".join(f"fr/images/{each}\n" for each in names))
    done = detect(sources, "--save-txt", "found")
    assert (done.status, TOLD in done.err) == (0, True)
    found = labels_in(here / "found")
    assert {each: found[each] for each in PLAIN} == labels_in(here / "alone")
    assert [found[each] for each in NUMBERED] == [
        labels_in(here / "alone/video")[each] for each in PLAIN
    ]
    assert len(found) == 6
    assert owners_in(here / "found") == OWNERS
    for option in ("--resume", "--overwrite"):
        assert detect(sources, "--save-txt", "found", option).status == 0
        assert labels_in(here / "found") == found
        assert owners_in(here / "found") == OWNERS


@pytest.mark.slow
def test_crops_of_a_video_and_of_its_frames_differ(here, detect):
    assert detect("fr/images", "--crops", "alone", "--quiet").status == 0
    done = detect("fr/images/*", "--crops", "crops", "-o", "drawn")
    assert (done.status, TOLD in done.err) == (0, True)
    alone = {each.relative_to(here / "alone") for each in (here / "alone").glob("*/*.jpg")}
    crops = {each.relative_to(here / "crops") for each in (here / "crops").glob("*/*.jpg")}
    assert alone == {each for each in crops if not each.name.startswith("v-2_")}
    assert len(alone) < len(crops)
    drawn = {each.name for each in (here / "drawn").glob("[!.]*")}
    assert drawn == {"v-2.mp4", *(f"{each}.jpg" for each in PLAIN)}


@pytest.mark.slow
def test_pictures_after_their_video_on_stdin_get_numbers(here, detect):
    names = ["v.mp4", *(f"{each}.jpg" for each in PLAIN)]
    stdin = "".join(f"fr/images/{each}\n" for each in names)
    done = detect("-", "--save-txt", "labels", stdin=stdin)
    assert done.status == 0
    assert done.err.count("another source has the names of its outputs") == 3
    numbered = [f"{each}-2" for each in PLAIN]
    assert labels_in(here / "labels/fr/images").keys() == {*PLAIN, *numbered}
    assert owners_in(here / "labels") == {
        f"fr/images/{output}": picture
        for output, picture in zip(("v", *numbered), names, strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
@pytest.mark.parametrize("first", ["fr/images", "fr/images/v.mp4"])
def test_a_later_run_takes_no_labels_of_others_for_its_own(here, detect, option, first):
    second = {"fr/images": "fr/images/v.mp4", "fr/images/v.mp4": "fr/images"}[first]
    assert detect(second, "--save-txt", "alone", "--quiet").status == 0
    assert detect(first, "--save-txt", "fr/labels", "--quiet").status == 0
    before = labels_in(here / "fr/labels")
    done = detect(second, "--save-txt", "fr/labels", option)
    assert (done.status, "because another source has their names: v" in done.err) == (0, True)
    found = labels_in(here / "fr/labels")
    assert {each: found[each] for each in PLAIN} == before
    added = NUMBERED if first == "fr/images" else [f"{each}-2" for each in PLAIN]
    assert [found[each] for each in added] == [*labels_in(here / "alone").values()]
    assert len(found) == 6


@pytest.mark.slow
@pytest.mark.parametrize("option", [None, "--overwrite"])
def test_labels_of_pictures_with_shorter_numbers_are_not_those_of_frames(here, detect, option):
    (here / "labels").mkdir()
    for name in ("v_1.txt", "v_00001.txt", "v_000001_000000.txt"):
        (here / "labels" / name).write_text("0 .5 .5 1 1\n")
    options = [option] if option else []
    assert detect("fr/images/v.mp4", "--save-txt", "labels", *options).status == 0
    assert labels_in(here / "labels").keys() >= {*PLAIN, "v_1"}
