"""A short run of the server's load test in tools/."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.bundled import default_model
from tests import needs
from tests.cli.child import ENVIRONMENT
from tools.load.clients import is_same

needs.package("uvicorn")
needs.package("httptools")

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "load_serve.py"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_overload_is_refused_without_wrong_answers(tmp_path):
    # On a busy machine the measured capacity is too low and answers are late, so double load and
    # the time of refusals are checked in the long form only.
    options = ["--seconds", "0.3", "--overload", "1", "--queue", "8"]
    options += ["--times", "5", "--in-time", "50"]
    # Each of 64 clients needs an answer, however long the network takes.
    model = default_model()
    cfg = tmp_path / model.cfg.name
    text = model.cfg.read_text(encoding="utf-8")
    cfg.write_text(re.sub(r"(?m)^(width|height)=.*", r"\1=224", text), encoding="utf-8")
    options += ["--cfg", cfg, "--weights", model.weights, "--names", model.names]
    done = subprocess.run(
        [sys.executable, TOOL, *options, "--json", tmp_path / "rows.json"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    values = {row["what"]: row["value"] for row in rows}
    assert values["rejections"] > 0
    assert values["wrong answers"] == values["broken connections"] == 0
    assert all(values[f"{n} clients: pictures a second"] > 0 for n in (2, 4, 8, 16, 32, 64))


def test_swapped_answer_is_noticed():
    box = {"left": 1.0, "top": 2.0, "right": 3.0, "bottom": 4.0}
    entry = {"detections": [{"label": "cat", "score": 0.5, "box": box}]}
    assert is_same(entry, json.loads(json.dumps(entry)))
    for other in (
        {"label": "dog", "score": 0.5, "box": box},
        {"label": "cat", "score": 0.51, "box": box},
        {"label": "cat", "score": 0.5, "box": {**box, "top": 4.0}},
    ):
        assert not is_same(entry, {"detections": [other]})
    assert not is_same(entry, {"detections": []})
    assert not is_same(entry, {"detections": entry["detections"] * 2})
