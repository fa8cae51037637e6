"""README.md: its first command and its Python example run as printed, with a small model."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from engine import cli
from engine.shipped import folder

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def fresh(tmp_path, monkeypatch, tiny_detector):
    """A working folder with the files that the README names."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(folder("cfg"), tmp_path / "cfg")
    shutil.copy(tiny_detector.weights, tmp_path / "yolov3-tiny.weights")
    for name in ("cfg/yolov3-tiny.cfg", "yolov3-tiny.cfg"):
        shutil.copy(tiny_detector.cfg, tmp_path / name)
    shutil.copy(tiny_detector.names, tmp_path / "cfg/coco.names")
    shutil.copy(tmp_path / "docs/scene.jpg", tmp_path / "dog.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_command_detects(fresh, capsys):
    (command,) = re.findall(r"^    pip install \. && python -m engine (.*)$", README, re.MULTILINE)
    assert cli.main([*shlex.split(command), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = README[README.index("    docs/parcel.jpg  720 x 720") :].split("\n\n")[0].splitlines()
    assert printed[0].startswith("docs/parcel.jpg  720 x 720  ")
    assert [line.split()[0] for line in printed[1:]] == [line.split()[0] for line in shown[1:]]
    assert (fresh / "out/parcel.jpg").is_file()


def test_the_python_example_runs(fresh, capsys):
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    setting = "import numpy as np\na = b = c = 'dog.jpg'\npaths = [a, b]\n"
    setting += "x = np.zeros((1, 3, 48, 64), np.float32)\n"
    exec(compile(setting + code, "README.md", "exec"), {})
    assert (fresh / "boxes.png").is_file()


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
