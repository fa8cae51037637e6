"""Options of load() and stream() for boxes, threads and pictures."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.errors import ImageError, InputError
from engine.vision import image
from engine.vision.image import read
from engine.vision.postprocess import postprocess
from engine.vision.resize import Placement
from tests import needs
from tests.pictures import write_picture, write_video


@pytest.fixture
def load(tiny_detector):
    opened = []

    def load(**options):
        names = str(tiny_detector.names)
        opened.append(engine.load(tiny_detector.cfg, tiny_detector.weights, names, **options))
        return opened[-1]

    yield load
    for detector in opened:
        detector.close()


@pytest.fixture
def picture(tmp_path):
    return str(write_picture(tmp_path / "a.png"))


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"classes": ["cat", 2]}, {"cat", "cow"}),
        ({"exclude": ["cat"]}, {"dog", "cow"}),
        ({"classes": "dog", "exclude": ["dog"]}, set()),
        ({"exclude": None}, {"cat", "dog", "cow"}),
        ({"exclude": np.array([0, 1])}, {"cow"}),
    ],
)
def test_only_chosen_classes_are_found(load, picture, options, allowed):
    everything = load(device="cpu", threshold=0.01)(picture)
    chosen = load(device="cpu", threshold=0.01, **options)(picture)
    assert set(chosen.labels) == allowed
    kept = [(each.label, each.score, each.box) for each in everything if each.label in allowed]
    assert [(each.label, each.score, each.box) for each in chosen] == kept


def test_excluded_classes_suppress_nothing(load, picture):
    options = {"device": "cpu", "threshold": 0.01, "agnostic_nms": True}
    every = load(**options)(picture).filter(classes=["cow"])
    alone = load(**options, classes=["cow"])(picture)
    assert len(alone) > len(every)


def test_the_best_boxes_are_kept(load, picture):
    everything = load(device="cpu", threshold=0.01)(picture)
    best = load(device="cpu", threshold=0.01, max_detections=3)(picture)
    assert best.scores.tolist() == everything.scores[:3].tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["cta"]}, "no class is called 'cta'"),
        ({"exclude": [-1]}, "expected a number below 3, got -1"),
        ({"classes": 3}, "classes: expected a list of names or numbers, got 3"),
        ({"exclude": 0}, "classes: expected a list of names or numbers, got 0"),
        ({"classes": b"cat"}, "classes: expected a list of names or numbers, got b'cat'"),
        ({"classes": [None]}, "classes: expected names or numbers, got None"),
        ({"classes": [1.5]}, "classes: expected names or numbers, got 1.5"),
        ({"classes": [True, False]}, "classes: expected names or numbers, got True"),
        ({"max_detections": 0}, "max_detections: expected an integer of 1 or more, got 0"),
    ],
)
def test_invalid_choices_are_refused(load, options, message):
    with pytest.raises(InputError, match=message):
        load(device="cpu", **options)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_stream_on_several_threads_keeps_order_and_pictures(load, tmp_path, workers):
    paths = [str(write_picture(tmp_path / f"{n}.png", seed=n)) for n in range(9)]
    detector = load(device="cpu", batch=2)
    streamed = list(detector.stream(paths, workers=workers, keep_pictures=True))
    assert [result.path for result in streamed] == paths
    assert all(result.picture is not None for result in streamed)
    for result, path in zip(streamed, paths, strict=True):
        np.testing.assert_array_equal(result.boxes, detector(path).boxes)


def test_error_among_the_sources_takes_the_place_of_a_picture(load, picture):
    error = ImageError("gone")
    outcomes = list(load(device="cpu").stream([picture, error, picture], on_error="yield"))
    assert outcomes[1] is error
    assert len(outcomes) == 3


class Tensor:
    """An array of another library, as torch has them: a sequence of its rows."""

    def __init__(self, shape):
        self._array = np.zeros(shape, np.uint8)
        self.ndim, self.shape, self.dtype = self._array.ndim, self._array.shape, "torch.uint8"

    def __array__(self, dtype=None, copy=None):
        return self._array

    def __getitem__(self, which):
        return self._array[which]

    def __len__(self):
        return len(self._array)


@pytest.mark.parametrize(
    ("source", "what"),
    [
        (b"JFIF", "bytes"),
        (io.BytesIO(b"JFIF"), "a file"),
        (np.zeros((20, 30, 3), np.uint8), "one array of shape (20, 30, 3)"),
        (np.zeros((20, 30), np.uint8), "one array of shape (20, 30)"),
        (Tensor((20, 30, 3)), "one array of shape (20, 30, 3)"),
        (Tensor((720, 720, 3)), "one array of shape (720, 720, 3)"),
        (Tensor((1, 30)), "one array of shape (1, 30)"),
        (Image.new("RGB", (30, 20)), "one Pillow image"),
        (read(np.zeros((20, 30, 3), np.uint8)), "one Picture"),
    ],
)
def test_stream_refuses_one_picture(load, source, what):
    message = f"sources: expected several pictures, got {what}. Put it in a list"
    with pytest.raises(InputError, match=re.escape(message)):
        load(device="cpu").stream(source)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (np.zeros(3), "got one array of shape (3,)"),
        (np.array("a.png"), "got one value in an array without axes. Pass array.item()"),
        (np.array(None, object), "got one value in an array without axes. Pass array.item()"),
        (Tensor(()), "got one value in an array without axes. Pass array.item()"),
    ],
)
def test_stream_refuses_arrays_that_are_no_pictures(load, source, message):
    with pytest.raises(InputError, match=re.escape(message) + "$"):
        load(device="cpu").stream(source)


@pytest.mark.parametrize("count", range(1, 6))
def test_stream_takes_batches_of_grey_pictures(load, count, caplog):
    """The last batch of a DataLoader may have as many pictures as others have channels."""
    detector = load(device="cpu")
    assert [each.size for each in detector.stream(Tensor((count, 20, 30)))] == [(30, 20)] * count
    channels_first = (
        "sources: a tensor of shape (3, 20, 30) is taken as 3 grey pictures. "
        "If it is one in colour, pass [tensor.permute(1, 2, 0)]"
    )
    assert caplog.messages == ([channels_first] if count == 3 else [])


class Column:
    """A column of a table, such as pandas or polars has them, which NumPy may not convert."""

    def __init__(self, names, dtype="String"):
        self._names = names
        self.shape, self.dtype = (len(names),), dtype

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("stream() converts no container")

    def __iter__(self):
        return iter(self._names)


def test_stream_takes_a_column_of_names(load, picture):
    detector = load(device="cpu")
    for column in (Column([picture]), np.array([picture]), np.array([picture], object)):
        assert [each.path for each in detector.stream(column)] == [picture]
    assert list(detector.stream(Column([], np.dtype(float)))) == []
    for name in (np.str_(picture), np.array(picture).item(), Path(picture)):
        assert [each.path for each in detector.stream(name)] == [str(picture)]


class Dataset:
    """A sequence of pictures that can also become one array, as those of Hugging Face."""

    def __init__(self, pictures):
        self._pictures = pictures

    def __array__(self, dtype=None, copy=None):
        raise AssertionError("stream() converts no container")

    def __getitem__(self, which):
        return self._pictures[which]

    def __len__(self):
        return len(self._pictures)


class Camera(Dataset):
    """Frames of two axes, which are what its shape and dtype describe."""

    shape, dtype = (2,), np.dtype(np.uint8)


@pytest.mark.parametrize("kind", [Dataset, Camera])
def test_stream_takes_containers_that_could_become_an_array(load, picture, kind):
    assert len(list(load(device="cpu").stream(kind([picture, picture])))) == 2


def test_stream_takes_a_table_of_frames(load):
    frames = np.zeros((3, 20, 30), np.uint8)
    detector = load(device="cpu")
    assert len(list(detector.stream(frames))) == 3


def test_stream_takes_pictures_that_are_rows_of_a_tensor(load):
    assert len(list(load(device="cpu").stream(Tensor((2, 20, 30, 3))))) == 2


# ---------------------------------------------------------------- names of several pictures


@pytest.fixture
def folder(tmp_path):
    for name in ("a.png", "b.png", "inner/c.png"):
        write_picture(tmp_path / "pictures" / name, seed=len(name))
    return tmp_path / "pictures"


def names_of(results):
    return [Path(result.path).name for result in results]


def test_a_call_takes_folders_patterns_and_lists(load, folder, tmp_path):
    detector = load(device="cpu", batch=2)
    (tmp_path / "list.txt").write_text(f"{folder}/b.png\n{folder}/a.png\n")
    for source, expected in (
        (folder, ["a.png", "b.png"]),
        (str(folder / "*.png"), ["a.png", "b.png"]),
        (str(tmp_path / "list.txt"), ["b.png", "a.png"]),
        ([folder, folder / "inner" / "c.png"], ["a.png", "b.png", "c.png"]),
        ((f"file://{folder}/a.png",), ["a.png"]),
    ):
        assert names_of(detector(source)) == expected
    assert names_of(detector.stream(folder, recursive=True)) == ["a.png", "b.png", "c.png"]
    assert names_of([detector(folder / "a.png")]) == ["a.png"]
    (folder / "odd 1.png").write_bytes((folder / "a.png").read_bytes())
    for address in (f"file://{folder}/odd%201.png", f"FILE://localhost{folder}/odd 1.png"):
        result = detector(address)
        assert result.path == str(folder / "odd 1.png")
        assert len(result) == len(detector(folder / "a.png"))
    assert names_of(detector(f"file://{folder}")) == ["a.png", "b.png", "odd 1.png"]


def test_a_call_takes_videos_and_keeps_their_pictures(load, tmp_path):
    needs.package("av")
    video = write_video(tmp_path / "street.mp4", count=6)
    detector = load(device="cpu", batch=4)
    results = detector(video)
    assert len(results) == 6
    assert all(each.path == str(video) and each.plot().size == (64, 48) for each in results)
    assert len(list(detector.stream(str(video), stride=2, max_frames=2))) == 2
    with pytest.raises(InputError, match="picture: of a frame was not kept"):
        next(detector.stream(str(video))).plot()


def test_results_of_a_video_tell_their_frames_as_the_command_does(
    load, tiny_detector, tmp_path, monkeypatch, capsys
):
    needs.package("av")
    monkeypatch.chdir(tmp_path)
    write_video(tmp_path / "street.mp4", count=6)
    write_picture(tmp_path / "a.png")
    detector = load(device="cpu", threshold=0.3)
    results = list(detector.stream(["street.mp4", "a.png"], keep_pictures=True))
    frames = [each.frame and (each.frame.number, each.frame.seconds) for each in results]
    assert frames == [*((number, number / 10) for number in range(6)), None]
    assert all(each["image_id"] == 2 for each in results[2].to_coco())
    assert {row[-1] for row in results[2].to_csv()} == {2}
    crops = [path.name for each in results for path in each.save_crop("crops")]
    assert len(crops) == sum(map(len, results))
    names = ["--names", str(tiny_detector.names), "--threshold", "0.3", "--crops", "other"]
    words = ["detect", *tiny_detector.options, *names, "street.mp4", "a.png", "--quiet"]
    assert cli.main([*words, "--jsonl", "rows"]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    assert [{**each, "timing_ms": 0} for each in rows] == [
        {**each.to_dict(), "timing_ms": 0} for each in results
    ]
    mine, others = (
        {
            str(path.relative_to(tmp_path / folder).with_suffix(""))
            for path in (tmp_path / folder).glob("*/*.*")
        }
        for folder in ("crops", "other")
    )
    assert mine == others


def test_a_name_without_pictures_is_an_image_error(load, tmp_path):
    detector = load(device="cpu")
    for name in (tmp_path, str(tmp_path / "*.png")):
        with pytest.raises(ImageError):
            detector(name)
        (error,) = detector.stream(name, on_error="yield")
        assert isinstance(error, ImageError)
    with pytest.raises(ImageError, match="cannot be read"):
        detector("missing.png")


def test_names_are_files_if_told_so(load, folder):
    names = [str(folder), str(folder / "*.png"), str(folder / "a.png"), 0]
    *errors, result, number = load(device="cpu").stream(names, on_error="yield", expand=False)
    assert names_of([result]) == ["a.png"]
    assert all(isinstance(each, ImageError) for each in (*errors, number))


@pytest.mark.parametrize("source", [0, "0", [0], "rtsp://camera/1"])
def test_a_call_refuses_what_has_no_end(load, source):
    with pytest.raises(InputError, match=r"has no end. Use stream\(\)"):
        load(device="cpu")(source)


def test_a_call_refuses_a_list_of_what_has_no_end(load, folder):
    (folder / "cameras.txt").write_text("a.png\nrtsp://camera/1\n")
    with pytest.raises(InputError, match=r"rtsp://camera/1: has no end. Use stream\(\)"):
        load(device="cpu")(str(folder / "cameras.txt"))


@pytest.mark.parametrize("name", ["*.mp4", "file://{}/a.mp4", "clips.mp4", "list.txt"])
def test_videos_are_found_by_any_name_also_if_several_are_read_at_once(load, tmp_path, name):
    needs.package("av")
    for each in ("a.mp4", "b.mp4"):
        write_video(tmp_path / each, count=3)
    (tmp_path / "clips.mp4").mkdir()
    write_picture(tmp_path / "clips.mp4/x.png")
    (tmp_path / "list.txt").write_text(f"{tmp_path}/a.mp4\n{tmp_path}/b.mp4\n")
    where = name.format(tmp_path) if "{}" in name else str(tmp_path / name)
    detector = load(device="cpu")
    usual, together = (
        [(each.path, each.frame and each.frame.number) for each in stream]
        for stream in (detector.stream(where), detector.stream([where], at_once=2))
    )
    assert sorted(together, key=str) == sorted(usual, key=str)
    if name == "list.txt":
        assert [path for path, _ in together] == [f"{tmp_path}/{each}.mp4" for each in "ababab"]


# ---------------------------------------------------------------- settings of one call


def test_settings_of_a_call_replace_those_of_load(load, picture):
    detector = load(device="cpu", threshold=0.5)
    usual = detector(picture)
    more = detector(picture, threshold=0.01, nms=1.0)
    assert len(more) > len(usual)
    assert (more.scores > 0.01).all()
    assert len(detector(picture, threshold=0.01, nms=0.1)) < len(more)
    assert len(detector(picture, threshold=0.01, max_detections=1)) == 1
    kept = detector(picture, threshold=0.01, nms=1.0, classes=["dog"])
    assert {found.label for found in kept} == {"dog"}
    assert (kept.class_ids == 1).all()
    for results in (
        detector([picture] * 2, threshold=0.01, nms=1.0),
        list(detector.stream([picture] * 2, threshold=0.01, nms=1.0)),
    ):
        assert [len(each) for each in results] == [len(more)] * 2
    np.testing.assert_array_equal(detector(picture).scores, usual.scores)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 2}, "threshold"),
        ({"nms": -1}, "nms"),
        ({"max_detections": 0}, "max_detections"),
        ({"classes": ["fish"]}, "no class is called 'fish'"),
        ({"classes": [9]}, "number below 3"),
    ],
)
def test_wrong_settings_of_a_call(load, picture, settings, message):
    detector = load(device="cpu")
    with pytest.raises(InputError, match=message):
        detector(picture, **settings)
    with pytest.raises(InputError, match=message):
        detector.stream([picture], **settings)


@pytest.mark.parametrize("bgr", [False, True])
def test_no_picture_hints_at_what_imread_returns(bgr):
    with pytest.raises(engine.ImageError, match=r"got None\. Could imread"):
        image.read(None, bgr=bgr)


# ---------------------------------------------------------------- names of ultralytics


def test_second_names_of_arguments(load):
    detector = load(device="cpu", conf=0.1, iou=0.2, imgsz=(32, 64))
    assert (detector.settings.threshold, detector.settings.nms) == (0.1, 0.2)
    assert detector.size == (64, 32)
    assert load(device="cpu", imgsz=32).size == (32, 32)
    assert load(device="cpu", imgsz=np.array([32, 64])).size == (64, 32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threshold": 0.3, "conf": 0.1}, "threshold and conf: expected one"),
        ({"nms": 0.3, "iou": 0.1}, "nms and iou"),
        ({"size": 32, "imgsz": 64}, "size and imgsz"),
        ({"size": {32, 64}}, "size: expected a whole number, or width and height, got {32, 64}"),
        ({"tiles": np.array([2, 2])}, "tiles: expected auto, none, SIZE"),
        ({"precision": "tf32", "half": True}, "precision and half"),
        ({"device": "cpu:2", "threads": 7}, "threads: cpu:2 names 2 threads, got 7. Give one"),
        ({"device": 1.5}, "device: expected a name"),
        ({"device": True}, "device: expected a name"),
    ],
)
def test_both_names_of_an_argument(load, arguments, message):
    with pytest.raises(InputError, match=message):
        load(**{"device": "cpu", **arguments})


def test_a_keyword_of_other_programs_gets_a_hint(load, picture):
    with load() as detector:
        for call, name, hint in (
            (detector, "conf", "threshold"),
            (detector, "iou", "nms"),
            (detector, "treshold", "threshold"),
            (detector.stream, "max_det", "max_detections"),
            (engine.load, "thresh", "threshold"),
        ):
            with pytest.raises(TypeError, match=f"keyword argument '{name}'. Did .* '{hint}'"):
                call(picture, **{name: 0.5})


@pytest.mark.parametrize(
    ("name", "value"),
    [("threshold", 0.5), ("nms", 0.3), ("max_detections", 2), ("classes", ["no such class"])],
)
def test_a_classifier_refuses_what_only_boxes_have(tiny_classifier, picture, name, value):
    message = f"^{name}: only for detectors, got a classifier: {tiny_classifier.cfg.name}$"
    with engine.load(tiny_classifier.cfg, tiny_classifier.weights, device="cpu") as detector:
        with pytest.raises(InputError, match=message):
            detector(picture, **{name: value})
        with pytest.raises(InputError, match=message):
            next(detector.stream([picture], **{name: value}))
        assert isinstance(detector(picture), engine.Classification)


def test_a_classifier_and_its_own_call(load, tiny_classifier, picture):
    with pytest.raises(InputError, match="is not a classifier"):
        load(device="cpu").classify(picture)
    with engine.load(tiny_classifier.cfg, tiny_classifier.weights, device="cpu") as detector:
        assert isinstance(detector.classify(picture), engine.Classification)
        assert len(detector.classify([picture, picture])) == 2


def test_stream_refuses_none(load):
    with pytest.raises(InputError, match="sources: expected several pictures, got None"):
        load(device="cpu").stream(None)


def test_candidates_can_be_passed_to_find(load):
    detector = load(device="cpu", batch=2)
    x = np.random.default_rng(0).random((2, 3, 48, 64), np.float32)
    none, usual = detector.candidates(x, threshold=1.0), detector.candidates(x)
    assert [rows.shape for rows in none] == [(0, 8)] * 2
    pictures = [np.ascontiguousarray(row.transpose(1, 2, 0)) for row in x]
    placement = Placement((64, 48), (64, 48))
    for rows, picture in zip(usual, pictures, strict=True):
        found = postprocess(rows, placement, detector.suppression)
        np.testing.assert_array_equal(found.class_ids, detector(picture).class_ids)


def test_settings_of_a_call_are_those_that_it_names(load, monkeypatch):
    detector = load(device="cpu", threshold=0.4)
    made = []
    submit = detector._program.submit

    def note(placed, settings):
        made.append((settings[0].threshold, settings[0].max_detections))
        return submit(placed, settings)

    monkeypatch.setattr(detector._program, "submit", note)
    asked = [(0.5, None), (0.5, None), (0.5, 3), (None, None), (0.6, 3), (0.6, 3)]
    for threshold, most in asked:
        detector(np.zeros((20, 30, 3), np.uint8), threshold=threshold, max_detections=most)
    assert made == [(threshold or 0.4, most) for threshold, most in asked]
