"""Every reason why there is no GPU, told in one line; and names of devices."""

import sys
import threading
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from engine.backends import cuda, open_device
from engine.backends.cuda.driver import compiler, pycuda_loader
from engine.errors import DeviceError, InputError


class FakeError(Exception):
    pass


class FakeMemoryError(FakeError):
    pass


class FakeDriver(SimpleNamespace):
    """pycuda.driver on a machine with some cards."""

    def __init__(self, *, cards=1, version=13000, init_fails=None):
        def init():
            if init_fails:
                raise FakeError(init_fails)

        super().__init__(
            Error=FakeError,
            MemoryError=FakeMemoryError,
            init=init,
            Device=SimpleNamespace(count=lambda: cards),
            get_driver_version=lambda: version,
            mem_get_info=lambda: (1 << 29, 8 << 30),
        )


@pytest.fixture
def machine(monkeypatch):
    """Returns a function that installs a pycuda.driver, None for no PyCUDA at all."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pycuda_loader, "libcuda", lambda: SimpleNamespace(cuInit=lambda flags: 0))
    pycuda_loader.load.cache_clear()

    def install(module):
        monkeypatch.setitem(sys.modules, "pycuda", module and SimpleNamespace(driver=module))
        monkeypatch.setitem(sys.modules, "pycuda.driver", module)

    yield install
    pycuda_loader.load.cache_clear()


def test_a_machine_without_a_driver_gets_one_clear_line(monkeypatch):
    monkeypatch.setattr(pycuda_loader.library, "_PLACES", (("nowhere", lambda wanted: None),))
    pycuda_loader.load.cache_clear()
    with pytest.raises(DeviceError) as raised:
        open_device("cuda")
    assert str(raised.value) == (
        "cuda: driver: libcuda.so.1 not found. Install NVIDIA's driver, or use --device cpu"
    )


def test_a_missing_pycuda_is_told_with_its_cure(machine, monkeypatch):
    def import_module(name):
        raise ModuleNotFoundError("No module named 'pycuda'", name="pycuda")

    monkeypatch.setattr(pycuda_loader.importlib, "import_module", import_module)
    with pytest.raises(DeviceError, match=r"cuda: pycuda is not installed\. Run: pip install"):
        pycuda_loader.load()


def test_a_pycuda_built_for_another_machine_is_told_apart_from_none(machine, monkeypatch):
    def import_module(name):
        raise ImportError("libcurand.so.10: cannot open shared object file")

    monkeypatch.setattr(pycuda_loader.importlib, "import_module", import_module)
    with pytest.raises(DeviceError, match="cuda: pycuda cannot be imported: libcurand"):
        pycuda_loader.load()


@pytest.mark.parametrize("visible", [None, "", "7"])
def test_no_card_mentions_the_variable_that_may_hide_it(machine, monkeypatch, visible):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine(FakeDriver(init_fails="cuInit failed: no CUDA-capable device is detected"))
    with pytest.raises(DeviceError, match="cuda: cuInit failed: no CUDA-capable device") as raised:
        pycuda_loader.load()
    assert ("CUDA_VISIBLE_DEVICES" in str(raised.value)) == (visible is not None)


def test_zero_cards_are_an_error(machine):
    machine(FakeDriver(cards=0))
    with pytest.raises(DeviceError, match="cuda: no device found"):
        pycuda_loader.count()


@pytest.mark.parametrize(("version", "is_enough"), [(13000, True), (12080, False), (14010, True)])
def test_a_driver_older_than_cublas_is_told_so(machine, version, is_enough):
    machine(FakeDriver(version=version))
    if is_enough:
        pycuda_loader.check_version("13.1.0")
        return
    with pytest.raises(DeviceError, match=r"is for CUDA 12\.8, cuBLAS 13\.1\.0 needs a newer one"):
        pycuda_loader.check_version("13.1.0")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FakeMemoryError("cuMemAlloc failed"), r"cuda:1: out of memory: 0\.5 GiB of 8\.0 GiB free"),
        (
            FakeMemoryError("cuMemHostAlloc failed: out of memory"),
            r"cuda:1: cuMemHostAlloc failed: out of memory\. No more of the host's memory",
        ),
        (
            FakeError("cuStreamSynchronize failed: an illegal memory access was encountered"),
            r"cuda:1: cuStreamSynchronize failed: an illegal memory access.* Start a new process",
        ),
        (FakeError("cuCtxPush failed: invalid"), "cuda:1: cuCtxPush failed: invalid$"),
    ],
)
def test_errors_of_the_device_are_told_as_its_own(machine, error, message):
    machine(FakeDriver())
    with pytest.raises(DeviceError, match=message), pycuda_loader.translate_errors("cuda:1"):
        raise error


@pytest.mark.parametrize(
    ("argument", "expected"),
    [("", None), ("0", (0,)), ("1,0", (1, 0)), ("0,cuda:1", (0, 1)), ("0, cuda:12", (0, 12))],
)
def test_names_list_cards(argument, expected):
    assert cuda.parse(argument) == expected


@pytest.mark.parametrize("argument", ["x", "0,", "-1", "0,0", "0;1", "cpu", "99999"])
def test_names_that_list_nothing_are_refused_before_anything_is_loaded(argument):
    with pytest.raises(InputError, match=f"device: expected .* got 'cuda:{argument}'"):
        cuda.open(argument)


@pytest.mark.parametrize("failing", [None, "cuDeviceGet", "cuDevicePrimaryCtxRetain"])
def test_a_context_that_was_made_early_is_given_back(monkeypatch, failing):
    noted = []

    class Library:
        def __getattr__(self, name):
            return lambda *arguments: noted.append(name) or int(name == failing)

    monkeypatch.setattr(pycuda_loader, "libcuda", Library)
    with pycuda_loader.primary_context(0):
        noted.append("used")
    kept = [] if failing else ["cuDevicePrimaryCtxRelease_v2"]
    assert noted[noted.index("used") + 1 :] == kept
    assert ("cuDevicePrimaryCtxRetain" in noted) == (failing != "cuDeviceGet")


@pytest.mark.parametrize(("argument", "count"), [("0", 1), ("0,1", 2), ("", 3)])
def test_devices_that_are_about_to_be_opened_wake_up_meanwhile(monkeypatch, argument, count):
    noted, is_awake, compiled = [], threading.Event(), SimpleQueue()

    class Library:
        def __getattr__(self, name):
            return lambda *arguments: self.call(name, *arguments)

        def call(self, name, *arguments):
            noted.append((name, threading.current_thread().name))
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = 3
            if name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = {75: 9, 76: 0}[arguments[1]]
            if [name for name, _ in noted].count("cuDevicePrimaryCtxRetain") == count:
                is_awake.set()
            return 0

    monkeypatch.setattr(pycuda_loader, "libcuda", Library)
    monkeypatch.setattr(compiler, "compile_first", lambda capability: compiled.put(capability))
    with cuda.warm_up(argument):
        assert compiled.get(timeout=5) == (9, 0)
        assert is_awake.wait(5)
        assert "cuDevicePrimaryCtxRelease_v2" not in dict(noted)
    assert [name for name, _ in noted].count("cuDevicePrimaryCtxRelease_v2") == count
    (thread,) = {thread for name, thread in noted if "Ctx" in name}
    assert thread.startswith("cuda-warm-up_")
    assert compiled.empty()


def test_a_device_that_does_not_wake_up_keeps_nobody_from_being_told(monkeypatch):
    def refuse():
        raise DeviceError("no driver")

    monkeypatch.setattr(pycuda_loader, "libcuda", refuse)
    with pytest.raises(InputError, match="of the caller"), cuda.warm_up("0"):
        raise InputError("of the caller")
