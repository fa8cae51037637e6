"""engine/files/atomic.py: complete files or none, replaced only if asked."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli import _output_files
from engine.errors import InputError
from engine.files import part_names
from engine.files.atomic import NewFile, make_folder, write_new


def test_a_file_appears_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.txt"
    with NewFile(path) as file:
        file.part.write_text("half")
        assert not path.exists()
        file.part.write_text("whole")
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_error_leaves_no_file(tmp_path):
    def fail():
        with NewFile(tmp_path / "a.txt") as file:
            file.part.write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_existing_file_is_replaced_only_if_asked(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(InputError, match=r"a\.txt: exists already\. Take another"):
        write_new(path, b"new", hint="Take another")
    assert path.read_text() == "old"
    write_new(path, b"new", overwrite=True)
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_private_file_stays_private(tmp_path):
    path = tmp_path / "private.json"
    path.write_text("old")
    path.chmod(0o600)
    with NewFile(path, overwrite=True) as file:
        file.part.write_text("new")
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("new", 0o600)


def test_a_link_stays_one_and_its_file_is_replaced(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link.txt"
    folder.mkdir()
    link.symlink_to("folder/a.txt")
    for content in ("new", "newer"):  # at first the link names no file
        with pytest.raises(InputError, match=r"link\.txt: exists already"):
            write_new(link, b"unasked")
        write_new(link, content.encode(), overwrite=True)
        assert (folder / "a.txt").read_text() == content
        assert link.is_symlink()
    assert sorted(tmp_path.rglob("*")) == [folder, folder / "a.txt", link]


@pytest.mark.parametrize("name", ["a.txt", "a.txt/b", "a.txt/b/c"])
def test_a_folder_that_is_a_file_is_one_line_with_a_hint(tmp_path, name):
    (tmp_path / "a.txt").write_text("mine")
    hint = "expected a folder, got a file or a path below one. Name another folder"
    with pytest.raises(InputError, match=f"{name}: {hint}"):
        make_folder(tmp_path / name)
    with pytest.raises(InputError, match=r"there is a file of that name, or above it\. Name"):
        _output_files.make_folder("--crops", str(tmp_path / name))


@pytest.mark.parametrize("make", [NewFile, make_folder])
@pytest.mark.parametrize("address", ["s3://b/x", Path("s3://b/x"), "file:///x"])
def test_an_address_is_refused_and_becomes_no_folder(tmp_path, monkeypatch, make, address):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"expected a path on this machine, got an address\. Only"):
        make(address)
    assert not list(tmp_path.iterdir())


def test_file_created_in_the_meantime_is_kept(tmp_path):
    path = tmp_path / "a.txt"

    def write():
        with NewFile(path) as file:
            file.part.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(InputError, match="exists already"):
        write()
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]


def test_numbered_name_is_used_if_the_file_exists(tmp_path):
    others = iter([tmp_path / "b.txt", tmp_path / "c.txt"])
    with NewFile(tmp_path / "a.txt", another=lambda: next(others)) as file:
        file.part.write_text("ours")
        for name in ("a.txt", "b.txt"):
            (tmp_path / name).write_text("theirs")
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts == {"a.txt": "theirs", "b.txt": "theirs", "c.txt": "ours"}


def test_a_missing_folder_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"cannot be written: No such file or directory$"):
        write_new(tmp_path / "none" / "a.txt", b"")


def test_a_file_system_that_is_read_only_is_one_line(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(InputError, match=r"a\.txt: cannot be written: Read-only file system$"):
        write_new(tmp_path / "a.txt", b"")


@pytest.mark.parametrize("name", ["x" * 251, "é" * 125])
def test_longest_possible_names_can_be_written(tmp_path, name):
    path = tmp_path / f"{name}.txt"
    write_new(path, b"")
    assert path.exists()


@pytest.mark.parametrize(("name", "reason"), [("x" * 300, "File name too long"), ("a\0b", "NUL")])
def test_impossible_name_is_one_error_line(tmp_path, name, reason):
    with pytest.raises(InputError, match=f"cannot be written: .*{reason}"):
        write_new(tmp_path / name, b"")


def test_writers_with_the_same_process_id_do_not_collide(tmp_path):
    with NewFile(tmp_path / "a.txt", overwrite=True) as first:
        with NewFile(tmp_path / "a.txt", overwrite=True) as second:
            first.part.write_text("first")
            second.part.write_text("second")
        assert (tmp_path / "a.txt").read_text() == "second"
    assert (tmp_path / "a.txt").read_text() == "first"
    assert list(tmp_path.iterdir()) == [tmp_path / "a.txt"]


def test_reserved_name_is_released_on_failure(tmp_path):
    def lose():
        with NewFile(tmp_path / "a.txt") as file:
            file.part.write_text("ours")
            file.part.unlink()

    with pytest.raises(InputError, match="cannot be written: No such file"):
        lose()
    assert list(tmp_path.iterdir()) == []


def test_incomplete_file_is_never_visible(tmp_path, monkeypatch):
    """Check that no empty file reserves the name."""
    path, seen = tmp_path / "a.txt", []
    for name in ("link", "replace", "rename", "unlink"):
        real = getattr(os, name)

        def looking(*args, real=real, **options):
            seen.append(path.read_text() if path.exists() else None)
            return real(*args, **options)

        monkeypatch.setattr(os, name, looking)
    write_new(path, b"whole")
    assert set(seen) <= {None, "whole"}
    assert path.read_text() == "whole"


def test_a_file_system_without_hard_links_works(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    write_new(tmp_path / "a.txt", b"new")
    assert (tmp_path / "a.txt").read_text() == "new"
    with pytest.raises(InputError, match="exists already"):
        write_new(tmp_path / "a.txt", b"newer")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_an_interrupt_without_hard_links_leaves_no_empty_file(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "link", refuse)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_new(tmp_path / "a.txt", b"new")
    assert not (tmp_path / "a.txt").exists()
    write_new(tmp_path / "a.txt", b"new")


def test_files_of_a_dead_process_are_removed(tmp_path):
    code = "import sys; from engine.files.atomic import NewFile; print(NewFile(sys.argv[1]).part)"
    left = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "b.txt"], capture_output=True, text=True, check=True
    ).stdout.strip()
    Path(left).write_text("half")
    with NewFile(tmp_path / "mine.txt") as living:
        living.part.write_text("half")
        foreign = tmp_path / f".00000000-{os.getpid()}-{'a' * 32}.part"
        old = tmp_path / f".00000000-{os.getpid()}-{'b' * 32}.part"
        for each in (foreign, old, tmp_path / "holiday.part"):
            each.write_text("theirs")
        os.utime(old, (0, 0))
        part_names.remove_abandoned.cache_clear()
        write_new(tmp_path / "a.txt", b"new")
        names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.txt", living.part.name, foreign.name, "holiday.part"}
