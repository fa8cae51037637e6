"""zoo.ini: the required fields of every entry."""

import re

import pytest

from engine.bundled import folder
from engine.models.registry import models

LENGTHS = {"sha256": 64, "sha1": 40, "md5": 32}


@pytest.mark.parametrize("model", models().values(), ids=models())
def test_an_entry_is_complete(model):
    assert model.task in ("detector", "classifier")
    assert re.fullmatch(r"\w[\w.-]*\.weights", model.file), "a name that stays in its folder"
    for algorithm, value in model.hashes.items():
        assert re.fullmatch(rf"[0-9a-f]{{{LENGTHS[algorithm]}}}", value)
    assert bool(model.urls) != bool(model.note), "URLs, or why there are none"
    for address in model.urls:
        assert re.fullmatch(r"https://[\w.-]+/[\w./-]+\.weights", address)
    assert model.cfg.is_file()
    assert model.names is None or model.names.is_file()


def test_models_do_not_share_files():
    files = [model.file for model in models().values()]
    assert len(set(files)) == len(files)


@pytest.mark.parametrize("model", models().values(), ids=models())
def test_weights_readme_lists_the_model(model):
    guide = (folder("weights") / "README.md").read_text(encoding="utf-8")
    (row,) = [line for line in guide.splitlines() if line.startswith(f"| {model.name} |")]
    _, _, file, size, proof, address, _ = (cell.strip() for cell in row.split("|"))
    assert (file, size) == (f"`{model.file}`", f"{model.bytes:,}")
    assert proof == next((f"{kind} `{value}`" for kind, value in model.hashes.items()), "")
    assert address == (f"<{model.urls[0]}>" if model.urls else model.note)
