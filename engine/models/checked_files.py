"""Files whose hashes were compared: a file that has not changed since is not read again."""

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
    """Return what record() is to write if the file, as it is now, has these hashes."""
    found = path.stat()
    return {"bytes": found.st_size, "mtime_ns": found.st_mtime_ns, "hashes": dict(hashes)}


def is_recorded(path: Path, entry: dict[str, Any]) -> bool:
    return bool(_read(path.parent).get(path.name) == entry)


def record(path: Path, entry: dict[str, Any]) -> None:
    """Record the file; in a folder that cannot be written it is read again next time."""
    _write(path, entry)


def forget(path: Path) -> None:
    """Remove what was recorded of a file, because it has other hashes by now."""
    _write(path, None)


def _write(path: Path, entry: dict[str, Any] | None) -> None:
    folder = path.parent
    # The folder may be read-only. A lock of others is not waited for: a record only saves time.
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
    """Return what was recorded; a damaged record costs no more than reading the files again."""
    try:
        entries = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return entries if isinstance(entries, dict) else {}
