"""Four labelled pictures cut from docs/parcel.jpg, with the .data file of the bundled model.

The files in recorded/ are what darknet (AlexeyAB/darknet, commit 59596d78, without OpenCV) printed
and wrote for them with cfg/codes.cfg and weights/codes.weights. They are PNG files, because
darknet's own decoder gives other pixels for a JPEG.
"""

import re
from pathlib import Path

import pytest
from PIL import Image

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).parent / "recorded"
MODEL = ("codes.data", str(ROOT / "cfg/codes.cfg"), str(ROOT / "weights/codes.weights"))

_AREAS = {1: (0, 0, 720, 720), 2: (0, 0, 400, 400), 3: (320, 320, 720, 720), 4: (0, 300, 720, 720)}
_OBJECTS = (  # class and edges in docs/parcel.jpg; the last one is not there
    (3, 129, 545, 274, 703),
    (2, 29, 62, 192, 215),
    (1, 669, 60, 710, 157),
    (4, 345, 249, 496, 447),
    (0, 543, 377, 606, 439),
    (4, 240, 227, 354, 420),
    (1, 59, 651, 118, 711),
    (0, 400, 20, 520, 140),
)


def write(folder):
    """Write set/1.png … set/4.png with their labels, list.txt and codes.data."""
    (folder / "set").mkdir()
    with Image.open(ROOT / "docs/parcel.jpg") as parcel:
        for number, area in _AREAS.items():
            parcel.crop(area).save(folder / f"set/{number}.png", compress_level=1)
            (folder / f"set/{number}.txt").write_text("".join(_labels(area)))
    (folder / "list.txt").write_text("".join(f"set/{number}.png\n" for number in _AREAS))
    names = ROOT / "cfg/codes.names"
    text = f"classes = 5\ntrain = list.txt\nvalid = list.txt\nnames = {names}\n"
    (folder / "codes.data").write_text(text)


def with_greedynms(folder):
    """Write codes.cfg with another kind of NMS, and return the model."""
    text = (ROOT / "cfg/codes.cfg").read_text()
    (folder / "greedy.cfg").write_text(text.replace("[yolo]", "[yolo]\nnms_kind=greedynms"))
    return (MODEL[0], str(folder / "greedy.cfg"), MODEL[2])


def _labels(area):
    """Yield a line for each object that lies wholly inside the area."""
    left, top, right, bottom = area
    width, height = right - left, bottom - top
    for class_id, x1, y1, x2, y2 in _OBJECTS:
        if left <= x1 and top <= y1 and x2 <= right and y2 <= bottom:
            x, y = ((x1 + x2) / 2 - left) / width, ((y1 + y2) / 2 - top) / height
            yield f"{class_id} {x:.6f} {y:.6f} {(x2 - x1) / width:.6f} {(y2 - y1) / height:.6f}\n"


def recorded(name):
    return (RECORDED / name).read_bytes().decode()  # with its carriage returns


def without_times(text):
    return re.sub(r"Predicted in \d+\.\d{6}", "Predicted in", text)


def assert_same_numbers(text, expected):
    """Compare texts in which numbers with six decimals may differ by the rounding of float32."""
    decimals = re.compile(r"\d+\.\d{6}")
    assert decimals.sub("", text) == decimals.sub("", expected)
    numbers = [list(map(float, decimals.findall(each))) for each in (text, expected)]
    assert numbers[0] == pytest.approx(numbers[1], rel=3e-6, abs=3e-4)
