"""tools/codes/benchmark.py measures public sets in their own formats."""

import json
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODES = (  # type of BarBeR and edges in docs/parcel.jpg
    ("PDF417", 129, 545, 274, 703),
    ("AZTEC", 29, 62, 192, 215),
    ("DATAMATRIX", 669, 60, 710, 157),
    ("EAN13", 240, 227, 354, 420),
    ("CODE128", 345, 249, 496, 447),
    ("QR", 543, 377, 606, 439),
)


def corners(left, top, right, bottom):
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def write_barber(folder):
    regions = [
        {
            "shape_attributes": {
                "name": "polygon",
                "all_points_x": [x for x, _ in corners(*edges)],
                "all_points_y": [y for _, y in corners(*edges)],
            },
            "region_attributes": {"Type": kind, "PPE": "2"},
        }
        for kind, *edges in CODES
    ]
    entry = {"filename": "parcel.jpg", "regions": regions}
    unknown = {"filename": "other.jpg", "regions": [{"region_attributes": {"Type": "2D"}}]}
    document = {"_via_img_metadata": {"parcel.jpg123": entry, "other.jpg1": unknown}}
    (folder / "Annotations").mkdir()
    (folder / "Annotations/set.json").write_text(json.dumps(document))
    shutil.copy(folder / "parcel.jpg", folder / "other.jpg")


def write_boofcv(folder):
    edges = CODES[-1][1:]
    numbers = " ".join(f"{value}.0" for point in corners(*edges) for value in point)
    (folder / "parcel.txt").write_text(f"# list of hand selected 2D points\nSETS\n{numbers}\n")


def write_boofcv_of_old(folder):
    lines = "".join(f"{x} {y}\n" for x, y in corners(*CODES[-1][1:]))
    (folder / "parcel.txt").write_text(f"# list of hand selected 2D points\n{lines}")


def write_darknet(folder):
    left, top, right, bottom = (edge / 720 for edge in CODES[-1][1:])
    relative = ((left + right) / 2, (top + bottom) / 2, right - left, bottom - top)
    (folder / "parcel.txt").write_text("0 " + " ".join(map(str, relative)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write", "codes", "line"),
    [
        ("barber", write_barber, 6, "| AP50 | 1.000 | 1.000 | 1.000 |"),
        ("boofcv", write_boofcv, 1, "| recall | 1.000 | 1.000 |  |  |  |  |"),
        ("boofcv", write_boofcv_of_old, 1, "| recall | 1.000 | 1.000 |  |  |  |  |"),
        ("darknet", write_darknet, 1, "| recall | 1.000 | 1.000 |  |  |  |  |"),
    ],
)
def test_a_labelled_set_is_measured(tmp_path, name, write, codes, line):
    shutil.copy(ROOT / "docs/parcel.jpg", tmp_path)
    write(tmp_path)
    command = [sys.executable, "tools/codes/benchmark.py", "--labelled", str(tmp_path)]
    done = subprocess.run(
        [*command, "--format", name, "--processes", "1"],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"1 pictures, {codes} codes\n")
    assert line in done.stdout


def measure(*options):
    return subprocess.run(
        [sys.executable, "tools/codes/benchmark.py", "--processes", "1", *map(str, options)],
        cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


@pytest.mark.slow
def test_codes_that_are_not_small_are_cut_out(tmp_path):
    shutil.copy(ROOT / "docs/parcel.jpg", tmp_path)
    write_barber(tmp_path)
    done = measure("--labelled", tmp_path, "--format", "barber", "--cut-out")
    assert done.stdout.startswith("4 pictures, 4 codes\n"), done.stderr
    assert "| recall | 1.000 |" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--negatives", "--backgrounds", "--labelled"])
def test_a_folder_without_pictures_is_refused(tmp_path, option):
    where = tmp_path / "none"
    shutil.copy(ROOT / "docs/parcel.jpg", tmp_path)
    others = [] if option == "--labelled" else ["--labelled", tmp_path]
    done = measure(*others, option, where)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"Error: {where}: has no pictures: expected .jpeg, .jpg, .png\n"


@pytest.mark.skipif(bool(find_spec("cv2")), reason="OpenCV is installed")
def test_scenes_without_opencv_say_what_to_install():
    done = measure("--scenes", 6)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: scenes need packages. Run: pip install opencv-python-headless")


@pytest.mark.slow
def test_a_blank_line_is_no_label(tmp_path):
    shutil.copy(ROOT / "docs/parcel.jpg", tmp_path)
    write_darknet(tmp_path)
    labels = tmp_path / "parcel.txt"
    labels.write_text(f"\n{labels.read_text()}\n \n")
    assert measure("--labelled", tmp_path).stdout.startswith("1 pictures, 1 codes\n")


CLASSES = "class: expected 0 to 4: qr, datamatrix, aztec, pdf417, barcode"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("5 0.5 0.5 0.1 0.1", f"{CLASSES}; got 5"),
        ("-1 0.5 0.5 0.1 0.1", f"{CLASSES}; got -1"),
        ("0.5 0.5 0.5 0.1 0.1", f"{CLASSES}; got 0.5"),
        ("0 0.5 0.5 0.1", "expected a class and x, y, width, height"),
        ("qr 0.5 0.5 0.1 0.1", "expected a class and x, y, width, height"),
        ("0 0.5 nan 0.1 0.1", "expected a class and x, y, width, height"),
    ],
)
def test_a_line_that_is_no_label_is_refused(tmp_path, monkeypatch, line, reason):
    monkeypatch.syspath_prepend(str(ROOT / "tools/codes"))
    from labelled import photographs
    from photograph import PictureError

    shutil.copy(ROOT / "docs/parcel.jpg", tmp_path)
    labels = tmp_path / "parcel.txt"
    labels.write_text(f"0 0.5 0.5 0.1 0.1\n\n{line}\n")
    with pytest.raises(PictureError) as refused:
        list(photographs("darknet", tmp_path))
    assert str(refused.value) == f"{labels}:3: {reason}"
