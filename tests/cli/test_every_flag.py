"""Every flag of every command has an effect."""

import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import cli, extras
from tests import needs
from tests.cli.child import engine, engine_here
from tests.pictures import write_picture, write_video

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NETS = {
    "detect": "my.cfg my.weights --names my.names --device cpu",
    "classify": "class.cfg class.weights --names class.names --device cpu",
    "evaluate": "my.cfg my.weights --names my.names --device cpu",
}
PICTURES = {"detect": "turned.jpg", "classify": "turned.jpg", "evaluate": "set"}
SERVES = {"serve"}  # runs until it is stopped; tests/serve covers its flags
TUNES = {"tune"}  # needs a GPU; test_tune.py covers its flags
CALIBRATES = {"calibrate"}  # test_calibrate.py covers its flags
DARKNETS = {"classifier", "detector", "yolo"}  # tests/cli/darknet covers their options


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_detector, tiny_classifier):
    """Create a working folder with every file that the commands below name."""
    here = tmp_path_factory.mktemp("here")
    for kind in ("cfg", "weights", "names"):
        shutil.copy(getattr(tiny_detector, kind), here / f"my.{kind}")
        shutil.copy(getattr(tiny_classifier, kind), here / f"class.{kind}")
    (here / "three.names").write_text("one\ntwo\nthree\n")
    (here / "six.names").write_text("one\ntwo\nthree\nfour\nfive\nsix\n")
    (here / "detect.data").write_text("names=three.names\n")
    (here / "classify.data").write_text("names=six.names\n")
    (here / "evaluate.data").write_text("names=three.names\n")
    for seed, name in enumerate(("dog.png", "many/a.png", "many/b.png", "many/deep/c.png")):
        write_picture(here / name, seed=seed)
    (here / "broken.png").write_bytes(b"no picture")
    quarter_turn = Image.Exif()
    quarter_turn[0x0112] = 6
    for name in ("turned.jpg", "set/images/7.jpg"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        with Image.open(write_picture(here / "upright.png", size=(70, 40), seed=9)) as picture:
            picture.save(here / name, exif=quarter_turn)
    (here / "set/labels").mkdir()
    (here / "set/labels/7.txt").write_text("0 0.5 0.5 0.6 0.8\n2 0.3 0.3 0.5 0.5\n")
    shutil.copytree(here / "set/labels", here / "elsewhere")
    (here / "list.txt").write_text("dog.png\n")
    (here / "labels.txt").write_text("".join(f"{name}\n" for name in ("dog", *"abcde")))
    shutil.copy(ROOT / "docs/parcel.jpg", here / "parcel.jpg")
    return here


def run(folder, text, *, status=0, by=engine_here):
    cache = {"ENGINE_CACHE": str(folder / "cache"), "ENGINE_OFFLINE": "1"}
    done = by(*text.split(), cwd=folder, **cache)
    assert done.status == status, (text, done)
    assert "Traceback" not in done.err
    return done


def document(folder, text, **more):
    return json.loads(run(folder, f"{text} --json -", **more).out)


# ------------------------------------------------------- flags that several commands have


def answers(folder, command, flags="", **how):
    """Return the conditions of a run and every number in its results."""
    text = f"{command} {NETS[command]} {PICTURES[command]} {flags}"
    if command != "evaluate":
        about = document(folder, text, **how)
        (image,) = about["images"]
        scores = [each["score"] for each in image.get("detections") or image["classes"]]
        boxes = [list(each["box"].values()) for each in image.get("detections", ())]
        return about, np.array([*scores, *np.ravel(boxes)])
    saved = folder / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    about = document(folder, f"{text} --save-coco {saved}", **how)
    found = json.loads((saved / "detections.json").read_text())
    return about, np.ravel([[each["score"], *each["bbox"]] for each in found])


@pytest.fixture(scope="module")
def usual(folder):
    """Return what processes without flags answer."""
    return {command: answers(folder, command, by=engine)[1] for command in NETS}


def same(found, usual):
    return np.allclose(found, usual, rtol=1e-4, atol=1e-3)


def other(found, usual):
    return found.shape != usual.shape or not np.allclose(found, usual, rtol=0.01)


RUNNING = {
    "--precision float64": same,
    "--batch 2": same,
    "--size 96x96": other,
    "--imgsz 96": other,
    "--resize letterbox": other,
    "--no-passes": same,
    "--untrusted": same,
    "--decode cpu": same,
    "--no-exif": other,
}


@pytest.mark.parametrize("command", NETS)
@pytest.mark.parametrize("flags", RUNNING)
def test_how_a_network_is_run(folder, usual, command, flags):
    assert RUNNING[flags](answers(folder, command, flags)[1], usual[command])


INT8 = "--precision int8 --scales int8.txt"


@pytest.mark.parametrize("command", NETS)
def test_int8_with_scales(folder, usual, command):
    cfg, weights, *_ = NETS[command].split()
    run(folder, f"calibrate {cfg} {weights} dog.png many -o int8.txt --overwrite --device cpu")
    assert same(answers(folder, command, INT8)[1], usual[command])  # its maps are too narrow


HALF = "--half"


@pytest.mark.parametrize("command", NETS)
def test_half_is_float16(folder, command):
    done = run(folder, f"{command} {NETS[command]} {PICTURES[command]} {HALF}", status=2)
    assert "precision: expected float32 or float64 or int8, got 'float16'" in done.err


def test_a_cpu_has_no_engine_that_decodes(folder):
    text = f"detect {NETS['detect']} {PICTURES['detect']} --device cpu --decode gpu"
    (line,) = run(folder, text, status=2).err.splitlines()
    assert re.search(r"decode: gpu: expected one NVIDIA GPU, got device cpu.* --decode cpu", line)


THREADS = "--threads 1"


@pytest.mark.parametrize("command", NETS)
def test_threads_set_the_number_of_threads(folder, usual, command):
    about, found = answers(folder, command, THREADS)
    assert about["device"] == "cpu:1"
    assert same(found, usual[command])


NAMED = {
    "detect": "--cfg my.cfg --weights my.weights --data detect.data",
    "classify": "--cfg class.cfg --weights class.weights --data classify.data",
    "evaluate": "--cfg my.cfg --weights my.weights --data evaluate.data",
}


@pytest.mark.parametrize("command", NETS)
def test_a_model_is_named_by_options(folder, command):
    about = document(folder, f"{command} {NAMED[command]} {PICTURES[command]}")
    assert '"two"' in json.dumps(about)


ZOO = "--model yolov3-tiny"


@pytest.mark.parametrize("command", ["detect", "classify", "evaluate", "export", "weights"])
def test_a_model_of_the_zoo_is_fetched(folder, command):
    words = {"export": "onnx -o zoo.onnx", "weights": "verify"}.get(command) or PICTURES[command]
    done = run(folder, f"{command} {words} {ZOO}", status=3)
    (line,) = done.err.splitlines()
    assert "yolov3-tiny.weights: does not exist, and ENGINE_OFFLINE forbids" in line


def test_default_model_can_be_named(folder):
    assert "qr" in run(folder, "detect --model codes parcel.jpg").out


# ----------------------------------------------------------------- sources and outputs


SOURCES = {
    "many --recursive": 3,
    "many --workers 1": 2,
    "broken.png dog.png --fail-fast": 1,
    "broken.png dog.png": 2,
}


@pytest.mark.parametrize("command", ["detect", "classify"])
@pytest.mark.parametrize("text", SOURCES)
def test_sources(folder, command, text):
    status = int("broken" in text)
    found = document(folder, f"{command} {NETS[command]} {text}", status=status)["images"]
    assert len(found) == SOURCES[text]


MAX_PIXELS = "--max-pixels 100"


@pytest.mark.parametrize("command", ["detect", "classify"])
def test_the_size_of_a_picture_is_limited(folder, command):
    done = run(folder, f"{command} {NETS[command]} dog.png {MAX_PIXELS}", status=1)
    assert "dog.png: size: expected at most 100 pixels, got" in done.err


VIDEO = "--stride 2 --max-frames 2 --at-once 2 --reconnect 1"


@pytest.mark.parametrize("command", ["detect", "classify"])
def test_frames_of_a_video(folder, command):
    needs.package("av")
    write_video(folder / "street.mp4")
    write_video(folder / "road.mp4")
    text = f"{command} {NETS[command]} street.mp4 road.mp4 {VIDEO}"
    assert [each["frame"] for each in document(folder, text)["images"]] == [0, 0, 2, 2]


OVERWRITE = "--overwrite"
FILES = "--json COMMAND.json --jsonl COMMAND.jsonl --csv COMMAND.csv --quiet"


@pytest.mark.parametrize("command", ["detect", "classify"])
def test_files_are_overwritten_only_if_asked(folder, command):
    text = f"{command} {NETS[command]} dog.png {FILES.replace('COMMAND', command)}"
    done = run(folder, text)
    assert (done.out, done.err) == ("", "")
    entries = json.loads((folder / f"{command}.json").read_text())["images"]
    (line,) = (folder / f"{command}.jsonl").read_text().splitlines()
    assert json.loads(line)["path"] == entries[0]["path"] == "dog.png"
    assert (folder / f"{command}.csv").read_text().startswith("path,")
    assert "exists already" in run(folder, text, status=2).err
    (folder / f"{command}.csv").write_text("old")
    run(folder, f"{text} {OVERWRITE}")
    assert (folder / f"{command}.csv").read_text().startswith("path,")


FOLDERS = "-o drawn --save-txt found --save-conf --crops crops --flat"
TRACKED = "many --track --track-low 0.05 --track-lost 2 --anchor bottom --save-mot tracks.txt"
SHAPES = "--line door=0,0,1,1 --zone 0,0,1,0,1,1"
HIDDEN = "-o hidden --crops hidden-crops --blur cat,1 --pixelate cow --tiles 2x1 --show-tiles"
DATASET = "many --recursive --coco-dataset set.json --progress"
NUMBERED = "--json numbered.json --json-style coco --images-json set.json"


def test_output_folders_of_detect(folder):
    run(folder, f"detect {NETS['detect']} dog.png {FOLDERS}")
    assert (folder / "drawn/dog.png").is_file()
    assert {len(row.split()) for row in (folder / "found/dog.txt").read_text().splitlines()} == {6}
    assert list((folder / "crops").glob("*/dog*.png"))


def test_tracking(folder):
    found = document(folder, f"detect {NETS['detect']} {TRACKED} {SHAPES}")
    assert (found["track_low"], found["track_lost"]) == (0.05, 2)
    for image in found["images"]:
        assert all(each["track_id"] >= 1 for each in image["detections"])
        assert [each["name"] for each in image["counts"]["lines"]] == ["door"]
    assert (folder / "tracks.txt").read_text().startswith("1,1,")


def test_hidden_pictures_of_detect(folder):
    run(folder, f"detect {NETS['detect']} dog.png {HIDDEN}")
    run(folder, f"detect {NETS['detect']} dog.png -o plain")
    plain, hidden = (Image.open(folder / name) for name in ("plain/dog.png", "hidden/dog.png"))
    spread = [np.asarray(each).std() for each in (plain, hidden)]
    assert plain.size == hidden.size
    assert spread[1] < spread[0]
    assert list((folder / "hidden-crops").glob("*/dog*.png"))


def test_coco_files_of_detect(folder):
    done = run(folder, f"detect {NETS['detect']} {DATASET}")
    assert done.out == ""
    names = {each["id"]: each["file_name"] for each in read(folder / "set.json")["images"]}
    assert names == {1: "a.png", 2: "b.png", 3: "deep/c.png"}
    run(folder, f"detect {NETS['detect']} many/deep {NUMBERED}")
    assert {each["image_id"] for each in read(folder / "numbered.json")} == {3}


def read(path):
    return json.loads(path.read_text())


RESUMED = "--csv resumed-COMMAND.csv --csv-all --resume --progress"


@pytest.mark.parametrize("command", ["detect", "classify"])
def test_a_run_is_resumed(folder, command):
    text = f"{command} {NETS[command]} broken.png dog.png {RESUMED}".replace("COMMAND", command)
    assert "1 failed" in run(folder, text, status=1).err
    rows = (folder / f"resumed-{command}.csv").read_text().splitlines()
    assert rows[0].endswith(",frame,error")
    assert rows[1].startswith("broken.png,,")
    done = run(folder, text, status=1)
    assert (done.out, "2 pictures" in done.err) == ("", True)


LENIENT = "--lenient"


@pytest.mark.parametrize("command", ["detect", "classify"])
def test_a_jpeg_without_its_end_is_read(folder, command):
    whole = (folder / "parcel.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    text = f"{command} {NETS[command]} cut.jpg --quiet"
    failed = run(folder, text, status=1).err
    assert "cut.jpg: picture: cannot be decoded" in failed
    assert f"detect {LENIENT}" in failed
    told = run(folder, f"{text} {LENIENT}").err
    assert told == "cut.jpg: is truncated: the missing part is grey\n"


# ------------------------------------------------------------------ what one command has


DETECT = {
    "--threshold 0.7": lambda found: min(scores(found)) >= found["threshold"] == 0.7,
    "--nms 0.9": lambda found: found["nms"] == 0.9,
    "--hierarchy 0.7": lambda found: found["hierarchy"] == 0.7,
    "--agnostic-nms": lambda found: found["agnostic_nms"] is True,
    "--classes cat,1": lambda found: labels(found) == {"cat", "dog"},
    "--exclude cat,1": lambda found: labels(found) == {"cow"},
    "--max-det 1": lambda found: len(scores(found)) == 1,
    "--tiles 2x1 --overlap 0.1": lambda found: (
        (found["tiles"], found["overlap"], found["images"][0]["tiles"]) == ("2x1", 0.1, 3)
    ),
}


def detections(found):
    return found["images"][0]["detections"]


def scores(found):
    return [each["score"] for each in detections(found)]


def labels(found):
    return {each["label"] for each in detections(found)}


@pytest.mark.parametrize("flags", DETECT)
def test_box_options(folder, flags):
    assert DETECT[flags](document(folder, f"detect {NETS['detect']} dog.png {flags}"))


READ = "--read"


def test_codes_are_read(folder):
    found = document(folder, f"detect parcel.jpg --device cpu {READ}")
    assert found["read"] is True
    assert "DXTE44R8V6" in [each["text"] for each in detections(found)]


BEST = "--top-k 2"
ACCURACY = "--list list.txt --labels labels.txt"


def test_the_best_classes(folder):
    (image,) = document(folder, f"classify {NETS['classify']} dog.png {BEST}")["images"]
    assert len(image["classes"]) == 2


def test_the_accuracy_of_a_classifier(folder):
    text = f"classify {NETS['classify']} {ACCURACY}"
    assert document(folder, text)["images"][0]["right"] == "dog"


EVALUATE = {
    "--min-score 0.5": lambda report: report["min_score"] == 0.5,
    "--nms 0.6": lambda report: report["nms"] == 0.6,
    "--clip": lambda report: report["clip"],
    "--tiles 2x1 --overlap 0.3": lambda report: report["tiles"] == "2x1",
    "--hierarchy 0.6": lambda report: report["hierarchy"] == 0.6,
    "--method voc11": lambda report: report["method"] == "voc11",
    "--match-iou 0.3 --method voc": lambda report: report["match_iou"] == 0.3,
    "--threshold 0.4": lambda report: report["threshold"] == 0.4,
    "--points 101 --method darknet": lambda report: "101 points" in report["method_says"],
    "--labels elsewhere": lambda report: report["unlabelled"] == 0,
}


@pytest.mark.parametrize("flags", EVALUATE)
def test_evaluation_rules(folder, flags):
    assert EVALUATE[flags](document(folder, f"evaluate {NETS['evaluate']} set {flags}"))


REPORT = "--curves curves --save-coco coco --json report.json"
SCORED = "--images . --detections coco/detections.json"


IDENTITIES = "--mot truth.txt truth.txt"


def test_evaluation_of_identities(folder):
    (folder / "truth.txt").write_text("1,1,10,10,20,20\n2,1,11,10,20,20\n")
    assert document(folder, f"evaluate {IDENTITIES}")["mota"] == 1


def test_evaluation_files(folder):
    text = f"evaluate {NETS['evaluate']} set {REPORT}"
    run(folder, text)
    assert (folder / "curves/precision_recall.png").is_file()
    report = json.loads((folder / "report.json").read_text())
    assert "exist" in run(folder, text, status=2).err
    (folder / "report.json").write_text("old")
    run(folder, f"{text} {OVERWRITE}")
    again = document(folder, f"evaluate coco/ground_truth.json {SCORED}")
    assert json.loads((folder / "report.json").read_text())["classes"] == report["classes"]
    assert again["classes"] == report["classes"]


BENCHMARK = {
    "--size 32": lambda told: told["input"] == [3, 32, 32],
    "--device cpu --threads 1": lambda told: told["device"] == "cpu:1",
    "--precision float64": lambda told: told["precision"] == "float64",
    "--precision int8 --scales int8.txt": lambda told: told["precision"] == "int8",
    "--batch 1,2": lambda told: {each["batch"] for each in told["stages"]} == {1, 2},
    "--image dog.png": lambda told: told["stages"][0]["median"] > 0,
    "--video street.mp4 --decode cpu": lambda told: told["sources"][-1]["source"] == "video",
    "--workers 3": lambda told: {each["workers"] for each in told["sources"]} == {3},
    "--no-passes": lambda told: told["passes"] == [],
    "--warm-up 0.2": lambda told: told["stages"][0]["runs"] >= 10,
    "--seconds 0.5": lambda told: told["stages"][0]["runs"] > 10,
    "--layers": lambda told: "convolutional" in {each["section"] for each in told["layers"]},
    "--peers": lambda told: told["peers"][0]["program"] == "engine",
}
BRIEFLY = "--seconds 0 --warm-up 0"
FILES_OF_NET = "--cfg my.cfg --weights my.weights"
PLOT = "--model codes --size 64 --plot plot.png"
ALGORITHMS = "--algorithms"


@pytest.mark.parametrize("flags", BENCHMARK)
def test_benchmark(folder, flags):
    if "--video" in flags:
        needs.package("av")
        write_video(folder / "street.mp4")
    if "int8" in flags:
        run(folder, "calibrate my.cfg my.weights dog.png -o int8.txt --overwrite --device cpu")
    text = f"benchmark {FILES_OF_NET} --device cpu {BRIEFLY} {flags}"
    told = document(folder, text)
    assert told["weights"] == "given"
    assert BENCHMARK[flags](told)


def test_a_benchmark_of_a_named_model_and_its_plot(folder):
    text = f"benchmark {PLOT} --device cpu {BRIEFLY}"
    assert run(folder, text).out.startswith("codes.cfg, input 3 x 64 x 64, ")
    with Image.open(folder / "plot.png") as plot:
        assert plot.format == "PNG"
    assert "exists already" in run(folder, text, status=2).err
    run(folder, f"{text} {OVERWRITE}")


def test_decoders_need_a_gpu(folder):
    text = f"benchmark my.cfg my.weights --device cpu {BRIEFLY} --decode gpu"
    assert "expected one NVIDIA GPU" in run(folder, text, status=2).err


def test_algorithms_need_a_gpu(folder):
    text = f"benchmark my.cfg my.weights --device cpu {BRIEFLY} {ALGORITHMS}"
    assert "Try: --device cuda" in run(folder, text, status=2).err


COMPARE = f"{FILES_OF_NET} --size 32 --first cpu/float64 --second cpu"
STRICTLY = "--tolerance 1e-15 --all"
BOX = "--model codes"
INT8_WAY = "--second cpu/int8 --scales int8.txt"


def test_compare(folder):
    run(folder, "calibrate my.cfg my.weights dog.png -o int8.txt --overwrite --device cpu")
    assert "cpu/int8 agree" in run(folder, f"compare dog.png {FILES_OF_NET} {INT8_WAY}").out
    text = f"compare dog.png {COMPARE}"
    assert "cpu/float64 and cpu/float32 agree in all 4 layers" in run(folder, text).out
    lines = run(folder, f"{text} {STRICTLY}", status=1).out.splitlines()
    assert len(lines) == 6
    assert lines[-1].startswith("cpu/float64 and cpu/float32 differ from layer 0 ")
    assert "agree in all" in run(folder, f"compare parcel.jpg {BOX} --second cpu").out


EXPORT = f"{FILES_OF_NET} --size 32x64 --decode --opset 17 --batch 2 -o net.onnx"
EXPORT_BOXES = "--layout yolov8 --half --dynamic --nms --threshold 0.3 --iou 0.5 --max-det 7"
EXPORT_NAMES = ("--names my.names", "--data detect.data")


def test_export(folder):
    onnx = needs.package("onnx")
    text = f"export onnx {EXPORT}"
    run(folder, text)
    model = onnx.load(folder / "net.onnx")
    (source,) = model.graph.input
    assert [each.dim_value for each in source.type.tensor_type.shape.dim] == [2, 3, 64, 32]
    assert model.opset_import[0].version == 17
    assert [each.dim_value for each in model.graph.output[0].type.tensor_type.shape.dim][-1] == 8
    assert "exists already" in run(folder, text, status=2).err
    run(folder, f"{text} {OVERWRITE}")
    for names, first in zip(EXPORT_NAMES, ("cat", "one"), strict=True):
        run(folder, f"export onnx {FILES_OF_NET} -o net.onnx {EXPORT_BOXES} {names} {OVERWRITE}")
        model = onnx.load(folder / "net.onnx")
        found = {each.key: each.value for each in model.metadata_props}
        assert found["names"].startswith(f"{{0: '{first}'")
        assert (found["engine.layout"], found["engine.precision"]) == ("yolov8", "float16")
        settings = json.loads(found["engine.nms"])
        assert (settings["threshold"], settings["iou"]) == (0.3, 0.5)
        assert model.graph.output[0].type.tensor_type.shape.dim[1].dim_value == 7
        assert model.graph.input[0].type.tensor_type.shape.dim[2].dim_param == "height"


CUT = "1 -o begin.weights"


def test_weights(folder):
    assert "all finite" in run(folder, f"weights verify {FILES_OF_NET}").out
    text = f"weights cut my.cfg my.weights {CUT}"
    run(folder, text)
    assert (folder / "begin.weights").stat().st_size == 20 + 4 * (8 * 27 + 4 * 8)
    assert "exists already" in run(folder, text, status=2).err
    run(folder, f"{text} {OVERWRITE}")


CLUSTER = "many --ray --out shards --format jsonl --actors 1:2 --shard 2"


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is here: see tests/fleet")
def test_a_cluster_needs_ray(folder):
    told = run(folder, f"detect {NETS['detect']} {CLUSTER}", status=2).err
    assert told.strip().endswith(f"is not installed. Run: {extras.command('ray')}")
    assert not (folder / "shards").exists()


INFO = "--cfg my.cfg --size 32"
INFO_OF_A_MODEL = "--model yolov4-tiny"


def test_info(folder):
    assert "8 x 16 x 16" in run(folder, f"info {INFO}").out
    assert "24,251,276" in run(folder, f"info {INFO_OF_A_MODEL}").out


DOCTOR = "--verbose"


def test_doctor(folder):
    cache = {"ENGINE_CACHE": str(folder / "cache")}
    brief, long = (engine_here("doctor", *more, **cache).out for more in ([], [DOCTOR]))
    assert len(long.splitlines()) > len(brief.splitlines()) > 5


TESTED = {
    "detect": [
        HIDDEN,
        READ,
        *RUNNING,
        *SOURCES,
        *DETECT,
        CLUSTER,
        NAMED["detect"],
        VIDEO,
        MAX_PIXELS,
        FILES,
        FOLDERS,
        HIDDEN,
        TRACKED,
        SHAPES,
        DATASET,
        NUMBERED,
        RESUMED,
        LENIENT,
        OVERWRITE,
    ],
    "classify": [
        *RUNNING,
        *SOURCES,
        NAMED["classify"],
        VIDEO,
        MAX_PIXELS,
        FILES,
        RESUMED,
        LENIENT,
        CLUSTER,
        OVERWRITE,
        BEST,
        ACCURACY,
    ],
    "evaluate": [*RUNNING, *EVALUATE, NAMED["evaluate"], IDENTITIES, REPORT, OVERWRITE, SCORED],
    "benchmark": [*BENCHMARK, FILES_OF_NET, PLOT, ALGORITHMS, OVERWRITE, "--json"],
    "compare": [COMPARE, STRICTLY, BOX, INT8_WAY],
    "export": [EXPORT, EXPORT_BOXES, *EXPORT_NAMES, ZOO, OVERWRITE],
    "weights": [FILES_OF_NET, CUT, ZOO, OVERWRITE],
    "average": [OVERWRITE],
    "info": [INFO, INFO_OF_A_MODEL],
    "doctor": [DOCTOR],
}
for _command, _net in NETS.items():
    TESTED[_command] += [_net, ZOO, THREADS, HALF, INT8]


@pytest.mark.parametrize(
    "command", sorted(set(cli.commands()) - SERVES - TUNES - CALIBRATES - DARKNETS)
)
def test_every_flag_is_tested(command):
    words = {word for text in TESTED.get(command, ()) for word in text.split()}
    options = [each.option_strings for each in cli.parser_of(command).actions[1:]]
    assert not [each for each in options if each and not set(each) & words]
