"""The detector in the real Triton server, called over HTTP by its own client."""

import re
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

import engine
from engine import InputError
from engine.fleet import triton
from tests import needs
from tests.cli.child import ENVIRONMENT
from tests.fleet.expected import plain, write_pictures


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    found = write_pictures(tmp_path_factory.mktemp("triton") / "pictures", 12, broken=(4,))
    Image.open(found[0]).save(Path(found[0]).with_suffix(".bmp"))  # its last bytes are zeros
    return [*found, str(Path(found[0]).with_suffix(".bmp"))]


@pytest.fixture(scope="module")
def expected(model, paths):
    return plain(model, paths, threshold=0.65, batch=4)


@pytest.fixture(scope="module")
def server(model):
    """Start a server; yield a client and the address of the metrics."""
    needs.package("pytriton")
    from tritonclient.http import InferenceServerClient

    port, metrics_port = free_ports(2)
    files = map(str, (port, metrics_port, model.cfg, model.weights, model.names))
    with subprocess.Popen(
        [sys.executable, Path(__file__).with_name("triton_script.py"), *files],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert "ready\n" in process.stdout  # reads on until that line
        with InferenceServerClient(f"127.0.0.1:{port}", concurrency=12) as connected:
            yield connected, f"http://127.0.0.1:{metrics_port}/metrics"
        process.stdin.close()
        assert process.wait(60) == 0


@pytest.fixture
def client(server):
    return server[0]


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def asked(paths):
    from tritonclient.http import InferInput

    content = np.array([[Path(path).read_bytes()] for path in paths], object)
    picture = InferInput(triton.INPUT, list(content.shape), "BYTES")
    picture.set_data_from_numpy(content)
    return [picture]


def assert_says(answer, row, outcome):
    """Check that a row of an answer equals the result of the plain API bit for bit."""
    count = answer.as_numpy("count")[row, 0]
    error = answer.as_numpy("error")[row, 0].decode()
    if isinstance(outcome, Exception):
        assert (count, error) == (0, str(outcome).split(": ", 1)[1])
        return
    assert (count, error) == (len(outcome), "")
    for name in ("boxes", "scores", "class_ids"):
        found = answer.as_numpy(name)[row, :count]
        assert found.dtype == getattr(outcome, name).dtype
        assert found.tobytes() == getattr(outcome, name).tobytes()
    labels = [each.decode() for each in answer.as_numpy("labels")[row, :count]]
    assert labels == outcome.labels


@pytest.mark.slow
def test_one_picture_per_request(client, paths, expected):
    assert len({len(each) for each in expected.values() if hasattr(each, "scores")}) > 3
    for path in paths:
        assert_says(client.infer("engine", asked([path])), 0, expected[path])


@pytest.mark.slow
def test_several_pictures_per_request(client, paths, expected):
    for first in range(0, len(paths), 4):
        some = paths[first : first + 4]
        answer = client.infer("engine", asked(some))
        for row, path in enumerate(some):
            assert_says(answer, row, expected[path])


@pytest.mark.slow
def test_pictures_of_several_clients_run_together(server, paths, expected):
    client, metrics = server

    def counts():
        """Count pictures and runs."""
        with urlopen(metrics, timeout=10) as told:
            text = told.read().decode()
        names = "nv_inference_count", "nv_inference_exec_count"
        return [
            int(re.search(rf'^{name}{{model="engine".*}} (\d+)$', text, re.M)[1]) for name in names
        ]

    pictures, runs = counts()
    waiting = [client.async_infer("engine", asked([path])) for path in paths[:12]]
    for path, answer in zip(paths, waiting, strict=False):
        assert_says(answer.get_result(), 0, expected[path])
    more_pictures, more_runs = counts()
    assert more_pictures - pictures == 12
    assert more_runs - runs < 12


def test_batched_requests_get_their_own_answers(model, paths, expected):
    """Call the function that the server calls, without a server."""
    some = [paths[:3], paths[3:4], paths[4:5]]
    requests = [
        {triton.INPUT: np.array([[Path(path).read_bytes()] for path in each], object)}
        for each in some
    ]
    options = {"device": "cpu", "threshold": 0.65, "batch": 4}
    with engine.load(model.cfg, model.weights, model.names, **options) as detector:
        answers = triton.infer(detector, requests)
    for answer, each in zip(answers, some, strict=True):
        assert answer["boxes"].shape[0] == len(each)
        for row, path in enumerate(each):
            if isinstance(expected[path], Exception):
                assert answer["count"][row, 0] == 0
                assert b"picture" in answer["error"][row, 0]
            else:
                count = answer["count"][row, 0]
                assert answer["boxes"][row, :count].tolist() == expected[path].boxes.tolist()


def test_missing_pytriton_is_reported_with_an_install_hint(model, monkeypatch):
    monkeypatch.setitem(sys.modules, "pytriton", None)
    monkeypatch.setitem(sys.modules, "pytriton.model_config", None)
    with (
        engine.load(model.cfg, model.weights, device="cpu") as detector,
        pytest.raises(InputError, match=r"pytriton.* is not installed\. Run: pip install"),
    ):
        triton.server(detector)


def test_a_classifier_is_refused(tiny_classifier):
    files = tiny_classifier.cfg, tiny_classifier.weights
    with (
        engine.load(*files, device="cpu") as detector,
        pytest.raises(InputError, match="expected a detector"),
    ):
        triton.server(detector)
