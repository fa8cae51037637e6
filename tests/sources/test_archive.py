"""Pictures in .tar files."""

import gzip
import tarfile

import pytest

from engine import extras
from engine.sources import archive
from engine.sources.media import media_of
from engine.sources.reader import FrameSelection, read_items
from engine.vision import extensions


@pytest.mark.parametrize("way", ["read", "listed"])
@pytest.mark.parametrize("with_jpeg", [True, False])
def test_members_in_other_formats_are_counted(tmp_path, caplog, monkeypatch, with_jpeg, way):
    monkeypatch.setattr(extensions, "has_extra", lambda: False)
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w") as made:
        for name in ("1.heic", "deep/2.HEIC", "3.jp2", "._4.heic", *["5.jpg"] * with_jpeg):
            made.addfile(tarfile.TarInfo(name))
    if way == "read":
        items = list(read_items([media_of(str(path))], FrameSelection()))
        assert [each.is_picture for each in items] == [with_jpeg]
    else:
        with path.open("rb") as file:
            assert len(list(archive.extents(str(path), file))) == with_jpeg
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path}: files in formats that cannot be read are left out: 2 HEIC, 1 JPEG 2000."
        f" Convert them to JPEG or PNG, or run: {extras.command('formats')}"
    )


def test_links_to_pictures_are_counted(tmp_path, caplog):
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w") as made:
        made.addfile(tarfile.TarInfo("1.jpg"))
        for name, kind in (("2.jpg", tarfile.SYMTYPE), ("3.jpg", tarfile.LNKTYPE)):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = kind, "1.jpg"
            made.addfile(link)
        folder = tarfile.TarInfo("4.jpg")
        folder.type = tarfile.DIRTYPE
        made.addfile(folder)
    assert [item.member for item in read_items([media_of(str(path))], FrameSelection())] == [
        "1.jpg"
    ]
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{path}: links to pictures are left out: 2. Pack files in place of them"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (gzip.compress(bytes(2000)), "expected a .tar file, got a gzip archive. Unpack it first."),
        (b"something" * 200, "invalid header"),
    ],
)
def test_a_file_that_is_no_archive_is_described(tmp_path, content, problem):
    path = tmp_path / "set.tar"
    path.write_bytes(content)
    (item,) = read_items([media_of(str(path))], FrameSelection())
    assert str(item.source) == f"{path}: archive: cannot be read: {problem}"
