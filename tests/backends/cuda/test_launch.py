"""What a launch asks of the driver, by the attributes in its configuration."""

import ctypes
from contextlib import closing

import numpy as np
import pytest

from engine.backends.cuda.driver import launch
from engine.backends.cuda.driver.launch import Function, _Configuration
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from tests.backends.cuda.host_device import HostDevice, _TapedKernels

_CLUSTER, _EARLY_START, _CARVE_OUT = 4, 6, 14


@pytest.mark.parametrize(
    ("cuda", "options", "expected"),
    [
        ((13, 0), {}, {}),
        ((13, 0), {"early": True, "all_shared": True}, {_EARLY_START: 1, _CARVE_OUT: 100}),
        ((12, 6), {"all_shared": True}, {_CARVE_OUT: 100}),
        ((12, 5), {"early": True, "all_shared": True}, {_EARLY_START: 1}),
        (
            (13, 0),
            {"cluster": 4, "early": True, "all_shared": True},
            {_CLUSTER: 4, _EARLY_START: 1, _CARVE_OUT: 100},
        ),
    ],
)
def test_the_attributes_of_a_launch(cuda, options, expected, monkeypatch):
    found = {}

    def note(name, reference, *_):
        configuration = ctypes.cast(reference, ctypes.POINTER(_Configuration)).contents
        for each in configuration.attributes[: configuration.count]:
            found[each.kind] = each.value.flag

    monkeypatch.setattr(launch, "call", note)
    monkeypatch.setattr(launch.pycuda_loader, "load", object)
    monkeypatch.setattr(launch.pycuda_loader, "cuda_of", lambda driver: cuda)
    launch._knows_carve_outs.cache_clear()
    try:
        Function(1, 0).launch((1, 1, 1), 32, [ctypes.c_int(1)], stream=0, **options)
    finally:
        launch._knows_carve_outs.cache_clear()
    assert found == expected


def test_only_runs_of_one_picture_divide_an_sm_alike_for_all_kernels(monkeypatch):
    asked = []
    original = _TapedKernels.launch

    def note(self, *arguments, all_shared, **options):
        asked.append(all_shared)
        original(self, *arguments, **options)

    monkeypatch.setattr(_TapedKernels, "launch", note)
    network = graph.build(cfg.read("cfg/yolov3-tiny.cfg"))
    plan = lower(network, random_weights.arrays(network))
    with closing(HostDevice(runs_kernels=False)) as device:
        program = device.compile(optimise(plan, device.passes), batch=2)
        for pictures in (1, 2):
            asked.clear()
            program.forward(np.zeros((pictures, *plan.source.shape.sides), np.float32))
            assert set(asked) == {pictures == 1}
