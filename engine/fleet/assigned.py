"""What Ray gave the worker that this runs in: its GPUs, and its share of the CPU."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from engine.errors import DeviceError, InputError

if TYPE_CHECKING:
    from engine.detector import Detector

DEVICES = ("auto", "cpu", "cuda")


def load(*files: Any, device: str = "auto", threads: int | None = None, **options: Any) -> Detector:
    """engine.load() on what was given: a worker's GPU, or as many threads as it has CPUs.

    Outside of Ray's workers the device is that of engine.load().
    """
    import engine

    if _is_worker():
        device = device_of(device, gpus())
        threads = cpus() if threads is None else threads
    detector = engine.load(*files, device=device, threads=threads, **options)
    if detector.task != "detector":
        detector.close()
        raise InputError(f"{files[0]}: has no boxes to give")
    return detector


def device_of(wanted: str, numbers: list[str]) -> str:
    """The name of the GPUs with these numbers, as this process sees them, or the CPU's."""
    if wanted not in DEVICES:
        expected = ", ".join(DEVICES)
        raise InputError(f"device: expected {expected}: Ray assigns the GPUs; got {wanted!r}")
    if wanted == "cpu" or (wanted == "auto" and not numbers):
        return "cpu"
    if not numbers:
        raise DeviceError("cuda: Ray gave this worker no GPU. Ask for one with num_gpus=1")
    # Ray usually hides all others from the worker, and the driver counts what is left from 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    seen = visible.split(",") if visible else []
    places = [str(seen.index(each)) if each in seen else each for each in numbers]
    return f"cuda:{','.join(places)}"


def gpus() -> list[str]:
    import ray

    given: dict[str, list[str]] = ray.get_runtime_context().get_accelerator_ids()
    return given.get("GPU", [])


def cpus() -> int:
    """At least 1, whatever the share."""
    import ray

    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def _is_worker() -> bool:
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
