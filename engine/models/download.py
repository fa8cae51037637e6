"""One file from one of several addresses: whole, of the right size and hash, or not at all.

The bytes gather in <file>.part beside the target. An interrupted transfer goes on where it ended if
nothing can be mixed up: the file's hash is known, or the address says that its file is the same.
"""

from __future__ import annotations

import errno
import http.client
import json
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from urllib.parse import urlsplit

from engine.errors import DownloadError
from engine.models import connection
from engine.models.connection import InterruptedTransferError, RefusedError
from engine.models.digest import digest
from engine.numerals import whole_number

Progress = Callable[[int, int], None]  # bytes so far, bytes in all

_BLOCK = 1 << 18
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

_log = logging.getLogger("engine")


@dataclass(frozen=True)
class Expected:
    """What the file must be."""

    sizes: tuple[int, ...]
    hashes: Mapping[str, str] = field(default_factory=dict)  # by algorithm


@dataclass(frozen=True)
class Patience:
    """How often and how long is tried."""

    attempts: int = 5  # in a row without a byte gained, at each address
    pause_seconds: float = 1.0  # before the second attempt; twice as long before each further one
    stall_seconds: float = 30.0  # without an answer, or with fewer bytes than `slowest` in it
    slowest: int = 30_000


def fetch(
    addresses: Sequence[str],
    target: Path,
    expected: Expected,
    *,
    progress: Progress | None = None,
    patience: Patience | None = None,
    allow_http: bool = False,
) -> str:
    """Bring the file to `target`; the address that it came from.

    The caller holds the lock. `allow_http` is for servers on this machine.
    """
    part = _Part(target, expected)
    transfer = _Transfer(part, progress, patience or Patience(), allow_http)
    failures: list[str] = []
    for address in addresses:
        try:
            _check_space(target, max(expected.sizes) - part.size)
            transfer.bring(address)
            part.finish(target)
        except (RefusedError, InterruptedTransferError) as error:
            _log.info("%s: %s", address, error)
            failures.append(f"{urlsplit(address).netloc}: {error}")
        except OSError as error:
            raise DownloadError(_local_failure(target, error)) from None
        else:
            return address
    raise DownloadError(
        f"{target.name}: cannot be downloaded. {'; '.join(dict.fromkeys(failures))}"
    )


class _Part:
    """The unfinished file, and a note beside it of whose it is."""

    def __init__(self, target: Path, expected: Expected) -> None:
        self.expected = expected
        self.path = target.with_name(target.name + ".part")
        self._note = target.with_name(target.name + ".part.json")

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def is_complete(self, address: str) -> bool:
        note = self._read_note()
        is_its_own = note.get("address") == address or "sha256" in self.expected.hashes
        return is_its_own and self.size in self.expected.sizes and self.size == note.get("total")

    def resume(self, address: str) -> dict[str, str]:
        """The headers that ask for the rest; what cannot be continued is thrown away."""
        note = self._read_note()
        if 0 < self.size < max(self.expected.sizes):
            if "sha256" in self.expected.hashes:
                return {"Range": f"bytes={self.size}-"}
            if note.get("address") == address and note.get("validator"):
                return {"Range": f"bytes={self.size}-", "If-Range": str(note["validator"])}
        self.discard()
        return {}

    def write_note(self, address: str, total: int | None, headers: Message) -> None:
        tag = headers.get("ETag", "")
        validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
        note = {"address": address, "total": total, "validator": validator}
        self._note.write_text(json.dumps(note), encoding="utf-8")

    def check(self) -> None:
        for algorithm, wanted in self.expected.hashes.items():
            found = digest(self.path, algorithm)
            if found != wanted:
                self.discard()
                raise RefusedError(f"{algorithm}: expected {wanted}, got {found}")

    def finish(self, target: Path) -> None:
        """Give the file its name, which nobody sees before."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self.discard()

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _read_note(self) -> dict[str, object]:
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return note if isinstance(note, dict) else {}


@dataclass(frozen=True)
class _Transfer:
    """From an address into the part, as often as it takes."""

    part: _Part
    progress: Progress | None
    patience: Patience
    allow_http: bool

    def bring(self, address: str) -> None:
        """The whole file, checked."""
        was_begun = self.part.size > 0
        self._fetch(address)
        try:
            self.part.check()
        except RefusedError:
            if not was_begun:
                raise
            # the bytes of an earlier run may be what is wrong
            self._fetch(address)
            self.part.check()

    def _fetch(self, address: str) -> None:
        part, patience = self.part, self.patience
        failed = most = 0
        while not part.is_complete(address):
            most = max(most, part.size)
            try:
                self._ask(address)
            except InterruptedTransferError as error:
                failed = 1 if part.size > most else failed + 1
                if failed >= patience.attempts:
                    raise
                _log.info("%s: %s; attempt %d", address, error, failed + 1)
                time.sleep(patience.pause_seconds * 2 ** (failed - 1))

    def _ask(self, address: str) -> None:
        """One request: append what comes, until the file has one of its sizes."""
        part = self.part
        headers = part.resume(address)
        with connection.get(
            address, headers, timeout=self.patience.stall_seconds, allow_http=self.allow_http
        ) as answer:
            start = _start(answer, part, asked=bool(headers))
            total = _total(answer, start, part.expected)
            part.write_note(address, total, answer.headers)
            size = self._append(answer, start, total)
        if total is None and size in part.expected.sizes:
            part.write_note(address, size, answer.headers)
        elif size != total:
            most = max(part.expected.sizes)
            raise InterruptedTransferError(f"ended after {size} of {total or most} bytes")

    def _append(self, answer: http.client.HTTPResponse, start: int, total: int | None) -> int:
        """The size that the part has then."""
        most = max(self.part.expected.sizes)
        pace = _Pace(self.patience)
        size = start
        with self.part.path.open("rb+" if start else "wb") as file:
            file.seek(start)
            while block := _read(answer):
                size += len(block)
                if size > most:
                    raise RefusedError(f"sends more than {most} bytes")
                file.write(block)
                pace.check(len(block))
                if self.progress:
                    self.progress(size, total or most)
        return size


def _start(answer: http.client.HTTPResponse, part: _Part, *, asked: bool) -> int:
    """Where the body belongs in the file."""
    if answer.status != http.client.PARTIAL_CONTENT:
        return 0
    said = _RANGE.fullmatch(answer.headers.get("Content-Range", ""))
    is_ours = asked and said is not None and int(said[1]) == part.size
    if not is_ours or (said and said[2] != "*" and int(said[2]) not in part.expected.sizes):
        part.discard()
        raise InterruptedTransferError("sends another part than was asked for")
    return part.size


def _total(answer: http.client.HTTPResponse, start: int, expected: Expected) -> int | None:
    """The size of the whole, if it is said; refused before the body if it cannot be right."""
    kind = answer.headers.get_content_type()
    if kind in ("text/html", "application/xhtml+xml"):
        raise RefusedError("sends a web page instead of the file")
    if answer.headers.get("Content-Encoding", "identity") != "identity":
        raise RefusedError("sends the file in an encoding that was not asked for")
    length = whole_number(answer.headers.get("Content-Length", ""))
    if length is None:
        return None
    total = start + length
    if total not in expected.sizes:
        raise RefusedError(f"expected a file of {max(expected.sizes)} bytes, got one of {total}")
    return total


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read1(_BLOCK)
    except (OSError, http.client.HTTPException) as error:
        raise InterruptedTransferError(connection.reason(error)) from None


class _Pace:
    """Notices a transfer that has nearly stopped."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._since = time.monotonic()
        self._bytes = 0

    def check(self, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        if now - self._since < self._patience.stall_seconds:
            return
        if self._bytes < self._patience.slowest:
            raise InterruptedTransferError(f"only {self._bytes} bytes in {now - self._since:.0f} s")
        self._since, self._bytes = now, 0


def _check_space(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{free} bytes are free, {needed} are needed")


def _local_failure(target: Path, error: OSError) -> str:
    hint = "ENGINE_CACHE can name another folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{target}: the disk is full: {error.strerror}. {hint}"
    return f"{target}: cannot be written: {error.strerror or error}. {hint}"
