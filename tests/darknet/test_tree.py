from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.darknet.tree import Tree, find_tree, read_tree
from engine.errors import ConfigError

WHERE = "net.cfg:9: [softmax] tree"


def write(folder: Path, text: str) -> Path:
    path = folder / "a.tree"
    path.write_bytes(text.encode())
    return path


def test_a_tree_keeps_names_and_parents_in_file_order(tmp_path):
    tree = read_tree(write(tmp_path, "animal -1\nthing -1\ncat 0\ndog 0\ncar 1\n"), WHERE)
    assert tree.names == ("animal", "thing", "cat", "dog", "car")
    assert tree.parents == (-1, -1, 0, 0, 1)
    assert len(tree) == 5


@pytest.mark.parametrize(
    ("parents", "sizes"),
    [
        ((-1,), (1,)),
        ((-1, -1, 0, 0, 0, 1), (2, 3, 1)),
        ((-1, 0, -1, 0), (1, 1, 1, 1)),  # separated siblings are separate groups, as in darknet
    ],
)
def test_consecutive_siblings_form_a_group(parents, sizes):
    assert Tree(("x",) * len(parents), parents).group_sizes == sizes


@pytest.mark.parametrize("text", ["a -1\r\nb 0\r\n", "\ufeffa -1\nb 0", "a -1\n\n  b\t0  \n\n"])
def test_line_ends_bom_and_blank_lines_do_not_matter(tmp_path, text):
    assert read_tree(write(tmp_path, text), WHERE) == Tree(("a", "b"), (-1, 0))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a -1\nb 1\n", ":2: parent: expected -1 (the root) or .* 0 to 0"),
        ("a 1\nb 0\n", ":1: parent: expected -1"),  # a cycle
        ("a -2\n", "parent: expected -1"),
        ("a -1\nb\n", ":2: expected 'name parent'$"),
        ("a -1\nb c\n", ":2: expected 'name parent'$"),
        ("a 1.5\n", "expected 'name parent'"),
        ("a --1\n", "expected 'name parent'"),
        ("a ²\n", "expected 'name parent'"),
        ("a 99999999999999999999\n", "expected 'name parent'"),
        ("\n\n", "expected at least one class, got none"),
        ("", "expected at least one class, got none"),
    ],
)
def test_damaged_tree_is_reported_with_its_line(tmp_path, text, problem):
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(").replace(")", r"\)")) as told:
        read_tree(write(tmp_path, text), WHERE)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("text", ["root:secret:1::\n", "secret 99\n", "secret x\n"])
def test_error_does_not_quote_a_file_that_is_not_a_tree(tmp_path, text):
    with pytest.raises(ConfigError) as told:
        read_tree(write(tmp_path, text), WHERE)
    assert "secret" not in str(told.value)
    assert ":1: " in str(told.value)


def test_a_missing_tree_names_the_option_and_the_file(tmp_path):
    with pytest.raises(ConfigError, match=r"net\.cfg:9: \[softmax\] tree: .*no\.tree: cannot be"):
        read_tree(tmp_path / "no.tree", WHERE)


def test_a_folder_is_not_a_tree(tmp_path):
    with pytest.raises(ConfigError, match=r"tree: .*: expected a file, got a folder"):
        read_tree(tmp_path, WHERE)


def test_a_pipe_or_device_is_not_a_tree(tmp_path):
    os.mkfifo(tmp_path / "pipe.tree")
    (tmp_path / "device.tree").symlink_to("/dev/zero")
    for name, kind in (("pipe.tree", "a pipe"), ("device.tree", "a device")):
        with pytest.raises(ConfigError, match=f"tree: .*: expected a file, got {kind}"):
            read_tree(find_tree(name, tmp_path, WHERE), WHERE)


def test_a_huge_file_is_refused(tmp_path):
    path = write(tmp_path, "a -1\n")
    os.truncate(path, 17 * 2**20)
    with pytest.raises(ConfigError, match="at most 16 MiB"):
        read_tree(path, WHERE)


@pytest.fixture
def two_folders(tmp_path, monkeypatch):
    """Return the folder of a .cfg, and work in another one; only the folder above has a tree."""
    for name in ("models/data", "work/data", "models-2"):
        (tmp_path / name).mkdir(parents=True)
    write(tmp_path, "secret -1\n")
    write(tmp_path / "models-2", "secret -1\n")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "models"


@pytest.mark.parametrize("place", ["models", "models/data", "work", "work/data"])
def test_a_cfg_names_a_tree_next_to_it_or_in_the_working_folder(two_folders, place):
    folder = two_folders.parent / place
    write(folder, "a -1\n")
    name = f"{'data/' if place.endswith('data') else ''}a.tree"
    wordy = f"data/../{name}"
    for each in (name, wordy, str(folder / "a.tree")):
        for given in (two_folders, Path("../models")):
            assert find_tree(each, given, WHERE).samefile(folder / "a.tree")


@pytest.mark.parametrize("folder", ["models", None])
@pytest.mark.parametrize(
    "name",
    [
        "../a.tree",
        "data/../../a.tree",
        "../models-2/a.tree",
        "/etc/passwd",
        "/proc/kmsg",
        "../../../../../../../../etc/passwd",
        "//etc/passwd",
    ],
)
def test_a_cfg_names_no_tree_elsewhere(two_folders, folder, name):
    refusal = r"net\.cfg:9: \[softmax\] tree: .*expected a file in the folder of"
    with pytest.raises(ConfigError, match=refusal) as told:
        find_tree(name, folder and two_folders, WHERE)
    assert "\n" not in str(told.value)


def test_the_parent_of_a_link_is_the_folder_of_the_link(two_folders):
    (two_folders / "link").symlink_to(two_folders.parent / "models-2" / "data")
    write(two_folders, "a -1\n")
    path = find_tree("link/../a.tree", two_folders, WHERE)
    assert path == two_folders / "a.tree"


def test_nothing_outside_is_looked_up(two_folders, monkeypatch):
    monkeypatch.setattr(Path, "exists", lambda self: pytest.fail(f"looked for {self}"))
    with pytest.raises(ConfigError, match="expected a file in the folder of"):
        find_tree(str(two_folders.parent / "a.tree"), two_folders, WHERE)


def test_the_root_of_the_disk_is_no_working_folder(two_folders, monkeypatch):
    outside = two_folders.parent / "a.tree"
    monkeypatch.chdir("/")
    for name in (str(outside), str(outside).lstrip("/")):
        with pytest.raises(ConfigError, match="expected a file in the folder of"):
            find_tree(name, None, WHERE)
    with pytest.raises(ConfigError, match="expected a file in the folder of"):
        find_tree(str(outside), two_folders, WHERE)
    # a name without a leading slash is looked for in the folder of the .cfg only
    inside = find_tree(str(outside).lstrip("/"), two_folders, WHERE)
    assert inside.is_relative_to(two_folders)
