"""Run darknet networks: a .cfg, a .weights file, boxes.

    import engine

    with engine.load("yolov3-tiny.cfg", "yolov3-tiny.weights", names="coco.names") as detector:
        for found in detector("dog.jpg"):
            print(found.label, found.score, found.box)

Importing the package loads neither NumPy nor CUDA: each name below is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from engine.errors import (
    ConfigError,
    DeviceError,
    DownloadError,
    EngineError,
    ImageError,
    InputError,
    WeightsError,
)
from engine.version import __version__

if TYPE_CHECKING:
    from engine import ops
    from engine.detector import Detector
    from engine.loading import load
    from engine.vision.classification import Classification
    from engine.vision.detection import Detection
    from engine.vision.result import Result

__all__ = [
    "Classification",
    "ConfigError",
    "Detection",
    "Detector",
    "DeviceError",
    "DownloadError",
    "EngineError",
    "ImageError",
    "InputError",
    "Result",
    "WeightsError",
    "__version__",
    "load",
    "ops",
]

_LAZY = {
    "Classification": "engine.vision.classification",
    "Detection": "engine.vision.detection",
    "Detector": "engine.detector",
    "Result": "engine.vision.result",
    "load": "engine.loading",
}


def __getattr__(name: str) -> object:
    if name == "ops":
        return import_module("engine.ops")
    if name not in _LAZY:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
