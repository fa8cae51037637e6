"""CONTRIBUTING.md: recipes work in a copy of the tree and change the files that they list."""

import filecmp
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
# Compiled modules are valid in a copy, which keeps the times of its sources; those that another
# process is writing have one more suffix.
NOT_COPIED = shutil.ignore_patterns(".*", "*.pyc.*", "build", "dist", "*.egg-info")
RECIPES = dict(re.findall(r"^### (.+)\n((?:(?!^##).*\n?)*)", TEXT, re.MULTILINE))


@pytest.mark.slow
@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_works_and_touches_the_files_that_it_lists(title, tmp_path):
    text = RECIPES[title]
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    for kind, name, content in blocks(text):
        apply(kind, copy / name, content)
    assert changed(copy) == set(re.findall(r"^- `(.+)`$", text, re.MULTILINE))
    for command in commands(text):
        run(command, copy)


@pytest.mark.slow
def test_recipes_together_keep_the_style(tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
    for text in RECIPES.values():
        for kind, name, content in blocks(text):
            apply(kind, copy / name, content)
    for command in ("ruff check .", "ruff format --check ."):
        done = subprocess.run(shlex.split(command), cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("title", RECIPES)
def test_every_change_of_a_recipe_finds_its_place(title):
    for kind, name, content in blocks(RECIPES[title]):
        path = ROOT / name
        if kind == "diff":
            replaced(path, content)
        else:
            assert path.parent.is_dir()
            assert not path.exists()


def test_every_recipe_has_files_and_commands():
    assert len(RECIPES) == 6
    for title, text in RECIPES.items():
        assert re.search(r"^- `.+`$", text, re.MULTILINE), title
        assert commands(text), title


def test_the_hooks_are_checks_of_the_whole_run():
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    checks = (ROOT / ".ci/run").read_text(encoding="utf-8").splitlines()
    entries = re.findall(r"entry: ([^,]+),", hooks)
    assert len(entries) == 4
    assert set(entries) <= set(checks)


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT))))
def test_links_resolve(link):
    assert (ROOT / link).exists()


def test_the_files_on_the_way_of_a_picture_exist():
    table = TEXT[TEXT.index("## Follow one picture") : TEXT.index("## Recipes")]
    names = re.findall(r"`([\w/*]+(?:\.py|/))`", table)
    assert len(names) > 15
    for name in names:
        pattern = name.removeprefix("engine/").removesuffix("/")
        assert list((ROOT / "engine").glob(pattern)) or (ROOT / name).exists(), name


def blocks(text):
    """Yield the language, the file that its first line names, and the rest of each block."""
    yield from re.findall(r"^```(\w+)\n# (\S+)\n(.*?)^```", text, re.M | re.S)


def apply(kind, path, content):
    """Write a new file, or replace the one place that a diff describes."""
    if kind != "diff":
        assert not path.exists()
        path.write_text(content, encoding="utf-8")
        return
    path.write_text(replaced(path, content), encoding="utf-8")


def replaced(path, diff):
    """Return the text of a file with the one place replaced that a diff describes."""
    lines = diff.splitlines(keepends=True)
    old = "".join(line[1:] for line in lines if line[0] in " -")
    new = "".join(line[1:] for line in lines if line[0] in " +")
    before = path.read_text(encoding="utf-8")
    assert before.count(old) == 1, f"CONTRIBUTING.md: {path.name}: expected once:\n{old}"
    return before.replace(old, new)


def changed(copy):
    """Return the files of the copy that are new, or not as here."""
    files = (path for path in copy.rglob("*") if path.is_file() and path.suffix != ".pyc")
    names = (path.relative_to(copy) for path in files)
    return {
        name.as_posix()
        for name in names
        if not (ROOT / name).is_file() or not filecmp.cmp(ROOT / name, copy / name, shallow=False)
    }


def commands(text):
    return re.findall(r"^    python (-m .+)$", text, re.MULTILINE)


def run(command, folder):
    words = [sys.executable, *shlex.split(command)]
    if "pytest" in words:
        words += ["-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    assert done.stdout.strip()
