"""The folder of downloaded weights: where a model lies, bringing it there, checking it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from engine import cache, shipped
from engine.errors import DownloadError, InputError
from engine.models import known, lock
from engine.models.digest import digest
from engine.models.registry import Model, find

if TYPE_CHECKING:
    from engine.models.download import Patience, Progress

State = Literal["verified", "trusted", "missing"]


@dataclass(frozen=True)
class Located:
    """The files of a model that is there."""

    cfg: Path
    weights: Path
    names: Path | None


def folder() -> Path:
    return cache.folder() / "models"


def path(model: Model) -> Path | None:
    """Its weights, if they are there and of the right size; a file that travels with us first."""
    for candidate in (shipped.folder("weights") / model.file, folder() / model.file):
        if _has_size(candidate, model):
            return candidate
    return None


def pull(
    model: Model,
    *,
    progress: Progress | None = None,
    patience: Patience | None = None,
    allow_http: bool = False,
) -> Path:
    """Its weights, downloaded unless they are there; a good file is never written again."""
    if found := path(model):
        return found
    target = folder() / model.file
    _refuse_another(target, model)
    if not model.addresses:
        raise DownloadError(f"{model.name}: {model.note}. Put the file at {target}")
    if os.environ.get("ENGINE_OFFLINE", "0") not in ("", "0"):
        raise DownloadError(f"{target}: is not there, and ENGINE_OFFLINE forbids to download it")
    from engine.models.download import Expected, fetch  # the network, only when it is needed

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with lock.hold(target.with_name(f"{model.file}.lock")):
            if not _has_size(target, model):  # another process may have brought it meanwhile
                expected = Expected(model.sizes, _hashes(model))
                address = fetch(
                    *(model.addresses, target, expected),
                    progress=progress,
                    patience=patience,
                    allow_http=allow_http,
                )
                if "sha256" not in model.hashes:
                    _remember(target, address)
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{target}: cannot be written: {error.strerror}. ENGINE_CACHE can name another folder"
        ) from None
    return target


def verify(model: Model) -> State:
    """Read the whole file: "verified" by a public hash, or still what was "trusted" first."""
    found = path(model)
    if found is None:
        _refuse_another(folder() / model.file, model)
        return "missing"
    for algorithm, wanted in _hashes(model).items():
        got = digest(found, algorithm)
        if got != wanted:
            raise DownloadError(f"{found}: {algorithm}: expected {wanted}, got {got}. Delete it")
    return "verified" if model.hashes else "trusted"


def locate(name: str, *, progress: Progress | None = None) -> Located:
    """The files of a model of the zoo; its weights are downloaded if need be."""
    model = find(name)
    return Located(model.cfg, pull(model, progress=progress), model.names)


def locate_default() -> Located:
    """The files of the model in the box."""
    model = shipped.default_model()
    if model is None:
        guide = shipped.folder("weights") / "README.md"
        raise InputError(f"no model named, and none is in the box; {guide} tells about weights")
    return Located(*model)


def _has_size(path: Path, model: Model) -> bool:
    return _size(path) in model.sizes


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _refuse_another(path: Path, model: Model) -> None:
    """Downloads get their name when they are right: this file is somebody's, and stays."""
    size = _size(path)
    if size is not None and size not in model.sizes:
        raise DownloadError(
            f"{path}: expected {model.bytes} bytes, got {size}. "
            "Delete it, or name it with --weights"
        )


def _hashes(model: Model) -> dict[str, str]:
    """The public ones, and what was recorded where there is no public SHA-256."""
    hashes = dict(model.hashes)
    if "sha256" not in hashes and (sha256 := known.recorded(folder(), model.file)):
        hashes["sha256"] = sha256
    return hashes


def _remember(target: Path, address: str) -> None:
    with lock.hold(target.with_name(f"{known.FILE}.lock")):
        known.record(target.parent, target.name, digest(target, "sha256"), address)
