"""README.md: every command and the Python example run as printed in a copy of what is cloned."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from engine import cli
from engine.darknet.layers import LAYERS
from tests.cli.child import engine

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"^    (?:pip install \. && )?python -m engine (.*)$", README, re.M)
]
FROM_THE_NETWORK = ("yolov4-tiny", "darknet19")
BRIEFLY = {
    "benchmark": ["--seconds", "0", "--warm-up", "0"]
}  # where it takes as long as it is told


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A working folder with the files that the README names."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("docs", "cfg", "weights"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def test_the_first_command_detects(clone, capsys, monkeypatch):
    monkeypatch.chdir(clone)
    assert cli.main([*COMMANDS[0], "--device", "cpu"]) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = README[README.index("    docs/parcel.jpg  720 x 720") :].split("\n\n")[0].splitlines()
    assert printed[0].startswith("docs/parcel.jpg  720 x 720  ")
    assert [line.split()[0] for line in printed[1:]] == [line.split()[0] for line in shown[1:]]
    assert (clone / "out/parcel.jpg").is_file()


@pytest.mark.slow
def test_every_command_runs_one_after_the_other(clone, tmp_path):
    assert len(COMMANDS) > 15
    assert {words[0] for words in COMMANDS} >= {path.stem for path in public_commands()}
    for words in COMMANDS:
        done = engine(
            *(*words, *BRIEFLY.get(words[0], [])),
            cwd=clone,
            timeout=300,
            ENGINE_CACHE=str(tmp_path),
            ENGINE_OFFLINE="1",
        )
        told = " ".join(words), done.status, done.err
        if set(words) & {*FROM_THE_NETWORK, "cuda"}:
            assert done.status in (0, 3, 4), told
            assert done.status == 0 or done.err.splitlines()[-1].startswith("Error: "), told
            assert "Traceback" not in done.err, told
        elif words == ["doctor"] or words[0] == "export":  # no GPU, or no onnx: they say what to do
            assert done.status == 0 or "Run: pip install" in done.err, told
        else:
            assert done.status == 0, told
            assert done.out or {"--json", "-o"} & set(words), told


def public_commands():
    """All but those for a shell and for a server."""
    found = (ROOT / "engine/cli").glob("[!_]*.py")
    return {path for path in found if path.stem not in ("completion", "serve")}


def test_the_python_example_runs(clone, monkeypatch):
    monkeypatch.chdir(clone)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert (clone / "boxes.png").is_file()


def test_every_section_is_in_the_table():
    told = README[README.index("| sections |") :].split("\n\n")[0]
    spellings = {kind: name for name, kind in reversed(list(LAYERS.items()))}
    assert set(re.findall(r"\w+", told)) >= set(spellings.values())


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(link):
    assert (ROOT / link).exists()
