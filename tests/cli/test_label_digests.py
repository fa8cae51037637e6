"""Digests of label files: a run replaces what runs have written, and nothing else."""

import tarfile

import pytest

from engine.outputs.label_digests import FILE, LabelDigests
from tests import needs
from tests.cli.child import engine_here
from tests.pictures import write_picture, write_video

LEFT = "keeps edited labels under a source's earlier name: 1"
HAND = "0 .111 .5 .1 .1\n"


@pytest.fixture
def detect(tiny_detector, tmp_path):
    names = ["--names", str(tiny_detector.names), "--quiet"]
    words = ["detect", *tiny_detector.options, *names]

    def run(*arguments, **more):
        return engine_here(*words, *arguments, cwd=tmp_path, **more)

    return run


@pytest.mark.parametrize("before", [None, b"earlier"])
@pytest.mark.parametrize("is_killed_before", ["the file", "the end"])
def test_a_killed_run_has_recorded_what_it_wrote(tmp_path, before, is_killed_before):
    file = tmp_path / "a.txt"
    if before is not None:
        with LabelDigests(tmp_path).writing("a.txt", before):
            file.write_bytes(before)
    writing = LabelDigests(tmp_path).writing("a.txt", b"new")
    writing.__enter__()
    if is_killed_before == "the end":
        file.write_bytes(b"new")
    assert not LabelDigests(tmp_path).is_changed("a.txt")
    file.write_text(HAND)
    assert LabelDigests(tmp_path).is_changed("a.txt")


def test_after_a_whole_run_only_its_own_version_counts(tmp_path):
    file = tmp_path / "a.txt"
    for content in (b"earlier", b"new", b"new"):
        with LabelDigests(tmp_path).writing("a.txt", content):
            file.write_bytes(content)
    assert not LabelDigests(tmp_path).is_changed("a.txt")
    file.write_bytes(b"earlier")
    assert LabelDigests(tmp_path).is_changed("a.txt")
    assert (tmp_path / FILE).read_bytes().count(b"\n") == 3  # one, and two that replace it


@pytest.mark.slow
def test_corrected_labels_of_names_on_stdin_are_kept_and_the_run_goes_on(detect, tmp_path):
    for number in range(4):
        write_picture(tmp_path / f"{number}.jpg", seed=number)
    run = ("--save-txt", "labels", "--csv", "a.csv")
    listed = "".join(f"{number}.jpg\n" for number in range(4))
    assert detect("-", *run, stdin=listed).status == 0
    rows = (tmp_path / "a.csv").read_text()
    for number in (1, 2):
        (tmp_path / f"labels/{number}.txt").write_text(HAND)
    (tmp_path / "labels/3.txt").unlink()
    done = detect("-", *run, "--overwrite", stdin=listed)
    what = "2 label files were not written: --save-txt labels: with --overwrite would replace"
    assert (
        done.status,
        f"{what} 1.txt, which was not written by a run or was edited since" in done.err,
    ) == (
        2,
        True,
    )
    assert [(tmp_path / f"labels/{number}.txt").read_text() for number in (1, 2)] == [HAND] * 2
    assert (tmp_path / "labels/3.txt").exists()
    assert (tmp_path / "a.csv").read_text() == rows


def test_all_corrected_labels_are_counted(detect, tmp_path):
    for number in range(3):
        write_picture(tmp_path / f"pics/{number}.jpg", seed=number)
    run = ("pics", "--save-txt", "labels")
    assert detect(*run).status == 0
    for number in range(2):
        (tmp_path / f"labels/{number}.txt").write_text(HAND)
    done = detect(*run, "--overwrite")
    what = "would replace 0.txt and 1 more, which were not written by a run or were edited since"
    assert (done.status, what in done.err) == (2, True)


def test_corrected_labels_under_an_earlier_name_are_announced(detect, tmp_path):
    for folder in "ab":
        write_picture(tmp_path / f"pics/{folder}/x.jpg", seed=ord(folder))
    run = ("pics", "--recursive", "--flat", "--save-txt", "labels")
    assert detect(*run).status == 0
    (tmp_path / "labels/x-2.txt").write_text(HAND)
    (tmp_path / "pics/a/x.jpg").unlink()
    done = detect(*run, "--overwrite")
    what = "such as x-2.txt of pics/b/x.jpg, whose labels are now called x"
    assert (done.status, f"{LEFT}, {what}" in done.err) == (0, True)
    assert (tmp_path / "labels/x-2.txt").read_text() == HAND
    assert (tmp_path / "labels/x.txt").exists()


@pytest.mark.parametrize("source", ["x.jpg", "v.mp4", "set.tar"])
@pytest.mark.parametrize("by", ["names", "stdin"])
def test_corrected_labels_of_any_source_are_announced(detect, tmp_path, source, by):
    """Another folder next to the first one gives all of them longer names."""
    for folder in "ab":
        path = tmp_path / folder / source
        if source == "x.jpg":
            write_picture(path)
        elif source == "v.mp4":
            needs.package("av")
            path.parent.mkdir()
            write_video(path)
        else:
            write_picture(tmp_path / "x.jpg")
            path.parent.mkdir()
            with tarfile.open(path, "w") as file:
                file.add(tmp_path / "x.jpg", "x.jpg")
    run = ("--save-txt", "labels")
    assert detect(f"a/{source}", *run).status == 0
    (corrected, *_) = sorted(tmp_path.glob("labels/**/[vx]*.txt"))
    corrected.write_text(HAND)
    names = [f"a/{source}", f"b/{source}"]
    if by == "names":
        done = detect(*names, *run, "--overwrite")
    else:
        done = detect("-", *run, "--overwrite", stdin="\n".join(names))
    name = corrected.relative_to(tmp_path / "labels")
    assert (done.status, f"{LEFT}, such as {name} of a/" in done.err) == (0, True)
    assert corrected.read_text() == HAND


def test_labels_that_were_corrected_after_a_run_was_stopped_are_announced(detect, tmp_path):
    for name in "abc":
        write_picture(tmp_path / f"pics/{name}.jpg", seed=ord(name))
    run = ("pics", "--save-txt", "labels")
    assert detect(*run).status == 0
    good = (tmp_path / "pics/b.jpg").read_bytes()
    (tmp_path / "pics/b.jpg").write_bytes(b"no picture")
    assert detect(*run, "--overwrite", "--fail-fast").status == 1
    (tmp_path / "pics/b.jpg").write_bytes(good)
    (tmp_path / "labels/c.txt").write_text(HAND)
    done = detect(*run, "--resume")
    what = "keeps label files not written by a run, or edited since: 1, such as c.txt"
    assert (done.status, what in done.err) == (0, True)
    assert (tmp_path / "labels/c.txt").read_text() == HAND
