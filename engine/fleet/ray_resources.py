"""The GPUs and the CPUs that Ray assigned to the current worker."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from engine import loading
from engine.errors import DeviceError, InputError

if TYPE_CHECKING:
    from engine.detector import Detector

DEVICES = ("auto", "cpu", "cuda")
NO_STATE = "is recurrent: it needs all pictures in their order, on one machine"

_log = logging.getLogger("engine")


def load(
    *files: Any,
    task: str = "detector",
    device: str = "auto",
    threads: int | None = None,
    **options: Any,
) -> Detector:
    """Call engine.load() with the GPUs that Ray assigned, and one thread per assigned CPU.

    Outside of a Ray worker the arguments are passed on unchanged. Only networks for the task are
    accepted.
    """
    if _is_worker():
        device = resolve_device(device, assigned_gpus())
        threads = assigned_cpus() if threads is None else threads
    detector = loading.load(*files, device=device, threads=threads, **options)
    if detector.task != task:
        detector.close()
        raise InputError(f"{files[0]}: expected a {task}, got another network")
    if detector.has_state:
        detector.close()
        raise InputError(f"{files[0]}: {NO_STATE}")
    return detector


def resolve_device(wanted: str, ids: list[str]) -> str:
    """Return the engine's name for the assigned GPUs `ids`, or "cpu"."""
    if wanted not in DEVICES:
        expected = ", ".join(DEVICES)
        raise InputError(f"device: expected {expected}: Ray assigns the GPUs; got {wanted!r}")
    if wanted == "cpu" or (wanted == "auto" and not ids):
        return "cpu"
    if not ids:
        raise DeviceError("cuda: Ray assigned no GPU to this worker. Request one with num_gpus=1")
    # Ray usually hides the other GPUs, and the driver numbers the visible ones from 0.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    order = visible.split(",") if visible else []
    indices = [str(order.index(each)) if each in order else each for each in ids]
    return f"cuda:{','.join(indices)}"


def assigned_gpus() -> list[str]:
    import ray

    ids: dict[str, list[str]] = ray.get_runtime_context().get_accelerator_ids()
    return ids.get("GPU", [])


def assigned_cpus() -> int:
    """Return the number of assigned CPUs; a fraction counts as 1."""
    import ray

    return max(1, int(ray.get_runtime_context().get_assigned_resources().get("CPU", 1)))


def warn_if_no_cpu_is_left() -> None:
    """Warn that tasks that feed this worker may wait forever, because it has all CPUs."""
    import ray

    if not _is_worker():
        return
    total = ray.cluster_resources().get("CPU", 0.0)
    if total - assigned_cpus() < 1:
        _log.warning(
            "this worker has all %d CPUs of the cluster: tasks that read pictures for it wait "
            "forever, unless they need no CPU. Read with num_cpus=0, or give the worker fewer",
            total,
        )


def _is_worker() -> bool:
    import ray

    return ray.is_initialized() and ray.get_runtime_context().get_actor_id() is not None
