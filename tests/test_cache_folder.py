"""The folder of files that can be rebuilt or downloaded again."""

from pathlib import Path

import pytest

from engine.errors import InputError
from engine.files import cache_folder

VARIABLES = ("ENGINE_CACHE", "ENGINE_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/c")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ENGINE_CACHE": "/a", "ENGINE_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/a"),
        ({"ENGINE_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/cache"),
        ({"ENGINE_CACHE": "", "ENGINE_HOME": "", "XDG_CACHE_HOME": "/x"}, "/x/engine"),
    ],
)
def test_environment_variables_take_precedence(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache_folder.folder().as_posix() == expected


@pytest.mark.parametrize(
    ("platform", "expected"),
    [("linux", "/c/.cache/engine"), ("darwin", "/c/Library/Caches/engine")],
)
def test_platform_folder_is_the_default(monkeypatch, platform, expected):
    monkeypatch.setattr("sys.platform", platform)
    assert cache_folder.folder().as_posix() == expected


def test_error_without_a_home_says_what_to_set(monkeypatch):
    def fail():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", fail)
    with pytest.raises(InputError, match="ENGINE_CACHE can name a folder"):
        cache_folder.folder()
