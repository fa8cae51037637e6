"""Trust on first use: the SHA-256 of downloads that have no published one."""

from __future__ import annotations

import json
from pathlib import Path

from engine.errors import DownloadError
from engine.files import part_names

FILE = "known.json"


def recorded(folder: Path, file: str) -> str | None:
    """Return the SHA-256 that `file` had when it was first downloaded, or that a user entered."""
    entry = _read(folder).get(file)
    return str(entry["sha256"]).lower() if entry and entry.get("sha256") else None


def record(folder: Path, file: str, sha256: str, url: str) -> None:
    """Record the SHA-256 of a first download; the caller holds the lock of the folder."""
    entries = _read(folder)
    entries[file] = {"sha256": sha256, "address": url}
    text = json.dumps(entries, indent=1, sort_keys=True) + "\n"
    part = folder / part_names.make()
    try:
        part.write_text(text, encoding="utf-8")  # readable for others who share the folder
        part.replace(folder / FILE)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _read(folder: Path) -> dict[str, dict[str, str]]:
    path = folder / FILE
    try:
        entries = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DownloadError(f"{path}: cannot be read: {error}. Delete it to start over") from None
    if not isinstance(entries, dict) or not all(
        isinstance(each, dict) for each in entries.values()
    ):
        raise DownloadError(f"{path}: expected an object of objects. Delete it to start over")
    return entries
