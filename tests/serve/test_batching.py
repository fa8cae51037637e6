"""Dynamic batching: sizes of batches, waiting times, and each client's own answer."""

import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from statistics import median

import pytest

from engine.errors import DeviceError
from engine.serve.batcher import Batcher, QueuedPicture
from tests.serve.running import ask, load, serving, until
from tests.serve.test_answers import without_times
from tests.serve.test_limits import HEAD, answer_in, plugged


class Gate:
    """A replacement for a detector's run() that records batch sizes and can be blocked."""

    def __init__(self, detector):
        self.sizes = []
        self._run = detector.run
        self._open = threading.Event()
        self._open.set()
        self.error = None

    def shut(self):
        self._open.clear()

    def open(self):
        self._open.set()

    def __call__(self, batch, settings=None):
        self.sizes.append(len(batch.placed))
        assert self._open.wait(20)
        if self.error is not None:
            raise self.error
        return self._run(batch, settings)


@pytest.fixture
def gated(model):
    with load(model, batch=4, threshold=0.3) as detector:
        gate = detector.run = Gate(detector)
        yield detector, gate
        gate.open()


def test_requests_that_wait_during_a_run_are_batched(gated, pictures):
    detector, gate = gated
    with serving(detector) as server, ThreadPoolExecutor(12) as pool:
        gate.sizes.clear()
        gate.shut()
        first = pool.submit(server.post, "/detect", pictures[0])
        until(lambda: gate.sizes == [1])
        others = [pool.submit(server.post, "/detect", pictures[each % 8]) for each in range(10)]
        until(lambda: server.service.depth == 10)
        gate.open()
        assert first.result().status == 200
        for number, other in enumerate(others):
            expected = detector(pictures[number % 8]).to_dict()
            assert without_times(other.result().found) == without_times(expected)
        assert gate.sizes == [1, 4, 4, 2]
        until(server.holds_nothing)


@pytest.mark.slow
def test_each_client_gets_the_answer_for_its_picture_and_settings(server, model, pictures):
    expected = {}
    for threshold in (0.3, 0.35, 0.4):
        with load(model, threshold=threshold) as alone:
            for number, picture in enumerate(pictures):
                expected[number, threshold] = scores(alone(picture).to_dict())
    wrong = []

    def ask_for(keys):
        with closing(server.connect()) as connection:
            for number, threshold in keys:
                path = f"/detect?threshold={threshold}"
                reply = ask(connection, "POST", path, pictures[number])
                if scores(reply.found) != expected[number, threshold]:
                    wrong.append((number, threshold))

    keys = [*expected] * 2
    threads = [threading.Thread(target=ask_for, args=(keys[seed:],)) for seed in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len({str(each) for each in expected.values()}) > 15
    counts = server.get("/metrics").content.decode().split("engine_batch_pictures_")
    (alone,) = (each for each in counts if each.startswith('bucket{le="1"}'))
    (every,) = (each for each in counts if each.startswith("count"))
    assert int(alone.split()[1]) < int(every.split()[1])  # some ran together


def scores(entry):
    return [(each["label"], round(each["score"], 4)) for each in entry["detections"]]


def test_single_picture_does_not_wait(detector, pictures):
    with serving(detector, wait_seconds=5) as server:
        assert server.post("/detect", pictures[0]).seconds < 2


def test_picture_waits_a_bounded_time_for_arriving_ones(gated, pictures):
    detector, gate = gated
    slow_prepare, is_held = detector.prepare, threading.Event()

    def prepare(content, **options):
        if isinstance(content, bytes) and content == pictures[1]:  # the warm-up passes an array
            is_held.wait(20)
        return slow_prepare(content, **options)

    detector.prepare = prepare
    with serving(detector, wait_seconds=0.5) as server, ThreadPoolExecutor(2) as pool:
        gate.sizes.clear()
        late = pool.submit(server.post, "/detect", pictures[1])
        until(lambda: server.service.accepted_pictures == 1)
        reply = server.post("/detect", pictures[0])
        assert reply.status == 200
        assert 300 < reply.found["timing_ms"]["queue"] < 2000
        is_held.set()
        assert late.result().status == 200
        assert gate.sizes == [1, 1]


def test_full_queue_refuses_at_once(gated, pictures):
    detector, gate = gated
    with serving(detector, queue=6) as server, ThreadPoolExecutor(6) as pool:
        gate.shut()
        taken = [pool.submit(server.post, "/detect", pictures[0]) for _ in range(6)]
        until(lambda: server.service.accepted_pictures == 6)
        seconds = []
        with closing(server.connect()) as connection:
            for _ in range(50):
                reply = ask(connection, "POST", "/detect", pictures[0])
                assert (reply.status, reply.error) == (503, "queue: is full with 6 pictures")
                assert int(reply.headers["Retry-After"]) >= 1
                seconds.append(reply.seconds)
        assert median(seconds) < 0.05
        assert server.get("/readyz").status == 200
        gate.open()
        assert {each.result().status for each in taken} == {200}
        assert server.post("/detect", pictures[0]).status == 200
        until(server.holds_nothing)


def test_abandoned_request_is_not_run(gated, pictures):
    detector, gate = gated
    with serving(detector) as server, ThreadPoolExecutor(1) as pool:
        gate.sizes.clear()
        gate.shut()
        first = pool.submit(server.post, "/detect", pictures[0])
        until(lambda: gate.sizes == [1])
        leaving = [server.connect() for _ in range(3)]
        for connection in leaving:
            connection.request("POST", "/detect", pictures[1])
        until(lambda: server.service.depth == 3)
        for connection in leaving:
            connection.close()
        until(lambda: len(server.server.server_state.connections) == 1)
        gate.open()
        assert first.result().status == 200
        until(server.holds_nothing)
        assert gate.sizes == [1]
        assert b'engine_requests_total{path="/detect",status="499"} 3' in (
            server.get("/metrics").content
        )


def test_client_that_ends_its_side_and_waits_gets_interim_answers(gated, pictures):
    detector, gate = gated
    with serving(detector) as server, plugged(server) as (plug, lines):
        gate.shut()
        plug.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(pictures[0]) + pictures[0])
        plug.shutdown(socket.SHUT_WR)
        for _ in range(2):
            assert lines.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert lines.readline() == b"\r\n"
        gate.open()
        status, headers, _ = answer_in(lines)
        assert (status, headers["connection"]) == (200, "close")
        assert lines.read() == b""


def test_picture_that_fails_a_run_fails_alone(gated, pictures):
    detector, gate = gated
    run = gate._run

    def fail_on_small(batch, settings):
        if any(each.picture.size == (33, 90) for each in batch.pictures):
            raise ZeroDivisionError("a bug")
        return run(batch, settings)

    gate._run = fail_on_small
    with serving(detector) as server:
        gate.sizes.clear()
        gate.shut()
        with ThreadPoolExecutor(5) as pool:
            first = pool.submit(server.post, "/detect", pictures[0])
            until(lambda: gate.sizes == [1])
            others = [pool.submit(server.post, "/detect", pictures[each]) for each in range(4)]
            until(lambda: server.service.depth == 4)
            gate.open()
            assert first.result().status == 200
            statuses = [each.result().status for each in others]
        assert statuses == [200, 200, 500, 200]
        assert others[2].result().error == "internal error: ZeroDivisionError"
        until(server.holds_nothing)


def test_failed_device_is_reported_until_it_works_again(gated, pictures):
    detector, gate = gated
    with serving(detector) as server:
        gate.error = DeviceError("cuda:0: out of memory")
        reply = server.post("/detect", pictures[0])
        assert (reply.status, reply.error) == (503, "cuda:0: out of memory")
        for path in ("/readyz", "/healthz"):
            assert server.get(path).content == b"cuda:0: out of memory\n"
            assert server.get(path).status == 503
        gate.error = None
        assert server.post("/detect", pictures[0]).status == 200
        assert server.get("/readyz").status == server.get("/healthz").status == 200


# ------------------------------------------------------------ the batcher alone


@pytest.mark.parametrize(("powers_of_two", "expected"), [(False, [6, 5]), (True, [6, 4, 1])])
def test_gpu_batches_have_few_different_sizes(powers_of_two, expected, monkeypatch):
    monkeypatch.setattr("engine.serve.batcher.Batch.joined", list)
    sizes, done, is_open = [], [], threading.Event()

    def run(batch, settings):
        assert is_open.wait(10)
        sizes.append(len(batch))
        return batch

    batcher = Batcher(
        *(run, done.append),
        max_batch=6,
        threads=1,
        wait_seconds=0,
        powers_of_two=powers_of_two,
    )
    queued = [QueuedPicture(number, None, lambda: True) for number in range(12)]
    batcher.submit(queued[0])
    until(lambda: batcher.depth == 0)
    for picture in queued[1:]:
        batcher.submit(picture)
    is_open.set()
    batcher.close()
    assert sizes == [1, *expected]
    assert [outcome for each in done for outcome in each.outcomes] == list(range(12))


def test_runs_of_several_threads_overlap_without_mixing(monkeypatch):
    monkeypatch.setattr("engine.serve.batcher.Batch.joined", list)
    both = threading.Barrier(2, timeout=10)
    counts, done = Counter(), []

    def run(batch, settings):
        counts[threading.current_thread().name] += 1
        if sum(counts.values()) <= 2:
            both.wait()
        return batch

    batcher = Batcher(
        *(run, done.append),
        max_batch=4,
        threads=2,
        wait_seconds=0,
        powers_of_two=True,
    )
    for number in range(200):
        batcher.submit(QueuedPicture(number, None, lambda: True))
        time.sleep(0.0001)
    batcher.close()
    assert len(counts) == 2
    for each in done:
        assert [picture.batch for picture in each.pictures] == list(each.outcomes)
    assert sum(len(each.pictures) for each in done) == 200
