"""Label files: valid lines are read, broken ones are reported with file and line."""

import os

import numpy as np
import pytest

from engine.errors import InputError
from engine.evaluate import dataset, voc_labels, yolo_labels
from engine.outputs import labelled_pictures
from engine.sources.expand import expand

NAMES = ("cat", "dog")
GOOD = "0 0.5 0.5 0.2 0.4"


def read_yolo(tmp_path, text, size=(200, 100)):
    path = tmp_path / "a.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    problems = []
    return yolo_labels.read(path, size, NAMES, problems), problems


def test_line_gives_a_box_in_pixels(tmp_path):
    objects, problems = read_yolo(tmp_path, f"{GOOD}\n1 0.25 0.75 0.5 0.5\n")
    np.testing.assert_allclose(objects.boxes, [[80, 30, 40, 40], [0, 50, 100, 50]])
    assert objects.class_ids.tolist() == [0, 1]
    np.testing.assert_allclose(objects.areas, [1600, 5000])
    assert problems == []


def test_polygon_stands_for_the_box_around_it(tmp_path):
    text = "1 0.25 0.5 0.5 0.25 0.75 0.5 0.5 1.0\n0 0 0.5 1.4 0 1 -0.002\n"
    objects, problems = read_yolo(tmp_path, text)
    np.testing.assert_allclose(objects.boxes, [[50, 25, 100, 75], [0, -0.2, 280, 50.2]])
    assert objects.class_ids.tolist() == [1, 0]
    assert problems == []


@pytest.mark.parametrize("word", ["1.0", "1.", "1.000000"])
def test_a_whole_number_with_a_point_is_a_class(tmp_path, word):
    objects, problems = read_yolo(tmp_path, f"{word} 0.5 0.5 0.2 0.4")
    assert (objects.class_ids.tolist(), problems) == ([1], [])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0 0.5 0.5 0.2", "expected class x y width height, got 4 columns"),
        ("0 0.5 0.5 0.2 0.4 0.9", "got 6 columns. Write labels without --save-conf"),
        ("cat 0.5 0.5 0.2 0.4", "class: expected its number, got 'cat'"),
        ("-1 0.5 0.5 0.2 0.4", "class: expected its number, got '-1'"),
        ("2 0.5 0.5 0.2 0.4", "class: expected 0 to 1, got 2"),
        ("99999999999999999999999 0.5 0.5 0.2 0.4", "class: expected 0 to 1, got 999999"),
        ("1.5 0.5 0.5 0.2 0.4", "class: expected its number, got '1.5'"),
        ("1. 5 0.5 0.5 0.2 0.4", "got 6 columns"),
        (".0 0.5 0.5 0.2 0.4", "class: expected its number, got '.0'"),
        ("2.0 0.5 0.5 0.2 0.4", "class: expected 0 to 1, got 2"),
        ("0 a b c d", "expected class x y width height, got '0 a b c d'"),
        ("0 nan 0.5 0.2 0.4", "box: expected finite numbers, got 'nan 0.5 0.2 0.4'"),
        ("0 0.5 inf 0.2 0.4", "box: expected finite numbers"),
        ("0 0.1 0.1 0.9 0.1 nan 0.9", "box: expected finite numbers"),
        ("0 0.1 0.1 0.9 0.1 0.5", "got 6 columns"),
        ("0 0.1 0.1 0.5 0.1 0.9 0.1", "box: has no area: width 0.8, height 0"),
        ("0 0.5 0.5 0.2 0.2 0.5 0.5 2 0.6 0.5 1", "polygon: expected values from 0 to 1, got 2"),
        ("0 0.5 0.5 0 0.4", "box: has no area: width 0, height 0.4"),
        ("0 0.5 0.5 0.2 -0.4", "box: has no area"),
        ("0 1.5 0.5 0.2 0.4", "box: lies outside the picture: x 1.5, y 0.5"),
        (
            "0 320 240 100 50",
            "box: expected values relative to the picture, 0 to 1, got 320.",
        ),
    ],
)
def test_broken_line_is_reported_and_the_others_are_read(tmp_path, line, message):
    objects, problems = read_yolo(tmp_path, f"{GOOD}\n{line}\n{GOOD}\n")
    (problem,) = problems
    assert problem.startswith(f"{tmp_path / 'a.txt'}:2: ")
    assert message in problem
    assert "\n" not in problem
    assert len(objects) == 2


@pytest.mark.parametrize(
    "text", [f"{GOOD}\r\n{GOOD}\r\n", f"{GOOD}\r{GOOD}", f"\ufeff{GOOD}\n\n  \n\t{GOOD}  "]
)
def test_line_ends_bom_and_blank_lines_are_accepted(tmp_path, text):
    objects, problems = read_yolo(tmp_path, text)
    assert len(objects) == 2
    assert problems == []


def test_undecodable_bytes_are_one_problem_per_line(tmp_path):
    objects, problems = read_yolo(tmp_path, b"\xff\xfe\x80 0.5\n" + GOOD.encode())
    assert len(objects) == len(problems) == 1


ANNOTATION = """<annotation><size><width>200</width><height>100</height></size>
<object><name>dog</name><difficult>1</difficult>
  <bndbox><xmin>11</xmin><ymin>21</ymin><xmax>50</xmax><ymax>40</ymax></bndbox></object>
<object><name>cat</name>
  <bndbox><ymin>1</ymin><xmin>1</xmin><ymax>100</ymax><xmax>200</xmax></bndbox></object>
</annotation>"""


def read_voc(tmp_path, text, size=(200, 100)):
    path = tmp_path / "a.xml"
    path.write_text(text)
    problems = []
    return voc_labels.read(path, size, NAMES, problems), problems


def test_voc_pixels_are_one_based_and_inclusive(tmp_path):
    objects, problems = read_voc(tmp_path, ANNOTATION)
    assert objects.boxes.tolist() == [[10, 20, 40, 20], [0, 0, 200, 100]]
    assert objects.class_ids.tolist() == [1, 0]
    assert objects.optional.tolist() == [True, False]
    assert problems == []


@pytest.mark.parametrize(
    ("size", "hint"),
    [((100, 200), ". See EXIF in docs/evaluate.md"), ((1000, 500), ""), ((200, 101), "")],
)
def test_a_picture_of_another_size_is_reported_and_its_objects_count(tmp_path, size, hint):
    objects, problems = read_voc(tmp_path, ANNOTATION, size)
    own = f"labelled as 200 x 100, the picture is {size[0]} x {size[1]}{hint}"
    assert problems == [f"{tmp_path / 'a.xml'}: size: {own}"]
    assert len(objects) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<width>200<", "<width>0<"),
        ("<width>200<", "<width>-1<"),
        ("<width>200<", "<width>nan<"),
        ("<width>200<", "<width>inf<"),
        ("<width>200<", "<width>unknown<"),
        ("<height>100</height>", ""),
        ("<width>200<", "<width> 200.0 <"),
    ],
)
def test_a_size_that_is_unknown_or_written_differently_is_no_problem(tmp_path, before, after):
    size = (7, 7) if after != "<width> 200.0 <" else (200, 100)
    objects, problems = read_voc(tmp_path, ANNOTATION.replace(before, after), size)
    assert (len(objects), problems) == (2, [])


def test_the_tag_of_an_annotation_may_be_in_capitals(tmp_path):
    text = ANNOTATION.replace("annotation>", "Annotation>")
    objects, problems = read_voc(tmp_path, text)
    assert (len(objects), problems) == (2, [])


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("dog", "dgo", "object 1: name: no class is called 'dgo'. Did you mean 'dog'?"),
        ("<xmin>11</xmin>", "", "object 1: bndbox: expected four numbers, got ', 21, 50, 40'"),
        ("<xmin>11<", "<xmin>left<", "object 1: bndbox: expected four numbers"),
        ("<xmin>11<", "<xmin>nan<", "object 1: bndbox: expected numbers of pixels"),
        ("<xmin>11<", "<xmin>90<", "object 1: bndbox: has no area: -39 x 20"),
    ],
)
def test_broken_object_is_reported_and_the_others_are_read(tmp_path, before, after, message):
    objects, problems = read_voc(tmp_path, ANNOTATION.replace(before, after))
    assert problems == [problem for problem in problems if message in problem]
    assert len(problems) == len(objects) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: is not XML"),
        ("<annotation>\n<object>\n</annotation>", "a.xml:3: is not XML: mismatched tag"),
        ("<!DOCTYPE a [<!ENTITY b 'c'>]><annotation/>", "got XML with declarations"),
        ("<?xml version='1.0' encoding='nonsense'?><annotation/>", "is not XML"),
        ("<svg/>", "a.xml: expected <annotation>, got <svg>"),
        (
            "<annotation xmlns='http://x.org'/>",
            "got <{http://x.org}annotation>. It has a namespace",
        ),
    ],
)
def test_annotation_that_is_not_xml_is_refused_in_one_line(tmp_path, text, message):
    with pytest.raises(InputError, match=r"a\.xml") as caught:
        read_voc(tmp_path, text)
    assert message in str(caught.value)


def put(root, *names):
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


@pytest.mark.parametrize(
    ("files", "picture", "expected"),
    [
        (["a.txt"], "a.jpg", "a.txt"),
        (["images/a.txt", "labels/a.txt"], "images/a.jpg", "images/a.txt"),
        (["labels/a.txt"], "images/a.jpg", "labels/a.txt"),
        (["labels/val/a.txt"], "images/val/a.jpg", "labels/val/a.txt"),
        (["JPEGImages/a.txt", "labels/a.txt"], "JPEGImages/a.jpg", "labels/a.txt"),
        (["images/val2017/a.txt", "labels/val2017/a.txt"], "images/val2017/a.jpg",
         "labels/val2017/a.txt"),
        (["Annotations/a.xml"], "JPEGImages/a.jpg", "Annotations/a.xml"),
        (["Annotations/a.xml", "labels/a.txt"], "JPEGImages/a.jpg", "labels/a.txt"),
        (["a.xml"], "a.jpg", "a.xml"),
        (["b.txt"], "a.jpg", None),
    ],
)  # fmt: skip
def test_labels_are_where_darknet_looks_for_them(tmp_path, files, picture, expected):
    put(tmp_path, *files)
    found = dataset.find_labels(tmp_path / picture)
    assert found == (None if expected is None else tmp_path / expected)


def test_labels_of_inner_folders_are_found(tmp_path):
    put(tmp_path, "photos/day1/a.jpg", "labels/day1/a.txt", "labels/a.txt")
    (tmp_path / "list.txt").write_text("photos/day1/a.jpg\n")
    truth = labelled_pictures.read(str(tmp_path / "list.txt"), NAMES)
    assert list(truth.label_files) == [tmp_path / "labels/day1/a.txt"]


@pytest.mark.parametrize("label", ["labels/a.txt", "Annotations/a.xml"])
def test_labels_are_found_next_to_a_folder_of_any_name(tmp_path, monkeypatch, label):
    put(tmp_path, "photos/a.jpg", "photos/b.jpg", label)
    for source in (tmp_path / "photos", "photos", "."):
        monkeypatch.chdir(tmp_path / "photos" if source == "." else tmp_path)
        truth = labelled_pictures.read(str(source), NAMES)
        assert [each.samefile(tmp_path / label) for each in truth.label_files] == [True]
        assert truth.unlabelled == 1
    assert dataset.find_labels(tmp_path / "photos/a.jpg") is None  # darknet's rule


def test_a_picture_that_is_named_twice_is_reported(tmp_path):
    put(tmp_path, "a.jpg", "b.jpg")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "list.txt").write_text("a.jpg\nb.jpg\n./a.jpg\nlink/a.jpg\n")
    truth = labelled_pictures.read(str(tmp_path / "list.txt"), NAMES)
    assert len(truth.entries) == 4
    assert truth.remarks == [
        f"{tmp_path}/list.txt: names 1 of 2 pictures more than once, such as {tmp_path}/a.jpg:"
        " each counts every time"
    ]


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        ([GOOD, GOOD], "1 label repeats another"),
        ([GOOD, GOOD.replace("0.5", "0.50"), GOOD], "2 labels repeat others"),
        ([GOOD, GOOD.replace("0", "1", 1)], ""),
    ],
)
def test_equal_labels_count_each_and_are_reported(tmp_path, lines, what):
    put(tmp_path, "a.jpg")
    (tmp_path / "a.txt").write_text("\n".join(lines))
    truth = labelled_pictures.read(str(tmp_path), NAMES)
    assert len(truth.entries[0].objects((200, 100)).boxes) == len(lines)
    told = f"{tmp_path}/a.txt: {what}: each counts, but a detection matches only one"
    assert truth.remarks == [told] * bool(what)
    assert not truth.problems


@pytest.mark.parametrize("folder", ["images", "photos"])
def test_other_labels_in_a_second_place_are_reported(tmp_path, folder):
    put(tmp_path, *(f"{each}/a.jpg" for each in (folder,)))
    texts = {f"{folder}/a.txt": "0 .5 .5 1 1", "labels/a.txt": "1 .5 .5 1 1"}
    (tmp_path / "labels").mkdir()
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (remark,) = labelled_pictures.read(str(tmp_path / folder), NAMES).remarks
    assert remark == (
        f"{tmp_path}/{folder}: pictures with other labels in a second place: 1, such as"
        f" {tmp_path}/labels/a.txt, which is ignored. {tmp_path}/{folder}/a.txt is used"
    )
    named = labelled_pictures.read(str(tmp_path / folder), NAMES, labels=str(tmp_path / "labels"))
    assert named.remarks == []
    (tmp_path / "labels/a.txt").write_text("0 .5 .5 1 1")
    assert labelled_pictures.read(str(tmp_path / folder), NAMES).remarks == []


def test_a_folder_of_labels_may_be_named(tmp_path):
    put(tmp_path, "pictures/a.jpg", "pictures/a.txt", "elsewhere/a.xml")
    truth = labelled_pictures.read(
        str(tmp_path / "pictures"), NAMES, labels=str(tmp_path / "elsewhere")
    )
    (entry,) = truth.entries
    entry.objects((10, 10))
    assert ["a.xml" in problem for problem in truth.problems] == [True]


def test_empty_or_missing_label_file_means_no_objects(tmp_path):
    put(tmp_path, "images/a.jpg", "images/b.png", "images/notes.doc", "labels/a.txt")
    truth = labelled_pictures.read(str(tmp_path), NAMES)
    assert [entry.image_id for entry in truth.entries] == ["a", "b"]
    assert [len(entry.objects((10, 10))) for entry in truth.entries] == [0, 0]
    assert truth.unlabelled == 1
    assert truth.problems == []


def test_a_folder_has_the_pictures_that_detect_finds_in_it(tmp_path):
    put(tmp_path, "a.jpg", "b.PGM", "c.pbm", "d.mpo", "e.jpe", "._a.jpg", "a.txt")
    truth = labelled_pictures.read(str(tmp_path), NAMES)
    found = [place.name for place in expand([str(tmp_path)])]
    assert [entry.path for entry in truth.entries] == found
    assert len(found) == 5


def test_a_list_names_pictures_relative_to_itself_too(tmp_path):
    put(tmp_path, "0001.jpg", "0002.jpg")
    text = f"\ufeff0001.jpg\r\n\r\n'{tmp_path / '0002.jpg'}'\r\nmissing.jpg\r\n"
    (tmp_path / "list.txt").write_text(text, newline="")
    truth = labelled_pictures.read(str(tmp_path / "list.txt"), NAMES)
    paths = [str(tmp_path / "0001.jpg"), str(tmp_path / "0002.jpg"), "missing.jpg"]
    assert [entry.path for entry in truth.entries] == paths
    assert [entry.image_id for entry in truth.entries] == ["0001", "0002", "missing"]


@pytest.mark.parametrize(
    ("pictures", "expected"),
    [
        (["a/007.jpg", "a/12.jpg"], [7, 12]),
        (["a/007.jpg", "a/7.jpg"], ["007", "7"]),
        (["a/x.jpg", "b/x.jpg"], ["a/x.jpg", "b/x.jpg"]),
        (["a/x.jpg", "b/x.jpg", "a/x.jpg"], [1, 2, 3]),
    ],
)
def test_each_picture_has_its_own_id(tmp_path, pictures, expected):
    (tmp_path / "list.txt").write_text("\n".join(pictures))
    truth = labelled_pictures.read(str(tmp_path / "list.txt"), NAMES)
    assert [entry.image_id for entry in truth.entries] == expected


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "names no picture"),
        (b"a\0b", "expected lines of text, got binary data"),
        (b"a.jpg\n./\n", "list.txt:2: expected a file's name, got './'"),
        (b"x" * 5000, None),
    ],
)
def test_invalid_list_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    if message is None:
        assert labelled_pictures.read(str(path), NAMES).unlabelled == 1
        return
    with pytest.raises(InputError) as caught:
        labelled_pictures.read(str(path), NAMES)
    assert message in str(caught.value)


def test_pipe_or_missing_source_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "none", "a\0b"):
        with pytest.raises(InputError):
            labelled_pictures.read(str(tmp_path / name), NAMES)
    with pytest.raises(InputError, match="--labels"):
        labelled_pictures.read(str(tmp_path), NAMES, labels=str(tmp_path / "none"))


def labels_of(source, **options):
    truth = labelled_pictures.read(str(source), NAMES, **options)
    return [str(each) for each in truth.label_files], truth


@pytest.mark.parametrize("has_list", [True, False])
def test_labels_in_a_folder_have_the_folders_of_their_pictures(tmp_path, has_list):
    days = ("day1", "day2") if has_list else ("day1",)
    put(tmp_path, *(f"pics/{day}/a.jpg" for day in days), *(f"lab/{day}/a.txt" for day in days))
    put(tmp_path, "lab/a.txt", "flat/a.txt")
    (tmp_path / "list.txt").write_text("".join(f"pics/{day}/a.jpg\n" for day in days))
    source = tmp_path / "list.txt" if has_list else tmp_path / "pics/day1"
    found, truth = labels_of(source, labels=str(tmp_path / "lab"))
    inner = [f"{tmp_path}/lab/{day}/a.txt" for day in days]
    assert (found, truth.remarks) == (inner, [])
    (tmp_path / "lab/day1/a.txt").unlink()  # the one above is that of another picture
    found, truth = labels_of(source, labels=str(tmp_path / "lab"))
    assert (found, truth.unlabelled) == (inner[1:], 1)

    found, truth = labels_of(source, labels=str(tmp_path / "flat"))
    assert found == [f"{tmp_path}/flat/a.txt"]
    shared = [each for each in truth.remarks if "label files whose names fit several" in each]
    assert len(shared) == (len(days) > 1)
    for line in shared:
        files = f"{tmp_path}/flat/a.txt for {tmp_path}/pics/day1/a.jpg and {tmp_path}/pics/day2"
        assert f"several pictures: 1, such as {files}" in line


def test_a_part_of_a_tree_has_the_labels_of_the_tree(tmp_path):
    put(tmp_path, "p/cam3/day1/x.jpg", "l/cam3/day1/x.txt", "l/day1/x.txt", "l/x.txt")
    found, _ = labels_of(tmp_path / "p/cam3/day1", labels=str(tmp_path / "l"))
    assert found == [f"{tmp_path}/l/cam3/day1/x.txt"]


def test_pictures_that_differ_in_their_ending_share_labels_with_a_line(tmp_path):
    put(tmp_path, "images/a.jpg", "images/a.png", "images/b.jpg", "labels/a.txt", "labels/b.txt")
    _, truth = labels_of(tmp_path / "images")
    (remark,) = truth.remarks
    assert f"several pictures: 1, such as {tmp_path}/labels/a.txt for {tmp_path}/images/a" in remark
