"""The site: every public name is in it with an example that runs; it builds without a warning."""

import doctest
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import engine
from tests import needs
from tests.test_docs import fresh

ROOT = Path(__file__).parents[1]
NAMES = [
    *(f"engine.{name}" for name in engine.__all__ if name not in ("ops", "__version__")),
    *(f"engine.ops.{name}" for name in ("conv1d", "conv2d", "release")),
]

__all__ = ["fresh"]


@pytest.mark.parametrize("name", NAMES)
def test_public_name_has_an_example_that_runs(fresh, monkeypatch, name):
    module, _, attribute = name.rpartition(".")
    value = getattr(import_module(module), attribute)
    monkeypatch.setenv("ENGINE_OFFLINE", "1")  # an example sets it
    known = {"engine": engine, "np": np, "os": os}
    test = doctest.DocTestParser().get_doctest(value.__doc__, known, name, None, 0)
    assert test.examples
    told = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    assert runner.run(test, out=told.append).failed == 0, "".join(told)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_no_other_host(tmp_path):
    needs.package("mkdocs")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = {
        str(path.relative_to(tmp_path / "site")): path.read_text(encoding="utf-8")
        for path in (tmp_path / "site").rglob("*.html")
    }
    for name, text in pages.items():
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"?(https?://[^\s\">]+)", text)
        assert not loaded, name
    for name in NAMES:
        anchor = getattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2])
        where = f"{anchor.__module__}.{anchor.__qualname__}"
        assert f'id="{where}"' in pages["reference/python.html"], name
    listed = (tmp_path / "site/llms.txt").read_text(encoding="utf-8")
    linked = re.findall(r"\]\(([^)]+)\)", listed)
    assert len(linked) > 20
    assert all((tmp_path / "site" / each).is_file() for each in linked)
