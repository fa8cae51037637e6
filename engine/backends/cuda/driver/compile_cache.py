"""A cache of compiled kernels on disk, whose files contain their own checksums.

Several processes may read and write it at once; a damaged file counts as missing. If the folder
cannot be written, entries are kept in memory for this process.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from engine.files.cache_folder import folder as folder
from engine.files.naming import shown

_log = logging.getLogger(__name__)
_DIGEST_BYTES = 32
_NOT_TRUSTED = (
    "%s: is ignored: another user owns it or may write to it. "
    "Remove it, or name another folder with ENGINE_CACHE"
)


def key_of(facts: Iterable[str]) -> str:
    """Return a key that changes with any of the facts."""
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()


class Cache:
    """Bytes by key; a file is a SHA-256 digest followed by the bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._remembered: dict[str, bytes] = {}
        self._has_warned = False

    def read(self, key: str) -> bytes | None:
        if key in self._remembered:
            return self._remembered[key]
        try:
            with (self._path / key).open("rb") as file:
                if not (_is_trusted(self._path.stat()) and _is_trusted(os.fstat(file.fileno()))):
                    if not self._has_warned:
                        self._has_warned = True
                        _log.warning(_NOT_TRUSTED, shown(self._path))
                    return None
                stored = file.read()
        except OSError:
            return None
        digest, contents = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        return contents if hashlib.sha256(contents).digest() == digest else None

    def write(self, key: str, contents: bytes) -> None:
        try:
            self._write_file(key, hashlib.sha256(contents).digest() + contents)
        except OSError as error:
            _log.warning("%s: cannot be written, kept for this process only: %s", self._path, error)
            self._remembered[key] = contents

    def _write_file(self, key: str, stored: bytes) -> None:
        """Write to a temporary file and rename it, so that readers never see a part."""
        import tempfile  # slow to import, and a warm start writes nothing

        self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f"{key}.", dir=self._path)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(stored)
            Path(name).replace(self._path / key)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _is_trusted(status: os.stat_result) -> bool:
    """Return whether only this user or root can have written it: its code runs on the device."""
    if os.name == "nt":
        return True
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and not is_shared
