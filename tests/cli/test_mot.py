"""evaluate --mot through the command line."""

import errno
import json
import sys

import numpy as np
import pytest

from engine import cli
from tests.cli.test_evaluate import unread_stdout
from tests.track.scenes import moving_objects


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Create the ground truth of two sequences, and what was found in them."""
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("A", "B")):
        truth = moving_objects(seed, objects=4, frames=20)
        table = np.column_stack([truth.frames, truth.ids, truth.boxes, np.ones(len(truth))])
        (tmp_path / f"truth/{name}/gt").mkdir(parents=True)
        np.savetxt(tmp_path / f"truth/{name}/gt/gt.txt", table, fmt="%g", delimiter=",")
        (tmp_path / "found").mkdir(exist_ok=True)
        np.savetxt(tmp_path / f"found/{name}.txt", table[:-2], fmt="%g", delimiter=",")
    return tmp_path


def test_two_files(here, capsys):
    assert cli.main(["evaluate", "--mot", "truth/A/gt/gt.txt", "found/A.txt"]) == 0
    scores, counts = capsys.readouterr().out.split("\n\n")
    assert scores.splitlines()[0].split()[:4] == ["sequence", "HOTA", "DetA", "AssA"]
    (row,) = scores.splitlines()[1:]
    assert row.startswith("A ")
    assert counts.splitlines()[1].split()[4] == "2"  # misses


def test_two_folders_and_the_report(here, capsys):
    command = ["evaluate", "--mot", "truth", "found", "--json", "report.json"]
    assert cli.main(command) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()] == [
        *("sequence", "A", "B", "all")
    ]
    report = json.loads((here / "report.json").read_text())
    assert report["misses"] == sum(each["misses"] for each in report["sequences"]) == 4
    assert [each["name"] for each in report["sequences"]] == ["A", "B"]
    assert cli.main(command) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_report_is_written_though_nobody_reads_the_table(here, monkeypatch):
    with unread_stdout() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        command = ["evaluate", "--mot", "truth", "found", "--json", "report.json"]
        assert cli.main(command) == cli.CLOSED_PIPE
    assert json.loads((here / "report.json").read_text())["misses"] == 4


def test_the_table_is_printed_though_the_report_cannot_be_written(here, capsys, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", "report.json")

    monkeypatch.setattr("engine.cli._json_report.write_new", fail)
    command = ["evaluate", "--mot", "truth", "found", "--json", "report.json"]
    assert cli.main(command) == cli.FAILED
    out, err = capsys.readouterr()
    assert "HOTA" in out
    assert err == "Error: report.json: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["truth", "found", "docs"], "--mot: expected no LIST, DIR or JSON, got 'docs'"),
        (["none.txt", "found/A.txt"], "none.txt: cannot be read: No such file or directory"),
        (["empty.txt", "found/A.txt"], "empty.txt: has no boxes to evaluate"),
        (["truth", "found", "--curves", "c"], "--curves: not with --mot, whose output is --json"),
        (["truth", "found", "--match-iou", "0.9"], "--match-iou: not with --mot"),
        (["truth", "found", "--json", "found/A.txt"], "--json found/A.txt: would replace a file"),
    ],
)
def test_wrong_uses_are_refused_in_one_line(here, capsys, words, message):
    (here / "empty.txt").write_text("1,1,2,3,4,5,0\n")
    assert cli.main(["evaluate", "--mot", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {message}")


def test_sequences_without_results_are_counted(here, caplog):
    (here / "found/B.txt").unlink()
    assert cli.main(["evaluate", "--mot", "truth", "found"]) == 0
    assert caplog.messages == [
        "found: has no results for 1 sequences of truth, which are not evaluated, such as B"
    ]
