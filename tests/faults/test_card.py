"""A GPU without memory, with failing launches, or lost: every caller gets an error."""

import threading
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from engine.backends import open_device
from engine.backends.cuda.driver import pycuda_loader
from engine.darknet import cfg, weights
from engine.darknet import graph as network_graph
from engine.darknet.lower import lower
from engine.errors import DeviceError
from engine.passes import optimise
from tests.backends.cuda.host import needs_gxx
from tests.backends.cuda.host_device import on_tape
from tests.faults.card import FaultyDevice, module

pytestmark = needs_gxx

SECONDS = 60


@pytest.fixture
def device(monkeypatch):
    monkeypatch.setattr(pycuda_loader, "load", module)
    with on_tape(FaultyDevice()) as opened:
        yield opened
        opened.trouble.expect("", 0)


@pytest.fixture
def plan(tiny_detector, device):
    network = network_graph.build(cfg.read(tiny_detector.cfg))
    return optimise(lower(network, weights.load(tiny_detector.weights, network)), device.passes)


@pytest.fixture
def given(plan):
    return np.random.default_rng(0).random((1, *plan.source.shape.sides), np.float32)


@pytest.fixture
def expected(plan, given):
    device = open_device("cpu:1")
    yield device.compile(plan).forward(given)
    device.close()


def assert_right(program, given, expected):
    for found, right in zip(program.forward(given), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_every_allocation_of_a_compilation_may_fail(device, plan, given, expected):
    for at in count(1):
        device.trouble.expect("memory", at)
        try:
            program = device.compile(plan)
        except DeviceError as error:
            said = str(error)
        else:
            break
        assert said.startswith("cuda:0: out of memory: 0.5 GiB of 8.0 GiB free. Try a smaller")
        assert not device.context.driver.live
    assert at > 10
    device.trouble.expect("", 0)
    assert_right(program, given, expected)


def test_memory_for_the_outputs_of_a_first_run_may_be_missing(device, plan, given, expected):
    program = device.compile(plan)
    device.trouble.expect("memory", 1)
    with pytest.raises(DeviceError, match="out of memory"):
        program.forward(given)
    assert_right(program, given, expected)
    program.close()
    assert not device.context.driver.live


def test_every_launch_of_a_run_may_fail(device, plan, given, expected):
    """The first run, and the second, which is recorded."""
    for at in count(1):
        program = device.compile(plan)
        device.trouble.expect("launch", at)
        said = set()
        for _ in range(3):
            try:
                program.forward(given)
            except DeviceError as error:
                said.add(str(error))
        has_come = device.trouble.has_come
        device.trouble.expect("", 0)
        assert_right(program, given, expected)
        program.close()
        assert not device.context.driver.live
        if not has_come:
            break
        assert said == {"cuda:0: cuLaunchKernel failed: invalid argument"}
    assert at > 10


def test_lost_card_raises_in_every_caller(device, plan, given):
    program = device.compile(plan)
    program.forward(given)
    said = []

    def ask():
        for _ in range(5):
            try:
                program.forward(given)
            except DeviceError as error:
                said.append(str(error))

    device.trouble.expect("lost", 20, lasts=True)
    askers = [threading.Thread(target=ask, daemon=True) for _ in range(8)]
    for each in askers:
        each.start()
    for each in askers:
        each.join(SECONDS)
        assert not each.is_alive()
    assert len(said) > 20
    assert set(said) == {"cuda:0: cuStreamSynchronize failed: the GPU is lost. Start a new process"}


def test_lost_card_can_still_be_closed(device, plan, given):
    program = device.compile(plan)
    program.forward(given)
    device.trouble.expect("lost", 1, lasts=True)
    closing = threading.Thread(target=device.close, daemon=True)
    closing.start()
    closing.join(SECONDS)
    assert not closing.is_alive()
    with pytest.raises(DeviceError, match="device is closed"):
        device.compile(plan)


def test_all_of_a_lost_card_is_closed(device, plan, given, monkeypatch):
    programs = [device.compile(plan) for _ in range(2)]
    device.trouble.expect("lost", 1, lasts=True)

    def lost():
        raise DeviceError("cuda:0: the GPU is lost")

    monkeypatch.setattr(device.context.stream, "synchronize", lost)
    closed = []
    monkeypatch.setattr(device, "_decoders", [SimpleNamespace(close=lambda: closed.append(1))])
    with pytest.raises(DeviceError, match="the GPU is lost"):
        device.close()
    assert closed == [1]
    assert all(each.is_closed for each in programs)
    with pytest.raises(DeviceError, match="device is closed"):
        device.compile(plan)
    device.close()


def test_too_large_a_picture_leaves_the_program_usable(device, plan, given, expected):
    """Test the allocation for a picture that is larger than all before."""
    from engine.backends.base import Placed
    from engine.vision.resize import Placement

    program = device.compile(plan)
    network = plan.source.shape.width, plan.source.shape.height
    pixels = np.zeros((900, 1200, 3), np.uint8)
    picture = Placed(pixels, Placement((1200, 900), network))
    device.trouble.expect("memory", 1)
    with pytest.raises(DeviceError, match="out of memory"):
        program.start_forward([picture]).result()
    device.trouble.expect("", 0)
    assert_right(program, given, expected)
    program.start_forward([picture]).result()
    assert_right(program, given, expected)


def test_lost_card_pins_no_memory(device, plan):
    program = device.compile(plan)
    frames = np.zeros((2, 4, 4, 3), np.uint8)
    device.trouble.expect("lost", 1, lasts=True)
    with pytest.raises(DeviceError, match=r"cuda:0: .*the GPU is lost"):
        program.pin(frames)
    assert not device.context.pinned_memory.contains(list(frames))
    assert not device.context.driver_api.registered
