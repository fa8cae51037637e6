"""Names that stand for one picture, for several, or for a stream without an end."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import ImageError
from engine.sources import pictures
from engine.sources.pictures import is_endless, is_file, is_single, name_of, pictures_of
from engine.sources.remote_picture import RemotePicture
from engine.vision import image
from tests.pictures import write_picture


@pytest.fixture(autouse=True)
def tree(tmp_path, monkeypatch):
    for name in ("a.jpg", "odd[1].jpg", "folder/b.jpg", "folder/inner/c.jpg"):
        write_picture(tmp_path / name)
    (tmp_path / "folder.jpg").mkdir()
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jpg", "file"),
        ("missing.jpg", "file"),
        ("odd[1].jpg", "file"),
        ("a\0.jpg", "file"),
        ("folder", "several"),
        ("*.jpg", "several"),
        ("list.txt", "several"),
        ("street.mp4", "several"),
        ("file:///tmp/a.jpg", "several"),
        ("https://example.com/a.jpg", "single"),
        ("https://example.com/a.mp4", "several"),
        ("rtsp://camera/1", "endless"),
        ("0", "endless"),
        ("/dev/video0", "endless"),
        ("/dev/video0.jpg", "endless"),
        ("http:a.jpg", "file"),
        ("HTTP://example.com/A.JPG", "single"),
        ("?.png", "several"),
        ("street.mp4.JPEG", "file"),
        ("folder.jpg", "several"),
    ],
)
def test_kinds(name, kind):
    assert is_file(name) is (kind == "file")
    assert is_single(name) is (kind in ("file", "single"))
    assert is_endless(name) is (kind == "endless")


def test_names():
    assert name_of("a.jpg") == name_of(Path("a.jpg")) == "a.jpg"
    assert name_of(2) == name_of(np.int64(2)) == "2"
    for other in (b"a.jpg", True, None, np.zeros(3), 1.5):
        assert name_of(other) is None


def test_several_names_become_their_pictures():
    array = np.zeros((2, 2, 3), np.uint8)
    found = list(pictures_of(["a.jpg", array, "folder", Path("folder/b.jpg")]))
    assert found[:2] == ["a.jpg", array]
    assert found[2:] == ["folder/b.jpg", Path("folder/b.jpg")]
    assert list(pictures_of(["folder"], recursive=True)) == ["folder/b.jpg", "folder/inner/c.jpg"]


def test_a_folder_with_the_name_of_a_picture_may_be_left_to_reading():
    write_picture(Path("folder.jpg/inside.png"))
    names = ["a.jpg", "folder.jpg", "odd[1].jpg", "missing.jpg"]
    inside = ["a.jpg", "folder.jpg/inside.png", *names[2:]]
    assert list(pictures_of(names)) == inside
    assert list(pictures_of(names, defers_folders=True)) == names
    assert list(pictures_of(iter(["folder", "a.jpg"]), defers_folders=True)) == [
        "folder/b.jpg",
        "a.jpg",
    ]
    with pytest.raises(ImageError, match=r"^folder\.jpg: picture: expected a file, got a folder$"):
        image.read("folder.jpg")


def test_a_list_is_not_read_ahead_of_what_is_wanted_of_it():
    names = [Path("a.jpg"), Path("folder/b.jpg")]
    found = pictures_of(names)
    assert next(found) == Path("a.jpg")
    names.append(Path("odd[1].jpg"))
    assert list(found) == names[1:]


@pytest.mark.parametrize(
    ("sources", "are"),
    [
        (["a.jpg", Path("b.jpg"), b"", "street.mp4", np.zeros((2, 2, 3), np.uint8)], True),
        (np.zeros((3, 2, 2, 3), np.uint8), True),
        (["a.jpg", "rtsp://camera/1"], False),
        ([0], False),
        (iter(["a.jpg"]), False),
    ],
)
def test_only_lists_without_live_sources_are_at_hand(sources, are):
    assert pictures.are_at_hand(sources) is are


def test_names_without_pictures_become_errors():
    missing, empty = pictures_of(["list.txt", "x*.jpg"])
    assert isinstance(missing, ImageError)
    assert isinstance(empty, ImageError)


def test_addresses_are_read_later():
    (picture,) = pictures_of(["https://example.com/a.jpg"])
    assert isinstance(picture, RemotePicture)
