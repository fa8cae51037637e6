"""Codes are read, in boxes and without them, and no text is trusted too early."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from engine.codes.reader import CodeReader
from tests.codes.made import LABELS, boxes, page, symbol, texts_alone, zxing

QR, DATAMATRIX, AZTEC, PDF417, BARCODE = range(5)


@pytest.fixture(scope="module")
def reader():
    return CodeReader(LABELS)


def texts(codes):
    return [code and code.text for code in codes]


def grey(pixels):
    return np.asarray(Image.fromarray(pixels).convert("L"))


def test_a_turned_code_is_read_that_is_not_read_from_the_whole_picture(reader):
    code = symbol("a turned code of rows", "PDF417", scale=2)
    pixels = page((code, (300, 200), 37))
    assert not texts_alone(pixels)
    assert texts(reader.read(pixels, boxes())[1]) == []
    found, codes = reader.read(pixels, boxes((190, 100, 410, 300, PDF417, 0.9)))
    assert texts(codes) == ["a turned code of rows"]
    assert (len(found), codes[0].format) == (1, "PDF417")
    x, y = np.mean(codes[0].corners, axis=0)
    assert abs(x - 300) < 8
    assert abs(y - 200) < 8


def test_turned_bars_are_read(reader):
    pixels = page((symbol("ABC-1234", "Code128", scale=2), (300, 200), 28))
    _, codes = reader.read(pixels, boxes((200, 100, 400, 300, BARCODE, 0.9)))
    assert texts(codes) == ["ABC-1234"]
    assert codes[0].format == "Code 128"


@pytest.mark.parametrize("kind", ["QRCode", "DataMatrix"])
@pytest.mark.parametrize("angle", [20, 45])
def test_turned_neighbours_that_say_the_same_are_both_read(reader, kind, angle):
    one = symbol("SAME", kind)
    sheet = Image.new("L", (2 * one.width, one.height), 255)
    for left in (0, one.width):
        sheet.paste(one, (left, 0))
    pixels = page((sheet, (300, 200), angle))
    _, codes = reader.read(pixels, boxes())
    assert texts(codes) == ["SAME", "SAME"]
    (one_x, one_y), (other_x, other_y) = (np.mean(code.corners, axis=0) for code in codes)
    assert np.hypot(one_x - other_x, one_y - other_y) == pytest.approx(one.width, abs=4)


def test_a_code_without_a_box_gets_its_own(reader):
    pixels = page(
        (symbol("alone", "QRCode"), (150, 200), 10), (symbol("seen", "Aztec"), (430, 200), 0)
    )
    found, codes = reader.read(pixels, boxes((370, 140, 490, 260, AZTEC, 0.6)))
    assert texts(codes) == ["alone", "seen"]
    assert found.class_ids.tolist() == [QR, AZTEC]
    assert found.scores.tolist() == [1, np.float32(0.6)]
    x, y, width, height = (found.xywh[0] * (600, 400, 600, 400)).tolist()
    assert (x, y) == pytest.approx((150, 200), abs=5)
    assert 60 < width < 120
    assert 60 < height < 120
    assert reader.read(pixels, boxes(), classes=[AZTEC])[0].class_ids.tolist() == [AZTEC]


def test_bars_without_a_box_are_read_twice(reader):
    pixels = page((symbol("4006381333931"[:12], "EAN13", scale=3), (300, 200), 0))
    found, codes = reader.read(pixels, boxes())
    assert texts(codes) == ["4006381333931"]
    assert found.class_ids.tolist() == [BARCODE]


def test_a_text_counts_only_for_its_class_and_inside_its_box(reader):
    pixels = page((symbol("right", "QRCode"), (300, 200), 0))
    for wrong in ((250, 150, 350, 250, DATAMATRIX, 0.9), (330, 150, 500, 250, QR, 0.9)):
        found, codes = reader.read(pixels, boxes(wrong))
        assert texts(codes) == ["right", None]
        assert found.class_ids.tolist() == [QR, wrong[4]]


def test_the_nearest_of_two_boxes_has_the_text(reader):
    pixels = page((symbol("once", "QRCode"), (300, 200), 0))
    rows = (200, 150, 390, 260, QR, 0.9), (250, 150, 350, 250, QR, 0.5)
    assert texts(reader.read(pixels, boxes(*rows))[1]) == [None, "once"]


@pytest.mark.parametrize("step", [1, -1])
def test_of_boxes_about_as_near_the_best_one_has_the_text(reader, step):
    """At tiny thresholds, poor boxes may happen to lie a little nearer than good ones."""
    pixels = page((symbol("once", "QRCode"), (300, 200), 0))
    good, poor = (254, 154, 352, 252, QR, 0.9), (258, 158, 342, 242, QR, 0.001)
    large, small = (200, 100, 400, 300, QR, 0.95), (296, 196, 304, 204, QR, 0.99)
    rows = [small, large, good, poor][::step]
    assert texts(reader.read(pixels, boxes(*rows))[1]) == [None, None, "once", None][::step]


class Said:
    """A code as zxing-cpp returns it, read in the middle of whatever is read."""

    valid = True

    def __init__(self, text, name, size):
        self.text, self.bytes = text, text.encode()
        self.format = getattr(zxing.BarcodeFormat, name)
        corner = type("Corner", (), {"x": size[0] / 2, "y": size[1] / 2})
        names = ("top_left", "top_right", "bottom_right", "bottom_left")
        self.position = type("Place", (), dict.fromkeys(names, corner))


@pytest.mark.parametrize("angle", [0, 90, 180, 20, -35])
def test_corners_of_bars_enclose_all_of_them(reader, angle):
    bars = symbol("ABC-1234", "Code128", scale=3)
    pixels = page((bars, (300, 200), angle))
    across, down = bars.width - 2 * 12 - 60, bars.height - 2 * 12
    _, codes = reader.read(pixels, boxes((140, 90, 460, 310, BARCODE, 0.9)))
    assert texts(codes) == ["ABC-1234"]
    top_left, top_right, _, bottom_left = map(np.array, codes[0].corners)
    right, below = top_right - top_left, bottom_left - top_left
    turn = np.deg2rad(-angle)
    assert right / np.hypot(*right) == pytest.approx([np.cos(turn), np.sin(turn)], abs=0.05)
    assert below / np.hypot(*below) == pytest.approx([-np.sin(turn), np.cos(turn)], abs=0.05)
    assert np.hypot(*below) > 0.8 * down
    assert np.hypot(*right) > 0.9 * across


@pytest.mark.parametrize(
    ("whole", "crops", "expected"),
    [
        ("1234", ["1234"], "1234"),
        ("1234", ["5678", "5678"], "5678"),
        ("1234", ["5678", "9012"], None),
        ("1234", [], None),  # ITF has no checksum, and there is no picture
        (None, ["1234"], None),
        (None, ["1234", None, None, None, "1234"], "1234"),
        (None, [None, None, "1234", "1234"], None),  # close looks may leave out the same bars
    ],
)
def test_two_readings_of_bars_must_agree(reader, monkeypatch, whole, crops, expected):
    assert said_for(reader, monkeypatch, "ITF", whole, crops) == [expected]


def test_a_checksum_counts_where_bars_were_detected(reader, monkeypatch):
    assert said_for(reader, monkeypatch, "EAN8", "12345670", []) == ["12345670"]
    assert said_for(reader, monkeypatch, "EAN8", "12345670", ["76543210"]) == [None]
    assert said_for(reader, monkeypatch, "EAN8", None, ["12345670"]) == [None]
    assert said_for(reader, monkeypatch, "EAN8", "12345670", [], box=()) == []
    assert said_for(reader, monkeypatch, "Code39", "ABC", []) == ["ABC"]
    assert said_for(reader, monkeypatch, "Codabar", "A12B", []) == ["A12B"]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("angle", [0, 30, 200])
def test_a_code_inside_another_one_is_none(reader, monkeypatch, order, angle):
    """zxing-cpp reads the core of some Aztec codes as a rune of three digits."""
    content = "An Aztec code has a core, which alone is a rune: a number from 0 to 255."
    pixels = page((symbol(content, "Aztec"), (300, 200), angle))
    (whole,) = reader._read_picture(grey(pixels))
    middle = np.mean(whole.code.corners, axis=0)
    corners = [tuple(middle + 0.3 * (each - middle)) for each in np.array(whole.code.corners)]
    rune = whole._replace(code=replace(whole.code, text="041", corners=tuple(corners)))
    monkeypatch.setattr(reader, "_read_picture", lambda pixels: [rune, whole][::order])
    for seen in (boxes(), boxes((200, 100, 400, 300, AZTEC, 0.9))):
        _, codes = reader.read(pixels, seen)
        assert texts(codes) == [content]
    beside = [(x + 100, y) for x, y in corners]
    other = rune._replace(code=replace(rune.code, corners=tuple(beside)))
    assert [*reader._outermost([other, whole])] == [other, whole]


@pytest.mark.parametrize("angle", [0, 4, 30, 60, 90, 184])
def test_one_reading_of_itf_counts_if_it_is_of_all_bars(reader, monkeypatch, angle):
    """zxing-cpp reads 12 or 1234, too, where a row of pixels leaves the turned bars."""
    pixels = page((symbol("12345678", "ITF", scale=3), (300, 200), angle))
    readings = reader._read_picture(grey(pixels))
    said = {each.code.text for each in readings}
    assert "12345678" in said
    assert len(said) > 1 or angle % 90 == 0
    monkeypatch.setattr(reader, "_variants", lambda *_, **__: iter(()))
    for some in (readings, readings[::-1]):
        monkeypatch.setattr(reader, "_read_picture", lambda pixels, some=some: some)
        _, codes = reader.read(pixels, boxes((100, 50, 500, 350, BARCODE, 0.9)))
        assert texts(codes) == ["12345678"]
    for each in readings:
        monkeypatch.setattr(reader, "_read_picture", lambda pixels, only=each: [only])
        _, codes = reader.read(pixels, boxes((100, 50, 500, 350, BARCODE, 0.9)))
        assert texts(codes) == [each.code.text if each.code.text == "12345678" else None]
    _, codes = reader.read(pixels, boxes())  # bars that the network does not see
    assert not codes


def test_a_part_of_bars_is_no_code_of_its_own(reader, monkeypatch):
    all_of_it, part = "123456", "1234"
    crops = [all_of_it, all_of_it, part]
    assert said_for(reader, monkeypatch, "ITF", (part, all_of_it), crops) == [all_of_it]
    crops = [(part, all_of_it), (part, all_of_it)]
    assert said_for(reader, monkeypatch, "ITF", None, crops) == [all_of_it]


def test_bars_inside_others_are_none(reader, monkeypatch):
    """zxing-cpp reads UPC-E in some rows of turned EAN-13."""
    pixels = page((symbol("400638133393", "EAN13", scale=3), (300, 200), 0))
    (whole,) = reader._read_picture(grey(pixels))
    corners = (310.0, 209.0), (330.0, 209.0), (330.0, 211.0), (310.0, 211.0)
    part = whole._replace(code=replace(whole.code, text="0113290000022", corners=corners))
    monkeypatch.setattr(reader, "_read_box", lambda *some, **_: some[3])
    for readings in ([whole, part], [part]):
        monkeypatch.setattr(reader, "_read_picture", lambda _, some=readings: some)
        _, codes = reader.read(pixels, boxes((140, 90, 460, 310, BARCODE, 0.9)))
        assert texts(codes) == [readings[0].code.text]


def test_rows_that_were_read_are_looked_at_in_very_different_pixels_first(reader, monkeypatch):
    looks = []

    def decoded(pixels, *_, **__):
        looks.append(pixels.size)
        return [Said("abc", "PDF417", pixels.shape[1::-1])] if reads and len(looks) == 1 else []

    monkeypatch.setattr(reader, "_decoded", decoded)
    for reads in (False, True):
        looks.clear()
        reader.read(np.zeros((400, 600, 3), np.uint8), boxes(*ROWS))
        assert len(looks) == 4
        assert looks[1:] == sorted(looks[1:], reverse=reads)


def test_two_readings_of_a_box_with_rows_must_agree(reader, monkeypatch):
    assert said_for(reader, monkeypatch, "PDF417", None, ["ab", "abc"], box=ROWS) == [None]
    assert said_for(reader, monkeypatch, "PDF417", None, ["ab", "abc", "abc"], box=ROWS) == ["abc"]
    assert said_for(reader, monkeypatch, "PDF417", "abc", [], box=ROWS) == ["abc"]
    assert said_for(reader, monkeypatch, "PDF417", "abc", [], box=()) == ["abc"]
    assert said_for(reader, monkeypatch, "PDF417", "abc", ["abd"], box=ROWS) == [None]


def test_no_two_looks_at_a_box_are_the_same_pixels(reader, monkeypatch):
    looks = []
    monkeypatch.setattr(reader, "_decoded", lambda pixels, *_, **__: looks.append(pixels) or [])
    for kind, side, ways in (
        *((PDF417, 100, 3), (PDF417, 500, 3), (PDF417, 2000, 3)),
        *((BARCODE, 100, 6), (BARCODE, 2000, 4)),  # a close look at a large box is all of it
    ):
        size = (side + 50, side + 40)
        box = boxes((20, 20, 20 + side, 20 + side, kind, 0.9), size=size)
        looks.clear()
        reader.read(np.zeros((size[1], size[0], 3), np.uint8), box)
        of_picture = 1 if side < 1000 else 5
        assert len({each.shape for each in looks}) == len(looks) == of_picture + ways
        assert max(each.size for each in looks[of_picture:]) < 650_000


def test_the_last_look_at_a_2d_code_is_at_the_pixels_of_the_picture(reader, monkeypatch):
    looks = []
    monkeypatch.setattr(reader, "_decoded", lambda seen, *_, **__: looks.append(seen) or [])
    pixels = page((symbol("a turned code", "DataMatrix"), (300, 200), 25))
    reader.read(pixels, boxes((250.5, 150.5, 349.5, 249.5, DATAMATRIX, 0.9)))
    assert np.array_equal(looks[-1], pixels[138:262, 238:362, 0])
    looks.clear()
    large = page(size=(1000, 1000))
    reader.read(large, boxes((0, 0, 1000, 1000, DATAMATRIX, 0.9), size=(1000, 1000)))
    assert max(each.size for each in looks[1:]) < 650_000  # but for the picture itself


def test_most_turned_strips_of_squares_are_read(reader):
    """Boxes of strips that lie along a diagonal look like those of squares."""
    read = asked = 0
    for angle in range(1, 360, 4):
        strip = symbol(f"a strip {angle}", "RMQRCode", scale=3)
        width, height = strip.rotate(angle, expand=True).size
        if max(width, height) < 1.25 * min(width, height):
            continue
        box = (300 - width / 2, 200 - height / 2, 300 + width / 2, 200 + height / 2, QR, 0.9)
        _, codes = reader.read(page((strip, (300, 200), angle)), boxes(box))
        asked += 1
        read += f"a strip {angle}" in texts(codes)
    assert read >= 0.75 * asked


def test_a_code_that_is_taken_for_two_classes_is_read_once(reader, monkeypatch):
    looks = []

    def decoded(pixels, formats, *, is_thorough, **_):
        looks.append(formats)
        return [] if is_thorough else [Said("ab", "PDF417", pixels.shape[1::-1])]

    monkeypatch.setattr(reader, "_decoded", decoded)
    twice = (*ROWS, (248, 152, 350, 250, BARCODE, 0.8))
    _, codes = reader.read(np.zeros((400, 600, 3), np.uint8), boxes(*twice))
    assert texts(codes) == ["ab", None]
    assert len(looks) == 3  # the picture, and the first box twice


ROWS = ((250, 150, 350, 250, PDF417, 0.9),)
BOX = ((250, 150, 350, 250, BARCODE, 0.9),)


def said_for(reader, monkeypatch, name, whole, crops, box=BOX):
    """Return the texts if the whole picture and then the crops say one text, several or none."""
    answers = iter([whole, *crops])

    def decoded(pixels, *_, **__):
        some = next(answers, None) or ()
        some = (some,) if isinstance(some, str) else some
        return [Said(text, name, pixels.shape[1::-1]) for text in some]

    monkeypatch.setattr(reader, "_decoded", decoded)
    try:
        return texts(reader.read(np.zeros((400, 600, 3), np.uint8), boxes(*box))[1])
    finally:
        monkeypatch.undo()


@pytest.mark.parametrize(
    "content",
    ["line\nline\x07\x1b[31m", b"\xff\xfe\x00\x80\xc3(abc", "x" * 2000, "äöü 日本"],
    ids=["controls", "bytes", "long", "words"],
)
def test_any_content_is_returned_whole(reader, content):
    image = symbol(content, "QRCode", scale=3)
    pixels = page((image, (400, 400), 0), size=(800, 800))
    (code,) = reader.read(pixels, boxes(size=(800, 800)))[1]
    expected = content.encode() if isinstance(content, str) else content
    assert code.content == expected
    if isinstance(content, str):
        assert code.text == content


@pytest.mark.parametrize("kind", ["grey", "rgba", "float", "view"])
def test_pictures_of_any_layout_are_read(reader, kind):
    pixels = page((symbol("same", "DataMatrix", scale=5), (300, 200), 20))
    layouts = {
        "grey": pixels[..., :1],
        "rgba": np.concatenate([pixels, 0 * pixels[..., :1]], axis=2),
        "float": (pixels / np.float32(255)),
        "view": np.asfortranarray(pixels),
    }
    found = boxes((240, 140, 360, 260, DATAMATRIX, 0.9))
    assert texts(reader.read(layouts[kind], found)[1]) == ["same"]


def test_a_large_picture_is_read_as_zxing_reads_it(reader, monkeypatch):
    """What is light on dark, turned, of large modules or a few pixels high is read, too."""
    light = Image.fromarray(255 - np.asarray(symbol("light on dark", "DataMatrix")))
    bars = symbol("ABC-1234", "Code128", scale=2)
    thin = bars.crop((0, bars.height // 2, bars.width, bars.height // 2 + 6))
    placed = (
        (symbol("squares", "QRCode"), (150, 200), 0),
        (symbol("large modules", "QRCode", scale=20), (500, 1000), 0),
        (symbol("turned", "Aztec"), (1300, 200), 30),
        (light, (1300, 900), 10),
        (symbol("rows", "PDF417", scale=2), (600, 150), 0),
        (symbol("more rows", "PDF417", scale=2), (1100, 400), 90),
        (thin, (1200, 1300), 0),
        (thin.transpose(Image.Transpose.ROTATE_90), (1500, 500), 0),
    )
    pixels = page(*placed, size=(1600, 1400))
    looks = []
    decoded = reader._decoded

    def noted(seen, formats, **options):
        looks.append((seen.size, formats))
        return decoded(seen, formats, **options)

    monkeypatch.setattr(reader, "_decoded", noted)
    readings = reader._read_picture(grey(pixels))
    expected = {
        ("squares", 150, 200),
        ("large modules", 500, 1000),
        ("turned", 1300, 200),
        ("light on dark", 1300, 900),
        ("rows", 600, 150),
        ("more rows", 1100, 400),
        ("ABC-1234", 1200, 1300),
        ("ABC-1234", 1500, 500),
    }
    assert len(readings) == len(expected)
    assert texts_alone(pixels) <= {each.code.text for each in readings}
    for text, *place in expected:
        assert any(
            each.code.text == text and each.centre == pytest.approx(place, abs=12)
            for each in readings
        )
    squares = [size for size, formats in looks if not formats & reader._formats.linear]
    assert 0 < sum(squares) < pixels[..., 0].size


@pytest.mark.parametrize("shape", [(1, 1), (3, 70_000), (2, 2)])
def test_pictures_in_which_nothing_fits(reader, shape):
    pixels = np.zeros((*shape, 3), np.uint8)
    rows = boxes((-5, -5, 5, 5, QR, 0.9), (0, 0, 1e6, 1e6, BARCODE, 0.9), size=shape[::-1])
    found, codes = reader.read(pixels, rows)
    assert (len(found), codes) == (2, [None, None])


def test_boxes_beyond_any_picture(reader):
    rows = boxes((-1e12, -1e12, 1e12, 1e12, QR, 0.9), (5, 5, 5, 5, BARCODE, 0.9))
    assert reader.read(page(), rows)[1] == [None, None]
