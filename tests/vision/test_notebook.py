"""How notebooks show results."""

import io
from dataclasses import replace

import numpy as np
from PIL import Image

from engine.vision import notebook
from engine.vision.code import Code
from engine.vision.image import Picture
from tests.pictures import write_picture
from tests.vision.results import RESULT


def test_a_picture_and_a_table(tmp_path):
    result = replace(RESULT, path=str(write_picture(tmp_path / "street.png", (100, 50))))
    assert Image.open(io.BytesIO(result._repr_png_())).size == (100, 50)
    page = result._repr_html_()
    assert page.count("<tr>") == 4
    assert "data:image/png;base64," in page
    assert "<td>dog</td><td>0.900</td><td>20</td>" in page


def test_large_pictures_shrink():
    picture = Picture(np.zeros((1500, 3000, 3), np.uint8))
    result = replace(RESULT, size=(3000, 1500), picture=picture)
    assert Image.open(io.BytesIO(result._repr_png_())).size == (1024, 512)


def test_without_the_picture_there_is_still_a_table():
    assert RESULT._repr_png_() is None
    assert "<img" not in RESULT._repr_html_()
    assert "<table>" not in RESULT[:0]._repr_html_()


def test_labels_are_escaped():
    result = replace(RESULT, names=("<b>", "a&b"), path="<i>.jpg")
    page = result._repr_html_()
    assert "<b>" not in page
    assert "<i>" not in page
    assert "a&amp;b" in page


def test_long_tables_are_cut():
    many = RESULT[[0] * 30]
    assert "… 10 more" in many._repr_html_()


def test_texts_of_codes_are_shown_without_harm():
    corners = ((1.0, 1.0), (2.0, 1.0), (2.0, 2.0), (1.0, 2.0))
    code = Code("<b>\x1b" + "x" * 900, "QR Code", corners, b"")
    shown = notebook.html("title", [replace(RESULT[0], code=code), RESULT[1]], None)
    assert "<th>text</th>" in shown
    assert "&lt;b&gt;\\x1bxxx" in shown
    assert len(shown) < 1000
