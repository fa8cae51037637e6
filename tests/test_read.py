"""Reading codes through the detector, the command line and its outputs."""

import base64
import csv
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import engine
from engine import cli
from engine.cli._sinks.csv_rows import BoxRows
from engine.codes import formats
from engine.errors import InputError
from engine.sources.item import Item
from engine.vision import serialize
from engine.vision.code import Code
from engine.vision.detection import Box, Detection
from engine.vision.result import Result
from tests.codes.made import page, symbol

PARCEL = Path(__file__).parents[1] / "docs/parcel.jpg"
TEXTS = {"HDW3HT", "https://xvmuu.com/h1", "0566985577895", "541846", "DXTE44R8V6", "IN-G6NE"}
CORNERS = ((1.0, 2.0), (9.0, 2.5), (9.0, 8.0), (1.0, 8.0))


@pytest.fixture(scope="module")
def detector():
    with engine.load(device="cpu", threads=1) as detector:
        yield detector


@pytest.fixture(scope="module")
def parcel(detector):
    return detector(PARCEL, read=True)


def test_six_of_the_seven_codes_of_the_parcel_are_read(detector, parcel):
    assert {each.text for each in parcel} - {None} == TEXTS
    plain = detector(PARCEL)
    assert len(parcel) == len(plain) == 7  # and no box is lost
    assert parcel.xyxy.tolist() == plain.xyxy.tolist()
    assert plain.codes is None
    (bars,) = (each for each in parcel if each.format == "EAN-13")
    (qr,) = (each for each in parcel if each.label == "qr")
    assert bars.label == "barcode"
    assert all(qr.box.left - 9 < x < qr.box.right + 9 for x, _ in qr.corners)
    assert parcel.timing["read"] > 0


def test_a_text_proves_a_box_below_the_threshold(detector):
    found = detector(PARCEL, read=True, threshold=0.8)
    assert {each.text for each in found} - {None} == TEXTS
    assert all(each.text for each in found if each.score <= 0.8)
    assert [each.label for each in found if each.text is None] == ["pdf417"]


def test_settings_of_a_call_count_after_reading(detector):
    best = detector(PARCEL, read=True, max_detections=2)
    assert len(best) == len(best.codes) == 2
    only = detector(PARCEL, read=True, classes=["qr", "aztec"])
    assert {each.text for each in only} == {"HDW3HT", "DXTE44R8V6"}
    with pytest.raises(InputError, match=r"^read: expected True or False, got"):
        detector(PARCEL, read="yes")


def test_several_pictures_in_a_stream(detector):
    pixels = page((symbol("in a stream", "QRCode"), (300, 200), 0))
    results = list(detector.stream([pixels, np.zeros_like(pixels), pixels], read=True))
    assert [[each.text for each in result] for result in results] == [
        ["in a stream"],
        [],
        ["in a stream"],
    ]


def test_parts_and_pickles_keep_their_texts(parcel):
    texts = [each.text for each in parcel]
    assert [each.text for each in parcel[1:3]] == texts[1:3]
    assert parcel[-1].text == texts[-1]
    mask = np.array([text is not None for text in texts])
    assert [each.text for each in parcel[mask]] == [text for text in texts if text]
    assert [each.text for each in pickle.loads(pickle.dumps(parcel))] == texts
    assert parcel.filter(classes=["qr"])[0].text == "DXTE44R8V6"


def result_of(*codes):
    count = len(codes)
    return Result(
        size=(10, 10),
        xywhn=np.full((count, 4), 0.5, np.float32),
        scores=np.ones(count, np.float32),
        class_ids=np.zeros(count, np.int64),
        names=("qr",),
        codes=codes,
    )


def test_json_has_the_whole_text_and_bytes_that_are_no_text():
    odd = Code("ÿ\x00\n=1", "QR Code", CORNERS, b"\xff\x00\n=1")
    first, second, third = json.loads(
        result_of(odd, None, Code("x" * 9000, "Aztec", CORNERS, b"x" * 9000)).to_json()
    )["detections"]
    assert first["text"] == odd.text
    assert base64.b64decode(first["bytes"]) == odd.content
    assert first["corners"] == [list(each) for each in CORNERS]
    assert (second["text"], second["format"], second["corners"]) == (None, None, None)
    assert len(third["text"]) == 9000
    assert "bytes" not in third


def test_rows_have_the_text_at_their_end():
    result = result_of(Code("a,b", "QR Code", CORNERS, b"a,b"), None)
    assert serialize.csv_columns(result)[-3:] == ("text", "format", "corners")
    assert result.to_csv()[0][-3:] == ("a,b", "QR Code", "1 2 9 2.5 9 8 1 8")
    assert result.to_csv()[1][-3:] == ("", "", "")


def test_a_detection_without_a_code_has_no_text():
    found = Detection("qr", 0, 0.5, Box(0, 0, 1, 1))
    assert (found.text, found.format, found.corners) == (None, None, None)


def test_the_picture_shows_the_outline_and_a_short_text(parcel):
    from engine.vision import result

    plain = Result(**{**parcel.__getstate__(), "codes": None})
    assert parcel.plot(array="rgb").tobytes() != plain.plot(array="rgb").tobytes()
    long = Detection("qr", 0, 0.5, Box(0, 0, 1, 1), None, Code("\n" * 5000, "", CORNERS, b""))
    assert len(result._caption(long, label=True, score=True)) < 40


# ------------------------------------------------------------------ the command line


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_output_has_the_texts(here, capsys):
    text = f"detect {PARCEL} --read --device cpu --json a.json --jsonl a.jsonl --csv a.csv -o out"
    assert cli.main(text.split()) == 0
    shown = capsys.readouterr().out
    assert all(each in shown for each in TEXTS)
    assert shown.splitlines()[1].split()[-2:] == ["format", "text"]
    document = json.loads((here / "a.json").read_text())
    assert document["read"] is True
    for entry in (document["images"][0], json.loads((here / "a.jsonl").read_text())):
        assert {each["text"] for each in entry["detections"]} - {None} == TEXTS
    rows = list(csv.DictReader((here / "a.csv").read_text().splitlines()))
    assert {row["text"] for row in rows} - {""} == TEXTS
    assert [len(row["corners"].split()) for row in rows if row["text"]] == [8] * len(TEXTS)
    assert (here / "out/parcel.jpg").exists()


def test_texts_do_no_harm_in_a_terminal_or_a_spreadsheet(here, capsys):
    from PIL import Image

    content = "=HYPERLINK(1)\x1b[31m\n" + "y" * 700
    Image.fromarray(
        page((symbol(content, "QRCode", scale=3), (300, 300), 0), size=(600, 600))
    ).save("odd.png")
    outputs = ["--csv", "a.csv", "--jsonl", "a.jsonl"]
    assert cli.main(["detect", "odd.png", "--read", "--device", "cpu", *outputs]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert len(max(shown.splitlines(), key=len)) < 400
    (row,) = csv.DictReader((here / "a.csv").read_text().splitlines())
    assert row["text"].startswith("'=HYPERLINK(1)\\x1b[31m\\n")
    (found,) = json.loads((here / "a.jsonl").read_text())["detections"]
    assert found["text"] == content


def test_no_two_texts_are_one_in_csv(tmp_path):
    texts = ["dir\\new", "dir\new", "dir\\\\new", "=a\\n", "c:\\windows", "-a"]
    codes = [Code(each, "QR Code", CORNERS, each.encode()) for each in texts]
    rows = BoxRows(str(tmp_path / "a.csv"), serialize.CODE_COLUMNS, existing="refuse")
    rows.begin({}, ())
    rows.take(Item("a.png", "a.png"), result_of(*codes), 0.0)
    rows.finish()
    found = list(csv.DictReader((tmp_path / "a.csv").read_text().splitlines()))
    assert [row["text"] for row in found] == [
        *("dir\\\\new", "dir\\new", "dir\\\\\\\\new", "'=a\\\\n", "c:\\windows", "'-a")
    ]
    assert {row["corners"] for row in found} == {"1 2 9 2.5 9 8 1 8"}


def test_without_the_library_one_line_says_what_to_install(here, capsys, monkeypatch):
    monkeypatch.setattr(formats, "find_spec", lambda name: None)
    assert cli.main(f"detect {PARCEL} --read --device cpu".split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("Error: read: zxing-cpp is not installed. Run: pip install ")


def test_a_network_without_codes_cannot_read(tiny_detector):
    with (
        pytest.raises(InputError, match="read: expected a model with a class of codes"),
        engine.load(tiny_detector.cfg, tiny_detector.weights, device="cpu", read=True),
    ):
        pass
