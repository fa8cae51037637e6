"""examples/: every program runs as its page says."""

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needs
from tests.pictures import write_picture, write_video

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted(path.name for path in (ROOT / "examples").glob("*.py"))

# The text that each program prints, or the file that it writes.
EXPECTED = {
    "01_one_picture.py": (r"pdf417 0\.90 at 132, 542", "found.png"),
    "02_folder_to_csv.py": (r"parcel\.jpg,\d+,pdf417,0\.8", "found.csv"),
    "03_batches.py": (r"7 boxes, of which 1 sure", None),
    "04_camera_frames.py": (r"3 7 \d+ ms", None),
    "05_video.py": (r"10 \{", None),
    "06_crops_and_labels.py": (r"crops.pdf417.parcel\.jpg", "dataset/parcel.txt"),
    "07_choose_boxes.py": (r"2 barcode, 1 qr", None),
    "08_classify.py": (r"w \d\.\d{3}", None),
    "09_threads.py": (r"parcel\.jpg, 720 x 720: 2 barcode", None),
    "10_own_server.py": (r"request 1: picture: .*\n\{", None),
    "11_opencv_dnn.py": (r"pdf417 0\.\d+ \[", None),
    "12_ultralytics.py": (
        r"1 qr, 2 datamatrixs, 1 aztec, 1 pdf417, 2 barcodes, ",
        "runs/detect/predict/parcel.jpg",
    ),
    "13_track.py": (r"frame 19: dog #1 at 300\n.*'in': \{\}, 'out': \{'dog': 1\}", None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_runs(tmp_path, monkeypatch, capsys, tiny_classifier, name):
    for folder in ("cfg", "weights", "docs"):
        if name.startswith(("02", "06")) and folder == "docs":  # which read or fill the folder
            (tmp_path / "docs").mkdir()
            shutil.copy(ROOT / "docs" / "parcel.jpg", tmp_path / "docs")
        else:
            (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    arguments = []
    if name == "05_video.py":
        needs.package("av")
        arguments = [str(write_video(tmp_path / "street.mp4", count=21))]
    elif name == "08_classify.py":
        picture = write_picture(tmp_path / "a.png")
        arguments = [str(tiny_classifier.cfg), str(tiny_classifier.weights), str(picture)]
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    printed, written = EXPECTED[name]
    assert re.search(printed, capsys.readouterr().out)
    assert written is None or (tmp_path / written).is_file()


@pytest.mark.parametrize("name", ["05_video.py", "08_classify.py"])
def test_without_its_arguments_it_says_what_it_needs(monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [name])
    with pytest.raises(SystemExit, match=f": python {name} "):
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def test_every_program_is_listed():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\((\S+\.py)\)", page) == PROGRAMS == list(EXPECTED)
    assert len(PROGRAMS) == 13


@pytest.mark.slow
def test_type_checkers_know_what_a_call_gives(tmp_path):
    """The programs are checked with the engine itself; here the types are named."""
    needs.package("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import engine\n"
        "from engine.compat.ultralytics import YOLO\n"
        "with engine.load() as detector:\n"
        "    one: engine.Result = detector('a.jpg')\n"
        "    many: list[engine.Result] = detector(['a.jpg'])\n"
        "    kind: engine.Classification = detector.classify('a.jpg')\n"
        "    wrong: int = detector('a.jpg')\n"
        "    for each in detector.stream('docs', on_error='yield'):\n"
        "        reveal_type(each)\n"
        "for result in YOLO('my.cfg').predict('a.jpg'):\n"
        "    for box in result.boxes:\n"
        "        print(box.xyxy[0].tolist(), result.plot().shape, result.plot(pil=True).size)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert len(errors) == 1, done.stdout
    assert ":7: error: Incompatible types" in errors[0]
    assert (
        'Revealed type is "engine.vision.result.Result | engine.errors.ImageError"' in done.stdout
    )


NOTEBOOKS = sorted((ROOT / "examples/notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_shows(monkeypatch, capsys, path):
    """Execute the cells of code; what they print is what the file keeps."""
    monkeypatch.chdir(path.parent)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    known = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), path.name, "exec"), known)
            kept = [each for each in cell["outputs"] if each.get("name") == "stdout"]
            shown = "".join("".join(each["text"]) for each in kept)
            words, numbers = split_at_numbers(capsys.readouterr().out)
            assert words == split_at_numbers(shown)[0]
            assert numbers == pytest.approx(split_at_numbers(shown)[1], rel=0.01, abs=0.02)


def split_at_numbers(text):
    number = r"-?\d+(?:\.\d+)?"
    return re.sub(number, "0", text), [float(each) for each in re.findall(number, text)]


def test_every_notebook_is_listed():
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"\]\(notebooks/(\S+)\)", page) == [path.name for path in NOTEBOOKS]
    assert len(NOTEBOOKS) == 4
