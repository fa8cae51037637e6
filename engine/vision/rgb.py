"""Copy the pixels of Pillow's RGB images without holding the GIL.

np.asarray() lets Pillow pack the pixels into bytes, which holds the GIL. Pillow stores four bytes
per pixel and exports them through Arrow's C data interface, from where NumPy can copy them.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL import Image

_CHANNELS = 3

_READ = 0x100  # CPython's PyBUF_READ

_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_view_of = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


class _Array(ctypes.Structure):
    """The ArrowArray of Arrow's C data interface."""


_Array._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "nulls", "offset", "buffers_", "children_")),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    *((name, ctypes.c_void_p) for name in ("dictionary", "release", "private")),
]


def copy_pixels(image: Image.Image) -> NDArray[np.uint8]:
    """Return (height, width, 3) of a loaded image of mode RGB."""
    exported = _arrow_words(image)
    if exported is None:
        return np.asarray(image)
    words, _capsule = exported
    out = np.empty(len(words) * _CHANNELS + 1, np.uint8)
    # Copy 4-byte words at a stride of 3: each word overwrites the unused last byte of the previous.
    np.copyto(np.ndarray(len(words), np.uint32, out.data, strides=(_CHANNELS,)), words)
    return out[:-1].reshape(image.height, image.width, _CHANNELS)


def _arrow_words(image: Image.Image) -> tuple[NDArray[np.uint32], Any] | None:
    """Return one word per pixel and the capsule that owns them, or None if Pillow cannot."""
    try:
        _, capsule = image.__arrow_c_array__()
    except (AttributeError, ValueError):  # an old Pillow; an image in several blocks of memory
        return None
    array = _Array.from_address(_pointer_in(capsule, b"arrow_array"))
    values = array.children[0].contents
    assert values.length == array.length * 4 == image.width * image.height * 4
    memory = _view_of(values.buffers[1], values.length, _READ)
    return np.frombuffer(memory, np.uint32), capsule
