"""Compiled kernels on disk: what comes back, what does not, and who may write at once."""

import logging
import os
import threading

import pytest

from engine.backends.cuda.driver import compile_cache
from engine.backends.cuda.driver.compile_cache import Cache


def test_what_was_written_is_read_by_another_process(tmp_path):
    Cache(tmp_path / "kernels").write("key", b"contents")
    assert Cache(tmp_path / "kernels").read("key") == b"contents"


def test_a_missing_key_reads_as_none(tmp_path):
    assert Cache(tmp_path).read("key") is None


@pytest.mark.parametrize(
    "damage",
    [lambda stored: stored[:-1], lambda stored: b"x" + stored[1:], lambda stored: b""],
    ids=["cut short", "changed", "empty"],
)
def test_a_damaged_file_reads_as_absent_and_can_be_written_again(tmp_path, damage):
    stored = Cache(tmp_path)
    stored.write("key", b"contents")
    file = tmp_path / "key"
    file.write_bytes(damage(file.read_bytes()))
    assert stored.read("key") is None
    stored.write("key", b"contents")
    assert stored.read("key") == b"contents"


def test_a_folder_that_cannot_be_made_leaves_the_contents_in_memory(tmp_path, caplog):
    (tmp_path / "file").write_bytes(b"")
    stored = Cache(tmp_path / "file" / "kernels")
    with caplog.at_level(logging.WARNING):
        stored.write("key", b"contents")
    assert stored.read("key") == b"contents"
    assert "cannot be written" in caplog.text


def test_writers_at_once_leave_one_whole_file_and_nothing_else(tmp_path):
    contents = b"contents" * 100_000
    threads = [
        threading.Thread(target=Cache(tmp_path).write, args=("key", contents)) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
    assert Cache(tmp_path).read("key") == contents


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"ENGINE_CACHE": "/a"}, "/a"),
        ({"ENGINE_CACHE": "", "XDG_CACHE_HOME": "/b"}, "/b/engine"),
        ({"ENGINE_CACHE": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/engine"),
    ],
)
def test_the_folder_is_the_chosen_one_or_the_platforms(monkeypatch, variables, expected):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert compile_cache.folder().as_posix() == expected


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize(("name", "mode"), [(".", 0o777), (".", 0o770), ("key", 0o666)])
def test_what_others_can_write_is_not_run(tmp_path, caplog, name, mode):
    cache = Cache(tmp_path / "kernels")
    cache.write("key", b"code")
    assert cache.read("key") == b"code"
    (tmp_path / "kernels" / name).chmod(mode)
    assert [cache.read("key"), cache.read("key")] == [None, None]
    assert len(caplog.messages) == 1
    assert "ENGINE_CACHE" in caplog.messages[0]
