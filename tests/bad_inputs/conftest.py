"""Bad inputs through the command line: `detect` must answer quickly and in little memory.

Each input is refused in one line with its exit status, or it is acceptable and runs. The number in
the name of a test is the kind of input; finer cases have the same number next to their reader.
"""

import time
from pathlib import Path

import pytest
from PIL import Image

import engine
from engine import cli
from engine.darknet import cfg, graph, weights
from tests.bad_inputs.small import GOOD

resource = pytest.importorskip("resource", reason="Windows has no limit on address space")

CPU = ["--device", "cpu", "--threads", "1"]
SECONDS = 15  # of processor time; the files that these tests are about took minutes
MEMORY = 2**30  # of address space, in addition to what the process uses


@pytest.fixture(autouse=True)
def little_memory():
    """Limit the address space, so that a huge allocation raises MemoryError."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "street.png"
    Image.new("RGB", (40, 30), (200, 90, 30)).save(path)
    return path


@pytest.fixture
def detect(tmp_path, picture, capsys):
    """Return a function that runs `detect` and returns its status and its error line, or "".

    `errors` is the number of error lines to expect, None for any.
    """

    def run(*more, network=GOOD, model=None, shown=picture, errors=1):
        path = network
        if isinstance(network, str):
            path = tmp_path / "net.cfg"
            path.write_text(network)
        if model is None:
            model = blank_weights(tmp_path / "net.weights", path)
        start = time.process_time()
        status = cli.main(
            ["detect", *CPU, "--cfg", str(path), "--weights", str(model), *more, "--", str(shown)]
        )
        assert time.process_time() - start < SECONDS
        lines = capsys.readouterr().err.splitlines()
        assert not any("Traceback" in line for line in lines)
        told = [line for line in lines if line.startswith("Error: ")]
        assert errors is None or len(told) == (errors if status else 0)
        assert all(len(line) < 500 for line in lines)
        return status, "".join(told)

    return run


@pytest.fixture
def refuses(detect):
    """Return a function that runs `detect` and checks its exit status and message."""

    def run(message, *more, status=3, **given):
        found, line = detect(*more, **given)
        assert (found, message in line) == (status, True), line

    return run


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file into the test's folder."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def blank_weights(path, network):
    """Write weights of zeros for the network; write nothing if the network is invalid."""
    try:
        built = graph.build(cfg.read(network))
    except engine.EngineError:
        return path
    weights.save(path, built, weights.initial(built), overwrite=True)
    return path
