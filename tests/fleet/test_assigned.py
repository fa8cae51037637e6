"""The device that a worker opens of those that Ray assigned to it."""

import pytest

from engine.errors import DeviceError, InputError
from engine.fleet import ray_resources
from engine.fleet.ray_resources import resolve_device
from tests import needs


@pytest.mark.parametrize(
    ("wanted", "given", "visible", "device"),
    [
        ("auto", [], None, "cpu"),
        ("cpu", ["3"], "3", "cpu"),
        ("auto", ["3"], "3", "cuda:0"),  # Ray hides the others
        ("cuda", ["3"], "0,3", "cuda:1"),
        ("cuda", ["3"], None, "cuda:3"),  # Ray was told not to hide them
        ("cuda", ["1", "2"], "1,2", "cuda:0,1"),
        ("cuda", ["GPU-8f"], "GPU-1a,GPU-8f", "cuda:1"),
    ],
)
def test_the_device_is_what_ray_assigned(monkeypatch, wanted, given, visible, device):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert resolve_device(wanted, given) == device


def test_unassigned_gpu_is_refused():
    with pytest.raises(DeviceError, match="Ray assigned no GPU to this worker"):
        resolve_device("cuda", [])
    with pytest.raises(InputError, match="expected auto, cpu, cuda: Ray assigns the GPUs; got"):
        resolve_device("cuda:1", ["1"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("total", "assigned", "warns"), [(2, 2, True), (8, 2, False), (3, 2, False)]
)
def test_a_worker_that_has_all_cpus_says_so(monkeypatch, caplog, total, assigned, warns):
    ray = needs.package("ray")
    monkeypatch.setattr(ray_resources, "_is_worker", lambda: True)
    monkeypatch.setattr(ray_resources, "assigned_cpus", lambda: assigned)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": float(total)})
    ray_resources.warn_if_no_cpu_is_left()
    assert ("this worker has all 2 CPUs" in caplog.text) == warns
