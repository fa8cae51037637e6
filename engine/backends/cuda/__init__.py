"""The CUDA backend: "cuda:0" is one card, "cuda:0,cuda:1" two as one, "cuda" all visible ones.

Importing this touches neither PyCUDA nor the driver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from engine.errors import InputError

if TYPE_CHECKING:
    from engine.backends.base import Device


def open(argument: str) -> Device:
    """Open the cards listed after "cuda:"; raise a DeviceError that says why not."""
    indices = parse(argument)
    from engine.backends.cuda.driver import library, pycuda_loader
    from engine.backends.cuda.kernels import sources

    library.require(library.DRIVER)  # fail before the slow imports
    from engine.backends.cuda.device import CudaDevice
    from engine.backends.cuda.multi_device import MultiDevice

    sources.kernels()  # read the texts while the card initialises
    if indices is None:
        indices = tuple(range(pycuda_loader.count()))
    return CudaDevice(indices[0]) if len(indices) == 1 else MultiDevice(indices)


@contextmanager
def warm_up(argument: str) -> Iterator[None]:
    """Initialise these cards on threads inside the block, for a caller that opens them later.

    The compiler takes 0.2 s longer for its first kernel, so it compiles that meanwhile as well,
    unless the cache has it.
    """
    from threading import Event

    from engine.concurrency.thread_pool import ThreadPool

    indices, is_over = parse(argument), Event()

    def initialise() -> None:
        from engine.backends.cuda.driver import pycuda_loader

        pycuda_loader.hold_primary_contexts(indices, is_over)

    def compile_first() -> None:
        from engine.backends.cuda.driver import pycuda_loader

        capabilities = pycuda_loader.capabilities(indices)  # ends here without a driver
        from engine.backends.cuda.driver import compiler

        for capability in capabilities:
            compiler.compile_first(capability)

    with closing(ThreadPool(2, "cuda-warm-up")) as pool:
        pool.submit(initialise)
        pool.submit(compile_first)  # opening a device reports its errors
        try:
            yield
        finally:
            is_over.set()


def parse(argument: str) -> tuple[int, ...] | None:
    """Parse the numbers after "cuda:", as in 0 or 0,1 or 0,cuda:1; None means all cards."""
    if not argument:
        return None
    parts = argument.split(",")
    matches = [re.fullmatch(r"(?:cuda:)?(\d{1,4})", part.strip(), re.ASCII) for part in parts]
    indices = tuple(int(match[1]) for match in matches if match)
    if len(indices) < len(matches) or len(set(indices)) < len(indices):
        name = f"cuda:{argument}"
        raise InputError(f"device: expected 'cuda', 'cuda:0' or 'cuda:0,cuda:1', got {name!r}")
    return indices
