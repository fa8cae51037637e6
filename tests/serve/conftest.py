"""A server of a small detector that several tests share."""

import pytest

from engine.darknet import cfg, graph, random_weights, weights
from tests.pictures import write_picture
from tests.small_models import DETECTOR, Model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """Write a detector whose scores vary widely."""
    folder = tmp_path_factory.mktemp("model")
    made = Model(*(folder / f"net.{kind}" for kind in ("cfg", "weights", "names")))
    made.cfg.write_text(DETECTOR)
    made.names.write_text("cat\ndog\ncow\n")
    network = graph.build(cfg.read(made.cfg))
    weights.save(made.weights, network, random_weights.arrays(network))
    return made


@pytest.fixture(scope="module")
def detector(model):
    from tests.serve.running import load

    with load(model, batch=4, threshold=0.3) as opened:
        yield opened


@pytest.fixture(scope="module")
def server(detector):
    from tests.serve.running import serving, until

    with serving(detector) as running:
        yield running
        until(running.holds_nothing)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Return pictures with different detections."""
    folder = tmp_path_factory.mktemp("pictures")
    sizes = [(50, 40), (64, 48), (33, 90), (120, 31)]
    paths = [write_picture(folder / f"{seed}.png", sizes[seed % 4], seed=seed) for seed in range(8)]
    return [path.read_bytes() for path in paths]


@pytest.fixture
def start(model):
    from tests.serve.child_server import Process

    processes = []

    def start(*options):
        processes.append(Process(model, *options))
        return processes[-1]

    yield start
    for process in processes:
        process.child.kill()
        process.child.communicate()
