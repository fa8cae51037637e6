"""A pool of workers on a Ray cluster, which grows with the work and replaces lost workers."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import ray
import ray.data
import ray.exceptions

from engine.errors import DeviceError, EngineError, InputError
from engine.files.naming import line_of
from engine.fleet import ray_resources
from engine.version import __version__

LOCAL = "local"

_CONNECT_SECONDS = 10.0
_OBJECT_STORE_BYTES = 128 << 20  # for task results, which are small; the model is added to it


@dataclass(frozen=True)
class WorkerResources:
    """The resources of a worker and the bounds on the number of workers.

    A worker on a GPU also uses `threads` CPUs, to decode pictures. Without `max_workers`, as many
    as fit are started. `autoscales` means that Ray may add machines, so workers that do not fit yet
    are not an error.
    """

    device: str = "auto"
    threads: int = 1
    min_workers: int = 1
    max_workers: int | None = None
    autoscales: bool = False

    def __post_init__(self) -> None:
        if self.device not in ray_resources.DEVICES:
            raise InputError(
                f"device: expected {', '.join(ray_resources.DEVICES)}: Ray assigns the GPUs;"
                f" got {self.device!r}"
            )
        if self.threads < 1:
            raise InputError(f"threads: expected 1 or more, got {self.threads}")
        low, high = self.min_workers, self.max_workers
        if low < 1:
            raise InputError(f"actors: expected 1 or more, got {low}")
        if high is not None and high < low:
            raise InputError(f"actors: expected MIN:MAX with MIN up to MAX, got {low}:{high}")


@contextmanager
def ray_session(address: str = LOCAL, *, model_bytes: int = 0) -> Iterator[None]:
    """Start Ray on this machine, or connect to the cluster at `address`, for a with block."""
    if ray.is_initialized():
        raise InputError("ray: this process is already connected. Call ray.shutdown() first")
    local_options = {
        "object_store_memory": _OBJECT_STORE_BYTES + 2 * model_bytes,
        "include_dashboard": False,
    }
    # Workers of a local Ray must find this engine from any working directory.
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    silent = {"RAY_USAGE_STATS_ENABLED": "0"} if address == LOCAL else {}
    variables = {"PYTHONPATH": paths, **silent}
    try:
        _check_reachable(address)
        with _own_sigterm_handler(), _environment(variables if address == LOCAL else {}):
            ray.init(
                address,
                **(local_options if address == LOCAL else {}),
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (OSError, RuntimeError, ValueError) as error:
        hint = (
            "" if address == LOCAL else " If the cluster requires a token, set RAY_AUTH_MODE=token"
        )
        raise InputError(f"ray: {address}: cannot be reached: {line_of(error)}.{hint}") from None
    try:
        with _environment(silent):  # Ray Data asks again when a run begins
            yield
    finally:
        ray.shutdown()


def map_tasks(
    tasks: Sequence[Mapping[str, Any]],
    worker: type,
    arguments: Mapping[str, Any],
    resources: WorkerResources,
) -> Iterator[dict[str, Any]]:
    """Call workers with the tasks and yield their results as they finish.

    `worker` is a class for map_batches, constructed with `arguments`. Ray repeats the tasks of a
    lost worker. A worker has at most one task queued and results are consumed at once, so memory
    does not grow with the number of tasks.
    """
    device, max_workers = _fit(resources)
    min_workers = min(resources.min_workers, len(tasks))
    threads = resources.threads
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with ray.data.DataContext.current(context), _quiet():
        results = ray.data.from_items(list(tasks), override_num_blocks=len(tasks)).map_batches(
            worker,
            batch_size=1,
            fn_constructor_kwargs={**arguments, "device": device, "threads": threads},
            compute=ray.data.ActorPoolStrategy(min_size=min_workers, max_size=max_workers),
            num_cpus=threads,
            num_gpus=1 if device == "cuda" else 0,
        )
        try:
            yield from results.iter_rows()
        except ray.exceptions.RayError as error:
            raise EngineError(_describe(error)) from error


def _fit(resources: WorkerResources) -> tuple[str, int]:
    """Return the device and the maximum number of workers.

    Raise if no worker fits, since Ray would wait forever.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    device = resources.device
    if device == "auto":
        device = "cuda" if any(node.get("GPU", 0) >= 1 for node in nodes) else "cpu"

    def capacity(node: Mapping[str, float]) -> int:
        by_cpu = node.get("CPU", 0) // resources.threads
        return int(min(by_cpu, node.get("GPU", 0)) if device == "cuda" else by_cpu)

    fitting = sum(map(capacity, nodes))
    if not fitting and not resources.autoscales:
        needed = f"{resources.threads} CPUs" + (" and a GPU" if device == "cuda" else "")
        kind = DeviceError if device == "cuda" else InputError
        raise kind(f"ray: no machine has {needed} for a worker")
    return device, resources.max_workers or max(fitting, resources.min_workers)


def _check_reachable(address: str) -> None:
    """Raise OSError at once if nothing listens at `address`; Ray would retry for minutes."""
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()


def _describe(error: Exception) -> str:
    """Return the last line of Ray's message, which names the cause."""
    text = str(error)
    if "No module named 'engine'" in text:
        return f"ray: a worker cannot import engine. Install engine {__version__} on every machine"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"ray: {lines[-1][:300] if lines else type(error).__name__}"


@contextmanager
def _own_sigterm_handler() -> Iterator[None]:
    """Restore the handler that Ray replaces by one that prints a stack trace and exits with 15."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit as stop:
        if stop.code == signal.SIGTERM and callable(handler):
            handler(signal.SIGTERM, None)  # ends the run as it would have ended without Ray
        raise
    finally:
        if callable(handler) and current_thread() is main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables that the processes of Ray inherit, and restore them afterwards."""
    previous = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in previous.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's messages off the terminal; they are in its log files as well."""
    consoles = [
        each
        for each in logging.getLogger("ray.data").handlers
        if isinstance(each, logging.StreamHandler) and not isinstance(each, logging.FileHandler)
    ]
    levels = [each.level for each in consoles]
    for each in consoles:
        each.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for each, level in zip(consoles, levels, strict=True):
            each.setLevel(level)
