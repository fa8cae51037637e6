"""YOLO: files, options and sources of ultralytics."""

import copy
import pickle
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import engine
from engine import cli
from engine.compat.ultralytics import YOLO, Results
from engine.compat.ultralytics.options import Options
from engine.compat.ultralytics.run_folder import RunFolder
from engine.errors import DeviceError, ImageError, InputError
from engine.sources.item import Item
from engine.vision.result import Result
from tests import needs
from tests.pictures import write_picture, write_video

DOCS = Path(__file__).parents[3] / "docs"
LOW = {"conf": 0.01, "iou": 1.0}


def test_it_finds_what_the_engine_finds(model):
    (result,) = model("a.png", **LOW)
    with engine.load("net.cfg", "net.weights", "net.names", device="cpu") as detector:
        expected = detector("a.png", threshold=0.01, nms=1.0, max_detections=300)
    assert len(result) > 1
    inside = np.clip(expected.xyxy, 0, [100, 50, 100, 50])
    np.testing.assert_allclose(result.boxes.xyxy, inside, atol=1e-4)
    assert result.names == {0: "cat", 1: "dog", 2: "cow"}
    assert model.names == model.model.names == result.names
    assert (model.task, model.device[:3]) == ("detect", "cpu")


def test_classes_are_renamed(model):
    (before,) = model("a.png", **LOW)
    model.names[int(before.boxes.cls[0])] = "puma"
    (result,) = model("a.png", **LOW)
    assert "puma" in result.verbose()
    assert copy.deepcopy(model).names == model.names
    model.model.names = ["x", "y", "z"]
    assert {each["name"] for each in model.track("a.png", **LOW)[0].summary()} <= {"x", "y", "z"}
    assert "puma" not in before.verbose()
    with pytest.raises(InputError, match="expected the name of each class, got 5"):
        model.names = 5
    with pytest.raises(InputError, match="expected the numbers of classes as keys"):
        model.names = {"0": "x"}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_copy_loads_a_network_of_its_own(model, copied):
    model.overrides["conf"] = 0.01
    model.camera = "gate"  # a program's own
    (expected,) = model.track("a.png", iou=1.0)
    copy_of_it = copied(model)
    model.close()
    (result,) = copy_of_it.track("a.png", iou=1.0)
    np.testing.assert_array_equal(result.boxes.data, expected.boxes.data)
    assert (copy_of_it.device, copy_of_it.camera) == ("cpu", "gate")


@pytest.mark.parametrize("name", ["net.cfg", "net.weights", Path("net.cfg")])
def test_files_have_one_stem(folder, name):
    assert YOLO(name).to("cpu").names[1] == "dog"


def test_files_with_other_names(folder):
    (folder / "net.weights").rename("best.weights")
    model = YOLO("net.cfg", weights="best.weights", names=["x", "y", "z"]).to("cpu")
    assert model.names == {0: "x", 1: "y", 2: "z"}


def test_networks_of_the_zoo(folder, monkeypatch):
    assert YOLO("codes").to("cpu").names[0] == YOLO("codes.weights").to("cpu").names[0]
    monkeypatch.setenv("ENGINE_OFFLINE", "1")
    monkeypatch.setenv("ENGINE_CACHE", str(folder / "cache"))
    for name in ("yolov4-tiny", "yolov4-tiny.cfg", "yolov4-tiny.weights"):
        with pytest.raises(engine.DownloadError, match="yolov4-tiny"):
            YOLO(name).to("cpu").predict("a.png")


@pytest.mark.parametrize("name", ["yolov8n.pt", "net.onnx", "model.yaml"])
def test_files_of_other_frameworks_are_refused(name):
    with pytest.raises(InputError, match=r"expected a \.cfg or \.weights file"):
        YOLO(name)


def test_an_unknown_network(folder):
    with pytest.raises(InputError, match="Did you mean 'yolov4-tiny'"):
        YOLO("yolov4-tinny")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("more/nope.cfg", r"^more/nope\.cfg: no such file\.$"),
        ("/data/nope.weights", r"^/data/nope\.weights: no such file\.$"),
        ("yolov4-tinny.cfg", r"^yolov4-tinny\.cfg: no such file\. Did you mean 'yolov4-tiny'"),
        ("more/b.weights", r"^more/b\.cfg: is missing: expected next to more/b\.weights\."),
    ],
)
def test_missing_files(folder, name, message):
    shutil.copy("net.weights", "more/b.weights")
    with pytest.raises(InputError, match=message):
        YOLO(name)


def test_sources(model, folder):
    picture = Image.open("a.png")
    rgb = np.asarray(picture)
    bgr = np.ascontiguousarray(rgb[:, :, ::-1])
    expected = model("a.png", **LOW)[0].boxes.xyxy
    for source in (Path("a.png"), bgr, picture, Path("a.png").read_bytes(), ["a.png", bgr]):
        for result in model(source, **LOW):
            np.testing.assert_allclose(result.boxes.xyxy, expected, atol=1e-3)
    picture.close()
    assert [Path(each.path).name for each in model("more")] == ["a.png", "b.png"]
    assert len(model("more/*.png")) == 2


def test_arrays_with_alpha_are_bgra(model):
    with Image.open("a.png") as picture:
        rgba = np.asarray(picture.convert("RGBA"))
    (expected,) = model("a.png", **LOW)
    (result,) = model(np.ascontiguousarray(rgba[:, :, [2, 1, 0, 3]]), **LOW)
    np.testing.assert_allclose(result.boxes.data, expected.boxes.data, atol=1e-3)
    np.testing.assert_array_equal(result.orig_img, expected.orig_img)
    np.testing.assert_array_equal(result.plot(), expected.plot())


def test_a_stream_is_lazy(model):
    read = []

    def sources():
        for name in ("a.png",) * 9:
            read.append(name)
            yield name

    found = model.predict(sources(), stream=True)
    assert isinstance(next(found), Results)
    assert len(read) < 9
    found.close()


@pytest.mark.parametrize("stream", [False, True])
def test_a_broken_picture_is_logged_and_skipped(model, folder, caplog, stream):
    (folder / "more/aa.png").write_bytes(b"broken")
    for source in ("more", ["more/a.png", "more/aa.png", "missing.png", "more/b.png"]):
        caplog.clear()
        found = list(model.predict(source, stream=stream))
        assert [Path(each.path).name for each in found] == ["a.png", "b.png"]
        assert "more/aa.png: " in caplog.messages[0]
        assert caplog.records[0].levelname == "WARNING"
    assert "missing.png: " in caplog.messages[1]
    caplog.clear()
    assert model(["missing.png", b"broken"]) == []
    assert caplog.messages[2].startswith("source: none of the pictures could be read")
    assert model([]) == []
    assert len(caplog.messages) == 3


@pytest.mark.parametrize("name", ["", ".", None, 5, [], b"net.cfg"])
def test_what_names_no_model(name):
    with pytest.raises(InputError, match=r"^model: expected a \.cfg or \.weights file, .* got"):
        YOLO(name)


@pytest.mark.parametrize("source", ["missing.png", "missing/*.png", b"broken"])
def test_a_single_picture_that_is_broken_is_an_error(model, source):
    with pytest.raises(engine.ImageError):
        model(source)
    with pytest.raises(engine.ImageError):
        list(model(source, stream=True))


def pictures_of(result):
    return result.plot(), result.orig_img


@pytest.mark.parametrize("stream", [False, True])
def test_a_video_becomes_one_annotated_video(model, folder, stream):
    av = needs.package("av")
    write_video(folder / "street.mp4", count=6)
    (folder / "other").mkdir()
    write_video(folder / "other/street.mp4", count=2)
    sources = ["street.mp4", "a.png", "other/street.mp4"]
    wanted = {"vid_stride": 2, "max_det": 5, "save": True, "save_txt": True, "stream": stream}
    for name in ("predict", "predict2"):
        results = list(model(sources, conf=0.01, iou=1.0, **wanted))
        assert [each.orig_img.shape[:2] for each in results] == [(48, 64)] * 3 + [
            (50, 100),
            (48, 64),
        ]
        made = Path("runs/detect") / name
        pictures = sorted(path.name for path in made.iterdir() if path.is_file())
        assert pictures == ["a.jpg", "street.mp4", "street_2.mp4"]
        labels = sorted(path.name for path in (made / "labels").iterdir())
        assert labels == sorted(
            ["a.txt", "street_1.txt", "street_2.txt", "street_3.txt", "street_2_1.txt"]
        )
        with av.open(str(made / "street.mp4")) as video:
            frames = [each.to_ndarray(format="bgr24") for each in video.decode(video=0)]
        assert len(frames) == 3
        for frame, result in zip(frames, results, strict=False):
            drawn = result.plot()
            near, plain = (
                np.abs(frame - each.astype(float)).mean() for each in (drawn, result.orig_img)
            )
            assert near < plain


def test_a_video_that_is_left_early_is_kept(model, folder):
    needs.package("av")
    write_video(folder / "street.mp4", count=6)
    found = model("street.mp4", save=True, stream=True)
    next(found)
    found.close()
    assert [path.name for path in Path("runs/detect/predict").iterdir()] == ["street.mp4"]


def test_options(model):
    everything = model("a.png", **LOW)[0]
    assert len(model("a.png", **LOW, max_det=1)[0]) == 1
    for classes in ([1], 1, ["dog"]):
        kept = model("a.png", **LOW, classes=classes)[0]
        assert set(kept.boxes.cls.tolist()) == {1}
    assert len(model("a.png", conf=0.01, iou=0.1)[0]) < len(everything)
    assert len(model("a.png", conf=0.01, iou=0.1, agnostic_nms=True)[0]) > 0
    assert len(model(["a.png"] * 3, batch=2, verbose=False)) == 3


def test_the_network_is_loaded_again_only_for_another_size(model, monkeypatch):
    opened = []
    load = engine.compat.ultralytics.model.loading.load

    def counted(*args, **options):
        opened.append(options.get("imgsz"))
        return load(*args, **options)

    monkeypatch.setattr(engine.compat.ultralytics.model.loading, "load", counted)
    model("a.png")
    model("a.png", conf=0.1, classes=[0])
    model("a.png", imgsz=(32, 64))
    model("a.png", imgsz=(32, 64))
    assert opened == [None, (32, 64)]


def test_sides_are_rounded_up_to_multiples_of_32(model, caplog):
    assert model._load(Options(imgsz=33)).size == (64, 64)
    assert "imgsz: expected multiples of 32, got [33]: rounded up to [64]" in caplog.text
    assert model._load(Options(imgsz=[30, 65])).size == (96, 32)  # height and width
    with pytest.raises(InputError, match="size"):
        model("a.png", imgsz="large")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"conff": 0.1}, "conff: is not an option.*Did you mean 'conf'"),
        ({"augment": True}, r"augment: predict\(\) supports only False, got True"),
        ({"conf": 2}, "threshold"),
        ({"classes": ["fish"]}, "fish"),
        ({"batch": 0}, "batch"),
    ],
)
def test_wrong_options(model, options, message):
    with pytest.raises(InputError, match=message):
        model.predict("a.png", **options)


def test_arrays_are_named_by_their_place(model):
    array = np.zeros((50, 100, 3), np.uint8)
    results = model([array, "a.png", array], save=True)
    assert [each.path for each in results] == ["image0.jpg", "a.png", "image2.jpg"]
    names = sorted(path.name for path in Path("runs/detect/predict").iterdir())
    assert names == ["a.jpg", "image0.jpg", "image2.jpg"]


@pytest.mark.parametrize("source", [3.5, object()])
def test_what_is_no_source(model, source):
    with pytest.raises(InputError, match=r"^source: expected a picture, a name or several"):
        model(source)


def test_no_picture(model):
    with pytest.raises(InputError, match="imread"):
        model(None)


def test_a_picture_that_cannot_be_drawn_does_not_end_the_run(model, folder, monkeypatch, caplog):
    def limited(result, path, save=Results.save, **options):
        if result.path.endswith("a.png"):
            raise MemoryError
        return save(result, path, **options)

    monkeypatch.setattr(Results, "save", limited)
    assert len(model(["a.png", "more/b.png"], save=True, save_txt=True, **LOW)) == 2
    made = Path("runs/detect/predict")
    assert sorted(each.name for each in made.rglob("*.*")) == ["a.txt", "b.jpg", "b.txt"]
    assert "a.png: save: the picture to draw on does not fit into memory" in caplog.text


@pytest.mark.slow
def test_saved_files(model, folder):
    model(["a.png", "more/a.png"], **LOW, save=True, save_txt=True, save_conf=True, save_crop=True)
    made = Path("runs/detect/predict")
    assert sorted(each.name for each in made.glob("*.jpg")) == ["a.jpg", "a_2.jpg"]
    lines = (made / "labels" / "a.txt").read_text().splitlines()
    assert all(len(line.split()) == 6 for line in lines)
    assert list(made.glob("crops/*/*.jpg"))
    before = {path: path.read_bytes() for path in made.rglob("*") if path.is_file()}
    (result,) = model("a.png", save=True)
    assert result.save_dir == str(Path("runs/detect/predict2"))
    assert {path: path.read_bytes() for path in before} == before
    model("a.png", save=True, project="out", name="first")
    assert (folder / "out/first/a.jpg").is_file()


def test_options_of_saved_pictures(model, folder):
    made = Path("runs/detect/predict/a.jpg")
    wanted = {**LOW, "max_det": 3, "save": True, "save_txt": True, "save_crop": True}
    model("a.png", **wanted)
    first, lines = made.read_bytes(), (made.parent / "labels/a.txt").read_text()
    crops = sorted(made.parent.glob("crops/*/*"))
    for options in ({"show_labels": False}, {"show_conf": False}, {"show_boxes": False}):
        model("a.png", **wanted, exist_ok=True, **options)
        assert made.read_bytes() != first
        assert (made.parent / "labels/a.txt").read_text() == lines
        assert sorted(made.parent.glob("crops/*/*")) == crops
    assert [path.name for path in Path("runs/detect").iterdir()] == ["predict"]


@pytest.mark.parametrize("source", ["t/a", "t/a/*.png", "t/a/b.png", ["a.png", "t/a/b.png"], iter])
def test_pictures_that_are_read_are_not_replaced(model, folder, source):
    for each in ("b.jpg", "b.png"):
        write_picture(folder / "t/a" / each)
    before = {path: path.read_bytes() for path in folder.glob("t/a/*")}
    source = iter(["t/a/b.png"]) if source is iter else source
    with pytest.raises(InputError, match="t/a: is a folder that pictures are read from"):
        model(source, save=True, project="t", name="a", exist_ok=True, **LOW)
    assert {path: path.read_bytes() for path in folder.glob("t/a/*")} == before


@pytest.mark.parametrize("opened", [Image.open, lambda path: path.open("rb")])
def test_opened_pictures_and_their_labels_are_not_replaced(model, folder, opened):
    path, labels = folder / "t/a/b.jpg", folder / "t/a/labels/b.txt"
    write_picture(path)
    labels.parent.mkdir()
    labels.write_text("mine")
    before = path.read_bytes()
    run = {"project": "t", "name": "a", "exist_ok": True}
    for chosen in ({"save": True}, {"save": True, "save_txt": True}):
        for give in (list, iter):
            with opened(path) as source, pytest.raises(InputError, match="t/a: is a folder that"):
                model(give([source]), **chosen, **run, **LOW)
    assert (path.read_bytes(), labels.read_text()) == (before, "mine")


def test_links_in_a_run_folder_are_replaced_and_not_what_they_name(model, folder):
    (folder / "t/a/crops/cat").mkdir(parents=True)
    source = folder / "a.png"
    for name in ("a.jpg", *(f"crops/{label}/a.jpg" for label in ("cat", "dog", "cow"))):
        (folder / "t/a" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "t/a" / name).symlink_to(source)
    before = source.read_bytes()
    model("a.png", save=True, save_crop=True, project="t", name="a", exist_ok=True, **LOW)
    assert source.read_bytes() == before
    assert not (folder / "t/a/a.jpg").is_symlink()


def test_crops_that_are_read_are_not_replaced(model, folder):
    path = folder / "t/a/crops/cat/mine.jpg"
    write_picture(path)
    before = path.read_bytes()
    run = {"save_crop": True, "project": "t", "name": "a", "exist_ok": True, **LOW}
    with pytest.raises(InputError, match="t/a: its crops are read, and may be replaced"):
        model("t/a/crops/cat", **run)
    with engine.load("net.cfg", "net.weights", ["cat"] * 3, device="cpu") as detector:
        result = detector(path, threshold=0.01)
        with pytest.raises(InputError, match=r"mine\.jpg: would replace the picture itself"):
            result.save_crop("t/a/crops", overwrite=True)
    assert path.read_bytes() == before


def test_a_second_run_gives_crops_the_same_names(model, folder):
    for number, path in enumerate(("p/x.jpg", "q/x.jpg", "q/x.png")):
        write_picture(folder / path, (100, 50), seed=number)
    run = {"save_crop": True, "save_txt": True, "exist_ok": True, **LOW, "max_det": 3}
    model("[pq]/x.*", **run)
    crops = {path: path.read_bytes() for path in folder.glob("runs/detect/predict/crops/*/*")}
    model("[pq]/x.*", **run)
    assert {
        path: path.read_bytes() for path in folder.glob("runs/detect/predict/crops/*/*")
    } == crops


def test_labels_of_pictures_that_are_read_are_not_replaced(model, folder):
    write_picture(folder / "t/a/images/b.png")
    labels = folder / "t/a/labels/b.txt"
    labels.parent.mkdir()
    labels.write_text("mine")
    with pytest.raises(InputError, match="t/a: save_txt would replace labels of t/a/"):
        model("t/a/images", save_txt=True, project="t", name="a", exist_ok=True, **LOW)
    assert labels.read_text() == "mine"


def test_what_links_name_is_not_replaced(model, folder):
    run = {"exist_ok": True, "project": "t", **LOW}
    write_picture(folder / "t/photos/x.jpg")
    write_picture(folder / "t/set/images/x.jpg")
    write_video(folder / "t/photos/v.mp4", count=2)
    (folder / "t/set/labels").mkdir()
    (folder / "t/set/labels/x.txt").write_text("mine")
    (folder / "sel").mkdir()
    for name, path in (("x.jpg", "photos/x.jpg"), ("v.mp4", "photos/v.mp4")):
        (folder / "sel" / name).symlink_to(folder / "t" / path)
    (folder / "sel/y.jpg").symlink_to(folder / "t/set/images/x.jpg")
    before = {path: path.read_bytes() for path in folder.rglob("t/**/*.*")}
    for source in ("sel/x.jpg", "sel/v.mp4", iter(["sel/x.jpg"])):
        with pytest.raises(InputError, match="photos: is a folder that pictures are read from"):
            model(source, save=True, name="photos", **run)
    with pytest.raises(InputError, match="set: save_txt would replace labels of sel/y"):
        model("sel/y.jpg", save_txt=True, name="set", **run)
    assert {path: path.read_bytes() for path in folder.rglob("t/**/*.*")} == before


@pytest.mark.parametrize("name", ["labels", "crops", "crops/cat"])
def test_links_to_folders_in_a_run_folder_are_refused(model, folder, name):
    link = folder / "t/a" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(folder / "more")
    before = {path: path.read_bytes() for path in folder.glob("more/*")}
    run = {"save_txt": True, "save_crop": True, "project": "t", "name": "a", "exist_ok": True}
    with pytest.raises(InputError, match=f"t/a/{name}: is a link to another folder, whose files"):
        model("a.png", **run, **LOW)
    assert {path: path.read_bytes() for path in folder.glob("more/*")} == before


@pytest.mark.parametrize("exist_ok", [False, True])
def test_no_two_crops_share_a_name(model, folder, exist_ok):
    names = [f"p/{'n' * 130}-2.jpg", f"p/{'n' * 130}.jpg", f"q/{'n' * 130}.jpg"]
    for number, path in enumerate(["p/x-2.jpg", "p/x.jpg", *names]):
        write_picture(folder / path, (100, 50), seed=number)
    sources = ["p/x-2.jpg", "p/x.jpg", *names]
    found = model(sources, save_crop=True, exist_ok=exist_ok, conf=0.2)
    assert len(list(folder.glob("runs/detect/predict/crops/*/*"))) == sum(
        len(each.result.crops()) for each in found
    )
    assert list(folder.glob("runs/detect/predict/crops/*/x-2-1.jpg"))


def test_a_source_has_one_number_in_all_outputs(folder):
    chosen = dict.fromkeys(("save", "save_txt", "save_conf", "save_crop"), True)
    run = RunFolder(folder / "run", **chosen)
    for path, rows in (("p/x.jpg", 0), ("p/x.png", 1)):
        write_picture(folder / path, (100, 50))
        box = np.full((rows, 4), 0.5, np.float32)
        found = Result((100, 50), box, box[:, 0], np.zeros(rows, np.int64), ["cat"], path)
        run.write(Results.of(found), Item(path, path))
    assert (folder / "run/x_2.jpg").is_file()
    assert (folder / "run/labels/x_2.txt").read_text()
    assert [each.name for each in folder.glob("run/crops/cat/*")] == ["x_2.jpg"]


def test_a_folder_without_pictures_is_one_line(model, folder, monkeypatch):
    (folder / "empty").mkdir()
    model("a.png")
    monkeypatch.chdir(folder / "empty")
    with pytest.raises(engine.ImageError, match=r"^\.: folder: has no pictures"):
        model(".", save_txt=True, project="..", name="more", exist_ok=True)


def test_tasks(folder):
    with pytest.raises(InputError, match="task: expected detect or classify, got 'segment'"):
        YOLO("net.cfg", task="segment")
    with pytest.raises(InputError, match=r"task: net\.cfg is for detect, not classify"):
        YOLO("net.cfg", task="classify").to("cpu").predict("a.png")
    assert YOLO("kinds.cfg", task="classify").to("cpu").task == "classify"


def test_a_device_that_is_missing_is_an_error_at_once(folder):
    model = YOLO("net.cfg").to("cpu")
    with pytest.raises(DeviceError):
        model.to("cuda:99")
    assert model("a.png", **LOW)
    assert model.device == "cpu"


def test_what_is_not_here_has_a_line(model):
    with pytest.raises(AttributeError, match=r"tune: .* Networks are trained with darknet"):
        model.tune()
    assert not hasattr(model, "anything")
    with pytest.raises(InputError, match=r"int8: export\(\) supports only False"):
        model.export(int8=True)
    with pytest.raises(InputError, match=r"dynamc: is not an option .* Did you mean 'dynamic'"):
        model.export(dynamc=True)
    with pytest.raises(InputError, match="data: expected a folder, a list or"):
        model.val()
    with pytest.raises(InputError, match=r"plots: val\(\) draws none"):
        model.val("more", plots=True)
    with pytest.raises(InputError, match=r"split: val\(\) supports only 'val', got 'test'"):
        model.val("more", split="test")


def test_evaluation_leaves_out_what_is_no_picture(model, folder, caplog):
    model("more/a.png", **LOW)[0].save_txt(folder / "more/a.txt")
    (folder / "more/b.png").write_bytes(b"x")
    (folder / "more/b.txt").write_text("0 0.5 0.5 0.2 0.2\n")
    assert model.val("more").box.map50 > 0
    assert "1 of 2 pictures could not be read and are left out" in caplog.text
    (folder / "more/a.png").write_bytes(b"x")
    with pytest.raises(ImageError, match=r"a\.png: picture"):
        model.val("more")


def test_evaluation_tells_what_is_wrong_with_labels(model, folder, caplog):
    with pytest.raises(InputError, match="more: no picture has a label file"):
        model.val("more")
    model("more/a.png", **LOW)[0].save_txt(folder / "more/a.txt")
    with (folder / "more/a.txt").open("a") as file:
        file.write("99 0.5 0.5 0.2 0.2\n")
    shutil.copy(folder / "more/a.png", folder / "more/c.png")
    model.val("more")
    assert "a.txt:" in caplog.text
    assert "pictures have no label file: they count as empty" in caplog.text


@pytest.mark.slow
def test_evaluation_pairs_labels_with_pictures_as_the_command_does(folder, caplog):
    """A record tells which of two pictures of one name a label file was written for."""
    pictures = folder / "set/images"
    pictures.mkdir(parents=True)
    shutil.copy(DOCS / "scene.jpg", pictures / "x.jpg")
    with Image.open(DOCS / "parcel.jpg") as picture:
        picture.save(pictures / "x.png")
    assert cli.main(["detect", str(pictures), "--save-txt", "set/labels", "--quiet"]) == 0
    model = YOLO("codes").to("cpu")
    assert model.val("set").box.map50 > 0.9
    assert "detect wrote 2 of 2 label files, such as" in caplog.text
    assert "No record says which" not in caplog.text
    (folder / "set/labels/.engine-outputs.jsonl").unlink()
    caplog.clear()
    assert model.val("set").box.map50 < 0.9
    assert "No record says which" in caplog.text
    model.close()


def test_a_classifier_cannot_be_evaluated(classifier):
    with pytest.raises(InputError, match=r"val\(\): expected a detector, got a classifier"):
        classifier.val("more")


def test_evaluation(folder):
    dataset = folder / "dataset"
    dataset.mkdir()
    shutil.copy(DOCS / "parcel.jpg", dataset)
    model = YOLO("codes").to("cpu")
    (result,) = model(str(dataset))
    result.save_txt(dataset / "parcel.txt")
    metrics = model.val(str(dataset))
    assert 0.9 < metrics.box.map <= metrics.box.map50 <= 1
    assert metrics.box.map75 > 0.9
    assert metrics.box.maps.shape == (len(model.names),)
    assert metrics.results_dict["metrics/mAP50(B)"] == metrics.box.map50
    assert len(metrics.confusion_matrix) >= len(model.names)
    (folder / "list.txt").write_text("dataset/parcel.jpg\n")
    (folder / "obj.data").write_text("valid = list.txt\n")
    assert model.val(data="obj.data").box.map == metrics.box.map
    with pytest.raises(InputError, match="a list or a COCO"):
        model.val("coco.yaml")
    model.close()


def sides_of(port):
    return [each.dim_value for each in port.type.tensor_type.shape.dim]


def test_export(model, folder):
    onnx = needs.package("onnx")
    assert model.export(format="onnx") == "net.onnx"
    onnx.checker.check_model(onnx.load("net.onnx"))
    with pytest.raises(InputError, match="exists already"):
        model.export()
    model.export(overwrite=True)
    (port,) = onnx.load("net.onnx").graph.output
    assert sides_of(port)[:2] == [1, 4 + len(model.names)]
    model.export(nms=True, conf=0.3, iou=0.5, max_det=20, half=True, dynamic=True, overwrite=True)
    made = onnx.load("net.onnx")
    facts = {each.key: each.value for each in made.metadata_props}
    assert facts["args"] == "{'batch': 1, 'half': True, 'dynamic': True, 'nms': True}"
    assert sides_of(made.graph.output[0]) == [0, 20, 6]
    with pytest.raises(InputError, match="format: expected onnx"):
        model.export("engine")


def test_export_has_the_size_of_the_network_unless_another_is_given(model):
    onnx = needs.package("onnx")
    model("a.png", imgsz=64, batch=2)

    def sides():
        (port,) = onnx.load("net.onnx").graph.input
        return sides_of(port)[2:]

    model.export()
    width, height = model._any(imgsz=None).size
    assert sides() == [height, width] != [64, 64]
    model.export(imgsz=64, overwrite=True)
    assert sides() == [64, 64]
    model.export(overwrite=True)
    assert sides() == [height, width]


def test_other_methods(model):
    assert model.fuse() is model
    layers, parameters, gradients, billions = model.info()
    assert (layers, gradients) == (4, 0)
    assert parameters > 100
    assert billions > 0
    with pytest.raises(InputError, match="trained with darknet"):
        model.train(data="coco.yaml")
    assert repr(model) == "<YOLO: net.cfg>"


def test_crops_are_refused_for_a_classifier(classifier):
    with pytest.raises(InputError, match="save_crop: expected a detector, got a classifier"):
        classifier.predict("a.png", save_crop=True)


def test_saved_files_of_a_classifier(classifier):
    (result,) = classifier("a.png", save=True, save_txt=True)
    made = Path("runs/classify/predict")
    assert result.save_dir == str(made)
    assert (made / "a.jpg").is_file()
    assert len((made / "labels/a.txt").read_text().splitlines()) == 5
    assert not Path("runs/detect").exists()


@pytest.mark.parametrize("stream", [False, True])
def test_a_classifier_draws_on_what_has_no_file(classifier, folder, stream):
    """Frames, arrays, Pillow images without a name and bytes are kept."""
    write_video(folder / "street.mp4", count=3)
    with Image.open("a.png") as image:
        copy = image.copy()
    frame = np.asarray(copy)[:, :, ::-1]
    sources = [frame, copy, Path("a.png").read_bytes(), "street.mp4"]
    found = list(classifier(sources, save=True, save_txt=True, stream=stream))
    assert len(found) == 6
    for each in found:
        assert each.plot().shape == each.orig_img.shape
    for each in found[:3]:
        np.testing.assert_array_equal(each.orig_img, frame)
    made = {path.name for path in Path("runs/classify/predict").iterdir()}
    assert made == {"image0.jpg", "image1.jpg", "image2.jpg", "labels", "street.mp4"}
    assert len(pickle.dumps(found[0].result)) < 20_000


@pytest.mark.parametrize("what", ["save", "save_txt", "save_crop"])
def test_an_existing_folder_of_pictures_is_refused(model, folder, what):
    (folder / "more/labels").mkdir()
    mine = folder / "more/labels/a.txt"
    mine.write_text("1 .5 .5 .1 .1\n")
    run = {what: True, "project": ".", "name": "more", "exist_ok": True}
    for source in ("more", "more/a.png", ["more/b.png", "a.png"]):
        with pytest.raises(InputError, match="is a folder that pictures are read from"):
            model(source, **run)
    assert mine.read_text() == "1 .5 .5 .1 .1\n"


def test_labels_stay_if_nothing_is_found_now(model, folder, caplog):
    run = {"save_txt": True, "project": "t", "name": "a", "exist_ok": True}
    mine = folder / "t/a/labels/a.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("1 .5 .5 .1 .1\n")
    model("a.png", conf=1.0, **run)
    assert mine.read_text() == "1 .5 .5 .1 .1\n"
    assert "nothing was found in the picture now, so its earlier labels are kept" in caplog.text
    (found,) = model("a.png", **LOW, **run)
    assert mine.read_text() == found.result.to_yolo()


def test_a_network_agrees_with_its_own_labels(model):
    """Also where its boxes lie beyond the edges, at which those of predict() end."""
    options = {"conf": 0.3, "iou": 0.45}
    found = model("more", save_txt=True, project="t", name="own", **options)
    assert sum(map(len, found))
    metrics = model.val("more", labels="t/own/labels", **options)
    assert metrics.box.map > 0.999


def test_the_frames_of_a_gif_are_missed_with_a_line(model, folder, caplog):
    with Image.open("a.png") as first, Image.open("more/b.png") as second:
        first.save("a.gif", save_all=True, append_images=[second])
    assert len(model(["a.gif", "a.gif"])) == 2
    what = "a.gif: only the first frame of a GIF is read. Convert it to a video for others"
    assert [each.getMessage() for each in caplog.records].count(what) == 1


def test_a_generator_may_use_one_image_for_all_pictures(model):
    def frames():
        image = Image.new("L", (100, 50))
        for name in ("a.png", "more/b.png", "more/a.png"):
            with Image.open(name) as other:
                image.paste(other.convert("L"))
            yield image

    expected = [model(image.copy(), **LOW)[0].boxes.data.tolist() for image in frames()]
    found = [each.boxes.data.tolist() for each in model(frames(), batch=3, stream=True, **LOW)]
    assert found == expected


def test_calls_at_the_same_time_get_folders_of_their_own(folder):
    start = threading.Barrier(8)

    def claim(_):
        start.wait(5)
        return RunFolder(
            Path("runs/a"), save=True, save_txt=False, save_conf=False, save_crop=False
        ).path

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(claim, range(8)))) == 8
