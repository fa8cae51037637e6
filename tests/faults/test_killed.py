"""A process that is killed while it writes: each file is complete, old or new."""

import json
import signal
import time

import numpy as np
import pytest

from engine.backends.cuda.driver.compile_cache import Cache
from engine.darknet import cfg, graph, weights
from tests.faults.child import start

ROUNDS = 6
LONGEST_SECONDS = 0.05  # from when it starts to write

# each writes the same file repeatedly, with another number in it
WRITERS = {
    "cache": """
from engine.backends.cuda.driver.compile_cache import Cache
from pathlib import Path
cache = Cache(Path(folder))
def write(number):
    cache.write("kernel", bytes([number]) * 300_000)
""",
    "weights": """
from engine.darknet import cfg, graph, weights
network = graph.build(cfg.read(sys.argv[2]))
def write(number):
    arrays = [{key: each + number for key, each in layer.items()}
              for layer in weights.initial(network)]
    weights.save(f"{folder}/net.weights", network, arrays, overwrite=True)
""",
    "document": """
from engine.files.atomic import write_new
def write(number):
    text = json.dumps([number] * 50_000).encode()
    write_new(f"{folder}/found.json", text, overwrite=True)
""",
    "notes": """
from pathlib import Path
from engine.models import trusted_hashes
def write(number):
    trusted_hashes.record(Path(folder), "a.weights", str(number) * 60_000, "https://host/a")
""",
}

PROGRAM = """
import itertools, json, sys
folder = sys.argv[1]
{writer}
write(0)
print("begun", flush=True)
for number in itertools.cycle(range(100)):
    write(number)
"""


def whole_cache(folder, network):
    contents = Cache(folder).read("kernel")
    assert contents is not None
    assert (len(contents), len(set(contents))) == (300_000, 1)


def whole_weights(folder, network):
    arrays = weights.load(folder / "net.weights", network)
    assert len({float(np.median(each)) for layer in arrays for each in layer.values()}) <= 2


def whole_document(folder, network):
    assert len(set(json.loads((folder / "found.json").read_text()))) == 1


def whole_notes(folder, network):
    entry = json.loads((folder / "known.json").read_text())["a.weights"]
    assert len(entry["sha256"]) in (60_000, 120_000)


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRITERS)
def test_files_of_a_killed_writer_are_whole(kind, tmp_path, tiny_detector):
    network = graph.build(cfg.read(tiny_detector.cfg))
    check = globals()[f"whole_{kind}"]
    program = PROGRAM.format(writer=WRITERS[kind])
    for number in range(ROUNDS):
        with start(program, tmp_path, tiny_detector.cfg) as process:
            assert process.stdout.readline() == "begun\n", process.stderr.read()
            time.sleep(LONGEST_SECONDS * number / ROUNDS)
            process.send_signal(signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        check(tmp_path, network)
