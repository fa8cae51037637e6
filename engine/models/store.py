"""Local weights of the zoo: find, download and verify them."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from engine import bundled
from engine.errors import DownloadError, InputError
from engine.files import cache_folder
from engine.files.naming import shown
from engine.models import checked_files, file_lock, trusted_hashes
from engine.models.digest import digest
from engine.models.registry import Model, find

if TYPE_CHECKING:
    from engine.models.download import Progress, RetryPolicy

State = Literal["verified", "trusted", "unknown", "missing"]

_log = logging.getLogger("engine")


@dataclass(frozen=True)
class ModelFiles:
    """The local files of a model."""

    cfg: Path
    weights: Path
    names: Path | None


def folder() -> Path:
    """Return the folder of downloaded weights."""
    return cache_folder.folder() / "models"


def path(model: Model) -> Path | None:
    """Return the local weights if they have the right size; bundled ones take precedence."""
    for candidate in (bundled.folder("weights") / model.file, folder() / model.file):
        if _has_size(candidate, model):
            return candidate
    return None


def local(model: Model) -> Path | None:
    """Return the local weights, verifying downloads that changed since the last check."""
    found = path(model)
    if found is None or found.parent != folder():
        return found
    hashes = _hashes(model)
    with suppress(PermissionError, FileNotFoundError):  # reported where the file is loaded
        if hashes and not checked_files.is_recorded(found, checked_files.entry_of(found, hashes)):
            _compare(found, hashes, model)
    return found


def pull(
    model: Model,
    *,
    progress: Progress | None = None,
    policy: RetryPolicy | None = None,
    allow_http: bool = False,
) -> Path:
    """Return the local weights, downloading them if they are missing."""
    if found := local(model):
        return found
    target = folder() / model.file
    _check_size(target, model)
    if not model.urls:
        raise DownloadError(f"{model.name}: {model.note}. Put the file at {target}")
    if os.environ.get("ENGINE_OFFLINE", "0") not in ("", "0"):
        raise DownloadError(f"{target}: does not exist, and ENGINE_OFFLINE forbids downloads")
    from engine.models.download import ExpectedFile, download  # slow to import

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with file_lock.hold(target.with_name(f"{model.file}.lock")):
            if not _has_size(target, model):  # unless another process has downloaded it
                expected = ExpectedFile(model.sizes, _hashes(model))
                url = download(
                    *(model.urls, target, expected),
                    progress=progress,
                    policy=policy,
                    allow_http=allow_http,
                )
                if "sha256" not in model.hashes:
                    _record_hash(target, url)
                checked_files.record(target, checked_files.entry_of(target, _hashes(model)))
    except DownloadError:
        raise
    except OSError as error:
        raise DownloadError(
            f"{target}: cannot be written: {error.strerror}. ENGINE_CACHE can name another folder"
        ) from None
    return target


def verify(model: Model) -> State:
    """Check the hash of the local weights.

    "verified" means that a published hash matches; "trusted", that no hash is published and the
    file is still the one first downloaded; "unknown", that there is nothing to compare it with.
    """
    found = path(model)
    if found is None:
        _check_size(folder() / model.file, model)
        return "missing"
    hashes = _hashes(model)
    _compare(found, hashes, model)
    if model.hashes:
        return "verified"
    return "trusted" if hashes else "unknown"


def locate(name: str, *, progress: Progress | None = None) -> ModelFiles:
    """Return the files of a model of the zoo, downloading its weights if they are missing."""
    model = find(name)
    return ModelFiles(model.cfg, pull(model, progress=progress), model.names)


def locate_default() -> ModelFiles:
    """Return the files of the bundled model."""
    model = bundled.default_model()
    if model is None:
        guide = bundled.folder("weights") / "README.md"
        raise InputError(f"no model named, and none is bundled. See {guide}")
    return ModelFiles(*model)


def _has_size(path: Path, model: Model) -> bool:
    return _size(path) in model.sizes


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def _check_size(path: Path, model: Model) -> None:
    """Raise if there is a file of the wrong size, which must be the user's.

    Downloads are renamed to `path` only once complete, so such a file must not be overwritten.
    """
    size = _size(path)
    if size is not None and size not in model.sizes:
        raise DownloadError(
            f"{path}: expected {model.bytes} bytes, got {size}. "
            "Delete it, or name it with --weights"
        )


def _compare(found: Path, hashes: dict[str, str], model: Model) -> None:
    """Raise if the file has other hashes; record a success for the next time."""
    is_download = found.parent == folder()
    entry = checked_files.entry_of(found, hashes)  # first: the file may change while it is read
    for algorithm, wanted in hashes.items():
        got = digest(found, algorithm)
        if got != wanted:
            if is_download:
                checked_files.forget(found)
            again = ", so that it is downloaded again," if model.urls else ""
            hint = f"Delete it{again} or name it with --weights"
            raise DownloadError(f"{found}: {algorithm}: expected {wanted}, got {got}. {hint}")
    if is_download:
        checked_files.record(found, entry)


def _hashes(model: Model) -> dict[str, str]:
    """Return the published hashes and, if there is no published SHA-256, the recorded one."""
    hashes = dict(model.hashes)
    if "sha256" not in hashes and (sha256 := trusted_hashes.recorded(folder(), model.file)):
        hashes["sha256"] = sha256
    return hashes


def _record_hash(target: Path, url: str) -> None:
    known = target.with_name(trusted_hashes.FILE)
    with file_lock.hold(target.with_name(f"{known.name}.lock")):
        is_first = trusted_hashes.recorded(target.parent, target.name) is None
        sha256 = digest(target, "sha256")
        trusted_hashes.record(target.parent, target.name, sha256, url)
    if is_first:
        _log.warning(
            "%s: no SHA-256 is published, so this first download is trusted: %s. Another file is"
            " refused from now on. To pin a hash before a download, enter it in %s",
            *(target.name, sha256, shown(known)),
        )
