"""Expansion of names: folders, patterns, lists, addresses, videos, cameras."""

import errno
import os
import subprocess

import pytest

from engine import extras
from engine.sources.expand import expand
from engine.sources.media import MediaKind, media_of
from engine.vision import extensions
from tests import needs


@pytest.fixture
def tree(tmp_path, monkeypatch):
    for name in ("b.jpg", "a.PNG", "note.md", "clip.mp4", "deep/c.webp", "deep/er/d.bmp"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*names, **options):
    return [place.name for place in expand(names, **options)]


def test_a_folder_gives_its_pictures_by_name(tree):
    assert found(".") == ["./a.PNG", "./b.jpg"]


def test_recursive_goes_into_folders_of_folders(tree):
    assert found(".", recursive=True) == ["./a.PNG", "./b.jpg", "./deep/c.webp", "./deep/er/d.bmp"]


@pytest.fixture
def deep(tree):
    """Make 1,200 folders inside each other, and remove them, which pytest cannot do."""
    for _ in range(1200):
        os.mkdir("d")  # noqa: PTH102
        os.chdir("d")
    open("x.jpg", "w").close()  # noqa: PTH123
    os.chdir(tree)
    yield "d/" * 1200 + "x.jpg"
    subprocess.run(["rm", "-r", str(tree / "d")], check=True)


def test_folders_of_any_depth_are_walked(deep):
    assert found("d", recursive=True) == [deep]
    assert found("d/**/*.jpg") == [deep]
    (broken,) = expand(["d"])
    assert broken.kind is MediaKind.BROKEN


def test_empty_folder_is_an_error_with_a_hint(tree):
    (place,) = expand(["empty"])
    assert place.kind is MediaKind.BROKEN
    assert place.problem == (
        "empty: folder: has no pictures. "
        "Its folders are read with --recursive or stream(…, recursive=True), "
        "or by the pattern 'empty/**/*.*'."
    )


def test_a_pattern_gives_what_it_matches_sorted(tree):
    assert found("*.[jm]p[4g]") == ["b.jpg", "clip.mp4"]
    assert found("**/*.bmp") == ["deep/er/d.bmp"]
    assert [place.kind for place in expand(["*.gif"])] == [MediaKind.BROKEN]


def test_a_pattern_that_only_folders_match_stands_for_what_is_in_them(tree):
    (tree / "deep" / "early").mkdir()
    (tree / "deep" / "early" / "e.jpg").touch()
    assert found("deep/e*") == ["deep/early/e.jpg", "deep/er/d.bmp"]
    assert found("d*") == ["deep/c.webp"]
    everything = ["deep/c.webp", "deep/early/e.jpg", "deep/er/d.bmp"]
    assert sorted(found("d*", recursive=True)) == everything
    assert sorted(found("**/[de][ea]*", recursive=True)) == everything  # each of them once
    assert [place.root for place in expand(["deep/e*"])] == ["deep/early", "deep/er"]


def test_two_stars_go_round_no_circle_of_links(tree):
    (tree / "deep" / "back").symlink_to(tree)
    (tree / "deep" / "again").symlink_to(tree / "deep")
    (tree / ".hidden").mkdir()
    (tree / ".hidden" / "x.bmp").touch()
    assert found("**/*.bmp") == ["deep/er/d.bmp"]
    assert found(f"{tree}/**/*.bmp") == [f"{tree}/deep/er/d.bmp"]
    assert found("de*/**/*.[bw]*") == ["deep/c.webp", "deep/er/d.bmp"]
    assert found("./**/er/**") == ["./deep/er/d.bmp"]
    assert found("**") == ["a.PNG", "b.jpg", "clip.mp4", "deep/c.webp", "deep/er/d.bmp", "note.md"]


def test_a_pattern_that_folders_match_as_well_goes_into_them_if_recursive(tree, caplog):
    (tree / "deep" / "round").symlink_to(tree)
    (tree / "linked").symlink_to(tree / "deep" / "er")
    assert found("*") == ["a.PNG", "b.jpg", "clip.mp4", "note.md"]
    assert [record.getMessage() for record in caplog.records] == [
        "*: folders that match are skipped, pictures and videos in them: 2. "
        "They are read with --recursive or stream(…, recursive=True), or by the pattern '*/**/*.*'"
    ]
    places = list(expand(["*"], recursive=True))
    inner = ["deep/c.webp", "deep/er/d.bmp", "linked/d.bmp"]
    assert [place.name for place in places] == ["a.PNG", "b.jpg", "clip.mp4", "note.md", *inner]
    assert {place.root for place in places} == {"."}
    assert found("deep/*", recursive=True) == ["deep/c.webp", "deep/er/d.bmp"]
    caplog.clear()
    assert len(found("**", recursive=True)) == len(found("**")) == 6
    assert not caplog.records


def test_stars_in_the_middle_leave_no_folder_out(tree, caplog):
    """`**` reaches every folder, but the name after it does not match what is inside."""
    day = tree / "deep" / "day1"
    day.mkdir()
    for name in ("deep/day2.jpg", "deep/day1/x.jpg", "deep/day1/day3.jpg", "deep/day1/y.mp4"):
        (tree / name).touch()
    (day / "day4").symlink_to(tree)
    matching = ["deep/day1/day3.jpg", "deep/day2.jpg"]
    assert found("**/day*") == matching
    assert [record.getMessage() for record in caplog.records] == [
        "**/day*: folders that match are skipped, pictures and videos in them: 2. "
        "They are read with --recursive or stream(…, recursive=True), "
        "or by the pattern '**/day*/**/*.*'"
    ]
    caplog.clear()
    assert found("**/day*", recursive=True) == [*matching, "deep/day1/x.jpg"]
    assert any("skipped: 1 video(s)" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize("pattern", ["**", "*/**/*.*", "deep/*/*.bmp", "deep/er/*", "**/*.bmp"])
def test_folders_that_a_pattern_cannot_read_are_reported(tree, monkeypatch, pattern):
    def refuse(name, of=os.listdir):
        if str(name) == "deep/er":
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return of(name)

    monkeypatch.setattr(os, "listdir", refuse)
    monkeypatch.setattr(os, "scandir", lambda name, of=os.scandir: refuse(name, of))
    (broken,) = [each for each in expand([pattern]) if each.kind is MediaKind.BROKEN]
    assert broken.problem == "deep/er: folder: cannot be read: Permission denied"


def test_names_that_may_not_be_looked_at_are_pictures(tree, monkeypatch):
    """In a folder that may be listed only, reading each picture says what is wrong."""

    def refuse(name, **_):
        raise PermissionError(errno.EACCES, "Permission denied", str(name))

    for pattern in ("deep/er/*.bmp", "deep/er/d.bmp"):
        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", refuse)
            assert found(pattern) == ["deep/er/d.bmp"]


def test_links_to_folders_are_counted_and_read_if_named(tree, caplog):
    (tree / "far").mkdir()
    (tree / "far" / "x.jpg").touch()
    (tree / "set").mkdir()
    (tree / "set" / "link").symlink_to(tree / "far")
    (tree / "set" / "round").symlink_to(tree / "set")
    (place,) = expand(["set"], recursive=True)
    assert place.problem == "set: folder: has no pictures."
    assert [record.getMessage() for record in caplog.records] == [
        "set: links to folders are skipped: 2. Name them, such as set/link"
    ]
    assert found("set/link") == ["set/link/x.jpg"]
    assert found("set/*/*.jpg") == ["set/link/x.jpg"]


def test_videos_and_archives_of_a_folder_are_counted(tree, caplog):
    (tree / "deep" / "set.tar").touch()
    (tree / "deep" / "er" / "d.bmp").unlink()
    (tree / "deep" / "er" / "e.avi").touch()
    found(".", recursive=True)
    (place,) = expand(["deep/er"])
    assert place.problem == "deep/er: folder: has no pictures."
    assert [record.getMessage() for record in caplog.records] == [
        ".: only pictures of a folder are read, skipped: 2 video(s), 1 .tar file(s). "
        "Name them, as with a pattern: './**'",
        "deep/er: only pictures of a folder are read, skipped: 1 video(s). "
        "Name them, as with a pattern: 'deep/er/*'",
    ]


def test_pictures_in_inner_folders_are_counted(tree, caplog):
    (tree / "clip.mp4").unlink()
    found(".")
    (record,) = caplog.records
    assert record.getMessage() == (
        ".: subfolders with 2 pictures are skipped. "
        "They are read with --recursive or stream(…, recursive=True), or by the pattern './**/*.*'"
    )
    assert {"./deep/c.webp", "./deep/er/d.bmp"} <= set(found("./**/*.*"))
    caplog.clear()
    found(".", recursive=True)
    found("deep/er")
    assert not caplog.records


def test_pictures_in_other_formats_are_counted(tree, caplog, monkeypatch):
    monkeypatch.setattr(extensions, "has_extra", lambda: False)
    (tree / "clip.mp4").unlink()
    for name in ("1.heic", "2.HEIC", "3.avif", "4.jp2", "deep/5.heic", "._6.heic"):
        (tree / name).touch()
    found(".", recursive=True)
    (record,) = caplog.records
    assert record.getMessage() == (
        ".: files in formats that cannot be read are skipped: 1 AVIF, 3 HEIC, 1 JPEG 2000."
        f" Convert them to JPEG or PNG, or run: {extras.command('formats')}"
    )


def test_pictures_in_formats_of_an_installed_extra_are_found(tree, caplog, monkeypatch):
    monkeypatch.setattr(extensions, "has_extra", lambda: True)
    for name in ("deep/5.heic", "deep/6.AVIF", "deep/7.jp2", "deep/8.jxl", "deep/._9.heic"):
        (tree / name).touch()
    names = [name.rpartition("/")[2] for name in found("deep")]
    assert {"5.heic", "6.AVIF", "7.jp2"} < set(names)
    assert not {"8.jxl", "._9.heic"} & set(names)
    told = caplog.text
    assert "skipped: 1 JPEG XL. Convert them to JPEG or PNG" in told
    assert "pip" not in told


def test_file_urls_are_paths(tree):
    (tree / "a b.jpg").touch()
    (tree / "list.txt").write_text(f"file://{tree}/a%20b.jpg\n")
    assert found(f"file://{tree}/b.jpg", f"FILE://localhost{tree}/deep") == [
        f"{tree}/b.jpg",
        f"{tree}/deep/c.webp",
    ]
    assert found(f"file://{tree}/list.txt", "-", stdin=[f"file://{tree}/b.jpg"]) == [
        f"{tree}/a b.jpg",
        f"{tree}/b.jpg",
    ]
    assert found("file://elsewhere/b.jpg") == ["file://elsewhere/b.jpg"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tree):
    (tree / "x[1].jpg").touch()
    assert found("x[1].jpg") == ["x[1].jpg"]


@pytest.mark.parametrize(
    "content",
    [
        b"b.jpg\ndeep/c.webp\n",
        b"\xef\xbb\xbfb.jpg\r\n\r\n   \r\ndeep/c.webp",
        b"\"b.jpg\"\n'deep/c.webp'\n\n\n",
        "b.jpg\ndeep/c.webp\n".encode("utf-16"),
        b"b.jpg\rdeep/c.webp\r",
        b"  b.jpg  \n\tdeep/c.webp",
    ],
)
def test_a_list_names_pictures_line_by_line(tree, content):
    (tree / "list.txt").write_bytes(content)
    assert found("list.txt") == ["b.jpg", "deep/c.webp"]


def test_quotes_in_a_list_keep_the_blanks_of_a_name(tree):
    (tree / " b.jpg ").touch()
    (tree / "list.txt").write_text('" b.jpg "\n')
    assert found("list.txt") == [" b.jpg "]


def test_list_entries_may_be_relative_to_the_list(tree):
    (tree / "deep" / "list.txt").write_text("c.webp\nb.jpg\nnone.jpg\n")
    assert found("deep/list.txt") == ["deep/c.webp", "b.jpg", "none.jpg"]


def test_names_that_are_not_utf8_find_their_files(tree):
    (tree / "list.txt").write_bytes(b"\xff.jpg\n")
    assert found("list.txt") == [os.fsdecode(b"\xff.jpg")]


def test_a_list_may_name_folders_patterns_and_addresses(tree):
    (tree / "list.txt").write_text("deep\n*.jpg\nhttp://host/x.jpg\n")
    assert found("list.txt") == ["deep/c.webp", "b.jpg", "http://host/x.jpg"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.txt", "none.txt: cannot be read: No such file"),
        ("outer.txt", "outer.txt: names another list, inner.txt"),
    ],
)
def test_invalid_lists_are_refused(tree, name, message):
    (tree / "outer.txt").write_text("inner.txt\n")
    (place,) = expand([name])
    assert place.kind is MediaKind.BROKEN
    assert place.problem.startswith(message)


def test_hidden_files_are_not_pictures(tree):
    (tree / "deep" / "._c.webp").touch()
    assert found("deep") == ["deep/c.webp"]


def test_unreadable_folder_is_reported(tree):
    closed = tree / "closed"
    closed.mkdir(mode=0o000)
    if os.access(closed, os.R_OK):
        pytest.skip(needs.AS_ROOT)
    (place,) = expand(["closed"])
    assert place.problem == "closed: folder: cannot be read: Permission denied"


def test_names_of_stdin_take_the_place_of_the_dash(tree):
    names = ["b.jpg", "deep"]
    assert found("a.PNG", "-", "x.jpg", stdin=names) == ["a.PNG", "b.jpg", "deep/c.webp", "x.jpg"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jpg", MediaKind.PICTURE),
        ("no-suffix", MediaKind.PICTURE),
        ("clip.MP4", MediaKind.VIDEO),
        ("http://host/a.jpg?size=1", MediaKind.URL),
        ("HTTPS://host/a", MediaKind.URL),
        ("https://host/clip.webm", MediaKind.VIDEO),
        ("http://camera/live.m3u8", MediaKind.LIVE),
        ("rtsp://user:secret@camera:554/1", MediaKind.LIVE),
        ("0", MediaKind.LIVE),
        ("/dev/video1", MediaKind.LIVE),
        ("ftp://host/a.jpg", MediaKind.PICTURE),
        ("http://[", MediaKind.BROKEN),
        ("٣", MediaKind.PICTURE),
    ],
)
def test_kinds(name, kind):
    assert media_of(name).kind is kind


def test_file_named_like_a_camera_is_the_file(tree):
    (tree / "0").touch()
    assert media_of("0").kind is MediaKind.PICTURE


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_impossible_names_are_reported_when_read(name):
    (place,) = expand([name])
    assert place.kind is MediaKind.PICTURE


def test_a_pattern_of_lists_has_a_hint(tree):
    (tree / "a.txt").write_text("a.PNG\n")
    (broken,) = expand(["*.txt"])
    assert broken.problem == (
        "*.txt: a pattern does not find lists. Let the shell expand it: no quotes"
    )
    (tree / "[x].txt").write_text("a.PNG\n")
    assert found("[x].txt") == ["a.PNG"]
