"""The driver's short calls: whose turn it is, and what becomes of their errors."""

import ctypes
import threading
from types import SimpleNamespace

import pytest

from engine.backends.cuda.driver import driver_api, pycuda_loader
from engine.backends.cuda.driver.context import EnqueueLock
from engine.backends.cuda.driver.driver_api import DriverApi
from engine.errors import DeviceError

KINDS = {8: 0, 9: 1}  # what the driver says of a pointer: nothing, or that it is the host's
NAMES = (*driver_api._ARGUMENTS, *driver_api._RELEASING)


class Function:
    """Notes when it is called, and returns a status."""

    def __init__(self, name, noted, status):
        self._name, self._noted, self._status = name, noted, status

    def __call__(self, *arguments):
        self._noted.append(self._name)
        if self._name == "cuEventCreate":
            arguments[0]._obj.value = 5
        if self._name == "cuPointerGetAttributes":
            count, asked, answers, pointer = arguments
            assert (count, asked[0]) == (1, 2)  # CU_POINTER_ATTRIBUTE_MEMORY_TYPE
            ctypes.c_uint.from_address(answers[0]).value = KINDS[pointer]
        return self._status


@pytest.fixture
def card(monkeypatch):
    """Returns a function that gives DriverApi over a driver, and the list of what is called."""

    def open_with(**statuses):
        noted = []
        made = {name: Function(name, noted, statuses.get(name, 0)) for name in NAMES}
        library = SimpleNamespace(**made, cuGetErrorString=error_string)
        monkeypatch.setattr(driver_api, "libcuda", lambda: library)
        monkeypatch.setattr(pycuda_loader, "libcuda", lambda: library)
        return DriverApi("cuda:3", 7), noted

    return open_with


def error_string(status, place):
    ctypes.cast(place, ctypes.POINTER(ctypes.c_char_p))[0] = b"an illegal memory access"
    return 0


def test_a_thread_has_the_context_inside_its_turn_only(card):
    made, noted = card()
    turn = EnqueueLock(made)
    with pytest.raises(ZeroDivisionError), turn:
        noted.append(1 / 0)
    assert noted == ["cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"]


def test_turns_come_one_after_the_other(card):
    turn = EnqueueLock(card()[0])
    inside, most = [], []

    def take_turns():
        for _ in range(200):
            with turn:
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=take_turns) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) == {1}
    assert len(most) == 1600


def test_a_context_that_is_gone_keeps_nobody_waiting(card):
    turn = EnqueueLock(card(cuCtxPushCurrent_v2=201)[0])
    for _ in range(2):
        with pytest.raises(DeviceError, match="cuda:3: cuCtxPushCurrent: an illegal"), turn:
            pass
    assert turn.lock.acquire(blocking=False)


def test_an_error_that_ends_a_process_says_so(card):
    made, _ = card(cuMemcpyHtoDAsync_v2=700)
    with pytest.raises(DeviceError, match=r"an illegal memory access\. Start a new process"):
        made.upload(1, 2, 3, 4)


@pytest.mark.parametrize(
    ("function", "name", "arguments"),
    [
        ("leave", "cuCtxPopCurrent_v2", ()),
        ("event", "cuEventCreate", ()),
        ("free_event", "cuEventDestroy_v2", (5,)),
        ("record", "cuEventRecord", (5, 1)),
        ("wait_for", "cuStreamWaitEvent", (1, 5)),
        ("is_done", "cuEventQuery", (5,)),
        ("wait", "cuEventSynchronize", (5,)),
        ("download", "cuMemcpyDtoHAsync_v2", (1, 2, 3, 4)),
        ("register", "cuMemHostRegister_v2", (1, 2)),
        ("unregister", "cuMemHostUnregister", (1,)),
    ],
)
def test_every_call_tells_of_its_failure(card, function, name, arguments):
    made, noted = card()
    getattr(made, function)(*arguments)
    assert noted == [name]
    made, _ = card(**{name: 700})
    with pytest.raises(DeviceError, match="cuda:3: " + name.removesuffix("_v2")):
        getattr(made, function)(*arguments)


def test_memory_of_which_the_driver_knows_nothing_is_not_page_locked(card):
    assert card()[0].is_page_locked(8) is False
    assert card()[0].is_page_locked(9) is True
    assert card(cuPointerGetAttributes=201)[0].is_page_locked(8) is True  # to be safe


def test_an_event_that_has_not_happened_is_no_failure(card):
    assert card(cuEventQuery=600)[0].is_done(5) is False
    assert card()[0].is_done(5) is True
