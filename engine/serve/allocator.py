"""Settings of the C library's memory allocator."""

from __future__ import annotations

import ctypes
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_LARGE_BYTES = 4 << 20


def return_large_blocks() -> None:
    """Make glibc return freed blocks of pictures and bodies to the system at once.

    By default it keeps up to 32 MiB for each thread, which --memory does not count.
    """
    if not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # musl has another allocator
        library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, 2 * _LARGE_BYTES)
