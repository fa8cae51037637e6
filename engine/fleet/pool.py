"""Workers on a Ray: as many as it has room for, between bounds; lost ones are replaced."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
import ray.data
import ray.exceptions

from engine.errors import DeviceError, EngineError, InputError
from engine.files.naming import shown
from engine.fleet import assigned
from engine.version import __version__

LOCAL = "local"

_SECONDS = 10.0  # until a machine answers
_OBJECTS = 128 << 20  # bytes for what workers pass on, which are numbers; the model comes on top


@dataclass(frozen=True)
class Share:
    """What a worker takes of the cluster, and how many there may be; None: what there is room for.

    A worker on a GPU takes `threads` CPUs as well, which read pictures. `grows`: Ray is to wait for
    machines that are not there yet.
    """

    device: str = "auto"
    threads: int = 1
    least: int = 1
    most: int | None = None
    grows: bool = False

    def __post_init__(self) -> None:
        if self.device not in assigned.DEVICES:
            raise InputError(
                f"device: expected {', '.join(assigned.DEVICES)}: Ray assigns the GPUs;"
                f" got {self.device!r}"
            )
        if self.threads < 1:
            raise InputError(f"threads: expected 1 or more, got {self.threads}")
        if self.least < 1 or (self.most is not None and self.most < self.least):
            raise InputError(f"actors: expected 1 or more, got {self.least}:{self.most}")


@contextmanager
def connected(
    address: str = LOCAL, *, model_bytes: int = 0, cpus: int | None = None
) -> Iterator[None]:
    """A Ray of our own on this machine, or the one at an address, until the block ends."""
    if ray.is_initialized():
        raise InputError("ray: this process is connected already. Call ray.shutdown() first")
    own = {
        "object_store_memory": _OBJECTS + 2 * model_bytes,
        "include_dashboard": False,
        "num_cpus": cpus,
    }
    # our Ray finds this engine, wherever it was started, and tells nobody that it is used
    here = str(Path(__file__).parents[2])
    paths = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
    surroundings = {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
    try:
        _knock(address)
        with _environment(surroundings if address == LOCAL else {}):
            ray.init(
                address,
                **(own if address == LOCAL else {}),
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
    except (OSError, RuntimeError, ValueError) as error:
        reason = shown(" ".join(str(error).split()))
        hint = "" if address == LOCAL else " Where Ray asks for a token, set RAY_AUTH_MODE=token"
        raise InputError(f"ray: {address}: cannot be reached: {reason}.{hint}") from None
    try:
        yield
    finally:
        ray.shutdown()


def answers(
    rows: Sequence[Mapping[str, Any]], worker: type, settings: Mapping[str, Any], share: Share
) -> Iterator[dict[str, Any]]:
    """What workers of this class make of the rows, in any order; each row is one task.

    A task of a worker that is lost is done again by another one. No worker has more than one task
    waiting, and what they answer is taken at once: memory does not grow with the number of rows.
    """
    device, most = _fitting(share)
    given = {"num_cpus": share.threads, "num_gpus": 1 if device == "cuda" else 0}
    context = ray.data.DataContext.get_current().copy()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    with ray.data.DataContext.current(context), _quiet():
        answered = ray.data.from_items(list(rows), override_num_blocks=len(rows)).map_batches(
            worker,
            batch_size=1,
            fn_constructor_kwargs={**settings, "device": device, "threads": share.threads},
            compute=ray.data.ActorPoolStrategy(min_size=min(share.least, len(rows)), max_size=most),
            **given,
        )
        try:
            yield from answered.iter_rows()
        except ray.exceptions.RayError as error:
            raise EngineError(_told(error)) from error


def _fitting(share: Share) -> tuple[str, int]:
    """The device, and the most workers there is room for; refuses what Ray would wait for."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    device = share.device
    if device == "auto":
        device = "cuda" if any(node.get("GPU", 0) >= 1 for node in nodes) else "cpu"

    def room(node: Mapping[str, float]) -> int:
        by_cpu = node.get("CPU", 0) // share.threads
        return int(min(by_cpu, node.get("GPU", 0)) if device == "cuda" else by_cpu)

    most = sum(map(room, nodes))
    if not most and not share.grows:
        wanted = f"{share.threads} CPUs" + (" and a GPU" if device == "cuda" else "")
        kind = DeviceError if device == "cuda" else InputError
        raise kind(f"ray: no machine has {wanted} for a worker")
    return device, share.most or max(most, share.least)


def _knock(address: str) -> None:
    """Refuse at once where nobody listens; Ray tries for minutes."""
    host, colon, port = address.rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()


def _told(error: Exception) -> str:
    """The end of Ray's pages, which says what happened."""
    text = str(error)
    if "No module named 'engine'" in text:
        return f"ray: a worker has no engine. Install engine {__version__} on every machine"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"ray: {lines[-1][:300] if lines else type(error).__name__}"


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set while Ray's processes start, which inherit them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _quiet() -> Iterator[None]:
    """Ray Data says on the terminal what it does; all of that is in its log files, too."""
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
