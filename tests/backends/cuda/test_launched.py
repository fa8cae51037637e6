"""The kernels that are compiled ahead of a program's first run are those that it launches."""

from contextlib import closing

import numpy as np
import pytest

from engine.backends.base import Placed
from engine.backends.cuda.driver import compiler, loaded_kernels
from engine.backends.cuda.driver.compiler import Portable, unit_of
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.lower.launched import units_of
from engine.backends.cuda.ops.target import Target
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.passes import optimise
from engine.vision.boxes import Suppression
from engine.vision.resize import Placement
from tests.backends.cuda.host_device import HostDevice


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.parametrize("name", ["codes", "yolov3-tiny", "efficientnet_b0"])
def test_every_kernel_of_a_first_run_was_compiled_ahead(name, precision):
    network = graph.build(cfg.read(f"cfg/{name}.cfg"))
    plan = lower(network, random_weights.arrays(network))
    source = plan.source.shape
    pixels = np.zeros((20, 30, 3), np.uint8)
    pictures = [Placed(pixels, Placement((30, 20), (source.width, source.height)))]
    with closing(HostDevice(runs_kernels=False)) as device:
        program = device.compile(optimise(plan, device.passes), precision=precision)
        ahead = set().union(*units_of(program._lowered).values())
        program.forward(np.zeros((1, *source.sides), np.float32))
        if plan.heads:
            program.start_boxes(pictures, Suppression(0.45), threshold=0.5).result()
        else:
            program.start_forward(pictures).result()
        missed = {each for each in device.context.launched if unit_of(each) not in ahead}
    assert not missed
    assert plan.heads == () or ahead.issuperset(map(unit_of, compiler._FIRST))
    assert device.context.launched


class NotedKernels:
    """Kernels that compile at once and load nothing."""

    def __init__(self):
        self.loaded = []

    def is_loaded(self, module):
        return False

    def image(self, module):
        return b""

    def load(self, module, image):
        self.loaded.append(module)


def test_what_takes_longest_is_compiled_first():
    network = graph.build(cfg.read("cfg/yolov4-tiny.cfg"))
    plan = optimise(lower(network, random_weights.arrays(network)), HostDevice.passes)
    lowered = lowering.place(lowering.fuse(plan, Target(1, "float16", (9, 0), 132)))
    kernels = NotedKernels()
    found = units_of(lowered).values()
    loaded_kernels.load_together((kernels, each) for units in found for each in units)
    kinds = [
        "portable" if isinstance(each, Portable) else "yolo" if each.yolo else "tile"
        for each in kernels.loaded
    ]
    assert sorted(kinds, key=["yolo", "tile", "portable"].index) == kinds
    assert set(kinds) == {"yolo", "tile", "portable"}
