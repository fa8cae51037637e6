"""Annotator draws in place, as that of ultralytics, with the colours of plot()."""

import numpy as np
import pytest
from PIL import Image

from engine.compat.ultralytics import Boxes
from engine.compat.ultralytics.utils.plotting import Annotator, colors
from engine.errors import InputError
from engine.vision.colours import colour_of

RED = (0, 0, 255)  # in BGR order
BOX = (30, 50, 120, 90)


@pytest.fixture
def frame():
    return np.zeros((100, 200, 3), np.uint8)


def is_of(picture, colour):
    return (np.asarray(picture)[:, :, :3] == colour).all(axis=2)


def test_colours():
    assert colors(3) == colour_of(3)
    assert colors(3, True) == colors(3, bgr=True) == colour_of(3)[::-1]
    cls = Boxes([[0, 0, 1, 1, 0.5, 3]], (9, 9)).cls
    assert colors(cls[0]) == colors(cls) == colors(3.0) == colour_of(3)


@pytest.mark.parametrize("box", [BOX, list(map(float, BOX)), np.array(BOX, np.float32)])
def test_a_box_is_drawn_in_place(frame, box):
    annotator = Annotator(frame, 2)
    annotator.box_label(box, color=RED)
    assert annotator.result() is annotator.im is frame
    red = is_of(frame, RED)
    assert red[50, 30:120].all()
    assert red[50:90, 30].all()
    assert red[90, 30:120].all()
    assert red[50:90, 120].all()
    assert red.sum() == 2 * 2 * (90 + 2 + 40 + 2) - 4 * 2 * 2
    assert annotator.result(pil=True).getpixel((30, 50)) == (255, 0, 0)


@pytest.mark.parametrize(("top", "is_above"), [(50, True), (3, False)])
def test_a_label_is_above_or_inside(frame, top, is_above):
    Annotator(frame, line_width=2).box_label((30, top, 120, 95), "dog 0.90", (255, 255, 0))
    rows = np.flatnonzero(is_of(frame, (255, 255, 0))[:, 33:60].sum(axis=1) > 3)
    rows = rows[abs(rows - 95) > 2]
    assert (rows.min() < top - 5, rows.max() > top + 5) == (is_above, not is_above)
    label = frame[rows.min() : rows.max(), 33:60]
    assert label.min() == 0  # black letters on a light colour


def test_labels_end_at_the_edge(frame):
    Annotator(frame, 2).box_label((190, 50, 260, 90), "a long label", RED)
    assert is_of(frame[40:49], RED)[:, :150].any()
    for picture in (frame, Image.fromarray(frame)):
        Annotator(picture, 2).box_label((-500, -500, -400, -400), "outside", RED)
        Annotator(picture, 2).box_label((500, 500, 600, 600), "x" * 99, RED)
        Annotator(picture, 2).text((500, 500), "outside", RED)


def test_the_colour_of_letters(frame):
    annotator = Annotator(frame, 3)
    annotator.box_label(BOX, "dog", (0, 0, 90), (7, 250, 8))
    assert is_of(frame, (7, 250, 8)).any()
    assert not is_of(frame, (255, 255, 255)).any()
    annotator.box_label(BOX, "dog", (0, 0, 90))
    assert is_of(frame, (255, 255, 255)).any()


def test_text(frame):
    annotator = Annotator(frame, 2)
    annotator.text([10, 50], "hello")
    rows = np.flatnonzero(frame.any(axis=(1, 2)))
    assert 30 < rows.min() < rows.max() < 50
    annotator.text((10, 90), "hello\nyou", (1, 2, 3), box_color=(64, 64, 64, 128))
    assert is_of(frame, (64, 64, 64)).any()
    assert is_of(frame, (1, 2, 3)).any()


def test_pillow_images_are_drawn_on_in_place():
    for mode in ("RGB", "RGBA"):
        image = Image.new(mode, (200, 100))
        annotator = Annotator(image)
        annotator.box_label(BOX, "dog", RED)
        annotator.text((0, 0), "dog", (9, 9, 9))
        assert annotator.im is image
        assert image.getpixel((30, 60))[:3] == RED
        assert is_of(image, (9, 9, 9))[:20].any()
        assert annotator.result().shape == (100, 200, len(mode))
    grey = Annotator(Image.new("L", (200, 100)))
    grey.box_label(BOX, "dog", RED)
    assert is_of(grey.result(), RED).any()


@pytest.mark.parametrize("shape", [(100, 200), (100, 200, 1), (100, 200, 2), (100, 200, 4)])
def test_other_channels_are_drawn_on_a_copy(shape):
    array = np.full(shape, 7, np.uint8)
    annotator = Annotator(array)
    annotator.box_label(BOX, color=RED)
    assert annotator.result().shape == (100, 200, 3)
    assert is_of(annotator.result(), RED).any()
    assert (array == 7).all()


def test_copies_and_views(frame):
    Annotator(frame[:, ::-1], 2).box_label((0, 0, 20, 20), color=RED)
    assert is_of(frame, RED)[:, 150:].any()
    frame[:] = 0
    frame.flags.writeable = False
    for annotator in (Annotator(frame, pil=True), Annotator(frame)):
        annotator.box_label(BOX, color=RED)
        assert is_of(annotator.result(), RED).any()
        assert not frame.any()


def test_sizes():
    assert Annotator(np.zeros((720, 1280, 3), np.uint8)).lw == 3
    assert Annotator(np.zeros((10, 10, 3), np.uint8)).lw == 2
    small, large = (np.zeros((100, 200, 3), np.uint8) for _ in range(2))
    Annotator(small, 2, 11).text((10, 90), "dog")
    Annotator(large, 2, font_size=30).text((10, 90), "dog")
    assert large.any(axis=2).sum() > 2 * small.any(axis=2).sum()


@pytest.mark.parametrize("picture", [np.zeros((9, 9, 3)), np.zeros(9, np.uint8), "a.png"])
def test_what_is_no_picture(picture):
    with pytest.raises(InputError, match=r"^im: expected a Pillow image or an array of bytes"):
        Annotator(picture)


def test_what_is_no_box(frame):
    with pytest.raises(InputError, match=r"^box: expected left, top, right, bottom, got the shape"):
        Annotator(frame).box_label([[1, 2], [3, 4]])
    assert not frame.any()
