"""The import contracts of setup.cfg."""

import subprocess
import sys
from pathlib import Path

from tests import needs

needs.package("importlinter")

ROOT = Path(__file__).parents[1]


def test_import_contracts_are_kept():
    code = "from importlinter.cli import lint_imports; raise SystemExit(lint_imports())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
