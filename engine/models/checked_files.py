"""A record of verified files: a file that has not changed since is not hashed again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from engine.files import part_names
from engine.models import file_lock

FILE = "checked.json"


def entry_of(path: Path, hashes: Mapping[str, str]) -> dict[str, Any]:
    """Return the entry for record() that gives the file, as it is now, these hashes."""
    found = path.stat()
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns, "hashes": dict(hashes)}


def is_recorded(path: Path, entry: dict[str, Any]) -> bool:
    return bool(_read(path.parent).get(path.name) == entry)


def record(path: Path, entry: dict[str, Any]) -> None:
    """Record the file; in a read-only folder nothing is recorded."""
    _write(path, entry)


def forget(path: Path) -> None:
    """Remove the record of a file whose hashes have changed."""
    _write(path, None)


def _write(path: Path, entry: dict[str, Any] | None) -> None:
    folder = path.parent
    # The folder may be read-only. A held lock is not waited for: a record only saves time.
    with suppress(OSError), file_lock.hold_if_free(folder / f"{FILE}.lock") as is_held:
        if not is_held:
            return
        entries = _read(folder)
        entries.pop(path.name, None)
        if entry is not None:
            entries[path.name] = entry
        part = folder / part_names.make()
        try:
            part.write_text(json.dumps(entries, indent=1, sort_keys=True) + "\n", encoding="utf-8")
            part.replace(folder / FILE)
        finally:
            part.unlink(missing_ok=True)


def _read(folder: Path) -> dict[str, Any]:
    """Return the record, or an empty one if it is damaged, which only costs time."""
    try:
        entries = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}
