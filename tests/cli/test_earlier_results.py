"""Outputs of an earlier run, in a folder that is searched for pictures: they are not read."""

import logging
from pathlib import Path

import pytest

from engine.cli._output_names import OutputNames
from engine.cli._sources import _without_earlier_results
from engine.errors import InputError
from engine.outputs.record import OutputRecord, Owned, add_file
from engine.sources.expand import expand
from engine.sources.media import media_of

PICTURES = ["pics/cam1/a.jpg", "pics/cam2/day1/b.jpg", "pics/cam2/day1/c.jpg"]


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree with the annotated pictures and crops of a run, and labels next to its pictures."""
    monkeypatch.chdir(tmp_path)
    annotated = ["pics/cam2/out/deep/b.jpg", "pics/cam2/out/c.jpg"]
    crops = ["pics/crops/dog/deep/b.jpg", "pics/crops/dog/c.jpg", "pics/crops/dog/c-2.jpg"]
    for name in (*PICTURES, *annotated, *crops):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for folder in ("pics/cam2/out", "pics/crops", "pics/cam2/day1"):
        record = OutputRecord(folder, str)
        for name in ("b", "c"):
            record.claim(Owned(name, str(tmp_path / f"pics/cam2/day1/{name}.jpg")))


def kept(*names):
    return [each.name for each in _without_earlier_results(tuple(expand(names, recursive=True)))]


@pytest.mark.parametrize("name", ["pics", "pics/", "./pics", "pics/**/*.jpg", ".", "**/*.jpg"])
def test_they_are_not_read_and_counted(tree, caplog, name):
    with caplog.at_level(logging.WARNING, "engine"):
        found = kept(name)
    assert [each.removeprefix("./") for each in found] == PICTURES
    told = sorted(each.getMessage().removeprefix("./") for each in caplog.records)
    what = "pictures that another run wrote are skipped"
    assert told == [
        f"pics/cam2/out: {what}: 2. Name this folder to read them",
        f"pics/crops: {what}: 3. Name this folder to read them",
    ]


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("pics/crops", 3),
        ("pics/crops/dog", 3),
        ("pics/cam2/out/*.jpg", 1),
        ("pics/cam2/out/c.jpg", 1),
    ],
)
def test_they_are_read_if_they_are_named(tree, caplog, name, count):
    assert len(kept(name)) == count
    assert not caplog.records


def test_files_of_their_own_are_left_out_one_by_one(tree, caplog):
    (made := Path("pics/cam1/predictions.jpg")).touch()
    assert kept("pics/cam1") == ["pics/cam1/a.jpg", str(made)]
    add_file(made)
    OutputRecord("pics/cam1", str).claim(Owned("a", str(Path("pics/cam1/a.jpg").absolute())))
    with caplog.at_level(logging.WARNING, "engine"):
        assert kept("pics/cam1") == kept("pics/cam1/*.jpg") == ["pics/cam1/a.jpg"]
        assert kept("pics") == PICTURES
    told = "pics/cam1: pictures that another run wrote are skipped: 1. "
    assert caplog.messages[0] == told + "Name the files to read them"
    assert kept(str(made)) == [str(made)]
    options = {
        "is_flat": False,
        "needs_stems": False,
        "folders": {"pics/cam1": ()},
        "resumes": True,
    }
    names = OutputNames(str(Path("pics").absolute()), **options)
    assert names.name_of(media_of("pics/predictions.jpg")) == ("predictions", False)


def test_nothing_else_is_an_error(tree):
    with pytest.raises(InputError, match="all pictures are outputs of other runs"):
        kept("pics/cam2/o*/*.jpg")
