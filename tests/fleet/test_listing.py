"""Names → pictures of folders, patterns, lists, Parquet files and object stores, in shards."""

import io
import os
import re
import subprocess
import sys
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from tests import needs

pytest.importorskip("pyarrow", reason=needs.advice("pyarrow"))

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet

from engine.errors import ImageError, InputError
from engine.fleet import listing, shard_plan, storage
from engine.fleet.listing import Entry, list_entries, read_entry
from engine.fleet.storage import Folder
from engine.vision import extensions
from engine.vision.image import read
from tests.fleet.expected import write_pictures


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "pictures", 5)
    write_pictures(tmp_path / "pictures" / "more", 2)
    return tmp_path / "pictures"


def write_table(path, columns, rows_at_once=2):
    pyarrow.parquet.write_table(pa.table(columns), path, row_group_size=rows_at_once)


def names_in(found):
    return [Path(each.name).name for each in found]


def test_folders_patterns_and_lists_as_without_a_cluster(folder):
    every = [str(folder / f"{number:04}.png") for number in range(5)]
    assert [each.name for each in list_entries(["pictures"])] == every
    assert [each.name for each in list_entries(["pictures/*3.png"])] == [every[3]]
    assert len(list(list_entries(["pictures"], recursive=True))) == 7
    Path("list.txt").write_text(f"pictures/0001.png\nhttp://camera/x.jpg\nfile://{every[2]}\n")
    found = [every[1], "http://camera/x.jpg", every[2]]
    assert [each.name for each in list_entries(["list.txt"])] == found
    assert [each.name for each in list_entries(["-"], stdin=["pictures/0004.png"])] == [every[4]]


def test_name_that_matches_nothing_is_a_row_with_an_error(folder):
    for name in ("no-*.png", "pictures/none", "no.txt", "file:///no/where", "nope://host/x"):
        ((_, wanted),) = [pair for each in list_entries([name]) for pair in read_entry(each)]
        with pytest.raises(ImageError):
            raise wanted if isinstance(wanted, ImageError) else read(wanted)


def test_a_name_that_is_not_there_is_a_problem_and_no_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lost, other = list_entries(["lost", "lost.jpg"])
    assert (lost.problem, other.problem) == (
        "lost: no such file or folder",
        "lost.jpg: no such file or folder",
    )


def test_videos_and_cameras_are_refused():
    for name, kind in (("street.mp4", "a video"), ("/dev/video0", "a camera")):
        with pytest.raises(InputError, match=f"{name}: expected pictures, got {kind}"):
            list(list_entries([name]))


@pytest.mark.parametrize("name", ["http://me:secret@host/a.jpg", "s3://me:secret@host/a.jpg"])
def test_a_login_does_not_get_into_results(tmp_path, name):
    (tmp_path / "list.txt").write_text(name)
    expected = "host/a.jpg: expected an address without user and password"
    with pytest.raises(InputError, match=expected) as caught:
        list(list_entries([str(tmp_path / "list.txt")]))
    assert "secret" not in str(caught.value)


def test_stores_are_listed_like_folders(folder):
    store = f"file://{folder}"
    assert [each.name for each in list_entries([store])] == [
        f"{store}/{number:04}.png" for number in range(5)
    ]
    assert len(list(list_entries([store], recursive=True))) == 7
    assert names_in(list_entries([f"{store}/000[12].png"])) == ["0001.png", "0002.png"]
    assert names_in(list_entries([f"{store}/more/*.png"])) == ["0000.png", "0001.png"]
    assert names_in(list_entries([f"{store}/0003.png"])) == ["0003.png"]
    ((name, wanted),) = read_entry(next(list_entries([store])))
    assert name == f"{store}/0000.png"
    assert read(wanted).pixels.tobytes() == read(str(folder / "0000.png")).pixels.tobytes()


@pytest.mark.parametrize(
    "pattern",
    [
        *("*.png", "**/*.png", "*/*.png", "**", "**/*", "*", "m*", "m*/", ".*", ".*/*", "*/.*"),
        *(
            "more",
            "more/000[!1].png",
            "no*",
            "more/**",
            "**/more/*",
            "**/",
            "*/",
            "[[]1].png",
            "[1].png",
        ),
    ],
)
@pytest.mark.parametrize("recursive", [False, True])
def test_a_pattern_in_a_store_finds_what_it_finds_on_a_disk(folder, pattern, recursive):
    write_pictures(folder / ".hidden", 1)
    write_pictures(folder / "more" / "deeper", 2)
    for name in (".0009.png", "more/.0008.png", "[1].png", "more/more.txt"):
        (folder / name).write_bytes((folder / "0000.png").read_bytes())
    names = [f"{top}/{pattern}" for top in (folder, f"file://{folder}")]
    disk, store = (
        {
            (each.name, bool(each.problem), "no file matches" in (each.problem or ""))
            for each in list_entries([name], recursive=recursive)
        }
        for name in names
    )
    assert {(name.removeprefix("file://"), *more) for name, *more in store} == disk


def test_videos_in_a_store_are_refused(folder):
    (folder / "clip.mp4").touch()
    for name in ("*", "clip.mp4"):
        told = r"pictures/clip\.mp4: expected pictures, got a video"
        with pytest.raises(InputError, match=told):
            list(list_entries([f"file://{folder}/{name}"]))


@pytest.mark.parametrize("options", ["", "?region=eu-central-1&scheme=http"])
def test_options_of_a_store_are_not_a_pattern(folder, monkeypatch, options):
    """A store on S3 is replaced by this disk; its options travel with every name."""
    asked = []

    def store(root):
        asked.append(root)
        disk = pyarrow.fs.LocalFileSystem()
        above, bucket = os.path.split(folder.parent)
        return pyarrow.fs.SubTreeFileSystem(above, disk), bucket

    monkeypatch.setattr(storage, "_store", store)
    names = [f"s3://bucket/pictures/{number:04}.png{options}" for number in range(5)]
    for name in ("s3://bucket/pictures", "s3://bucket/pictures/"):
        assert [each.name for each in list_entries([name + options])] == names
    found = list_entries([f"s3://bucket/pictures/000[12].png{options}"])
    assert [each.name for each in found] == names[1:3]
    assert [each.name for each in list_entries([names[3]])] == [names[3]]
    assert len(list(list_entries([f"s3://bucket/pictures{options}"], recursive=True))) == 7
    ((_, wanted),) = read_entry(Entry(names[0]))
    assert read(wanted).pixels.tobytes() == read(str(folder / "0000.png")).pixels.tobytes()
    assert set(asked) == {f"s3://bucket/{options}"}


def write_archive(path, folder, *, copies=1):
    """Write a WebDataset: each picture next to a file of its class."""
    with tarfile.open(path, "w") as archive:
        for copy in range(copies):
            for each in sorted(folder.glob("*.png")):
                archive.add(each, f"train/{copy:03}-{each.name}")
                about = tarfile.TarInfo(f"train/{copy:03}-{each.stem}.cls")
                about.size = 1
                archive.addfile(about, io.BytesIO(b"7"))


def test_tar_files_are_read_in_parts(folder):
    write_archive("set.tar", folder, copies=30)
    found = list(list_entries(["set.tar"]))
    assert [each.pictures for each in found] == [64, 64, 22]
    read_back = [pair for each in found for pair in read_entry(each)]
    inside = [f"train/{copy:03}-{number:04}.png" for copy in range(30) for number in range(5)]
    assert [name for name, _ in read_back] == [f"{folder.parent}/set.tar#{each}" for each in inside]
    for number, (name, wanted) in enumerate(read_back):
        assert wanted.name == name
        expected = (folder / f"{number % 5:04}.png").read_bytes()
        assert wanted.read() == expected
    store = f"file://{folder.parent}"
    assert [each.pictures for each in list_entries([f"{store}/set.tar"])] == [64, 64, 22]
    Path("sets").mkdir()
    Path("set.tar").rename("sets/set.tar")
    assert [each.pictures for each in list_entries(["sets/*"])] == [64, 64, 22]
    out = Folder(str(folder.parent / "out"))
    out.write(listing.PLAN, shard_plan.make(found, 100).content)
    assert [
        each for shard in range(2) for each in shard_plan.ShardPlan(out).entries(shard)
    ] == found


@pytest.mark.parametrize("store", [False, True])
def test_tar_files_in_a_folder_are_left_out_and_counted(folder, caplog, store):
    Path("mixed").mkdir()
    (folder / "0000.png").rename("mixed/a.png")
    write_archive("mixed/m.tar", folder)
    name = f"file://{folder.parent}/mixed" if store else "mixed"
    assert names_in(list_entries([name])) == ["a.png"]
    (record,) = caplog.records
    assert record.getMessage().startswith(f"{name}: only pictures of a folder are read, skipped: 1")
    assert record.getMessage().endswith(f" Name them, as with a pattern: '{name}/*'")
    assert names_in(list_entries([f"{name}/*"])) == ["a.png", "m.tar"]
    Path("mixed/a.png").unlink()
    (nothing,) = list_entries([name])
    assert "has no pictures" in nothing.problem


@pytest.mark.parametrize("has_extra", [False, True])
def test_other_formats_in_a_store_are_counted_or_read(folder, caplog, monkeypatch, has_extra):
    monkeypatch.setattr(extensions, "has_extra", lambda: has_extra)
    (folder / "0000.png").rename(folder / "0000.heic")
    (folder / "._0000.jpg").touch()
    found = names_in(list_entries([f"file://{folder}"]))
    assert found[:2] == [*["0000.heic"] * has_extra, "0001.png", "0002.png"][:2]
    texts = [each.getMessage() for each in caplog.records]
    assert [f"file://{folder}: files in formats that cannot be" in each for each in texts] == [
        True
    ] * (not has_extra)


def test_a_damaged_tar_file_keeps_what_is_intact(folder):
    write_archive("set.tar", folder)
    whole = Path("set.tar").read_bytes()
    Path("set.tar").write_bytes(whole[: len(whole) // 3])
    *parts, problem = list_entries(["set.tar"])
    assert 0 < sum(each.pictures for each in parts) <= 5
    assert "set.tar: archive: cannot be read: " in problem.problem
    Path("set.tar").write_bytes(b"no archive" * 100)
    (problem,) = list_entries(["set.tar"])
    assert "set.tar: archive: cannot be read" in problem.problem
    with tarfile.open("empty.tar", "w"):
        pass
    (problem,) = list_entries(["empty.tar"])
    assert problem.problem.endswith("empty.tar: archive: has no pictures")
    write_archive("cut.tar", folder)
    (part,) = list_entries(["cut.tar"])
    Path("cut.tar").write_bytes(b"")
    assert [type(wanted) for _, wanted in read_entry(part)] == [ImageError] * part.pictures


def test_parquet_files_hold_bytes_paths_or_structs(folder):
    paths = sorted(str(each) for each in folder.glob("*.png"))
    content = [Path(each).read_bytes() for each in paths]
    write_table("bytes.parquet", {"bytes": content, "label": [1, 2, 3, 4, 5]})
    write_table("named.parquet", {"bytes": content, "path": paths})
    write_table("paths.parquet", {"path": [f"pictures/{Path(each).name}" for each in paths]})
    structs = [{"bytes": each, "path": None} for each in content]
    write_table("structs.parquet", {"image": structs})
    for name, called in (
        ("bytes.parquet", [f"{folder.parent}/bytes.parquet#{row}" for row in range(5)]),
        ("named.parquet", paths),
        ("paths.parquet", paths),
        ("structs.parquet", [f"{folder.parent}/structs.parquet#{row}" for row in range(5)]),
    ):
        found = list(list_entries([name]))
        assert [each.pictures for each in found] == [2, 2, 1]
        rows = [pair for each in found for pair in read_entry(each)]
        assert [name for name, _ in rows] == called
        pixels = [read(wanted).pixels.tobytes() for _, wanted in rows]
        assert pixels == [read(path).pixels.tobytes() for path in paths]


def test_a_folder_of_parquet_files(folder):
    Path("set").mkdir()
    for name in ("a", "b"):
        write_table(f"set/{name}.parquet", {"bytes": [b"x"] * 3})
    assert [each.pictures for each in list_entries(["set"])] == [2, 1, 2, 1]
    assert [each.pictures for each in list_entries([f"file://{folder.parent}/set"])] == [2, 1, 2, 1]


def test_a_parquet_file_that_breaks_off_has_an_error_for_each_row(folder):
    write_table("set.parquet", {"bytes": [os.urandom(9000) for _ in range(4)]}, 4)
    (entry,) = list_entries(["set.parquet"])
    whole = Path("set.parquet").read_bytes()
    Path("set.parquet").write_bytes(whole[:4] + bytes(30000) + whole[30004:])
    rows = list(read_entry(entry))
    assert [re.sub(".*#", "", name) for name, _ in rows] == ["0", "1", "2", "3"]
    assert all(isinstance(wanted, ImageError) for _, wanted in rows)
    Path("set.parquet").write_bytes(b"PAR1 and no more")
    (broken,) = list_entries(["set.parquet"])
    assert "table: cannot be read" in broken.problem


def test_a_parquet_file_without_pictures_is_refused(folder):
    write_table("numbers.parquet", {"x": [1]})
    with pytest.raises(InputError, match=r"numbers\.parquet: column: expected bytes or .* got x"):
        list(list_entries(["numbers.parquet"]))


def test_plan_assigns_entries_to_shards(tmp_path):
    stray = b"caf\xe9.jpg".decode("utf-8", "surrogateescape")
    every = [
        *(Entry(f"{number}.jpg") for number in range(5)),
        Entry("a.parquet", 4, 0),
        Entry("a.parquet", 9, 1, 4),
        Entry(stray, problem=f"{stray}: no"),
    ]
    folder = Folder(str(tmp_path / "out"))
    made = shard_plan.make(every, 4)
    folder.write(listing.PLAN, made.content)
    assert (made.shards, made.pictures) == (5, 19)
    read_back = shard_plan.ShardPlan(folder)
    dealt = [read_back.entries(shard) for shard in range(5)]
    assert dealt == [every[:4], every[4:5], every[5:6], every[6:7], every[7:]]


def test_a_picture_that_is_named_twice_is_planned_once(folder):
    out = Folder(str(folder.parent / "out"))
    made = shard_plan.make(list_entries(["pictures/0003.png", "pictures", f"file://{folder}/*"]), 2)
    out.write(listing.PLAN, made.content)
    plan = shard_plan.ShardPlan(out)
    names = names_in(each for shard in range(plan.shards) for each in plan.entries(shard))
    stores = names_in(list_entries([f"file://{folder}/*"]))  # where it has another name
    assert names == ["0003.png", "0000.png", "0001.png", "0002.png", "0004.png", *stores]


@pytest.mark.slow
def test_a_plan_keeps_no_names():
    """The names of a million pictures took 200 MB, only to find those that are given twice."""
    entries = (Entry(f"/{'folder' * 50}/{number % 20_000}.jpg") for number in range(40_000))
    planned = {}
    tracemalloc.start()
    try:
        count = sum(1 for _ in shard_plan._unplanned(entries, planned))
        assert tracemalloc.get_traced_memory()[0] < 200 * count
    finally:
        tracemalloc.stop()
    assert count == len(planned) == 20_000


def test_parts_of_files_are_planned_once():
    part = Entry("a\udcff.tar", 3, offset=512)
    entries = [part, part._replace(offset=1024), part._replace(offset=None, row_group=512), part]
    planned = {}
    assert list(shard_plan._unplanned(entries, planned)) == entries[:3]
    changed = part._replace(pictures=4)
    with pytest.raises(InputError, match=r"a\\udcff\.tar: has changed since the run began"):
        list(shard_plan._unplanned([changed], planned))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pictures", "shards"), [(1, 1), (33, 2), (5000, 100), (100_000, 100), (150_001, 151)]
)
def test_size_of_shards_is_bounded(pictures, shards):
    every = (Entry(f"{number}.jpg") for number in range(pictures))
    made = shard_plan.make(every)
    assert (made.shards, made.pictures) == (shards, pictures)


def test_names_in_stores():
    bucket = "s3://bucket/some?where?region=eu-1&scheme=http"
    assert storage.resolve(bucket, "a.jpg") == "s3://bucket/a.jpg?region=eu-1&scheme=http"
    assert storage.resolve("/data/set.parquet", "a.jpg") == "/data/a.jpg"
    assert storage.resolve("/data/set.parquet", "/b/a.jpg") == "/b/a.jpg"
    assert storage.resolve("/data/set.parquet", "s3://b/a.jpg") == "s3://b/a.jpg"
    assert storage.is_remote("s3://b/a.jpg")
    assert not storage.is_remote("rtsp://camera/1")
    assert not storage.is_remote("a/b.jpg")


def test_files_are_written_atomically(tmp_path):
    folder = Folder(str(tmp_path / "a" / "b"))
    assert folder.names() == set()
    folder.write("x", b"one")
    folder.write("x", b"two")
    assert (folder.names(), folder.read("x")) == ({"x"}, b"two")
    assert (folder.has("x"), folder.has("y")) == (True, False)
    assert [each.name for each in (tmp_path / "a" / "b").iterdir()] == ["x"]
    folder.delete("x")
    assert folder.names() == set()


def test_what_a_killed_worker_left_is_removed(tmp_path):
    """A run that is resumed leaves nothing but its results in the folder."""
    code = """
import os, sys
from engine.fleet.storage import Folder

class Killed:
    def __getattr__(self, name):
        return getattr(files, name) if name != "move" else os._exit(9)

folder = Folder(sys.argv[1])
files, folder._files = folder._files, Killed()
folder.write("x", b"one")
"""
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert (killed.returncode, len(list(tmp_path.iterdir()))) == (9, 1)
    Folder(str(tmp_path)).write("x", b"two")
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_relative_folder_is_made_absolute_for_workers(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = Folder("out")
    folder.write("x", b"one")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert Folder(folder.name).read("x") == b"one"


def test_unusable_folder_is_one_error_line(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/in: cannot be written: [^\n]+$"):
        Folder(str(tmp_path / "file" / "in")).write("x", b"")
    with pytest.raises(InputError, match="cannot be read"):
        Folder(str(tmp_path)).read("none")
    with pytest.raises(InputError, match="nope://x: cannot be opened"):
        Folder("nope://x")


def test_an_fsspec_store(tmp_path):
    needs.package("fsspec")
    folder = Folder("memory://bucket/results")
    folder.write("x", b"one")
    assert (folder.names(), folder.read("x")) == ({"x"}, b"one")
    assert names_in(listing.list_entries(["memory://bucket/results/x"])) == ["x"]


def test_the_results_of_a_run_are_no_pictures(folder):
    results = folder / "found"
    results.mkdir()
    (results / "run.json").write_text("{}")
    write_table(results / "pictures.parquet", {"name": ["a"], "row_group": [0]})
    write_table(results / "shard-0.parquet", {"path": ["a.png"]})
    for where in ("pictures", f"file://{folder}"):
        found = list(list_entries([where], recursive=True))
        assert sorted(names_in(found)) == sorted(
            [f"{number:04}.png" for number in (0, 1, 2, 3, 4, 0, 1)]
        )
