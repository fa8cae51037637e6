"""engine/darknet/names.py: .names files in every encoding and layout in use."""

import pytest

from engine.darknet.names import find_names, read_names
from engine.errors import ConfigError


@pytest.mark.parametrize(
    "data",
    [
        b"cat\ndog\n",
        b"cat\ndog",
        b"cat\r\ndog\r\n",
        b"cat\rdog\r",
        b"\xef\xbb\xbfcat\ndog\n",
        b"cat\ndog\n\n\n",
        b"  cat \ndog\t\n",
    ],
)
def test_line_ends_bom_and_trailing_blank_lines_do_not_matter(tmp_path, data):
    path = tmp_path / "two.names"
    path.write_bytes(data)
    assert read_names(path, 2) == ("cat", "dog")


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("Käfer\n犬\n".encode(), ("Käfer", "犬")),
        (b"K\xe4fer\ndog\n", ("Käfer", "dog")),  # Latin-1
        (b"dog\ndog\n", ("dog", "dog")),
        (b"\ndog\n", ("class 0", "dog")),
    ],
)
def test_names_keep_their_characters_and_places(tmp_path, data, expected):
    path = tmp_path / "two.names"
    path.write_bytes(data)
    assert read_names(path, 2) == expected


@pytest.mark.parametrize("data", [b"", b"cat\n", b"cat\ndog\ncow\n"])
def test_wrong_number_of_names_is_an_error_with_both_numbers(tmp_path, data):
    path = tmp_path / "two.names"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=rf"two\.names: expected 2 names.*got {data.count(10)}"):
        read_names(path, 2)


def test_classifier_list_may_be_longer(tmp_path, caplog):
    path = tmp_path / "three.names"
    path.write_text("cat\ndog\ncow\n")
    assert read_names(path, 2, allow_longer=True) == ("cat", "dog")
    assert "three.names: has 3 names, and the network 2 classes" in caplog.text
    with pytest.raises(ConfigError, match="expected 4 names"):
        read_names(path, 4, allow_longer=True)


def test_binary_data_is_refused(tmp_path):
    path = tmp_path / "two.names"
    path.write_bytes(b"cat\0\ndog")
    with pytest.raises(ConfigError, match="got binary data"):
        read_names(path, 2)


@pytest.mark.parametrize("place", [".", "data", "../data"])
def test_names_of_a_data_file_are_found_from_its_folder_and_the_one_above(tmp_path, place):
    folder = tmp_path / "cfg"
    names = folder / place / "two.names"
    names.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(exist_ok=True)
    names.write_text("cat\ndog\n")
    written = "two.names" if place == "." else "data/two.names"
    (folder / "two.data").write_text(f"classes= 2\nnames = {written}\nnames = other\n")
    assert read_names(find_names(folder / "two.data"), 2) == ("cat", "dog")


def test_names_of_a_data_file_are_found_from_inside_its_folder(tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "obj.names").write_text("cat\ndog\n")
    (folder / "obj.data").write_text("classes = 2\nnames = data/obj.names\n")
    monkeypatch.chdir(folder)
    assert read_names(find_names("obj.data"), 2) == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes=2\n", "names: is missing"),
        ("names=none.names\n", "no file 'none.names'"),
        ("names\n", "two.data:1: expected key=value$"),
    ],
)
def test_a_data_file_without_usable_names_is_an_error(tmp_path, text, message):
    (tmp_path / "two.data").write_text(text)
    with pytest.raises(ConfigError, match=message):
        find_names(tmp_path / "two.data")


def test_a_folder_in_place_of_names_is_an_error(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_names(tmp_path, 2)
    assert str(caught.value) == f"{tmp_path}: expected a file, got a folder"
