from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine.darknet.tree import Tree, read_tree
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


def test_a_huge_file_is_refused(tmp_path):
    path = write(tmp_path, "a -1\n")
    os.truncate(path, 17 * 2**20)
    with pytest.raises(ConfigError, match="at most 16 MiB"):
        read_tree(path, WHERE)
