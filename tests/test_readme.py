"""README.md: every command and the Python example run as printed in a copy of the clone."""

import json
import re
import shlex
import shutil
from pathlib import Path
from statistics import median

import pytest

from engine import cli
from engine.darknet.layers import LAYERS
from tests.cli.child import engine, engine_here
from tests.test_write_benchmarks import results_of
from tools.bench_cuda import GRAPH

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"^    (?:pip install \. && )?python -m engine (.*)$", README, re.M)
]
FROM_THE_NETWORK = ("yolov4-tiny", "darknet19")
# Instead of the printed durations, and of the full size of the default model.
BRIEFLY = {
    "benchmark": ["--seconds", "0", "--warm-up", "0", "--size", "32"],
    "calibrate": ["--size", "64"],
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Create a working folder with the files that the README names."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("docs", "cfg", "weights"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def test_first_command_detects(clone, capsys, monkeypatch):
    monkeypatch.chdir(clone)
    assert cli.main([*COMMANDS[0], "--device", "cpu"]) == 0
    printed = capsys.readouterr().out.splitlines()
    shown = README[README.index("    docs/parcel.jpg  720 x 720") :].split("\n\n")[0].splitlines()
    assert printed[0].startswith("docs/parcel.jpg  720 x 720  ")
    assert [line.split()[0] for line in printed[1:]] == [line.split()[0] for line in shown[1:]]
    assert (clone / "out/parcel.jpg").is_file()


@pytest.mark.slow
def test_every_command_runs_in_order(clone, tmp_path):
    assert len(COMMANDS) > 15
    shutil.rmtree(clone / "out", ignore_errors=True)  # of the test above
    assert {words[0] for words in COMMANDS} >= {path.stem for path in public_commands()}
    for words in COMMANDS:
        run = engine if words is COMMANDS[0] else engine_here
        done = run(
            *(*words, *BRIEFLY.get(words[0], [])),
            cwd=clone,
            ENGINE_CACHE=str(tmp_path),
            ENGINE_OFFLINE="1",
        )
        told = " ".join(words), done.status, done.err
        if set(words) & {*FROM_THE_NETWORK, "cuda"}:
            assert done.status in (0, 3, 4), told
            assert done.status == 0 or done.err.splitlines()[-1].startswith("Error: "), told
            assert "Traceback" not in done.err, told
        elif words == ["doctor"] or words[0] == "export":  # without a GPU or onnx they print a hint
            assert done.status == 0 or "Run: pip install" in done.err, told
        else:
            assert done.status == 0, told
            assert done.out or {"--json", "-o"} & set(words), told


def public_commands():
    """Return all commands except those for a shell, a server and users of darknet."""
    found = (ROOT / "engine/cli").glob("[!_]*.py")
    return {
        path
        for path in found
        if path.stem not in ("completion", "serve", "classifier", "yolo", "average")
    }


def test_every_command_is_listed():
    assert {words[0] for words in COMMANDS} >= {path.stem for path in public_commands()}


def test_the_python_example_runs(clone, monkeypatch):
    monkeypatch.chdir(clone)
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    assert (clone / "boxes.png").is_file()


def test_the_command_that_it_names_lists_every_section(capsys):
    assert ["layers", "convolutional"] in COMMANDS
    assert cli.main(["layers"]) == 0
    listed = set(re.findall(r"\[(\w+)\]", capsys.readouterr().out))
    assert listed >= set(LAYERS)


def test_it_is_short():
    assert len(README.splitlines()) <= 150


def figures(pattern):
    (found,) = re.findall(pattern, README)
    return tuple(float(figure) for figure in found)


def rows(name):
    return json.loads((ROOT / "tools/results" / name).read_text(encoding="utf-8"))["rows"]


def test_the_speed_up_on_a_card_is_that_of_the_benchmarks():
    document = json.loads(results_of("benchmarks.md").read_text(encoding="utf-8"))
    found = [row for row in document["rows"] if row["precision"] == "float16"]
    speed_ups = [row["peers_ms"][GRAPH] / row["engine_ms"] for row in found]
    expected = tuple(round(ends, 1) for ends in (min(speed_ups), max(speed_ups)))
    assert figures(r"float16: (\S+) to (\S+) times as many pictures as PyTorch") == expected
    assert document["card"] in README


def test_the_times_on_a_processor_are_medians_of_the_runs():
    runs = [
        row
        for row in rows("amd-epyc.json")
        if (row["network"], row["threads"], row["kernels"]) == ("yolov3-tiny@416", 1, "SkylakeX")
    ]
    peers = [[row["peers"][peer]["ms"] for row in runs] for peer in ("OpenCV", "darknet")]
    medians = (median(each) for each in ([row["engine_ms"] for row in runs], *peers))
    assert figures(r": (\d+) ms; OpenCV (\d+) ms, darknet (\d+) ms") == tuple(map(round, medians))


def test_the_sizes_are_those_that_were_measured():
    sizes = {row["package"]: row["bytes"] for row in reversed(rows("install-size.json"))}
    ours, opencv, ultralytics = figures(
        r"(\d+) MB installed, with NumPy and Pillow; OpenCV (\d+) MB, ultralytics (\S+) GB"
    )
    assert ours == round(sizes["engine"] / 1e6)
    assert opencv == round(sizes["opencv-python-headless"] / 1e6)
    assert ultralytics == round(sizes["ultralytics"] / 1e9, 1)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_resolve(link):
    assert (ROOT / link).exists()
