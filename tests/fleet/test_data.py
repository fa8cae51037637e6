"""Detect inside Ray Data: contents of files and arrays, by actors on the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.cli.child import ENVIRONMENT
from tests.fleet.expected import assert_rows_are, plain, write_pictures


@pytest.mark.slow
@needs.installed("ray")
def test_batches_of_a_user_program(model, tmp_path):
    paths = write_pictures(tmp_path / "pictures" / "good", 12)
    paths += write_pictures(tmp_path / "pictures" / "broken", 3, broken=range(3))
    folder, out = tmp_path / "pictures", tmp_path / "out"
    files = map(str, (folder, model.cfg, model.weights, model.names, out))
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("data_script.py"), *files],
        env={**ENVIRONMENT, "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "this worker has all 2 CPUs of the cluster: tasks that read" in done.stderr
    expected = plain(model, paths, threshold=0.65, batch=4)
    assert assert_rows_are(rows_in(out / "contents"), expected) == 3
    good = {path: each for path, each in expected.items() if "good" in path}
    assert assert_rows_are(rows_in(out / "images"), good) == 0


def rows_in(folder):
    import pyarrow.parquet  # takes a second

    tables = [pyarrow.parquet.read_table(each) for each in sorted(folder.glob("*.parquet"))]
    return [row for table in tables for row in table.to_pylist()]
