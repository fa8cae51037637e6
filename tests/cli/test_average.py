"""`average` writes the same bytes as darknet's."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from engine import cli

ROOT = Path(__file__).parents[2]
CFG = str(ROOT / "cfg/codes.cfg")
# of the file that darknet (AlexeyAB/darknet, commit 59596d78) wrote for the files below
DARKNETS = "d29e2dbbd351017844d94151619d13977d2e562c4f8812a86216565c38789267"


@pytest.fixture
def three(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = (ROOT / "weights/codes.weights").read_bytes()
    head, values = content[:20], np.frombuffer(content, "<f4", offset=20)
    second = values * np.float32(1.25)
    second[::7] += np.float32(0.125)
    for name, each in (("a", values), ("b", second), ("c", second * np.float32(0.75))):
        (tmp_path / f"{name}.weights").write_bytes(head + each.astype("<f4").tobytes())
    return ["a.weights", "b.weights", "c.weights"]


def test_the_bytes_are_darknets(capsys, three):
    assert cli.main(["average", CFG, "mean.weights", *three]) == 0
    assert "4,850,356 bytes, the average of 3" in capsys.readouterr().out
    assert hashlib.sha256(Path("mean.weights").read_bytes()).hexdigest() == DARKNETS


def test_weights_that_exist_are_kept(capsys, three):
    Path("mean.weights").write_bytes(b"mine")
    assert cli.main(["average", CFG, "mean.weights", *three]) == 2
    assert "OUT mean.weights: exists already. Name another" in capsys.readouterr().err
    assert cli.main(["average", CFG, "mean.weights", *three[:2], "--overwrite"]) == 0
    assert cli.main(["average", CFG, "a.weights", *three, "--overwrite"]) == 2
    assert "would replace a file that is read" in capsys.readouterr().err


def test_one_file_is_no_average(capsys, three):
    assert cli.main(["average", CFG, "mean.weights", three[0]]) == 2
    assert "average: expected two or more WEIGHTS" in capsys.readouterr().err
