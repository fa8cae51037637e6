"""Darknet's small golden cases through the adapter; .ci/run checks the large ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.lanes import slow_except

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT.parent / "shared" / "golden"


@needs.shared("golden")
@pytest.mark.parametrize("passes", slow_except(["1"], ["1", "0"]))
def test_every_small_case_agrees_with_darknet(passes):
    command = [GOLDEN / "check.py", ROOT / "tests/golden_adapter.py"]
    options = ["--root", GOLDEN / "open", "--suite", "micro", "--optional"]
    done = subprocess.run(
        [sys.executable, *command, *options],
        env={**os.environ, "ENGINE_GOLDEN_PASSES": passes, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
    )
    failures = [line for line in done.stdout.splitlines() if not line.startswith("pass")]
    assert done.returncode == 0, "\n".join(failures) + done.stderr
    assert failures[-1].endswith(" 0 failed")
    assert int(failures[-1].split()[0]) > 100
