"""docs/: commands and programs run as printed, quoted messages exist, links resolve."""

import ast
import json
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from engine import bundled, cli
from engine.cli._darknet import options as darknet_options
from engine.darknet import network_limits
from engine.vision import picture_limits
from tests import needs
from tests.lanes import slow
from tests.pictures import write_picture, write_video

ROOT = Path(__file__).parents[1]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}

COMMAND = re.compile(r"(?:^    |`)python -m engine ([^`\n]+)", re.MULTILINE)
COMMANDS = sorted(
    (page, command) for page, text in PAGES.items() for command in COMMAND.findall(text)
)
TOOL = re.compile(r"(?:^    |`)python (tools/\S+\.py|-m tools[.][\w.]+)([^`\n]*)", re.MULTILINE)
TOOLS = sorted(
    (*found, page)
    for page, text in PAGES.items()
    for found in TOOL.findall(text.replace("\\\n", ""))
)

ZOO = {"pull", "path", "--model"}  # need downloaded weights
# Instead of the printed durations, and of networks of full size.
BRIEFLY = {
    "benchmark": ["--seconds", "0", "--warm-up", "0", "--size", "32"],
    "calibrate": ["--size", "64"],
}


@pytest.fixture
def fresh(tmp_path, monkeypatch, tiny_detector, tiny_classifier):
    """Create a working folder with the files that the pages name."""
    for kind in ("cfg", "weights", "names"):
        shutil.copy(getattr(tiny_detector, kind), tmp_path / f"my.{kind}")
        shutil.copy(getattr(tiny_classifier, kind), tmp_path / f"classifier.{kind}")
    (tmp_path / "obj.data").write_text(
        "classes=3\nnames=my.names\nvalid=list.txt\ntrain=list.txt\n"
    )
    (tmp_path / "dog.txt").write_text("0 0.5 0.5 0.4 0.4\n2 0.3 0.3 0.2 0.1\n")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures/000012.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    shutil.copy(tmp_path / "my.weights", tmp_path / "again.weights")
    classes = "classes=6\nnames=classifier.names\nlabels=classifier.labels\nvalid=list.txt\n"
    (tmp_path / "imagenet.data").write_text(classes)
    (tmp_path / "classifier.labels").write_text("dog\ncat\na\nb\nc\nd\n")
    for name in ("dog.jpg", "cat.jpg", "pictures/000012.jpg", "val2017/000000000139.jpg"):
        write_picture(tmp_path / name)
    labels = (tmp_path / "my.names").read_text().splitlines()
    truth = {
        "images": [{"id": 139, "file_name": "000000000139.jpg", "width": 50, "height": 40}],
        "annotations": [],
        "categories": [{"id": at, "name": label} for at, label in enumerate(labels, 1)],
    }
    (tmp_path / "instances_val2017.json").write_text(json.dumps(truth))
    (tmp_path / "list.txt").write_text("dog.jpg\ncat.jpg\n")
    for name in ("truth/a.txt", "found/a.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("1,1,10,10,20,20,1\n")
    for name in ("docs", "cfg", "weights"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENGINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGINE_OFFLINE", "1")
    return tmp_path


@pytest.mark.parametrize(
    ("page", "command"),
    [slow(each) if {"benchmark", "calibrate"} & {*each[1].split()} else each for each in COMMANDS],
    ids=[text for _, text in COMMANDS],
)
def test_commands_run_as_printed(fresh, capsys, monkeypatch, page, command):
    words = shlex.split(command)
    if "export" in words:
        needs.package("onnx")
    for name in {"street.mp4", "film.mp4"} & {*words}:
        needs.package("av")
        write_video(fresh / name)
    words, redirected = split_at("<", words)
    with (fresh / (redirected or ["list.txt"])[0]).open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        status = cli.main([*words, *BRIEFLY.get(words[0], [])])
    told = capsys.readouterr()
    if ZOO & set(words) and not bundled.models().keys() & set(words):
        assert status in (1, 3), told.err
        assert all(line.startswith("Error: ") for line in told.err.splitlines())
    elif status == 4:
        assert words == ["doctor"] or "cuda" in words, told.err
        assert "missing" in told.err or "not found" in told.err
    else:
        assert status == 0, told.err
        assert told.out


@pytest.mark.parametrize(("tool", "options", "page"), TOOLS)
def test_tools_accept_the_options_that_pages_show(tool, options, page):
    words = shlex.split(options)
    path = ROOT / tool
    if tool.startswith("-m "):
        folder = ROOT / tool.removeprefix("-m ").replace(".", "/")
        path = folder / "__main__.py" if folder.is_dir() else folder.with_suffix(".py")
    source = path.read_text(encoding="utf-8")
    for word in words:
        if word.startswith("--"):
            assert f'"{word}"' in source
        elif word.startswith(("cfg/", "weights/")):
            assert (ROOT / word.partition("@")[0]).is_file()


PROGRAMS = [
    (page, code)
    for page in ("security.md", "export.md", "tracking.md")
    for code in re.findall(r"```python\n(.*?)```", PAGES[page], re.DOTALL)
]


@pytest.mark.parametrize(("page", "code"), PROGRAMS, ids=[page for page, _ in PROGRAMS])
def test_programs_run_as_printed(fresh, monkeypatch, page, code):
    if page == "export.md":
        needs.package("onnx")
        needs.package("onnxruntime")
    for module in (network_limits, picture_limits):
        for name in (each for each in vars(module) if each.isupper()):
            monkeypatch.setattr(module, name, getattr(module, name))  # restored at the end
    frame = np.zeros((40, 50, 3), np.uint8)
    if "street.mp4" in code:
        needs.package("av")
        write_video(fresh / "street.mp4")
    exec(compile(code, page, "exec"), {"frame": frame})


def test_pages_have_programs():
    assert len(PROGRAMS) == 5


def split_at(word, words):
    at = words.index(word) if word in words else len(words)
    return words[:at], words[at + 1 :]


def test_pages_have_commands():
    assert len(COMMANDS) > 12


QUOTED = [
    row.split("`")[1] for row in PAGES["troubleshooting.md"].splitlines() if row.startswith("| `")
]


@cache
def messages():
    """Return every string in the source, with … for interpolated values."""
    found = []
    for path in (ROOT / "engine").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ]
                found.append("".join(parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


@pytest.mark.parametrize("quoted", QUOTED)
def test_every_message_is_still_in_the_source(quoted):
    pattern = re.compile(".*".join(map(re.escape, quoted.split("…"))), re.DOTALL)
    assert any(pattern.search(message) for message in messages())


def test_every_accepted_darknet_option_is_documented():
    told = set(re.findall(r"`(-\w+)", PAGES["from-darknet.md"]))
    known = {each.name for each in (*darknet_options.OPTIONS, *darknet_options.IGNORED)}
    assert known | set(darknet_options.EQUIVALENTS) <= told


def test_json_page_documents_every_key(fresh, capsys):
    assert cli.main(["detect", "my.cfg", "my.weights", "dog.jpg", "--json", "-"]) == 0
    text = capsys.readouterr().out
    for key in re.findall(r'"(\w+)":', text):
        assert f'"{key}"' in PAGES["json.md"], key


def links():
    """Return (page, link) for every link of every page, notes included."""
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
            yield str(path.relative_to(ROOT)), link


@pytest.mark.parametrize(("page", "link"), sorted(set(links())))
def test_links_resolve(page, link):
    assert "://" in link or ((ROOT / page).parent / link).exists()


@pytest.mark.parametrize("page", ["reliability.md", "benchmarks.md", "benchmarks-cpu.md"])
def test_pages_of_figures_stay_short(page):
    assert len(PAGES[page].splitlines()) <= 120


def test_every_note_is_in_the_list_of_notes():
    notes = ROOT / "docs" / "notes"
    listed = (notes / "README.md").read_text(encoding="utf-8")
    for path in notes.glob("*.md"):
        assert path.name == "README.md" or f"]({path.name})" in listed


def test_every_term_of_the_glossary_is_used_in_the_source():
    terms = re.findall(r"^\| (?!term|---)([\w ]+) \|", PAGES["glossary.md"], re.MULTILINE)
    assert len(terms) > 30
    source = " ".join(
        re.sub(r"[\s#_]+", " ", path.read_text(encoding="utf-8")).lower()
        for folder in ("engine", "tests")
        for path in (ROOT / folder).rglob("*.py")
    )
    assert not [term for term in terms if term.lower() not in source]
