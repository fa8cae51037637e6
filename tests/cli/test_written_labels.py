"""Labels that detect wrote count for the pictures that they were written for."""

import shutil

import pytest

from engine import cli
from engine.evaluate import dataset
from engine.outputs import labelled_pictures
from engine.outputs.record import OutputRecord, Owned
from engine.outputs.written_labels import WrittenLabels
from tests.pictures import write_picture


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def detect(tiny_detector, capsys):
    def run(*arguments):
        names = ["--names", str(tiny_detector.names), "--quiet"]
        return cli.main(["detect", *tiny_detector.options, *names, *map(str, arguments)])

    return run


def add(here, *names):
    for seed, name in enumerate(names):
        write_picture(here / name, size=(40, 48), seed=seed)


def read(source, **options):
    """Return the label files in the order of the pictures, and the remarks."""
    truth = dataset.read(source, ["cat"], written=WrittenLabels(), **options)
    return [str(each.relative_to(each.anchor)) for each in truth.label_files], tuple(truth.remarks)


def test_the_last_run_counts_where_names_went_to_others_and_back(here, detect):
    add(here, "pics/a.bmp", "pics/a.jpg", "pics/a.png")
    run = ("pics", "--save-txt", "lab")
    assert detect(*run) == 0
    shutil.move("pics/a.bmp", "away.bmp")
    assert detect(*run, "--overwrite") == 0
    assert read("pics", labels="lab")[0] == ["lab/a.txt", "lab/a-2.txt"]
    shutil.move("away.bmp", "pics/a.bmp")
    assert detect(*run, "--overwrite") == 0
    assert read("pics", labels="lab") == (["lab/a.txt", "lab/a-2.txt", "lab/a-3.txt"], ())


def test_runs_over_a_part_and_over_all_in_turn(here, detect):
    add(here, "pics/cam1/a.jpg", "pics/cam2/a.png")
    every = ("pics", "--recursive", "--flat", "--save-txt", "lab")
    assert detect(*every) == 0
    assert detect("pics/cam2", "--flat", "--save-txt", "lab", "--overwrite") == 0
    assert read("pics/cam2", labels="lab")[0] == ["lab/a.txt"]
    assert detect(*every, "--overwrite") == 0
    assert read("pics/cam2", labels="lab")[0] == ["lab/a-2.txt"]


def test_a_copied_record_still_tells_by_names_and_folders(here, detect):
    add(here, "pics/day1/a.jpg", "pics/day2/a.jpg")
    assert detect("pics", "--recursive", "--flat", "--save-txt", "run1/lab") == 0
    shutil.copytree("run1/lab", "corrected")
    files, remarks = read("pics/day2", labels="corrected")
    assert files == ["corrected/a-2.txt"]
    (remark,) = remarks
    assert "label files that detect wrote for pictures at other places: 1, such as" in remark
    shutil.copytree("run1/lab", "run1/copy")
    assert read("pics/day2", labels="run1/copy") == (["run1/copy/a-2.txt"], ())


def test_numbers_that_no_record_explains_are_told_of(here, detect):
    add(here, "pics/day1/a.jpg", "pics/day2/a.jpg")
    assert detect("pics", "--recursive", "--flat", "--save-txt", "lab") == 0
    assert read("pics/day1", labels="lab") == (["lab/a.txt"], ())
    (here / "lab/.engine-outputs.jsonl").unlink()
    (remark,) = read("pics/day2", labels="lab")[1]
    assert remark == (
        "pics/day2: label files that may be of pictures in other folders: 1, such as lab/a.txt"
        " next to lab/a-2.txt. No record says which"
    )


def test_pictures_and_labels_may_become_a_data_set(here, detect):
    add(here, "pics/day1/a.jpg", "pics/day1/a.png")
    assert detect("pics", "--recursive", "--save-txt", "run1/lab") == 0
    shutil.copytree("pics", "ds/images")
    shutil.copytree("run1/lab", "ds/labels")
    files, _ = read("ds/images/day1")
    assert [each.rpartition("/")[2] for each in files] == ["a.txt", "a-2.txt"]


def test_a_label_file_is_found_when_the_plain_name_is_gone(here, detect):
    add(here, "images/a.jpg", "images/a.png")
    assert detect("images", "--save-txt", "labels") == 0
    files, remarks = read("images")
    assert [each.rpartition("/")[2] for each in files] == ["a.txt", "a-2.txt"]
    assert remarks == ()
    (here / "images/a.jpg").unlink()
    (here / "labels/a.txt").unlink()
    files, remarks = read("images")
    assert ([each.rpartition("/")[2] for each in files], remarks) == (["a-2.txt"], ())


def test_labels_made_by_hand_come_before_those_of_a_run(here, detect):
    add(here, "images/a.jpg")
    (here / "images/a.txt").write_text("0 .5 .5 1 1\n")
    assert detect("images", "--save-txt", "labels") == 0
    assert read("images")[0] == ["images/a.txt"]
    for hand in ("day1/a.jpg", "day2/a.jpg"):
        add(here, f"more/{hand}")
    assert detect("more/day1", "--save-txt", "lab/day1") == 0
    (here / "lab/day2").mkdir()
    (here / "lab/day2/a.txt").write_text("0 .5 .5 1 1\n")
    (here / "list.txt").write_text("more/day1/a.jpg\nmore/day2/a.jpg\n")
    assert read("list.txt", labels="lab") == (["lab/day1/a.txt", "lab/day2/a.txt"], ())


def test_numbered_labels_next_to_their_pictures_are_refused_at_once(here, detect, capsys):
    add(here, "v/a.jpg", "v/m.jpg", "v/m.png")
    assert detect("v", "--save-txt", "v") == 2
    told = capsys.readouterr().err
    assert "--save-txt v: m-2.txt next to v/m.png would not be its labels. Name another" in told
    assert not list((here / "v").glob("*.txt"))


def test_labels_made_by_hand_may_be_of_each_picture_of_that_name(here, detect):
    add(here, "pics/x.jpg", "pics/x.png", "pics/y.jpg")
    (here / "lab").mkdir()
    for name in ("x", "y"):
        (here / "lab" / f"{name}.txt").write_text("0 .5 .5 1 1\n")
    for _ in range(2):
        (remark,) = (each for each in read("pics", labels="lab")[1] if "fit several" in each)
        assert "label files whose names fit several pictures: 1, such as" in remark
        assert detect("pics", "--save-txt", "lab", "--resume") == 0


def test_moved_pictures_are_known_by_a_folder_and_their_name(here, detect):
    add(here, *(f"p/{cam}/day1/a.jpg" for cam in ("cam1", "cam2")))
    assert detect("p/cam1", "--recursive", "--save-txt", "lab") == 0
    assert detect("p/cam2", "--recursive", "--save-txt", "lab", "--resume") == 0
    shutil.move("p", "away")
    shutil.move("lab/day1/a.txt", "lab/day1/away.txt")
    files, remarks = read("away/cam2/day1", labels="lab")
    assert (files, len(remarks)) == (["lab/day1/a-2.txt"], 1)


def test_labels_of_a_picture_are_those_of_no_other(here, detect):
    add(here, "pics/a.jpg", "pics/b.jpg")
    assert detect("pics", "--save-txt", "lab") == 0
    add(here, "pics/a.png")
    truth = dataset.read("pics", ["cat"], labels="lab", written=WrittenLabels())
    (remark,) = truth.remarks
    assert truth.unlabelled == 1
    assert "label files skipped, which detect wrote for other pictures: 1, such as" in remark
    assert "a.jpg and not for pics/a.png. If the names are right, remove " in remark
    assert remark.endswith("lab/.engine-outputs.jsonl")


def test_labels_in_another_format_are_told_of_next_to_those_of_a_run(here, detect):
    add(here, "JPEGImages/a.jpg")
    (here / "Annotations").mkdir()
    (here / "Annotations/a.xml").write_text("<annotation/>")
    assert read("JPEGImages") == (["Annotations/a.xml"], ())
    assert detect("JPEGImages", "--save-txt", "labels") == 0
    (remark,) = read("JPEGImages")[1]
    assert "other labels in a second place: 1, such as" in remark


@pytest.mark.parametrize("has_plain", [True, False])
def test_records_below_a_folder_of_labels_count(here, detect, has_plain):
    add(here, "pics/cam1/x.jpg", "pics/cam1/x.png", "pics/cam2/x.jpg")
    for cam in ("cam1", "cam2"):
        assert detect(f"pics/{cam}", "--save-txt", f"lab/{cam}") == 0
    expected = ["lab/cam1/x.txt", "lab/cam1/x-2.txt"]
    if not has_plain:
        (here / expected.pop(0)).unlink()
    assert read("pics/cam1", labels="lab") == (expected, ())
    (here / "list.txt").write_text("pics/cam1/x.png\npics/cam2/x.jpg\n")
    files = ["lab/cam1/x-2.txt", "lab/cam2/x.txt"]
    assert read("list.txt", labels="lab") == (files, ())


def test_a_broken_picture_that_a_run_tries_again_has_no_labels(here, detect):
    add(here, "pics/a.jpg")
    (here / "pics/b.jpg").write_bytes(b"broken")
    run = ("pics", "--save-txt", "lab")
    for _ in range(2):
        assert detect(*run, "--resume") == 1
    add(here, "pics/b.jpg")
    mine = here / "lab/b.txt"
    mine.write_text("0 .5 .5 1 1\n")
    assert WrittenLabels().picture_of(mine) is None
    assert detect(*run, "--resume") == 0
    assert detect(*run, "--overwrite") == 2
    assert mine.read_text() == "0 .5 .5 1 1\n"


@pytest.mark.parametrize("options", [("--save-txt", "lab"), ("--save-txt", "lab", "--flat")])
@pytest.mark.parametrize("moves", [False, True])
def test_labels_of_another_folder_count_for_no_picture_without_its_own(
    here, detect, options, moves
):
    add(here, "pics/cam1/day1/a.jpg", "pics/cam1/day1/b.jpg", "pics/cam2/day1/a.jpg")
    assert detect("pics", "--recursive", *options) == 0
    shutil.copy("pics/cam2/day1/a.jpg", "pics/cam2/day1/b.jpg")
    if moves and "--flat" not in options:
        (here / "away").mkdir()
        shutil.move("pics", "away/pics")
        shutil.move("lab", "away/lab")
    base = "away/" if (here / "away").exists() else ""
    truth = dataset.read(
        f"{base}pics/cam2/day1", ["cat"], labels=f"{base}lab", written=WrittenLabels()
    )
    told = [each for each in truth.remarks if "pictures at other places" in each]
    assert (truth.unlabelled, told) == (1, [])


def test_another_picture_of_the_same_path_has_its_labels_with_a_line(here, detect):
    add(here, "pics/cam1/a.png", "pics/cam2/a.jpg")
    assert detect("pics", "--recursive", "--save-txt", "lab") == 0
    (here / "pics/cam2/a.jpg").unlink()
    add(here, "pics/cam2/a.png")
    files, remarks = read("pics/cam2", labels="lab")
    assert (files, len(remarks)) == (["lab/cam2/a.txt"], 1)


def test_several_moved_pictures_of_one_name_have_no_labels_but_a_line(here, detect):
    add(here, *(f"p/{cam}/day1/a.jpg" for cam in ("cam1", "cam2")))
    assert detect("p", "--recursive", "--flat", "--save-txt", "lab") == 0
    shutil.move("p", "away")
    files, remarks = read("away/cam2/day1", labels="lab")
    assert (files, len(remarks)) == ([], 1)
    assert "skipped" in remarks[0]
    (here / "lab/.engine-outputs.jsonl").unlink()
    assert read("away/cam2/day1", labels="lab")[0] == ["lab/a.txt"]


def test_labels_of_a_folder_and_not_of_images_are_counted_once(here, detect):
    add(here, *(f"p/{day}/{name}.jpg" for day in ("day1", "day2") for name in "ab"))
    assert detect("p", "--recursive", "--flat", "--save-txt", "set/labels") == 0
    shutil.copytree("p/day1", "set/images")
    shutil.rmtree("p")
    (remark,) = read("set")[1]
    assert "label files skipped, which detect wrote for other pictures: 2, such as" in remark


def test_a_copy_of_a_picture_has_its_labels(here, detect):
    add(here, "p/day1/a.jpg", "p/day2/a.jpg")
    assert detect("p", "--recursive", "--flat", "--save-txt", "lab") == 0
    (here / "chosen").mkdir()
    shutil.copy("p/day2/a.jpg", "chosen/a.jpg")
    assert read("chosen", labels="lab")[0] == ["lab/a-2.txt"]
    add(here, "other/x.jpg", "other/y.jpg", "other/a.jpg")  # of another scene
    assert read("other", labels="lab")[0] == []


def test_a_record_above_the_current_folder_counts(here, detect, monkeypatch):
    add(here, "p/day1/a.jpg", "p/day1/a.png")
    assert detect("p", "--recursive", "--save-txt", "lab") == 0
    monkeypatch.chdir("lab/day1")
    assert read("../../p/day1", labels=".") == (["a.txt", "a-2.txt"], ())


def test_labels_of_the_frames_of_a_video_count_as_written(here):
    lines = OutputRecord("lab", lambda owned: owned.name, ("labels",))
    (here / "lab/day1").mkdir(parents=True)
    for name, source in (("day1/v", "day1/v.mp4"), ("x", "x.jpg")):
        lines.claim(Owned(name, str(here / "pics" / source)))
    written = ["day1/v_000001", "day1/v_1234567", "x"]
    for name in (*written, "v_000001", "day1/v_1", "day1/w_000001", "x_000001"):
        (here / "lab" / f"{name}.txt").write_text("0 .5 .5 1 1\n")
    files = sorted((here / "lab").rglob("*.txt"))
    assert [
        str(each.relative_to(here / "lab"))
        for each in list(filter(WrittenLabels().is_as_written, files))
    ] == [f"{each}.txt" for each in written]
    frame = here / "lab/day1/v_000001.txt"  # an extracted frame may have it, too
    assert WrittenLabels().picture_of(frame) is None


def test_corrected_labels_are_not_those_of_a_run(here, detect):
    add(here, "pics/a.jpg", "pics/b.jpg")
    assert detect("pics", "--save-txt", "labels") == 0
    for count, which in enumerate(("a.txt", "b.txt"), start=1):
        (line,) = labelled_pictures.read("pics", ["cat"]).remarks
        assert f"detect wrote {3 - count} of 2 label files, such as" in line
        (here / "labels" / which).write_text("0 .5 .5 1 1\n")
    assert labelled_pictures.read("pics", ["cat"]).remarks == []
    (here / "labels" / ".engine-labels.jsonl").unlink()  # then nobody knows
    assert len(labelled_pictures.read("pics", ["cat"]).remarks) == 1
