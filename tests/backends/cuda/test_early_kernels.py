"""What the first run needs is loaded while weights are prepared."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.backends.cuda.device import CudaDevice
from engine.backends.cuda.driver.compiler import Portable, unit_of
from engine.backends.cuda.lower import lowering
from engine.backends.cuda.ops.gpu import Gpu
from engine.backends.cuda.ops.target import Target
from engine.backends.cuda.runtime.program import _load_kernels
from engine.darknet import cfg, graph, random_weights
from engine.darknet.lower import lower
from engine.errors import DeviceError
from engine.passes import optimise
from engine.plan.build import Plan
from tests.backends.cuda.host_device import HostDevice

SMALL = Path(__file__).parents[3] / "cfg" / "yolov3-tiny.cfg"


class NotedKernels:
    """Notes the tiles that it is asked for; its kernels do nothing."""

    def __init__(self, precision: str, noted: list[tuple[str, object]]) -> None:
        self._precision = precision
        self._noted = noted

    def storing(self, precision: str) -> NotedKernels:
        are_alike = (self._precision, precision) == ("tf32", "float32")
        if are_alike or precision == self._precision:
            return self
        return NotedKernels(precision, self._noted)

    def is_loaded(self, module: object) -> bool:
        return False

    def image(self, module: object) -> bytes:
        return b""

    def load(self, module: Any, image: bytes) -> None:
        self._noted.append((self._precision, module))

    def tile(self, tile: object) -> Any:
        self._noted.append((self._precision, tile))
        return SimpleNamespace(launch=lambda *arguments, **options: None)

    def launch(self, name: str, *arguments: object, **options: object) -> None:
        self._noted.append((self._precision, unit_of(name)))


@pytest.fixture(scope="module")
def plan() -> Plan:
    network = graph.build(cfg.read(SMALL))
    return optimise(lower(network, random_weights.arrays(network)), CudaDevice.passes)


@pytest.mark.parametrize("precision", ["float32", "tf32", "float16"])
def test_every_kernel_of_the_first_run_is_loaded_before(plan: Plan, precision: str) -> None:
    lowered = lowering.place(lowering.fuse(plan, Target(1, precision, (8, 6), 80)))
    early: list[tuple[str, object]] = []
    context: Any = SimpleNamespace(kernels=lambda wanted: NotedKernels(wanted, early))
    _load_kernels(context, lowered)
    asked: list[tuple[str, object]] = []
    slices = lowered.layout.slices
    gpu = Gpu(
        lowered.target,
        kernels=NotedKernels(precision, asked),  # type: ignore[arg-type]
        blas=SimpleNamespace(multiply=lambda *arguments: None),
        stream=SimpleNamespace(handle=1),
        places=slices,
        arrays={},
        workspace=0,
        sequences=1,
    )
    for step in lowered.steps:
        step.enqueue(gpu.of(step.op))
    assert len(set(asked)) > 2
    assert set(asked) < set(early)
    ends = {unit.file for _, unit in set(early) - set(asked) if isinstance(unit, Portable)}
    expected = {f"vision/{name}.cu" for name in ("border", "nms", "pictures")}
    checked = {"ops/largest.cu"} if precision == "float16" else set()
    assert ends - {"vision/heads.cu"} == expected | checked


def test_kernels_that_cannot_be_loaded_early_are_told_of_when_they_are_needed(
    plan: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = HostDevice(runs_kernels=False)

    def refuse(precision: str) -> Any:
        raise DeviceError("host: no kernels")

    monkeypatch.setattr(device.context, "kernels", refuse)
    with pytest.raises(DeviceError, match="host: no kernels"):
        device.compile(plan)
    device.close()
