"""docs/from-*.md: old and new programs run; old ones are only compiled without the old library."""

import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.vision.image import read
from tests import needs
from tests.compat.cv2_dnn.cases import small_model
from tests.pictures import write_picture

DOCS = Path(__file__).parents[1] / "docs"
PROGRAMS = [
    (page.name, number, code)
    for page in sorted(DOCS.glob("from-*.md"))
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]
PAGES = sorted({page for page, _, _ in PROGRAMS})
MODULES = {
    "from-darknet.md": "darknet",
    "from-opencv.md": "cv2",
    "from-ultralytics.md": "ultralytics",
}  # what an old program needs


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    for file in small_model(tmp_path, "detector"):
        file.rename(tmp_path / f"my{file.suffix}")
    cfg = (tmp_path / "my.cfg").read_text()
    # At 416 x 416 it would suppress 11,661 boxes, in seconds; tests/compat/cv2_dnn test that.
    (tmp_path / "my.cfg").write_text(cfg.replace("nms_threshold=0.3\n", ""))
    (tmp_path / "my.names").write_text("cat\ndog\n")
    (tmp_path / "obj.data").write_text("classes = 2\nnames = my.names\n")
    write_picture(tmp_path / "dog.jpg", (120, 90))
    write_picture(tmp_path / "pictures" / "cat.jpg", (120, 90))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("page", "code"),
    [(page, code) for page, _, code in PROGRAMS],
    ids=[f"{page}-{number}" for page, number, _ in PROGRAMS],
)
def test_programs_run_as_printed(fresh, page, code):
    program = compile(code, page, "exec")
    kind, library = re.match(r"# (old|new): (.*)", code).groups()
    module = MODULES[page]
    if kind == "old" and not _is_old(module):
        pytest.skip(f"{library} is not installed: the program was only compiled")
    if re.search(rf"^import {module}$", code, re.MULTILINE):
        needs.package(module)
    exec(program, {})


@pytest.mark.parametrize("file", ["docs/from-opencv.md", "examples/11_opencv_dnn.py"])
def test_without_opencv_a_picture_is_read_as_imread_reads_it(fresh, file):
    text = (DOCS.parent / file).read_text(encoding="utf-8")
    lines = r"^(?:import numpy|from PIL|picture =|frame = np).*\n"
    reading = "".join(re.findall(lines, text, re.MULTILINE))
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.open("dog.jpg").save("dog.jpg", exif=exif)
    known = {}
    exec(reading.replace("docs/parcel.jpg", "dog.jpg"), known)
    np.testing.assert_array_equal(known["frame"], read("dog.jpg").pixels[..., ::-1])


def test_the_conversion_of_16_bit_grey_keeps_upper_bytes():
    text = (DOCS / "from-opencv.md").read_text(encoding="utf-8")
    conversion = re.search(r"`(Image\.fromarray\(.*\))`", text)[1]
    values = np.array([[0, 255, 256, 40000, 65535]], np.uint16)
    picture = eval(conversion, {"Image": Image, "np": np, "picture": Image.fromarray(values)})
    assert np.asarray(picture).tolist() == [[0, 0, 1, 156, 255]]


def _is_old(module):
    """Return whether the library has what the old program needs, also after install()."""
    if find_spec(module) is None:
        return False
    found = importlib.import_module(module)
    if module == "ultralytics":  # its programs need weights that it would download
        return Path("yolov8n.pt").exists()
    return found.__version__.startswith("4.")


@pytest.mark.parametrize("page", PAGES)
def test_each_old_program_has_a_new_one(page):
    kinds = [re.match(r"# (old|new)", code)[1] for name, _, code in PROGRAMS if name == page]
    assert kinds == ["old", "new"] * (len(kinds) // 2)
    assert len(kinds) >= 6
