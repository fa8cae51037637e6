"""The CPU as a device: name, threads and precisions."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends import device_name, kinds, open_device
from engine.errors import DeviceError, EngineError, InputError
from tests.backends.cases import Case, all_cases
from tests.backends.layouts import run_case
from tests.backends.loops import by_loops
from tests.backends.test_program import images, small_plan


def test_devices_are_the_folders() -> None:
    assert set(kinds()) == {"cpu", "cuda", "ort"}


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        (
            "cup",
            DeviceError,
            "device: expected one of cpu, cuda, ort, got 'cup'. Did you mean 'cpu'?",
        ),
        (
            "gpu",
            DeviceError,
            "device: expected one of cpu, cuda, ort, got 'gpu'. Did you mean 'cuda'?",
        ),
        ("", DeviceError, "device: expected one of cpu, cuda, ort, got ''."),
        ("base", DeviceError, "device: expected one of cpu, cuda, ort, got 'base'."),
        ("cpu:many", InputError, "device: expected cpu or cpu:THREADS, got 'cpu:many'"),
        ("cpu:0", InputError, "device: expected cpu or cpu:THREADS, got 'cpu:0'"),
        ("cpu:-1", InputError, "device: expected cpu or cpu:THREADS, got 'cpu:-1'"),
    ],
)
def test_an_unknown_device_is_an_error(name: str, kind: type[EngineError], message: str) -> None:
    with pytest.raises(kind) as caught:
        open_device(name)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("device", "name"),
    [(0, "cuda:0"), ("1", "cuda:1"), ("0,1", "cuda:0,1"), ("cpu", "cpu"), ("cuda", "cuda")],
)
def test_a_gpu_may_be_given_by_its_number(device: str | int, name: str) -> None:
    assert device_name(device) == name


def test_threads_do_not_change_results() -> None:
    batch = images(3)
    one, three = (
        open_device(name).compile(small_plan(), batch=3).forward(batch)
        for name in ("cpu:1", "cpu:3")
    )
    for first, second in zip(one, three, strict=True):
        np.testing.assert_array_equal(first, second)


def test_closing_the_device_closes_its_programs() -> None:
    device = open_device("cpu")
    program = device.compile(small_plan())
    device.close()
    with pytest.raises(EngineError, match="closed"):
        program.forward(images(1))
    with pytest.raises(DeviceError, match="closed"):
        device.compile(small_plan())


@pytest.mark.parametrize(
    ("precision", "hint"),
    [
        ("float16", " GPUs have it: device cuda"),
        ("tf32", " GPUs have it: device cuda"),
        ("float23", " Did you mean 'float32'?"),
    ],
)
def test_an_unknown_precision_is_an_error(precision: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        open_device("cpu").compile(small_plan(), precision=precision)
    expected = f"cpu: precision: expected float32 or float64 or int8, got '{precision}'."
    assert str(caught.value) == expected + hint


@pytest.mark.parametrize("case", all_cases(), ids=str)
def test_float64_agrees_to_the_last_digits(case: Case) -> None:
    device = open_device("cpu")
    result = run_case(device, case, sequences=2, precision="float64")
    device.close()
    np.testing.assert_allclose(result, by_loops(case, sequences=2), rtol=1e-10, atol=1e-11)
