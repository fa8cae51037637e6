"""Outputs of trees of pictures: where they land, and that nothing is renamed silently."""

import io
import tarfile

import pytest
from PIL import Image

from tests.cli.child import engine_here
from tests.pictures import write_picture

pytestmark = pytest.mark.slow

PICTURES = [f"cam{cam}/day{day}/img000" for cam in (1, 2) for day in (1, 2)]


@pytest.fixture
def tree(tmp_path):
    for seed, name in enumerate(PICTURES):
        write_picture(tmp_path / "pics" / f"{name}.jpg", seed=seed)
    return tmp_path


@pytest.fixture
def detect(tiny_detector, tree):
    def run(*arguments, **more):
        names = ["--names", tiny_detector.names, "--threshold", "0.5"]
        return engine_here("detect", *tiny_detector.options, *names, *arguments, cwd=tree, **more)

    return run


def below(folder):
    found = (path for path in folder.rglob("[!.]*") if path.is_file())
    return sorted(path.relative_to(folder).as_posix() for path in found)


SOURCES = {
    "a folder": ["pics", "--recursive"],
    "a folder with a dot": ["./pics/", "--recursive"],
    "a pattern": ["pics/cam*/day*/*.jpg"],
    "a pattern of folders": ["pics/**/*.jpg"],
    "two folders": ["pics/cam1", "pics/cam2", "--recursive"],
    "files": [f"pics/{name}.jpg" for name in PICTURES],
}


@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
def test_outputs_repeat_the_folders_of_the_pictures(detect, tree, sources):
    done = detect(*sources, "-o", "drawn", "--save-txt", "labels", "--crops", "crops", "--quiet")
    assert (done.status, done.err) == (0, "")
    assert below(tree / "drawn") == [f"{name}.jpg" for name in PICTURES]
    assert below(tree / "labels") == [f"{name}.txt" for name in PICTURES]
    crops = [name.partition("/")[2] for name in below(tree / "crops")]
    assert {name.removesuffix(".jpg") for name in crops} >= set(PICTURES)


def test_a_list_and_names_on_stdin_repeat_folders(detect, tree):
    names = "".join(f"{name}.jpg\n" for name in PICTURES)
    (tree / "pics" / "train.txt").write_text(names)
    assert detect("pics/train.txt", "-o", "listed").status == 0
    assert below(tree / "listed") == [f"{name}.jpg" for name in PICTURES]
    arriving = "".join(f"pics/{name}.jpg\n" for name in PICTURES)
    assert detect("-", "-o", "arrived", stdin=arriving).status == 0
    assert below(tree / "arrived") == [f"pics/{name}.jpg" for name in PICTURES]


def test_a_folder_without_inner_ones_is_flat(detect, tree):
    assert detect("pics/cam1/day1", "-o", "drawn").status == 0
    assert below(tree / "drawn") == ["img000.jpg"]


def test_flat_numbers_equal_names_and_says_so(detect, tree):
    done = detect("pics", "--recursive", "--flat", "-o", "drawn", "--save-txt", "drawn/labels")
    assert done.status == 0
    names = ["img000", "img000-2", "img000-3", "img000-4"]
    assert below(tree / "drawn") == sorted(
        [*(f"{each}.jpg" for each in names), *(f"labels/{each}.txt" for each in names)]
    )
    told = done.err.splitlines()[0]
    assert told == (
        "Outputs of 3 of 4 sources get a number, because another source has their names: "
        "img000-2 for pics/cam1/day2/img000.jpg, …"
    )


def test_flat_needs_a_folder(detect):
    done = detect("pics", "--flat")
    assert (done.status, "--flat: only with --output or --save-txt or --crops" in done.err) == (
        2,
        True,
    )


def test_labels_of_x_jpg_and_x_png_differ(detect, tree):
    for name in ("x.jpg", "x.png"):
        write_picture(tree / "same" / name)
    assert detect("same", "-o", "drawn").status == 0
    assert below(tree / "drawn") == ["x.jpg", "x.png"]
    done = detect("same", "-o", "both", "--save-txt", "labels")
    assert (done.status, "x-2 for same/x.png" in done.err) == (0, True)
    assert below(tree / "labels") == ["x-2.txt", "x.txt"]
    assert below(tree / "both") == ["x-2.png", "x.jpg"]


@pytest.mark.parametrize("name", ["...tar", "..tar"])
def test_names_of_dots_stay_in_the_folder(detect, tree, name):
    """ "...tar" without its extension is "..", the folder above."""
    (tree / "x.jpg").write_bytes(mine := (tree / "pics/cam1/day1/img000.jpg").read_bytes())
    with tarfile.open(tree / name, "w") as archive:
        archive.add(tree / "pics/cam1/day2/img000.jpg", "x.jpg")
    for more in ((), ("--overwrite",), ("--resume",)):
        assert detect(name, "-o", "out", "--quiet", *more).status == 0
        assert (tree / "x.jpg").read_bytes() == mine
        assert below(tree / "out") == ["picture/x.jpg"]


@pytest.mark.parametrize("name", ["...jpg", "..jpg"])
def test_pictures_with_names_of_dots(detect, tree, name):
    (tree / name).write_bytes((tree / "pics/cam1/day1/img000.jpg").read_bytes())
    for more in ((), ("--overwrite",), ("--resume",)):
        assert detect(name, "-o", "out", "--save-txt", "out", "--quiet", *more).status == 0
        assert below(tree / "out") == ["picture.jpg", "picture.txt"]


OUTPUTS = [["-o", "out"], ["--save-txt", "out"], ["--crops", "out"]]


@pytest.mark.parametrize("output", OUTPUTS, ids=["pictures", "labels", "crops"])
def test_a_second_run_stops_before_the_first_picture(detect, tree, output):
    assert detect("pics", "--recursive", *output).status == 0
    before = {name: (tree / "out" / name).read_bytes() for name in below(tree / "out")}
    done = detect("pics", "--recursive", *output)
    assert (done.status, done.out) == (2, "")
    (line,) = done.err.splitlines()
    assert "exist already. Name another, or add --overwrite" in line
    assert ("--resume" in line) == (output[0] != "--crops")  # which alone cannot be resumed
    assert {name: (tree / "out" / name).read_bytes() for name in below(tree / "out")} == before
    assert detect("pics", "--recursive", *output, "--overwrite").status == 0
    assert {name: (tree / "out" / name).read_bytes() for name in below(tree / "out")} == before


@pytest.mark.parametrize("option", ["-o", "--crops"])
def test_a_run_does_not_read_its_own_outputs(detect, tree, option):
    first = detect("pics", "--recursive", option, "pics/out", "--jsonl", "1.jsonl")
    assert (first.status, "not read" in first.err) == (0, False)
    written = below(tree / "pics" / "out")
    again = detect("pics", "--recursive", option, "pics/out", "--overwrite", "--jsonl", "2.jsonl")
    assert again.status == 0
    told = again.err.splitlines()[0]
    assert told == f"pics/out: pictures in this folder of outputs are skipped: {len(written)}"
    assert below(tree / "pics" / "out") == written
    assert len((tree / "2.jsonl").read_text().splitlines()) == len(PICTURES)


@pytest.mark.parametrize(
    ("option", "more"), [("-o", "--resume"), ("-o", "--overwrite"), ("--crops", "--overwrite")]
)
def test_own_pictures_in_a_folder_of_outputs_are_read(detect, tree, option, more):
    """Only what its record names is left out, also by the runs that follow."""
    command = ("pics", "--recursive", option, "pics/cam1")
    what = "pics/cam1: pictures in this folder of outputs are skipped: "
    first = detect(*command)
    assert (first.status, "skipped" in first.err) == (0, False)
    count = len(below(tree / "pics")) - len(PICTURES)
    assert count >= len(PICTURES)  # all of them have outputs
    done = detect(*command, more)
    assert (done.status, f"{what}{count}\n" in done.err) == (0, True)
    assert len(below(tree / "pics")) - len(PICTURES) == count
    for record in tree.rglob(".engine-outputs.jsonl"):
        record.unlink()
    done = detect(*command, "--overwrite")
    assert (done.status, f"{what}{count + 2}\n" in done.err) == (0, True)


def test_pictures_are_not_written_next_to_those_that_are_read(detect, tree):
    before = below(tree)
    for source, target in (("pics", "pics"), ("pics/cam1/day1/*.jpg", "pics/cam1/day1")):
        done = detect(source, "--recursive", "-o", target, "--overwrite")
        assert (done.status, done.out) == (2, "")
        assert "is a folder that pictures are read from" in done.err
    assert below(tree) == before


def test_annotated_pictures_in_a_tree_show_their_own_picture(detect, tree):
    with Image.open(write_picture(tree / "pics" / "cam3" / "img000.png", size=(30, 20))) as image:
        size = image.size
    assert detect("pics", "--recursive", "-o", "drawn").status == 0
    with Image.open(tree / "drawn" / "cam3" / "img000.png") as image:
        assert image.size == size


def write_archive(path, folder):
    with tarfile.open(path, "w") as archive:
        for name in PICTURES:
            archive.add(folder / "pics" / f"{name}.jpg", f"{name}.jpg")


def test_an_archive_becomes_a_folder(detect, tree):
    write_archive(tree / "set.tar", tree)
    outputs = ["-o", "drawn", "--save-txt", "labels", "--csv", "a.csv"]
    done = detect("set.tar", *outputs)
    assert done.status == 0
    assert below(tree / "drawn") == [f"set/{name}.jpg" for name in PICTURES]
    assert below(tree / "labels") == [f"set/{name}.txt" for name in PICTURES]
    detect("pics", "--recursive", "--csv", "b.csv")
    rows = (tree / "a.csv").read_text().replace("set.tar#", "pics/")
    assert rows == (tree / "b.csv").read_text()
    for output in (outputs[:2], outputs[2:4]):
        done = detect("set.tar", *output)
        assert (done.status, "/set exists already. Name another" in done.err) == (2, True)
    (tree / "labels" / "set" / f"{PICTURES[2]}.txt").unlink()
    done = detect("set.tar", *outputs, "--resume")
    assert (done.status, "1 picture, " in done.err, "3 done before" in done.err) == (0, True, True)
    assert below(tree / "labels") == [f"set/{name}.txt" for name in PICTURES]


def test_members_of_one_name_get_numbers(detect, tree):
    pictures = [(tree / "pics" / f"{name}.jpg").read_bytes() for name in PICTURES[:3]]
    with tarfile.open(tree / "set.tar", "w") as archive:
        for name, content in zip(("x/0.jpg", "x/0.jpg", "x/0-2.jpg"), pictures, strict=True):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    done = detect("set.tar", "--save-txt", "labels")
    assert done.status == 0
    assert "set.tar#x/0.jpg: another source has the names of its outputs" in done.err
    labels = ["set/x/0-2-2.txt", "set/x/0-2.txt", "set/x/0.txt"]
    assert below(tree / "labels") == labels
    content = (tree / "labels/set/x/0-2.txt").read_bytes()
    (tree / "labels/set/x/0-2.txt").unlink()
    assert detect("set.tar", "--save-txt", "labels", "--resume").status == 0
    assert below(tree / "labels") == labels
    assert (tree / "labels/set/x/0-2.txt").read_bytes() == content


def test_names_in_an_archive_stay_inside_the_output(detect, tree):
    with tarfile.open(tree / "set.tar", "w") as archive:
        for name in ("../../outside.jpg", "/absolute.jpg"):
            info = tarfile.TarInfo(name)
            content = (tree / "pics" / f"{PICTURES[0]}.jpg").read_bytes()
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    assert detect("set.tar", "-o", "in/drawn").status == 0
    assert below(tree / "in") == ["drawn/set/absolute.jpg", "drawn/set/outside.jpg"]
    assert not list(tree.rglob("../outside.jpg"))


@pytest.mark.parametrize("content", [b"", b"no archive" * 99, "cut"])
def test_a_damaged_archive_is_one_failure(detect, tree, content):
    write_archive(tree / "set.tar", tree)
    whole = (tree / "set.tar").read_bytes()
    (tree / "set.tar").write_bytes(whole[:3000] if content == "cut" else content)
    done = detect("set.tar", "pics/cam1/day1/img000.jpg")
    assert (done.status, done.out.count(" ms\n") >= 1) == (1, True)
    assert "set.tar: archive: " in done.err
