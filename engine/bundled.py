"""The files that are installed with the engine: cfg/ and weights/."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_PACKAGE = Path(__file__).parent


class Model(NamedTuple):
    """The files of a bundled model."""

    cfg: Path
    weights: Path
    names: Path


def folder(name: str) -> Path:
    """Return the folder `cfg` or `weights`, in the installed package or in a checkout."""
    installed = _PACKAGE / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def models() -> dict[str, Model]:
    """Return the bundled models by name; the files of each share one stem."""
    found = {}
    for weights in sorted(folder("weights").glob("*.weights")):
        cfg = folder("cfg") / weights.name
        model = Model(cfg.with_suffix(".cfg"), weights, cfg.with_suffix(".names"))
        if model.cfg.is_file() and model.names.is_file():
            found[weights.stem] = model
    return found


def default_model() -> Model | None:
    """Return the model that is used if none is named, or None without one.

    It has the shortest name: the others are variants with a suffix.
    """
    found = models()
    return found[min(found, key=len)] if found else None
