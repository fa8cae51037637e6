"""A full disk: one line of error for each kind of file, no partial file, nothing lost.

The limit on the size of files is set in child processes only: in the process of the tests it would
also cut off their own log.
"""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from engine.models import trusted_hashes
from tests import needs
from tests.faults.child import ENGINE, run
from tests.lanes import slow_except

pytest.importorskip("resource", reason="needs file size limits, which Windows does not have")

LIMIT = 100  # bytes a file may have

LIMITED = f"""
import resource, sys
sys.dont_write_bytecode = True  # later programs would import what there was room for
resource.setrlimit(resource.RLIMIT_FSIZE, ({LIMIT}, {LIMIT}))
"""
FULL = LIMITED + ENGINE

SAVE = f"""
from pathlib import Path
from engine.darknet import cfg, graph, weights
from engine.errors import EngineError, WeightsError
from engine.files.atomic import write_new

folder = Path(sys.argv[2])
network = graph.build(cfg.read(sys.argv[1]))
try:
    weights.save(folder / "new.weights", network, weights.initial(network))
except WeightsError as error:
    print(error)
try:
    write_new(folder / "new.json", bytes({LIMIT + 1}))
except EngineError as error:
    print(error)
"""

CACHE = """
from pathlib import Path
from engine.backends.cuda.driver.compile_cache import Cache

folder = Path(sys.argv[1])
cache = Cache(folder)
cache.write("kernel", bytes(1000))
assert cache.read("kernel") == bytes(1000)
assert Cache(folder).read("kernel") is None
"""

RECORD = """
from pathlib import Path
from engine.models import trusted_hashes

try:
    trusted_hashes.record(Path(sys.argv[1]), "b.weights", "1" * 64, "https://host/b")
except OSError as error:
    print(error.strerror)
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


def on_full_disk(program, *arguments):
    """Return the lines that `program` prints in a process whose files may not grow."""
    end = run(LIMITED + program, *arguments)
    assert end.status == 0, end.err
    return end.out.splitlines()


def run_in(place, program, command):
    network = ["--cfg", "net.cfg", "--weights", "net.weights"]
    return run(program, *command.split(), *network, cwd=place)


@pytest.mark.slow
@pytest.mark.parametrize("output", slow_except(["out/street.png", "out/a.json"], COMMANDS))
def test_file_that_does_not_fit_is_one_error_line_and_is_removed(place, output):
    needs.package("onnx")
    end = run_in(place, FULL, COMMANDS[output])
    assert end.status == 1, end.err
    (line,) = end.errors
    assert "cannot be written: File too large" in line
    assert [path.name for path in place.joinpath("out").rglob("[!.]*") if path.is_file()] == []


@pytest.mark.slow
@pytest.mark.parametrize("ending", slow_except(["csv"], ["jsonl", "csv"]))
def test_rows_written_before_the_disk_filled_stay_whole(place, ending):
    rows = f"{DETECT} street.png street.png street.png --{ending} out/"
    whole = run_in(place, ENGINE, f"{rows}whole.{ending}")
    assert whole.status == 0, whole.err
    expected = (place / f"out/whole.{ending}").read_text().splitlines()
    # two of four lines of JSON; the rows of one of four pictures, and the head of a CSV
    kept = 2 if ending == "jsonl" else 1 + (len(expected) - 1) // 4
    room = sum(len(line) + 1 for line in expected[:kept]) + 60  # times differ in length
    end = run_in(place, FULL.replace(str(LIMIT), str(room)), f"{rows}cut.{ending}")
    assert (end.status, len(end.errors)) == (1, 1), end.err
    text = (place / f"out/cut.{ending}").read_text()
    assert text.endswith("\n")
    lines = text.splitlines()
    assert len(lines) == kept
    if ending == "csv":
        assert lines == expected[:kept]
    else:
        assert all(json.loads(line)["path"] == "street.png" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    "output", slow_except(["out/a.json"], (name for name in COMMANDS if "street" not in name))
)
def test_file_that_was_to_be_replaced_is_kept(place, output):
    needs.package("onnx")
    place.joinpath(output).write_bytes(BEFORE)
    end = run_in(place, FULL, f"{COMMANDS[output]} --overwrite")
    assert end.status == 1, end.err
    assert len(end.errors) == 1
    assert place.joinpath(output).read_bytes() == BEFORE


def test_full_stdout_is_one_error_line(place):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        end = run(ENGINE, "layers", stdout=full, cwd=place)
    assert end.status == 1
    assert end.errors == ["Error: No space left on device"]


def test_weights_and_files_saved_through_the_api(tiny_detector, tmp_path):
    lines = on_full_disk(SAVE, tiny_detector.cfg, tmp_path)
    assert len(lines) == 2
    assert "new.weights: cannot be written: File too" in lines[0]
    assert "new.json: cannot be written: File too large" in lines[1]
    assert list(tmp_path.iterdir()) == []


def test_kernel_cache_that_does_not_fit_is_kept_in_memory(tmp_path):
    on_full_disk(CACHE, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_record_of_known_models_stays_as_it_was(tmp_path):
    trusted_hashes.record(tmp_path, "a.weights", "0" * 64, "https://host/a")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert on_full_disk(RECORD, tmp_path) == ["File too large"]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
