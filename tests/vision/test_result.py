"""Results: views, sequences, text styles, pictures, and errors."""

import csv
import io
import json
import pickle
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.cli._sinks.json_documents import DarknetDocument
from engine.errors import ImageError, InputError
from engine.sources.item import Item
from engine.vision.boxes import Boxes
from engine.vision.classification import Classification
from engine.vision.detection import Box, Detection
from engine.vision.encode import encode
from engine.vision.image import Picture, read
from engine.vision.overlay import Mark, Overlay
from engine.vision.result import Result
from engine.vision.serialize import (
    COCO_CATEGORIES,
    CSV_COLUMNS,
    coco_entries,
    csv_rows,
)

NAMES = ("dog", "cat", 'a "quoted" one')
PICTURE = Picture(np.full((50, 100, 3), 90, np.uint8), None)


def result(**changes):
    values = {
        "size": (100, 50),
        "xywhn": np.array(
            [[0.5, 0.5, 0.2, 0.4], [0.1, 0.9, 0.4, 0.4], [0.25, 0.5, 0.1, 0.1]], np.float32
        ),
        "scores": np.array([0.9, 0.5, 0.25], np.float32),
        "class_ids": np.array([1, 0, 7]),
        "names": NAMES,
    }
    return Result(**{**values, **changes})


EMPTY = result(
    xywhn=np.zeros((0, 4), np.float32), scores=np.zeros(0, np.float32), class_ids=np.zeros(0, int)
)


def test_views_describe_the_same_boxes():
    found = result()
    np.testing.assert_allclose(found.boxes[0], [40, 15, 60, 35], rtol=1e-6)
    np.testing.assert_allclose(found.boxes[1], [-10, 35, 30, 55], rtol=1e-6)  # not clipped
    np.testing.assert_allclose(found.xywh[0], [50, 25, 20, 20], rtol=1e-6)
    np.testing.assert_allclose(found.xyxyn[0], [0.4, 0.3, 0.6, 0.7], rtol=1e-6)
    for view in (found.boxes, found.xywh, found.xywhn, found.xyxyn):
        assert view.dtype == np.float32
        assert view.shape == (3, 4)


def test_repr_of_a_result_is_one_line():
    found = result(class_ids=np.array([1, 0, 1]), path="a\nb.jpg")
    assert str(found) == "a\\nb.jpg, 100 x 50: 2 cat, 1 dog"
    assert str(EMPTY) == "picture, 100 x 50: nothing found"
    assert str(result(names=("\x1b[31m",))).endswith(": 1 1, 1 \\x1b[31m, 1 7")


def test_repr_of_a_classification_is_one_line():
    found = Classification((9, 5), np.array([0.25, 0.5, 0.125], np.float32), NAMES, top_k=2)
    assert str(found) == "picture, 9 x 5: cat 0.500, dog 0.250"


def test_a_result_is_a_sequence_of_detections():
    found = result()
    assert len(found) == 3
    assert [each.label for each in found] == found.labels == ["cat", "dog", "7"]
    assert found[0] == next(iter(found))
    assert isinstance(found[0], Detection)
    assert found[-1].class_id == 7
    assert found[0].box == pytest.approx((40, 15, 60, 35))
    with pytest.raises(IndexError):
        found[3]


@pytest.mark.parametrize(
    ("which", "expected"),
    [
        (slice(1, None), ["dog", "7"]),
        (np.array([True, False, True]), ["cat", "7"]),
        ([2, 0], ["7", "cat"]),
        ([], []),
    ],
)
def test_slice_of_a_result_is_a_result(which, expected):
    part = result()[which]
    assert isinstance(part, Result)
    assert part.labels == expected
    assert part.size == (100, 50)


@pytest.mark.parametrize("name", ["xywhn", "scores", "class_ids", "conf", "cls", "track_ids"])
def test_columns_are_read_only(name):
    given = result(track_ids=np.arange(3))
    boxes = Boxes(given.xywhn, given.scores, given.class_ids, given.scores)
    made = replace(Result.of(boxes, PICTURE, names=NAMES), track_ids=np.arange(3))
    for each in (given, made, given[:2], replace(given), pickle.loads(pickle.dumps(given))):
        expected = each.to_dict()
        with pytest.raises(ValueError, match="read-only"):
            getattr(each, name)[:] = 0
        assert each.to_dict() == expected


def test_columns_are_no_copies():
    scores = np.array([0.5, 0.25, 0.125], np.float32)
    given = result(scores=scores)
    assert np.shares_memory(given.scores, scores)
    assert scores.flags.writeable


@pytest.mark.parametrize("name", ["xyxy", "xyxyn", "xywh", "boxes"])
def test_boxes_in_pixels_are_made_for_each_caller(name):
    given = result()
    expected, before = given.to_dict(), getattr(given, name).tolist()
    getattr(given, name)[:] = 0
    assert getattr(given, name).tolist() == before
    assert given.to_dict() == expected


def test_columns_may_be_given_as_sequences():
    made = Result(size=(10, 10), xywhn=[(0.5, 0.5, 0.2, 0.2)], scores=(0.5,), class_ids=[1])
    assert (made.scores.tolist(), made.class_ids.tolist()) == ([0.5], [1])
    assert made.xyxy.tolist() == [[4, 4, 6, 6]]
    assert made[0].class_id == 1


def test_a_result_without_fields_has_no_columns():
    assert not hasattr(Result.__new__(Result), "scores")
    with pytest.raises(AttributeError, match="'Result' object has no attribute 'scores'"):
        _ = Result.__new__(Result).scores


def test_unknown_attributes_are_named():
    boxes = Boxes(result().xywhn, result().scores, result().class_ids, result().scores)
    made = Result.of(boxes, PICTURE)
    with pytest.raises(AttributeError, match="no attribute 'score'"):
        _ = made.score


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ["cat", "dog", "7"]),
        ({"classes": ["dog", "cat"]}, ["cat", "dog"]),
        ({"classes": "dog"}, ["dog"]),
        ({"classes": {7}}, ["7"]),
        ({"classes": []}, []),
        ({"exclude": ["dog", 7]}, ["cat"]),
        ({"min_score": 0.5}, ["cat", "dog"]),
    ],
)
def test_filter(options, expected):
    assert result().filter(**options).labels == expected


@pytest.mark.parametrize("name", ["threshold", "conf", "min_scor"])
def test_an_unknown_option_of_filter_names_the_one_that_is_meant(name):
    with pytest.raises(TypeError, match=rf"filter\(\) got .*'{name}'. Did you mean 'min_score'\?"):
        result().filter(**{name: 0.5})


def test_an_unknown_class_is_refused():
    with pytest.raises(InputError, match=r"no class is called 'dgo'\. Did you mean 'dog'"):
        result().filter(classes=["dgo"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": [999]}, "classes: expected a number below 8, got 999"),
        ({"classes": [-1]}, "classes: expected a number below 8, got -1"),
        ({"exclude": [8]}, "classes: expected a number below 8, got 8"),
        ({"min_score": float("nan")}, "min_score: expected a number from 0 to 1, got nan"),
        ({"min_score": 2}, "min_score: expected a number from 0 to 1, got 2"),
        ({"min_score": "a"}, "min_score: expected a number from 0 to 1, got 'a'"),
    ],
)
def test_a_filter_that_can_match_nothing_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        result().filter(**options)


def test_a_class_of_boxes_that_are_left_out_is_known():
    assert len(result()[:1].filter(classes=[7])) == 0
    assert len(result()[:0].filter(exclude=[7])) == 0


@pytest.mark.parametrize("name", ["a.png", "../own/a.png", "link.png"])
def test_the_picture_itself_is_never_replaced(tmp_path, monkeypatch, name):
    (tmp_path / "own").mkdir()
    monkeypatch.chdir(tmp_path / "own")
    Image.fromarray(PICTURE.pixels).save("a.png")
    before = Path("a.png").read_bytes()
    Path("link.png").symlink_to("a.png")
    found = result(path="a.png")
    for save in (found.save, found.save_txt):
        with pytest.raises(InputError, match=f"^{name}: would replace the picture itself"):
            save(name, overwrite=True)
    assert Path("a.png").read_bytes() == before
    assert found.save("other.png", overwrite=True).exists()


def test_result_is_immutable():
    with pytest.raises(FrozenInstanceError):
        result().path = "other"


def test_a_pickled_result_is_small_though_it_keeps_the_picture():
    large = Picture(np.zeros((1000, 1000, 3), np.uint8))
    boxes = Boxes(result().xywhn, result().scores, result().class_ids, result().scores)
    kept = Result.of(boxes, large, names=NAMES, keep_picture=True)
    assert kept.picture is large
    content = pickle.dumps(kept)
    assert len(content) < 2000
    again = pickle.loads(content)
    assert list(again) == list(kept)
    assert again.picture is None
    assert Result.of(boxes, large, names=NAMES).picture is None


def test_lazy_columns_are_available():
    boxes = Boxes(result().xywhn, result().scores, result().class_ids, result().scores)

    def fresh():
        return Result.of(boxes, PICTURE, names=NAMES)

    assert list(pickle.loads(pickle.dumps(fresh()))) == list(result())
    assert list(replace(fresh(), names=NAMES)) == list(result())
    assert repr(fresh()) == repr(replace(fresh(), path=None))
    assert fresh().to_json() == replace(fresh(), path=None).to_json()
    once = fresh()
    assert once._column("scores") is once._column("scores") is boxes.scores
    with pytest.raises(FrozenInstanceError):
        once.scores = boxes.scores
    with pytest.raises(AttributeError, match="'Result' object has no attribute 'score'"):
        _ = once.score


# ------------------------------------------------------------ text


def test_json_has_a_version_and_numbers():
    found = result(path="dir/ünï.jpg", timing={"forward": 1.5})
    loaded = json.loads(found.to_json())
    assert loaded == found.to_dict()
    assert loaded["schema_version"] == 1
    assert (loaded["path"], loaded["width"], loaded["height"]) == ("dir/ünï.jpg", 100, 50)
    assert loaded["timing_ms"] == {"forward": 1.5}
    first = loaded["detections"][0]
    assert (first["class_id"], first["label"]) == (1, "cat")
    assert first["score"] == pytest.approx(0.9)
    assert list(first["box"]) == ["left", "top", "right", "bottom"]


def test_edges_in_json_are_rounded_as_by_python():
    """Among them are halves of a thousandth, which round to the even one."""
    rng = np.random.default_rng(0)
    boxes = rng.standard_normal((4000, 4)).astype(np.float32)
    boxes[::2] = np.rint(boxes[::2] * 64) / 64
    found = result(
        size=(16, 8),
        xywhn=boxes,
        scores=rng.random(4000, np.float32) ** 5,
        class_ids=np.zeros(4000, np.int64),
    )
    rows = found.to_dict()["detections"]
    edges = [list(each["box"].values()) for each in rows]
    assert repr(edges) == repr([[round(value, 3) for value in row] for row in found.xyxy.tolist()])
    assert [each["score"] for each in rows] == [float(f"{s:.6g}") for s in found.scores.tolist()]


def test_darknets_json_is_the_same_byte_for_byte(tmp_path):
    document = DarknetDocument(str(tmp_path / "found.json"), existing="refuse")
    document.begin({}, ())
    for found in (result(path="a.jpg")[:2], EMPTY):
        document.take(Item("a.jpg", "a.jpg"), found, 0.0)
    document.finish()
    assert (tmp_path / "found.json").read_text() == (
        "[\n"
        '{\n "frame_id":1, \n "filename":"a.jpg", \n "objects": [ \n'
        '  {"class_id":1, "name":"cat", "relative_coordinates":{"center_x":0.500000,'
        ' "center_y":0.500000, "width":0.200000, "height":0.400000}, "confidence":0.900000}, \n'
        '  {"class_id":0, "name":"dog", "relative_coordinates":{"center_x":0.100000,'
        ' "center_y":0.900000, "width":0.400000, "height":0.400000}, "confidence":0.500000}'
        "\n ] \n}, \n"
        '{\n "frame_id":2, \n "objects": [ \n\n ] \n}'
        "\n]"
    )


def test_darknets_json_has_identities_at_the_end():
    found = json.loads(result(track_ids=np.array([7, 3, 9])).to_json("darknet"))
    assert [each["track_id"] for each in found["objects"]] == [7, 3, 9]
    assert [*found["objects"][0]][-2:] == ["confidence", "track_id"]


@pytest.mark.parametrize("style", ["engine", "darknet"])
@pytest.mark.parametrize(
    ("path", "written"),
    [
        *((each, each) for each in ("C:\\new\\dog.jpg", 'a"b.jpg', "a\nb.jpg", "\U0001f415")),
        ("\udce9.jpg", "\\udce9.jpg"),  # a lone surrogate, which strict parsers refuse
    ],
)
def test_file_names_are_escaped(path, written, style):
    text = result(path=path, class_ids=np.array([2, 2, 2])).to_json(style)
    loaded = json.loads(text.encode("utf-8"))
    assert loaded.get("filename", loaded.get("path")) == written
    assert NAMES[2] in str(loaded)


def test_a_line_of_json_is_one_line_for_every_reader():
    """str.splitlines(), JavaScript and others take these for ends of lines, too."""
    name = "a\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029é.jpg"
    text = result(path=name).to_json()
    assert text.splitlines() == [text]
    assert "\\u0085\\u2028\\u2029é" in text
    assert json.loads(text)["path"] == name


def test_cocos_json():
    found = result(path="val/000000000139.jpg")
    first = json.loads(found.to_json("coco"))[0]
    assert (first["image_id"], first["category_id"]) == (139, 2)
    assert first["bbox"] == pytest.approx([40, 15, 20, 20])
    assert coco_entries(found, "x", categories=range(10, 20))[0]["category_id"] == 11
    for wrong in ([1], 5, ["a"] * 9):
        with pytest.raises(InputError, match="categories: expected a number for each class, got "):
            found.to_coco(categories=wrong)
    assert coco_entries(replace(found, path="dog.jpg"))[0]["image_id"] == "dog"
    assert coco_entries(EMPTY) == []


def test_the_80_coco_classes_get_their_category_ids():
    names = ("person", *(str(each) for each in range(1, 80)))
    entries = coco_entries(result(names=names, class_ids=np.array([0, 11, 79])))
    assert [each["category_id"] for each in entries] == [1, 13, 90]
    assert len(COCO_CATEGORIES) == 80


def test_an_unknown_style_is_refused():
    with pytest.raises(InputError, match=r"got 'coko'\. Did you mean 'coco'"):
        result().to_json("coko")
    with pytest.raises(InputError, match="style: expected engine, darknet or coco, got None"):
        result().to_json(None)


def test_70_json_never_holds_nan():
    found = result(scores=np.array([np.nan, np.inf, 1.5], np.float32), timing={"x": float("nan")})
    loaded = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert [each["score"] for each in loaded["detections"]] == [None, None, 1.5]
    probabilities = Classification((4, 4), np.array([np.nan, 0.5], np.float32))
    loaded = json.loads(probabilities.to_json(), parse_constant=pytest.fail)
    assert [each["score"] for each in loaded["classes"]] == [0.5, None]


def test_yolo_lines_are_clipped_to_the_picture():
    assert result().to_yolo().splitlines() == [
        "1 0.500000 0.500000 0.200000 0.400000",
        "0 0.150000 0.850000 0.300000 0.300000",
        "7 0.250000 0.500000 0.100000 0.100000",
    ]
    assert result().to_yolo(conf=True).splitlines()[0].endswith(" 0.900000")
    outside = result(xywhn=np.array([[-3, 0.5, 1, 1]] * 3, np.float32))
    assert outside.to_yolo() == EMPTY.to_yolo() == ""


def test_csv_rows_can_be_read_back():
    buffer = io.StringIO()
    csv.writer(buffer).writerows([CSV_COLUMNS, *result(path='a, "b".jpg').to_csv()])
    rows = list(csv.DictReader(io.StringIO(buffer.getvalue())))
    assert rows[0]["path"] == 'a, "b".jpg'
    assert rows[1]["label"] == "dog"
    assert float(rows[1]["left"]) == pytest.approx(-10)
    assert csv_rows(EMPTY) == []


# ------------------------------------------------------------ pictures


def test_plot_takes_the_given_picture_the_kept_one_or_the_file(tmp_path):
    path = str(tmp_path / "a.png")
    Image.fromarray(PICTURE.pixels).save(path)
    drawn = result().plot(PICTURE)
    assert drawn.size == (100, 50)
    for other in (
        result(picture=PICTURE).plot(),
        result(path=path).plot(),
        result().plot(PICTURE.pixels),
        result().plot(path),
    ):
        assert other.tobytes() == drawn.tobytes()
    assert drawn.tobytes() != PICTURE.pixels.tobytes()
    assert EMPTY.plot(PICTURE).tobytes() == PICTURE.pixels.tobytes()
    assert (PICTURE.pixels == 90).all()


def test_plot_makes_one_image(monkeypatch):
    overlay = Overlay({1: ((5, 5), (40, 40))}, (Mark(((0, 0), (99, 49)), False, "in 1"),))
    found = result(overlay=overlay)
    made = PICTURE.to_image()
    monkeypatch.setattr(Picture, "to_image", lambda self: made)
    monkeypatch.setattr(Image.Image, "copy", None)
    assert found.plot(PICTURE) is made
    assert made.tobytes() != PICTURE.pixels.tobytes()
    assert (PICTURE.pixels == 90).all()


def test_plot_of_a_turned_picture_reads_it_the_same_way(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = str(tmp_path / "a.png")
    Image.new("RGB", (50, 100)).save(path, exif=exif)
    assert result(path=path).plot().size == (100, 50)
    assert result(path=path, size=(50, 100), oriented=False).plot().size == (50, 100)


def test_plot_without_a_picture_says_so(tmp_path):
    with pytest.raises(InputError, match="picture: was not kept and has no path"):
        result().plot()
    path = str(tmp_path / "a.png")
    Image.new("RGB", (7, 7)).save(path)
    with pytest.raises(
        ImageError, match="expected 100 x 50 as at the time of detection, got 7 x 7"
    ):
        result(path=path).plot()


def test_classes_of_one_box_share_a_label():
    twice = result(xywhn=np.repeat(result().xywhn[:1], 3, axis=0))
    assert twice.plot(PICTURE).tobytes() != twice[:1].plot(PICTURE).tobytes()
    plain = twice.plot(PICTURE, show_labels=False, show_scores=False).tobytes()
    assert plain == twice[:1].plot(PICTURE, show_labels=False, show_scores=False).tobytes()


@pytest.mark.parametrize("ending", ["png", "jpg", "JPEG", "webp", "bmp", "tif", "gif"])
def test_save_writes_the_format_of_the_name(tmp_path, ending):
    path = result().save(tmp_path / f"out.{ending}", PICTURE)
    assert read(path).size == (100, 50)


@pytest.mark.parametrize(
    ("ending", "limit"), [("jpg", 65_500), ("webp", 16_383), ("gif", 65_535), ("png", None)]
)
def test_picture_its_format_cannot_hold_is_refused_at_once(capfd, ending, limit):
    encode(Image.new("RGB", (limit or 70_000, 1)), f"a.{ending}")
    if limit:
        with pytest.raises(
            InputError, match=rf"at most {limit} pixels a side, got 1 x {limit + 1}"
        ):
            encode(Image.new("RGB", (1, limit + 1)), f"a.{ending}")
    assert capfd.readouterr().err == ""  # libjpeg would print a warning


def test_63_save_replaces_nothing_unless_asked(tmp_path):
    path = tmp_path / "out.png"
    path.write_bytes(b"precious")
    with pytest.raises(InputError, match=r"out\.png: exists already"):
        result().save(path, PICTURE)
    assert path.read_bytes() == b"precious"
    result().save(path, PICTURE, overwrite=True)
    assert read(path).size == (100, 50)


def test_63_save_onto_the_source_is_refused(tmp_path):
    path = tmp_path / "dog.png"
    Image.fromarray(PICTURE.pixels).save(path)
    before = path.read_bytes()
    with pytest.raises(InputError, match="would replace the picture itself"):
        result(path=str(path)).save(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("taken/out.png", "taken: expected a folder, got a file or a path below one"),
        ("out.txt", r"expected a name that ends in .jpg, .png, .*, got '.txt'"),
        ("out", "got ''"),
        ("out.pdf", "got '.pdf'"),
    ],
)
def test_63_save_to_an_impossible_place_is_an_input_error(tmp_path, name, message):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=message):
        result().save(tmp_path / name, PICTURE)


def test_folders_that_are_missing_are_made(tmp_path):
    assert result().save(tmp_path / "a/b/out.png", PICTURE).is_file()
    assert result().save_txt(tmp_path / "c/out.txt").is_file()


def test_crops_are_the_boxes_inside_the_picture():
    pixels = np.zeros((50, 100, 3), np.uint8)
    pixels[15:35, 40:60] = 200
    cut = result().crops(pixels)
    assert [found.label for found, _ in cut] == ["cat", "dog", "7"]
    assert cut[1][1].size == (30, 15)
    assert (np.asarray(cut[0][1])[1:-1, 1:-1] == 200).all()
    outside = result(xywhn=np.array([[-3, 0.5, 1, 1]] * 3, np.float32))
    assert outside.crops(PICTURE) == []


def test_a_box_without_a_place_has_no_crop():
    boxes = np.array([[np.nan, 0.5, 0.1, 0.1], [0.5, 0.5, np.inf, 0.1], [0.5] * 4], np.float32)
    assert [found.label for found, _ in result(xywhn=boxes).crops(PICTURE)] == ["7"]


def test_box_has_a_width_and_a_height():
    box = Box(-5, 10, 30, 60)
    assert (box.width, box.height) == (35, 50)
    assert box.clipped(20, 50) == (0, 10, 20, 50)


# ------------------------------------------------------------ classification


def test_the_best_classes_come_first():
    found = Classification(
        (4, 4), np.array([0.1, 0.6, 0.1, 0.2], np.float32), ("a", "b", "c"), top_k=2
    )
    assert [each.label for each in found] == ["b", "3"]
    assert len(found) == 2
    assert found[0].class_id == 1
    assert found[0].score == pytest.approx(0.6)
    assert [each.label for each in found.top(9)] == ["b", "3", "a", "c"]
    assert found.top(0) == []


def test_a_classification_as_json():
    found = Classification((4, 2), np.array([0.25, 0.75], np.float32), ("a", "b"), path="x.png")
    assert json.loads(found.to_json()) == found.to_dict()
    assert found.to_dict()["classes"][0] == {"class_id": 1, "label": "b", "score": 0.75}
    assert found.to_dict()["width"] == 4


# ------------------------------------------------------------ names of other libraries


def test_names_that_other_libraries_use():
    found = result()
    np.testing.assert_array_equal(found.xyxy, found.boxes)
    np.testing.assert_array_equal(found.conf, found.scores)
    np.testing.assert_array_equal(found.cls, found.class_ids)
    assert repr(found) == f"<Result {found}>"
    kind = Classification((4, 2), np.array([0.25, 0.75], np.float32), ("a", "b"))
    assert repr(kind) == f"<Classification {kind}>"


@pytest.mark.parametrize("order", ["rgb", "bgr"])
def test_plot_as_an_array(order):
    image = result().plot(PICTURE)
    pixels = result().plot(PICTURE, array=order)
    assert pixels.dtype == np.uint8
    assert pixels.flags.c_contiguous
    expected = np.asarray(image)
    np.testing.assert_array_equal(pixels, expected if order == "rgb" else expected[:, :, ::-1])
    with pytest.raises(InputError, match="array: expected"):
        result().plot(PICTURE, array="hsv")


def test_save_txt_replaces_nothing_unless_asked(tmp_path):
    path = result().save_txt(tmp_path / "a.txt", conf=True)
    assert path.read_text() == result().to_yolo(conf=True)
    with pytest.raises(InputError, match="exists already"):
        result().save_txt(path)
    assert result().save_txt(path, overwrite=True).read_text() == result().to_yolo()


def test_save_crop_writes_all_crops_or_none(tmp_path):
    last = result().save_crop(tmp_path / "all", PICTURE)[-1]
    kept = tmp_path / "crops" / last.relative_to(tmp_path / "all")
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"mine")
    with pytest.raises(InputError, match="exists already"):
        result().save_crop(tmp_path / "crops", PICTURE)
    assert [each for each in (tmp_path / "crops").rglob("*") if each.is_file()] == [kept]
    assert kept.read_bytes() == b"mine"


def test_a_label_is_no_index():
    with pytest.raises(InputError, match=r"got 'cat'\. Did you mean result\.filter\(classes"):
        result()["cat"]
    assert isinstance(result()[np.array(1)], Detection)
    with pytest.raises(InputError, match="expected indices of one dimension, got 2"):
        result()[np.array([[0, 1]])]


def test_save_crop_makes_a_folder_for_each_label(tmp_path):
    found = replace(
        result(), names=("a/b", "x"), path="dir/street.png", class_ids=np.array([0] * 3)
    )
    paths = found.save_crop(tmp_path / "crops", PICTURE)
    names = [path.relative_to(tmp_path / "crops").as_posix() for path in paths]
    assert names == ["a_b/street.jpg", "a_b/street-2.jpg", "a_b/street-3.jpg"]
    assert all(path.read_bytes().startswith(b"\xff\xd8") for path in paths)
    with pytest.raises(InputError, match="exists already"):
        found.save_crop(tmp_path / "crops", PICTURE)
    assert found.save_crop(tmp_path / "crops", PICTURE, overwrite=True) == paths
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="expected a folder, got a file"):
        found.save_crop(tmp_path / "file", PICTURE)


def test_show_opens_the_annotated_picture(monkeypatch):
    shown = []
    monkeypatch.setattr(Image.Image, "show", lambda image, title: shown.append((image, title)))
    result().show(PICTURE)
    ((image, _),) = shown
    np.testing.assert_array_equal(image, result().plot(PICTURE))
