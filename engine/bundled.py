"""The files that travel with the engine: cfg/ and weights/."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parent


class Model(NamedTuple):
    cfg: Path
    weights: Path
    names: Path


def folder(name: str) -> Path:
    """`cfg` or `weights`: inside the package when installed, beside it in a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def default_model() -> Model | None:
    """The model whose weights are shipped, if any are: its files share one stem."""
    for weights in sorted(folder("weights").glob("*.weights")):
        cfg = folder("cfg") / weights.name
        model = Model(cfg.with_suffix(".cfg"), weights, cfg.with_suffix(".names"))
        if model.cfg.is_file() and model.names.is_file():
            return model
    return None
