"""tools/check_card.sh without a GPU: every step runs, is reported and counts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("bash") is None, reason="a script for bash on Linux"
)

# Prints its arguments; for a script on stdin it prints the names of two algorithms.
PYTHON = """#!/bin/sh
if [ "$1" = - ]; then echo first; echo second; exit; fi
echo "$ENGINE_GOLDEN_DEVICE $ENGINE_GOLDEN_ALGORITHM $*"
case "$ENGINE_GOLDEN_ALGORITHM $*" in *"${FAILS:-nothing}"*) exit 1 ;; esac
"""


def check(folder, *steps, logs=None, **said):
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    golden = folder / "golden"
    golden.mkdir(exist_ok=True)
    golden.joinpath("check.py").touch()
    environment = {"SHARED": str(folder), **os.environ, **said, "PYTHON": str(python)}
    command = ["bash", ROOT / "tools" / "check_card.sh", logs or folder / "logs", *steps]
    return subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def lines(done):
    return {line.split()[0]: line for line in done.stdout.splitlines()}


def test_every_step_has_a_line_and_a_log(tmp_path):
    steps = ("cases", "tests", "golden", "eager", "naive", "forced", "precision", "soak")
    done = check(tmp_path, *steps)
    assert done.returncode == 0, done.stdout + done.stderr
    found = lines(done)
    expected = {"golden_micro", "golden_macro", "by_first", "by_second", "alone", *steps}
    assert found.keys() == expected - {"golden", "forced"}
    assert all(" exit 0," in line for line in found.values())
    for name in found:
        assert tmp_path.joinpath("logs", f"{name}.log").stat().st_size
    assert "cuda second " in tmp_path.joinpath("logs", "by_second.log").read_text()


@pytest.mark.parametrize(
    ("step", "fails", "line"),
    [
        ("tests", "--deselect", "tests"),
        ("tests", "-m cuda tests/backends", "alone"),
        ("golden", "--suite micro", "golden_micro"),
        ("golden", "--suite macro", "golden_macro"),
        ("forced", "first", "by_first"),
        ("soak", "soak_cuda", "soak"),
    ],
)
def test_failed_step_is_reported_and_the_others_run(tmp_path, step, fails, line):
    done = check(tmp_path, step, "precision", FAILS=fails)
    assert done.returncode == 1
    failed = {name for name, said in lines(done).items() if " exit 1," in said}
    assert failed == {line}
    assert "precision" in lines(done)


def test_missing_tools_are_reported_as_skipped(tmp_path):
    done = check(tmp_path, "golden", "eager", SHARED=str(tmp_path / "elsewhere"))
    assert done.returncode == 0
    assert all("skipped: no" in line for line in lines(done).values())
    assert len(lines(done)) == 3


def test_unknown_step_is_refused(tmp_path):
    done = check(tmp_path, "gulden")
    assert done.returncode == 2
    assert "gulden: no such step" in done.stderr


def test_log_folder_is_the_callers(tmp_path):
    assert check(tmp_path, "precision", logs="two words/logs").returncode == 0
    assert tmp_path.joinpath("two words", "logs", "precision.log").exists()
