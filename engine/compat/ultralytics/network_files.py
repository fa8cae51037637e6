"""Find the .cfg, .weights and names of a network by the name of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from engine.compat.ultralytics.errors import MissingModelError
from engine.errors import InputError, suggest
from engine.files.naming import shown

Files: TypeAlias = "tuple[str | Path, str | Path | None, Any]"  # .cfg, .weights and names

_FOREIGN = (".pt", ".pth", ".onnx", ".engine", ".yaml", ".yml", ".torchscript", ".tflite")


def files_of(
    model: Path,
    weights: str | Path | None,
    names: str | Path | Sequence[str] | Mapping[int, str] | None,
) -> Files:
    """Return .cfg (or a name of the zoo), .weights and names."""
    from engine.models import registry

    suffix = model.suffix.lower()
    if suffix in _FOREIGN:
        raise InputError(
            f"{shown(str(model))}: expected a .cfg or .weights file of darknet, got {suffix}"
        )
    is_file = suffix in (".cfg", ".weights")
    stem = model.stem if is_file else model.name
    cfg = model.with_suffix(".cfg")
    if is_file and cfg.exists():
        found = weights or (model if suffix == ".weights" else model.with_suffix(".weights"))
        if weights or Path(found).exists() or stem not in registry.models():
            return cfg, found, _names_of(model, stem) if names is None else names
    if is_file and not registry.knows(stem):
        raise _missing(model, cfg)
    if suffix == ".weights" and model.exists():
        weights = weights or model
    zoo = registry.find(stem)
    if weights is None:
        return stem, None, names
    return zoo.cfg, weights, zoo.names if names is None else names


def _missing(model: Path, cfg: Path) -> MissingModelError:
    """Return the error for a file of a network without a .cfg."""
    from engine.models import registry

    if model.exists():
        return MissingModelError(
            f"{shown(str(cfg))}: is missing: expected next to {shown(str(model))}. "
            "Pass the .cfg to YOLO(), and weights="
        )
    hint = suggest(model.stem, registry.models())
    return MissingModelError(f"{shown(str(model))}: no such file.{hint}")


def _names_of(model: Path, stem: str) -> Path | None:
    """Return the names of the network of the zoo, unless there is a file with the same name."""
    from engine.darknet.names import names_of
    from engine.models import registry

    if names_of(model):  # load() finds it
        return None
    return registry.find(stem).names if stem in registry.models() else None
