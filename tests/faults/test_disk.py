"""A disk that is full amid each kind of file: one line, nothing half written, nothing lost."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import engine
from engine.backends.cuda.driver.compile_cache import Cache
from engine.darknet import cfg, graph, weights
from engine.errors import EngineError
from engine.files.atomic import write_new
from engine.models import trusted_hashes
from tests.faults.child import ENGINE, run

resource = pytest.importorskip("resource")

ROOM = 100  # bytes that a file may have

FULL = f"""
import resource, sys
from engine.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, ({ROOM}, {ROOM}))
sys.exit(main())
"""

DETECT = "detect --thresh 0.01 --device cpu --quiet street.png"
COMMANDS = {
    "out/street.png": f"{DETECT} -o out",
    "out/a.json": f"{DETECT} --json out/a.json",
    "out/street.txt": f"{DETECT} --save-txt out",
    "out/a.weights": "weights cut 2 -o out/a.weights",
    "out/b.weights": "weights fuse -o out/b.weights",
    "out/a.onnx": "export onnx -o out/a.onnx",
}
BEFORE = b"what was there before"


@pytest.fixture
def place(tmp_path, tiny_detector):
    for path in (tiny_detector.cfg, tiny_detector.weights):
        shutil.copy(path, tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "street.png")
    (tmp_path / "out").mkdir()
    return tmp_path


@pytest.fixture
def full_disk():
    """Files of this process may hardly grow while a test runs."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def run_in(place, program, command):
    network = ["--cfg", "net.cfg", "--weights", "net.weights"]
    return run(program, *command.split(), *network, cwd=place)


@pytest.mark.parametrize("output", COMMANDS)
def test_a_file_that_does_not_fit_is_one_line_and_not_there(place, output):
    pytest.importorskip("onnx")
    end = run_in(place, FULL, COMMANDS[output])
    assert end.status == 1, end.err
    (line,) = end.errors
    assert "cannot be written: File too large" in line
    assert [path.name for path in place.joinpath("out").rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_of_what_grows_row_by_row_whole_rows_stay(place, ending):
    rows = f"{DETECT} street.png street.png street.png --{ending} out/"
    whole = run_in(place, ENGINE, f"{rows}whole.{ending}")
    assert whole.status == 0, whole.err
    expected = (place / f"out/whole.{ending}").read_text().splitlines()
    room = sum(len(line) + 1 for line in expected[:2]) + 60  # times differ in length
    end = run_in(place, FULL.replace(str(ROOM), str(room)), f"{rows}cut.{ending}")
    assert (end.status, len(end.errors)) == (1, 1), end.err
    text = (place / f"out/cut.{ending}").read_text()
    assert text.endswith("\n")
    lines = text.splitlines()
    assert len(lines) == 2
    if ending == "csv":
        assert lines == expected[:2]
    else:
        assert all(json.loads(line)["path"] == "street.png" for line in lines)


@pytest.mark.parametrize("output", [name for name in COMMANDS if "street" not in name])
def test_what_was_to_be_replaced_is_still_there(place, output):
    pytest.importorskip("onnx")
    place.joinpath(output).write_bytes(BEFORE)
    end = run_in(place, FULL, f"{COMMANDS[output]} --overwrite")
    assert end.status == 1, end.err
    assert len(end.errors) == 1
    assert place.joinpath(output).read_bytes() == BEFORE


def test_stdout_that_is_full_is_one_line(place):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        end = run(ENGINE, "layers", stdout=full, cwd=place)
    assert end.status == 1
    assert end.errors == ["Error: No space left on device"]


def test_weights_and_files_of_the_api_too(tiny_detector, tmp_path, full_disk):
    network = graph.build(cfg.read(tiny_detector.cfg))
    path = tmp_path / "new.weights"
    with pytest.raises(engine.WeightsError, match=r"new\.weights: cannot be written: File too"):
        weights.save(path, network, weights.initial(network))
    with pytest.raises(EngineError, match=r"new\.json: cannot be written: File too large"):
        write_new(tmp_path / "new.json", bytes(ROOM + 1))
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_does_not_fit_is_kept_in_memory(tmp_path, full_disk):
    cache = Cache(tmp_path)
    cache.write("kernel", bytes(1000))
    assert cache.read("kernel") == bytes(1000)
    assert Cache(tmp_path).read("kernel") is None
    assert list(tmp_path.iterdir()) == []


def test_notes_on_models_stay_as_they_were(tmp_path):
    trusted_hashes.record(tmp_path, "a.weights", "0" * 64, "https://host/a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            trusted_hashes.record(tmp_path, "b.weights", "1" * 64, "https://host/b")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
