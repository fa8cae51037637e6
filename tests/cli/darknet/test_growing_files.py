"""Text files that grow together."""

from pathlib import Path

import pytest

from engine.cli._darknet import growing_files
from engine.cli._darknet.growing_files import GrowingFiles
from engine.errors import InputError

PATHS = [Path("out/a.txt"), Path("out/b.txt")]


def test_lines_are_separated_and_framed(here, monkeypatch):
    monkeypatch.setattr(growing_files, "_MAX_PENDING", 2)  # written several times
    with GrowingFiles(PATHS, "[", ",", "]", []) as files:
        for line in "12345":
            files.add(PATHS[0], line)
    assert [path.read_text() for path in PATHS] == ["[1,2,3,4,5]", "[]"]


def test_nothing_stays_after_an_error(here):
    def fail():
        with GrowingFiles(PATHS, "", "", "", []) as files:
            files.add(PATHS[0], "line")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert list(Path("out").iterdir()) == []


def test_an_input_is_not_replaced(here):
    with pytest.raises(InputError, match=r"list\.txt: would replace a file that is read"):
        GrowingFiles([Path("list.txt")], "", "", "", ["list.txt"])
