"""Pictures in .tar files."""

import gzip
import tarfile
from contextlib import nullcontext

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
        f"{path}: files in formats that cannot be read are skipped: 2 HEIC, 1 JPEG 2000."
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
        f"{path}: links to pictures are skipped: 2. Pack files in place of them"
    )


def test_videos_are_counted(tmp_path, caplog):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as made:
        for name in ("1.jpg", "2.mp4", "in/3.MKV", "4.txt"):
            made.addfile(tarfile.TarInfo(name))
    found = read_items([media_of(str(path))], FrameSelection())
    assert [item.member for item in found] == ["1.jpg"]
    (record,) = caplog.records
    what = "archive: videos are skipped: 2. Unpack them to read their frames"
    assert record.getMessage() == f"{path}: {what}"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (
            gzip.compress(bytes(2000), mtime=0),
            "expected a .tar file, got a gzip archive. Unpack it first.",
        ),
        (b"something" * 200, "invalid header"),
    ],
)
def test_a_file_that_is_no_archive_is_described(tmp_path, content, problem):
    path = tmp_path / "set.tar"
    path.write_bytes(content)
    (item,) = read_items([media_of(str(path))], FrameSelection())
    assert str(item.source) == f"{path}: archive: cannot be read: {problem}"


@pytest.mark.parametrize("damage", ["header", "cut", "end", "more", "none"])
def test_what_ends_an_archive_early_is_reported(tmp_path, caplog, damage):
    """`tarfile` takes a damaged header, and one that is cut off, for the end of an archive."""
    path = tmp_path / "set.tar"
    with tarfile.open(path, "w") as made:
        for number in range(4):
            made.addfile(tarfile.TarInfo(f"{number}.jpg"))
    content = bytearray(path.read_bytes())
    if damage == "header":
        content[2 * tarfile.BLOCKSIZE] ^= 1
    if damage == "more":
        content *= 2
    whole = {"cut": 2 * tarfile.BLOCKSIZE + 100, "end": 4 * tarfile.BLOCKSIZE}
    path.write_bytes(content[: whole.get(damage)])
    *members, last = read_items([media_of(str(path))], FrameSelection())
    reasons = {"header": "invalid header", "cut": "breaks off in the middle of a header"}
    if damage in reasons:
        assert [each.member for each in members] == ["0.jpg", "1.jpg"]
        assert str(last.source) == f"{path}: archive: cannot be read: {reasons[damage]}"
    else:
        assert last.member == "3.jpg"
    what = f"{path}: archive: has no end marker, so it may have been cut off"
    if damage == "more":
        what = f"{path}: archive: what follows its end marker, perhaps another archive, is skipped"
    assert caplog.messages == [what] * (damage in ("end", "more"))
    with path.open("rb") as file:
        found = archive.extents(str(path), file)
        assert next(found).pictures == len(members) + (damage not in reasons)
        with pytest.raises(tarfile.ReadError) if damage in reasons else nullcontext():
            assert list(found) == []
