"""Annotated pictures of every size, with labels in every script."""

import time
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image, ImageFont

from engine.errors import InputError
from engine.vision import draw
from engine.vision.colours import colour_of, text_colour_on
from engine.vision.draw import annotate, draw_text
from engine.vision.label_space import LabelSpace, scales_of

HUGE = 1e30


def changed(image, before):
    return (np.asarray(image) != np.asarray(before)).any(axis=2)


@pytest.mark.parametrize("size", [(1, 1), (3, 200), (200, 3), (16, 16), (640, 480), (3000, 2000)])
def test_pictures_of_any_size_can_be_drawn_on(size):
    before = Image.new("RGB", size, (90, 90, 90))
    box = (0.1 * size[0], 0.2 * size[1], 0.9 * size[0], 0.8 * size[1])
    drawn = annotate(before, [box], [3], ["dog 98%"])
    assert drawn.size == size
    assert changed(drawn, before).any()
    assert before.getextrema() == ((90, 90),) * 3


@pytest.mark.parametrize("mode", ["L", "RGBA", "CMYK", "P", "1"])
def test_the_copy_is_rgb(mode):
    assert annotate(Image.new(mode, (30, 30)), [(5, 5, 20, 20)], [0], ["x"]).mode == "RGB"


@pytest.mark.parametrize(
    ("box", "visible"),
    [
        ((-50, -50, 20, 20), True),
        ((-HUGE, -HUGE, HUGE, HUGE), True),
        ((60, 60, 60, 60), True),
        ((99.9, 99.9, 150, 150), True),
        ((100, 0, 150, 50), False),
        ((-50, 0, 0, 50), False),
        ((float("nan"), 0, 50, 50), False),
    ],
)
def test_boxes_are_clipped_to_the_picture(box, visible):
    before = Image.new("RGB", (100, 100))
    drawn = annotate(before, [box], [5], [""])
    assert changed(drawn, before).any() == visible


def test_a_box_is_outlined_where_it_is():
    before = Image.new("RGB", (200, 200))
    mask = changed(annotate(before, [(50, 60, 150, 160)], [5], [""], line_width=1), before)
    rows, columns = np.nonzero(mask)
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (50, 60, 149, 159)
    assert not mask[70:150, 60:140].any()


def test_lines_grow_with_the_picture():
    def thickness(side):
        before = Image.new("RGB", (side, side))
        box = (side * 0.25, side * 0.25, side * 0.75, side * 0.75)
        return changed(annotate(before, [box], [0], [""]), before)[side // 2].sum()

    assert thickness(100) < thickness(1000) < thickness(3000)


def test_line_wider_than_the_picture_is_clipped_before_drawing():
    before = Image.new("RGB", (64, 48))
    after = annotate(before, [(1, 1, 60, 40)], [5], [""], line_width=10**9)
    assert after.getpixel((30, 20)) == colour_of(5)


@pytest.mark.parametrize("width", [0, -3, 1.5, "2", True])
def test_a_line_is_some_pixels_wide(width):
    with pytest.raises(InputError, match="line_width: expected an integer of 1 or more, got "):
        annotate(Image.new("RGB", (64, 48)), [], [], [], line_width=width)


def test_the_first_box_is_on_top():
    before = Image.new("RGB", (100, 100))
    drawn = annotate(before, [(10, 10, 90, 90)] * 2, [1, 2], ["", ""])
    assert drawn.getpixel((10, 50)) == colour_of(1)


@pytest.mark.parametrize("box", [(0, 0, 50, 50), (350, 250, 400, 300), (0, 250, 400, 300)])
def test_label_lies_inside_the_picture(box):
    before = Image.new("RGB", (400, 300))
    anywhere = changed(annotate(before, [(100, 100, 300, 200)], [5], ["label"]), before).sum()
    bare = changed(annotate(before, [(100, 100, 300, 200)], [5], [""]), before).sum()
    here = changed(annotate(before, [box], [5], ["label"]), before).sum()
    bare_here = changed(annotate(before, [box], [5], [""]), before).sum()
    assert here - bare_here > 0.5 * (anywhere - bare)


def test_label_longer_than_the_picture_is_clipped_before_drawing():
    before = Image.new("RGB", (64, 64))
    start = time.process_time()
    after = annotate(before, [(1, 1, 60, 60)] * 50, [5] * 50, ["label, " * 2000] * 50)
    assert time.process_time() - start < 5
    assert changed(after, before).any()


def changed_area(before, *places, text="yard: visitors cat 12, dog 3"):
    after = before.copy()
    taken = []
    for place in places:
        taken.append(draw_text(after, place, text, (200, 30, 30), taken))
    return taken, changed(after, before).sum()


@pytest.mark.parametrize("text", ["yard: visitors cat 12, dog 3", "yard" * 8, "y" * 40])
def test_text_wider_than_the_picture_has_lines(text):
    wide, narrow = Image.new("RGB", (400, 100)), Image.new("RGB", (70, 400))
    _, expected = changed_area(wide, (0, 0), text=text)
    ((left, top, right, bottom),), count = changed_area(narrow, (60, 390), text=text)
    assert left >= 0 <= top
    assert right <= 70
    assert bottom <= 400
    assert bottom - top > 25  # two lines or more
    assert count > 0.9 * expected


def test_texts_in_a_corner_do_not_cover_each_other_or_leave_the_picture():
    before = Image.new("RGB", (400, 100))
    _, one = changed_area(before, (0, 0))
    taken, count = changed_area(before, (395, 95), (395, 90), (395, 97))
    assert count == 3 * one
    assert min(each[1] for each in taken) >= 0
    assert max(each[3] for each in taken) <= 100


def test_labels_of_neighbours_do_not_cover_each_other():
    before = Image.new("RGB", (400, 300))
    boxes = [(100, 100, 300, 250), (104, 102, 300, 250)]
    one = changed(annotate(before, boxes, [5, 5], ["label", ""]), before).sum()
    two = changed(annotate(before, boxes, [5, 5], ["label", "label"]), before).sum()
    none = changed(annotate(before, boxes, [5, 5], ["", ""]), before).sum()
    assert two - none > 1.7 * (one - none)


def crowd(count, size):
    """Return boxes of one size in rows, so close together that no label has a place of its own."""
    width, height = size
    step = (width * height / count) ** 0.5
    columns = int(width // step)
    corners = [(at % columns * step, at // columns * step) for at in range(count)]
    return [(x, y, x + step, y + step) for x, y in corners]


@pytest.mark.parametrize("size", [(320, 240), (640, 480), (1600, 1200), (3840, 2160)])
@pytest.mark.parametrize("count", [1, 20, 100, 400])
def test_labels_of_many_boxes_neither_overlap_nor_hide_the_picture(size, count, monkeypatch):
    areas = []
    take = LabelSpace.take

    def recorded(*arguments, **options):
        area = take(*arguments, **options)
        areas.extend([] if area is None else [area])
        return area

    monkeypatch.setattr(LabelSpace, "take", recorded)
    before = Image.new("RGB", size, (90, 90, 90))
    boxes = crowd(count, size)
    options = {"short_captions": ["90%"] * count, "line_width": 1}
    annotate(before, boxes, [0] * count, ["person 90%"] * count, **options)
    mask = np.zeros(size[::-1], int)
    for left, top, right, bottom in areas:
        mask[top : bottom + 1, left : right + 1] += 1
    assert mask.max() == 1
    assert len(areas) >= min(count, 20)
    if size[0] >= 640:
        assert mask.mean() < 0.4


def test_only_the_crowded_part_of_a_picture_has_small_letters():
    lone, many = (20, 300, 120, 400), [(500 + 3 * at, 100, 560 + 3 * at, 200) for at in range(20)]
    areas = [4000.0] * 21
    scales = scales_of([lone, *many], areas, (640, 480))
    assert scales[0] == 1.0
    assert max(scales[1:]) < 0.7


def test_a_box_without_a_place_for_its_label_is_drawn():
    before = Image.new("RGB", (60, 40))
    boxes = [(0, 0, 60, 40)] + [(5, 5, 50, 30)] * 40
    drawn = annotate(before, boxes, [1] + [2] * 40, ["person"] * 41, line_width=1)
    assert drawn.getpixel((5, 29)) == colour_of(2)


@pytest.mark.parametrize(
    "caption", ["größe", "собака", "卡车", "\U0001f415", "a\nb\tc", "x" * 500, "\udce9"]
)
def test_labels_in_every_script(caption):
    before = Image.new("RGB", (300, 100))
    assert changed(annotate(before, [(20, 40, 200, 90)], [5], [caption]), before).any()


def test_letters_missing_from_the_font_become_question_marks(monkeypatch):
    monkeypatch.setattr(draw, "_fallback_fonts", lambda size: ())
    assert draw._font_for("dog 犬", 12)[1] == "dog ?"
    assert draw._font_for("dog", 12)[1] == "dog"


@pytest.mark.skipif(
    not hasattr(ImageFont, "load_default_imagefont"), reason="this Pillow hides its bitmap font"
)
def test_a_pillow_without_freetype_still_writes(monkeypatch):
    monkeypatch.setattr(draw, "_default_font", lambda size: ImageFont.load_default_imagefont())
    before = Image.new("RGB", (300, 100))
    assert changed(annotate(before, [(20, 40, 200, 90)], [5], ["собака dog"]), before).any()


def test_colours_are_deterministic_and_differ_between_neighbours():
    colours = [colour_of(each) for each in range(80)]
    assert colours == [colour_of(each) for each in range(80)]
    assert len(set(colours)) > 75
    for a, b in pairwise(colours):
        assert sum(abs(x - y) for x, y in zip(a, b, strict=True)) > 120


@pytest.mark.parametrize(
    ("colour", "ink"), [((255, 255, 0), (0, 0, 0)), ((0, 0, 200), (255, 255, 255))]
)
def test_text_colour_is_legible(colour, ink):
    assert text_colour_on(colour) == ink


def test_the_mask_of_a_text_has_the_size_of_its_label():
    mask = draw.text_mask("dog", 20)
    assert mask.mode == "L"
    assert mask.getextrema() == (0, 255)
    left, top, right, bottom = mask.getbbox()
    assert 0 < left < right < mask.width
    assert 0 < top < bottom < mask.height
    assert draw.text_mask("ace", 20).height == draw.text_mask("Hg", 20).height
