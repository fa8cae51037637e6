"""Which device a worker takes of what Ray gave it."""

import pytest

from engine.errors import DeviceError, InputError
from engine.fleet.assigned import device_of


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
    assert device_of(wanted, given) == device


def test_a_gpu_that_was_not_assigned_is_refused():
    with pytest.raises(DeviceError, match="Ray gave this worker no GPU"):
        device_of("cuda", [])
    with pytest.raises(InputError, match="expected auto, cpu, cuda: Ray assigns the GPUs; got"):
        device_of("cuda:1", ["1"])
