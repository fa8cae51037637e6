"""Open devices by name: each folder here is a kind of device with a function `open`."""

from __future__ import annotations

import logging
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

from engine.arguments import check_kind, is_whole, whole
from engine.errors import DeviceError, InputError, suggest

if TYPE_CHECKING:
    from concurrent.futures import Future

    from engine.backends.base import Device, JpegDecoder, VideoDevice

_log = logging.getLogger("engine")


def kinds() -> tuple[str, ...]:
    """Return all kinds of devices, whether present on this machine or not."""
    return tuple(module.name for module in pkgutil.iter_modules(__path__) if module.ispkg)


def device_name(device: object) -> str:
    """Return the name of a device that may be given as the numbers of GPUs: 0, "0", "0,1"."""
    if is_whole(device, least=0):
        return f"cuda:{int(device)}"
    check_kind("device", device, str, "a name such as 'cpu', or the number of a GPU")
    name = str(device)
    is_numbers = name.isascii() and name.replace(",", "").isdecimal()
    return f"cuda:{name}" if is_numbers else name


def open_device(name: str) -> Device:
    """Open `kind` or `kind:argument`: "cpu", "cpu:2" (threads), "cuda:0" (number of the GPU)."""
    kind, _, argument = device_name(name).partition(":")
    if kind not in kinds():
        hint = suggest("cuda" if kind == "gpu" else kind, kinds())
        raise DeviceError(f"device: expected one of {', '.join(kinds())}, got {name!r}.{hint}")
    return cast("Device", import_module(f"{__name__}.{kind}").open(argument))


def open_chosen(name: str, threads: int | None = None) -> Device:
    """Open a device by name; "auto" is a usable GPU, else the CPU. `threads` applies to "cpu"."""
    kind, _, own = name.partition(":")
    if threads is not None and own.isdecimal() and kind in ("cpu", "ort") and int(own) != threads:
        raise InputError(f"threads: {name} names {own} threads, got {threads}. Give one of them")
    cpu = "cpu" if threads is None else f"cpu:{whole('threads', threads)}"
    if name == "cpu":
        return open_device(cpu)
    if name == "ort" and threads is not None:
        return open_device(f"ort:{whole('threads', threads)}")
    if name != "auto":
        return open_device(name)
    try:
        found = open_device("cuda:0")
    except DeviceError as reason:
        _log.info("device: cpu (%s)", reason)
        return open_device(cpu)
    _log.info("device: %s", found.name)
    return found


def open_decoders(device: Device) -> tuple[JpegDecoder | None, VideoDevice]:
    """Return the device's own decoders, or raise an error that says what it lacks.

    Most cards decode videos, few decode JPEGs; a card without a JPEG engine is no error.
    """
    from engine.backends.base import DecodingDevice, NoJpegEngineError

    if not isinstance(device, DecodingDevice):
        raise InputError(
            f"decode: gpu: expected one NVIDIA GPU, got device {device.name}. Use --decode cpu"
        )
    try:
        jpegs: JpegDecoder | None = device.open_decoder()
    except NoJpegEngineError:
        _log.warning("%s: decode: gpu: has no JPEG engine. The CPU decodes JPEGs", device.name)
        jpegs = None
    return jpegs, device.open_videos()


def warm_up(name: str) -> AbstractContextManager[None]:
    """Return a context in which a GPU that open_chosen() would open warms up in the background."""
    kind, _, argument = ("cuda:0" if name == "auto" else name).partition(":")
    if kind != "cuda":
        return nullcontext()
    from engine.backends import cuda

    return cuda.warm_up(argument)


class Opening(NamedTuple):
    """A device that is being opened."""

    result: Callable[[], Device]  # blocks until it is open
    passes: Callable[[], Sequence[str]]  # its passes, guessed if it is not open yet


@contextmanager
def open_in_background(device: str, threads: int | None) -> Iterator[Opening]:
    """Open a device while the caller works in this context; close it if the context raises."""
    if device.startswith("cpu"):  # opens immediately
        machine = open_chosen(device, threads)
        try:
            yield Opening(lambda: machine, lambda: machine.passes)
        except BaseException:
            machine.close()
            raise
        return
    # Import what both threads need: importing parts of one package in two threads can deadlock.
    import_module("engine.backends.base")
    from engine.concurrency.thread_pool import ThreadPool

    with closing(ThreadPool(1, "load")) as opener:
        opening = opener.submit(open_chosen, device, threads)
        try:
            yield Opening(opening.result, lambda: _probable_passes(opening))
        except BaseException:
            if opening.exception() is None:
                opening.result().close()
            raise


def _probable_passes(opening: Future[Device]) -> Sequence[str]:
    if opening.done() and opening.exception() is None:
        return opening.result().passes
    from engine.passes import FUSING  # those of cards, the only other kind

    return FUSING
