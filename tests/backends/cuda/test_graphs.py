"""Recording through the driver's C interface: the order of calls, and what is freed when."""

import ctypes
from threading import Thread
from types import SimpleNamespace

import pytest

from engine.backends.cuda.driver import graphs
from engine.errors import DeviceError


class FakeLibcuda:
    """Notes every call; fails where it is told to."""

    def __init__(self, failing=None):
        self.calls = []
        self._failing = failing

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            if name == self._failing:
                return 900
            if name in ("cuStreamEndCapture", "cuGraphInstantiateWithFlags"):
                place = arguments[1] if name == "cuStreamEndCapture" else arguments[0]
                place._obj.value = 11
            if name == "cuGetErrorString":
                ctypes.cast(arguments[1], ctypes.POINTER(ctypes.c_char_p))[0] = b"not permitted"
            return 0

        return call


@pytest.fixture
def libcuda(monkeypatch):
    def install(**options):
        fake = FakeLibcuda(**options)
        monkeypatch.setattr(graphs.driver_api, "libcuda", lambda: fake)
        monkeypatch.setattr(graphs.pycuda_loader, "libcuda", lambda: fake)
        return fake

    return install


def test_nothing_synchronises_a_context_while_it_records(libcuda):
    libcuda()
    order = []
    driver = SimpleNamespace(
        Context=SimpleNamespace(synchronize=lambda: order.append("synchronised"))
    )
    other = Thread(target=graphs.synchronize, args=(driver,))

    def enqueue():
        other.start()
        other.join(0.2)
        order.append("enqueued")

    graphs.record(3, enqueue)
    other.join()
    assert order == ["enqueued", "synchronised"]


def test_a_recording_enqueues_between_begin_and_end(libcuda):
    fake = libcuda()
    made = graphs.record(3, lambda: fake.calls.append("enqueue"))
    made.launch()
    made.close()
    made.close()
    assert fake.calls == [
        "cuStreamBeginCapture_v2",
        "enqueue",
        "cuStreamEndCapture",
        "cuGraphInstantiateWithFlags",
        "cuGraphDestroy",
        "cuGraphLaunch",
        "cuGraphExecDestroy",
    ]


def test_what_fails_while_recording_is_raised_and_the_stream_leaves_capture(libcuda):
    fake = libcuda()
    with pytest.raises(ZeroDivisionError):
        graphs.record(3, lambda: 1 / 0)
    assert fake.calls == ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphDestroy"]


@pytest.mark.parametrize(
    "failing",
    ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"],
)
def test_a_failure_of_the_driver_is_told_in_its_words(libcuda, failing):
    libcuda(failing=failing)
    with pytest.raises(DeviceError, match=f"cuda: {failing}: not permitted"):
        graphs.record(3, lambda: None)


def test_a_graph_that_cannot_be_instantiated_is_not_kept(libcuda):
    fake = libcuda(failing="cuGraphInstantiateWithFlags")
    with pytest.raises(DeviceError):
        graphs.record(3, lambda: None)
    assert "cuGraphDestroy" in fake.calls


def test_a_failed_launch_is_told(libcuda):
    libcuda(failing="cuGraphLaunch")
    made = graphs.record(3, lambda: None)
    with pytest.raises(DeviceError, match="cuda: cuGraphLaunch: not permitted"):
        made.launch()
