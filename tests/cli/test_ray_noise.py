"""Ray's false alarm does not reach the terminal; everything else does."""

import subprocess
import sys

from tests.cli.child import ENVIRONMENT

PROGRAM = """
import os, sys
from engine.cli._ray_noise import without_false_alarm
alarm = "core_worker.cc: Actor has constructor arguments in the object store and max_restarts > 0."
with without_false_alarm():
    print("first", file=sys.stderr)
    os.write(2, f"{alarm}\\nsecond\\n".encode())
    os.write(2, b"no end")
print(" of line", file=sys.stderr)
os.write(2, f"{alarm}\\n".encode())
"""


def test_only_the_false_alarm_is_left_out():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=ENVIRONMENT, capture_output=True, text=True, check=True
    )
    *lines, last = done.stderr.splitlines()
    assert lines == ["first", "second", "no end of line"]
    assert "max_restarts" in last
