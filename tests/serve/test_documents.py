"""docs/serve.md documents all routes, settings, options, statuses and metrics."""

import re
import subprocess
from pathlib import Path

import pytest

from engine.cli import parser_of
from engine.serve import request_options
from tests.serve.running import serving

from engine.serve import app  # isort: skip - `running` skips this file without the extra
from tests import needs

TEXT = (Path(__file__).parents[2] / "docs" / "serve.md").read_text(encoding="utf-8")


CURLS = re.findall(r"^    (curl .*)$", TEXT, re.MULTILINE)


def words(pattern):
    return set(re.findall(pattern, TEXT))


def test_every_route_is_documented():
    assets = {path for path in app.FILES if "." in path}
    models = {f"/v2/models/NAME{rest}" for rest in ("", "/ready", "/infer")}
    streams = {"/sources/N/mjpeg", "/sources/N/jsonl"}
    assert words(r"`(?:GET|POST) (/[\w./]*)`") == (app.PATHS - assets) | models | streams


def test_every_setting_is_documented():
    known = {*request_options.DETECTION_PARAMETERS, *request_options.CLASSIFICATION_PARAMETERS}
    assert known <= words(r"`(\w+)`")
    assert words(r"[?&](\w+)=") <= known


def test_every_documented_option_exists():
    options = {name for action in parser_of("serve").actions for name in action.option_strings}
    assert words(r"`(--[a-z-]+)") - {"--data-binary"} <= options
    assert {"--queue", "--memory", "--max-body", "--max-pixels", "--wait-ms"} <= words(
        r"`(--[\w-]+)"
    )


def test_every_metric_is_documented(detector, pictures):
    with serving(detector) as server:
        server.post("/detect", pictures[0])
        text = server.get("/metrics").content.decode()
    assert set(re.findall(r"^# TYPE (\w+)", text, re.M)) == words(r"`(engine_\w+)`")


def test_every_status_is_documented():
    source = Path(app.__file__).parent
    answered = set()
    for path in source.glob("*.py"):
        code = path.read_text(encoding="utf-8")
        answered |= set(re.findall(r"RejectedError\(\s*\*?\(?(\d{3})", code))
        answered |= set(re.findall(r"\w+Error, (\d{3})\)", code))
    assert answered >= {"503", "413", "422"}
    assert answered <= words(r"\b(\d{3})\b")


@needs.program("curl")
@pytest.mark.parametrize("command", CURLS)
def test_documented_curl_commands_work(server, pictures, tmp_path, command):
    (tmp_path / "dog.jpg").write_bytes(pictures[0])
    command = command.replace("curl ", "curl --fail --noproxy '*' ").replace(
        "localhost:8000", f"{server.host}:{server.port}"
    )
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr
    answer = tmp_path / "found.jpg"
    if answer.exists():
        assert answer.read_bytes().startswith(b"\xff\xd8")
    else:
        assert b'"detections"' in done.stdout
