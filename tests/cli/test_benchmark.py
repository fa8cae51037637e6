"""python -m engine benchmark, in a child process or on a GPU whose kernels run on the host."""

import json

import pytest
from PIL import Image

from engine import backends, cli
from engine.backends.base import Peaks
from engine.benchmark import chart
from tests import needs
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import HostDevice, on_tape
from tests.cli.child import engine_here
from tests.pictures import write_picture, write_video
from tests.small_models import SMALLEST, write_model

QUICK = ["--seconds", "0", "--warm-up", "0", "--device", "cpu", "--threads", "1"]
STAGES = ["preprocess", "upload", "forward", "download", "postprocess", "total"]
SOURCE_STAGES = ["read", "decode", "copy", "scale", "forward", "suppress"]
SOURCES = ["arrays", "files"]


def test_a_network_that_no_picture_fits_is_timed_with_arrays(tmp_path, capsys):
    cfg = SMALLEST.format(stride=8).replace("channels=3", "channels=2")
    small = write_model(tmp_path, cfg, ["cat"])
    assert cli.main(["benchmark", str(small.cfg), str(small.weights), *QUICK]) == 0
    told = capsys.readouterr()
    assert [row.split()[1] for row in told.out.splitlines()[3:]] == STAGES
    assert told.err == ""


def test_stages_of_every_batch_and_the_environment(tiny_detector):
    files = [tiny_detector.cfg, tiny_detector.weights]
    done = engine_here("benchmark", *files, "--batch", "1,2", "--workers", "2", *QUICK)
    assert (done.status, done.err) == (0, "")
    head, _, headings, *rows = done.out.splitlines()
    assert head.startswith("net.cfg, input 3 x 48 x 64, float32, cpu:1: ")
    assert "1 thread, engine " in head
    assert headings.split() == ["batch", "stage", "median", "ms", "p90", "p99", "pictures/s"]
    stages, streams = rows[:12], rows[12:]
    assert [row.split()[:2] for row in stages] == [[b, stage] for b in "12" for stage in STAGES]
    assert streams[1].startswith("streams with 2 workers, milliseconds of a picture in each stage")
    assert streams[2].split()[:8] == ["batch", "source", *SOURCE_STAGES]
    assert [row.split()[:2] for row in streams[3:7]] == [[b, s] for b in "12" for s in SOURCES]
    for row, hint in zip(streams[3:7], streams[7:], strict=True):
        batch, source, *_, bound = row.split()
        assert hint.startswith(f"batch {batch}, {source}: {bound} bounds. Faster: ")


@pytest.mark.slow
def test_a_network_of_the_zoo_needs_no_weights(tmp_path):
    done = engine_here(
        *("benchmark", "yolov3-tiny", "--size", "32", "--json", "-", *QUICK),
        ENGINE_CACHE=str(tmp_path),
    )
    assert done.status == 0
    assert done.err == "yolov3-tiny.cfg: no weights given: random weights are used\n"
    document = json.loads(done.out)
    assert document["weights"] == "random"
    assert document["input"] == [3, 32, 32]
    assert [row["stage"] for row in document["stages"]] == STAGES
    arrays, files = document["sources"]
    assert (arrays["source"], files["source"]) == ("arrays", "files")
    assert set(files["milliseconds"]) == set(SOURCE_STAGES)
    assert set(arrays["milliseconds"]) == set(SOURCE_STAGES) - {"read", "decode"}
    assert files["bound"] in SOURCE_STAGES
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_tables_of_ops_and_of_peers_numbers_and_a_plot(tiny_detector, tmp_path):
    write_picture(tmp_path / "dog.png")
    done = engine_here(
        *("benchmark", "--cfg", tiny_detector.cfg, "--weights", tiny_detector.weights),
        *("--layers", "--peers", "--image", "dog.png", "--json", "all.json", "--plot", "all.png"),
        *QUICK,
        cwd=tmp_path,
    )
    assert done.status == 0
    for line in done.err.splitlines():
        assert ": skipped, " in line
    assert "batch 1, op by op" in done.out
    assert "engine / it" in done.out
    document = json.loads((tmp_path / "all.json").read_text())
    assert document["layers"][0]["op"] == "Conv2d"
    assert document["peers"][0]["program"] == "engine"
    assert {"version", "engine", "network", "device", "machine", "precision"} <= set(document)
    with Image.open(tmp_path / "all.png") as plot:
        assert plot.format == "PNG"


def test_no_passes_runs_the_plan_as_written(tiny_detector, capsys):
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["benchmark", *files, "--layers", "--no-passes", "--json", "-", *QUICK]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["passes"] == []
    assert "Normalise" in {row["op"] for row in document["layers"]}


def test_precision_is_named(tiny_detector, capsys):
    words = [str(tiny_detector.cfg), "--precision", "float64", *QUICK]
    assert cli.main(["benchmark", *words]) == 0
    assert ", float64, cpu:1: " in capsys.readouterr().out


def test_a_video_and_a_picture_are_streamed_and_drawn(tiny_detector, tmp_path, capsys, monkeypatch):
    needs.package("av")
    monkeypatch.chdir(tmp_path)
    drawn = []
    monkeypatch.setattr(chart, "png", lambda *given: drawn.append(given) or b"")
    write_picture(tmp_path / "a.png")
    write_video(tmp_path / "film.mp4", 3)
    words = ["--image", "a.png", "--video", "film.mp4", "--plot", "all.png", "--json", "-", *QUICK]
    assert cli.main(["benchmark", str(tiny_detector.cfg), *words]) == 0
    rows = json.loads(capsys.readouterr().out)["sources"]
    assert [row["source"] for row in rows] == ["arrays", "files", "video"]
    assert "decode" in rows[2]["milliseconds"]
    ((_, _, bars),) = drawn
    rates = {bar: values["batch 1"] for bar, values in bars.items()}
    assert list(rates) == ["forward", "arrays to boxes", "files to boxes", "video to boxes"]
    assert max(rates.values()) == rates["forward"]


def test_a_video_that_breaks_off_loses_no_other_numbers(tiny_detector, tmp_path, capsys):
    needs.package("av")
    film = write_video(tmp_path / "film.mkv", 30)
    film.write_bytes(film.read_bytes()[: film.stat().st_size * 4 // 5])
    saved = tmp_path / "all.json"
    words = [str(tiny_detector.cfg), "--video", str(film), "--json", str(saved), "--layers", *QUICK]
    assert cli.main(["benchmark", *words, "--batch", "1,2"]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines()[-1].startswith(f"Error: {film}: video: ")
    assert "batch 2, files: " in told.out
    found = json.loads(saved.read_text())
    rows = [(row["batch"], row["source"]) for row in found["sources"]]
    assert rows == [(1, "arrays"), (1, "files"), (2, "arrays"), (2, "files")]
    assert {row["batch"] for row in found["layers"]} == {1, 2}


@needs_gxx
@pytest.mark.slow
def test_every_algorithm_of_a_card_and_the_chosen_one(tiny_detector, capsys, monkeypatch):
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    quick = ["--seconds", "0", "--warm-up", "0"]
    with on_tape(HostDevice(name="cuda:0")) as device:
        monkeypatch.setattr(device, "peaks", lambda precision: Peaks(1e12, 1e11, 4, 4, 1e12))
        monkeypatch.setattr(backends, "open_chosen", lambda name, threads: device)
        assert cli.main(["benchmark", *files, "--algorithms", "--layers", *quick]) == 0
    out = capsys.readouterr().out
    assert "cuda:0: host, driver for CUDA 13.0" in out
    assert "of the roofline. Largest losses:\n" in out
    after = out[out.index("Largest losses:") :].splitlines()[1:3]  # two convolutions are left
    assert all(line.startswith("layer ") and " us of " in line for line in after)
    assert "least us  reached  limit\n" in out
    rows = out[out.index("each convolution with each algorithm") :].splitlines()[1:]
    assert rows[0].split()[:3] == ["layers", "convolution", "algorithm"]
    assert any(" direct+unfused " in row for row in rows)
    assert sum(" chosen " in row for row in rows) == 2


def test_algorithms_need_a_gpu(tiny_detector, capsys):
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["benchmark", *files, "--algorithms", *QUICK]) == 2
    told = capsys.readouterr()
    assert told.err == "Error: cpu:1: has no autotuning. Try: --device cuda\n"
    assert told.out == ""


@pytest.mark.parametrize(
    "option", [["--image", "a.png"], ["--video", "a.mp4"], ["--workers", "2"], ["--decode", "cpu"]]
)
def test_options_of_pictures_need_a_network_that_takes_them(tmp_path, capsys, option):
    cfg = SMALLEST.format(stride=8).replace("channels=3", "channels=2")
    small = write_model(tmp_path, cfg, ["cat"])
    assert cli.main(["benchmark", str(small.cfg), *option, *QUICK]) == 2
    told = capsys.readouterr()
    assert (
        told.err.splitlines()[-1] == f"Error: {option[0]}: this network does not process pictures"
    )
    assert told.out == ""


def test_a_video_that_is_missing_is_told_before_anything_is_measured(tiny_detector, capsys):
    needs.package("av")
    files = [str(tiny_detector.cfg), str(tiny_detector.weights)]
    assert cli.main(["benchmark", *files, "--video", "none.mp4", *QUICK]) != 0
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith("Error: none.mp4: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["yolov3-tinny"], "Did you mean 'yolov3-tiny'?"),
        (["CFG", "x", "y"], "unexpected 'x'"),
        (["CFG", "codes"], "CFG and WEIGHTS, or a name of: models list.\n"),
        (["CFG", "--model", "yolov4"], "--model and --cfg: expected one of them, got both"),
        (["CFG", "--batch", "1,0"], "expected numbers from 1 to 2147483647, got '1,0'"),
        (["CFG", "--batch", "9" * 20], "--batch: expected numbers from 1 to 2147483647, got '99"),
        (["CFG", "--batch", "9" * 5000], "--batch: expected numbers from 1 to 2147483647, got '99"),
        (["CFG", "--workers", "1,2"], "expected a number from 1 to 1024, got '1,2'"),
        (["CFG", "--workers", "99999"], "expected a number from 1 to 1024, got '99999'"),
        (["CFG", "--seconds", "soon"], "expected seconds, got 'soon'"),
        (["CFG", "--json", "here.json"], "exists already"),
        (["CFG", "--plot", "here.json"], "exists already"),
        (["CFG", "--json", "CFG", "--overwrite"], "would replace a file that is read"),
        (["CFG", "--image", "P", "--json", "./P", "--overwrite"], "would replace a file that"),
        (["CFG", "--json", "new", "--plot", "./new"], "expected different files, got one"),
        (["CFG", "--plot", "b.svg"], "--plot b.svg: expected a name that ends in .png"),
        (["CFG", "--precision", "float8"], "precision: expected"),
        (["CFG", "--scales", "here.json"], "--scales: only with --precision int8, not float32"),
    ],
)
def test_misuse_is_one_error_line(tiny_detector, tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.json").write_text("mine")
    words = [str(tiny_detector.cfg) if word == "CFG" else word for word in words]
    assert cli.main(["benchmark", *words, *QUICK]) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "here.json").read_text() == "mine"


def test_overwrite_replaces_earlier_numbers(tiny_detector, tmp_path):
    path = tmp_path / "here.json"
    path.write_text("mine")
    words = [str(tiny_detector.cfg), "--json", str(path), "--overwrite", *QUICK]
    assert cli.main(["benchmark", *words]) == 0
    assert json.loads(path.read_text())["network"] == "net.cfg"
