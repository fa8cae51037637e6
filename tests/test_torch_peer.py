"""tools/torch_peer.py: PyTorch runs the same network with the same outputs."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from engine.backends import open_device
from engine.benchmark.peers.pytorch_peer import TorchNetwork, prepare_plan
from engine.passes import optimise
from tests import needs
from tools import torch_peer
from tools.bench_cuda import random_images, random_plan

CFGS = Path(__file__).parents[1] / "cfg"


@pytest.mark.parametrize("net", ["yolov3-tiny", "enet-coco", "resnet50"])
def test_compiled_network_gives_the_engines_outputs(net):
    torch = needs.package("torch")
    plan = random_plan(CFGS / f"{net}.cfg", 64)
    images = random_images(plan, 2)
    network = TorchNetwork(torch, prepare_plan(plan), "cpu", "float32")
    given = network.to_device(images)
    outputs = torch_peer.trace(torch, network, given)(given)
    with (
        closing(open_device("cpu")) as device,
        closing(device.compile(optimise(plan, device.passes), batch=2)) as program,
    ):
        expected = program.forward(images)
    assert len(outputs) == len(expected)
    for ours, theirs in zip(expected, outputs, strict=True):
        np.testing.assert_allclose(theirs.numpy(), ours, atol=1e-5 * np.abs(ours).max())
