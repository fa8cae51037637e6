"""Resumable downloads of one file from one of several URLs, checked by size and hash.

The bytes are collected in <file>.part next to the target. An interrupted transfer is resumed only
if the result is certain to be one file: its SHA-256 is known, or the server confirms by a validator
(ETag or Last-Modified) that its file has not changed.
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

from engine.arguments import parse_integer
from engine.concurrency.socket_deadline import SocketDeadline
from engine.errors import DownloadError
from engine.models import https
from engine.models.digest import digest
from engine.models.https import PermanentError, TransientError

Progress = Callable[[int, int], None]  # bytes so far, total bytes

_BLOCK = 1 << 18
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")

_log = logging.getLogger("engine")


@dataclass(frozen=True)
class ExpectedFile:
    """The sizes that a download may have and the hashes that it must have."""

    sizes: tuple[int, ...]
    hashes: Mapping[str, str] = field(default_factory=dict)  # expected hash by algorithm


@dataclass(frozen=True)
class RetryPolicy:
    """When a transfer counts as stalled, and how often it is retried."""

    attempts: int = 5  # maximum per URL, in a row without progress
    backoff_seconds: float = 1.0  # before the second attempt; doubled before each further one
    stall_seconds: float = 30.0
    min_stall_bytes: int = 30_000  # fewer bytes within stall_seconds are a stall


def download(
    urls: Sequence[str],
    target: Path,
    expected: ExpectedFile,
    *,
    progress: Progress | None = None,
    policy: RetryPolicy | None = None,
    allow_http: bool = False,
) -> str:
    """Download a file to `target` from the first URL that works, and return that URL.

    The caller holds the lock of the target. `allow_http` permits HTTP URLs of this machine.
    """
    part = _PartialFile(target, expected)
    transfer = _Transfer(part, progress, policy or RetryPolicy(), allow_http)
    failures: list[str] = []
    for url in urls:
        try:
            _check_space(target, max(expected.sizes) - part.size)
            transfer.run(url)
            part.finish(target)
        except (PermanentError, TransientError) as error:
            _log.info("%s: %s", url, error)
            failures.append(f"{urlsplit(url).netloc}: {error}")
        except OSError as error:
            raise DownloadError(_describe_local_failure(target, error)) from None
        else:
            return url
    raise DownloadError(
        f"{target.name}: cannot be downloaded. {'; '.join(dict.fromkeys(failures))}"
    )


class _PartialFile:
    """The unfinished file, and a JSON file next to it that records where its bytes come from."""

    def __init__(self, target: Path, expected: ExpectedFile) -> None:
        self.expected = expected
        self.path = target.with_name(target.name + ".part")
        self._origin_path = target.with_name(target.name + ".part.json")

    @property
    def size(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def is_complete(self, url: str) -> bool:
        origin, is_certain = self._read_origin(), "sha256" in self.expected.hashes
        # Without its origin, a file of the right size may be complete; its SHA-256 decides.
        total = origin.get("total", self.size if is_certain else None)
        is_whole = self.size in self.expected.sizes and self.size == total
        return is_whole and (is_certain or origin.get("address") == url)

    def resume(self, url: str) -> dict[str, str]:
        """Return the headers that request the missing bytes; discard bytes of another file."""
        origin = self._read_origin()
        if 0 < self.size < max(self.expected.sizes):
            if "sha256" in self.expected.hashes:
                return {"Range": f"bytes={self.size}-"}
            if origin.get("address") == url and origin.get("validator"):
                return {"Range": f"bytes={self.size}-", "If-Range": str(origin["validator"])}
        self.discard()
        return {}

    def write_origin(self, url: str, total: int | None, headers: Message) -> None:
        tag = headers.get("ETag", "")
        validator = tag if tag.startswith('"') else headers.get("Last-Modified", "")
        origin = {"address": url, "total": total, "validator": validator}
        self._origin_path.write_text(json.dumps(origin), encoding="utf-8")

    def check_hashes(self) -> None:
        for algorithm, wanted in self.expected.hashes.items():
            found = digest(self.path, algorithm)
            if found != wanted:
                self.discard()
                raise PermanentError(f"{algorithm}: expected {wanted}, got {found}")

    def finish(self, target: Path) -> None:
        """Rename the complete file to `target`."""
        with self.path.open("rb+") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self.discard()

    def discard(self) -> None:
        self.path.unlink(missing_ok=True)
        self._origin_path.unlink(missing_ok=True)

    def _read_origin(self) -> dict[str, object]:
        try:
            origin = json.loads(self._origin_path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}
        return origin if isinstance(origin, dict) else {}


@dataclass(frozen=True)
class _Transfer:
    """The requests that fill a partial file."""

    part: _PartialFile
    progress: Progress | None
    policy: RetryPolicy
    allow_http: bool

    def run(self, url: str) -> None:
        """Transfer the whole file and check its hashes."""
        was_resumed = self.part.size > 0
        self._retry_until_complete(url)
        try:
            self.part.check_hashes()
        except PermanentError:
            if not was_resumed:
                raise
            # The bytes of an earlier run may have been wrong; they are now discarded.
            self._retry_until_complete(url)
            self.part.check_hashes()

    def _retry_until_complete(self, url: str) -> None:
        part, policy = self.part, self.policy
        failures = largest = 0
        while not part.is_complete(url):
            largest = max(largest, part.size)
            try:
                self._request(url)
            except TransientError as error:
                failures = 1 if part.size > largest else failures + 1
                if failures >= policy.attempts:
                    raise
                _log.info("%s: %s; attempt %d", url, error, failures + 1)
                time.sleep(policy.backoff_seconds * 2 ** (failures - 1))

    def _request(self, url: str) -> None:
        """Send one request and append its body to the partial file."""
        part = self.part
        headers, seconds = part.resume(url), self.policy.stall_seconds
        with SocketDeadline(seconds) as deadline:
            response = https.get(
                *(url, headers),
                deadline=deadline,
                timeout=seconds,
                allow_http=self.allow_http,
            )
            with response:
                start = _start(response, part, is_resuming=bool(headers))
                total = _total(response, start, part.expected)
                if not start:
                    part.discard()  # first, so that no origin describes the bytes of another file
                part.write_origin(url, total, response.headers)
                size = self._append(response, deadline, start, total)
        if total is None and size in part.expected.sizes:
            part.write_origin(url, size, response.headers)
        elif size != total:
            expected = total or max(part.expected.sizes)
            raise TransientError(f"ended after {size} of {expected} bytes")

    def _append(
        self,
        response: http.client.HTTPResponse,
        deadline: SocketDeadline,
        start: int,
        total: int | None,
    ) -> int:
        """Append the body to the partial file and return the new size."""
        limit = max(self.part.expected.sizes)
        stall = _StallDetector(self.policy)
        size = start
        with self.part.path.open("rb+" if start else "wb") as file:
            file.seek(start)
            while block := self._read(response, deadline):
                size += len(block)
                if size > limit:
                    raise PermanentError(f"sends more than {limit} bytes")
                file.write(block)
                stall.check(len(block))
                if self.progress:
                    self.progress(size, total or limit)
        return size

    def _read(self, response: http.client.HTTPResponse, deadline: SocketDeadline) -> bytes:
        """Return the next bytes of the body; wait at most stall_seconds."""
        deadline.restart(self.policy.stall_seconds)
        try:
            block = response.read1(_BLOCK)
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(
                "timed out" if deadline.has_expired else https.reason(error)
            ) from None
        if deadline.has_expired:
            raise TransientError("timed out")
        return block


def _start(response: http.client.HTTPResponse, part: _PartialFile, *, is_resuming: bool) -> int:
    """Return the offset of the body in the file."""
    if response.status != http.client.PARTIAL_CONTENT:
        return 0
    sent = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    is_valid = is_resuming and sent is not None and int(sent[1]) == part.size
    if not is_valid or (sent and sent[2] != "*" and int(sent[2]) not in part.expected.sizes):
        part.discard()
        raise TransientError("sends another range than the requested one")
    return part.size


def _total(response: http.client.HTTPResponse, start: int, expected: ExpectedFile) -> int | None:
    """Return the size of the whole file, or None if unknown; raise if the file must be wrong."""
    if response.headers.get_content_type() in ("text/html", "application/xhtml+xml"):
        raise PermanentError("sends a web page instead of the file")
    if response.headers.get("Content-Encoding", "identity") != "identity":
        raise PermanentError("sends a Content-Encoding that was not requested")
    length = parse_integer(response.headers.get("Content-Length", ""))
    if length is None:
        return None
    total = start + length
    if total not in expected.sizes:
        raise PermanentError(f"expected a file of {max(expected.sizes)} bytes, got one of {total}")
    return total


class _StallDetector:
    """Raises when a transfer has nearly stopped."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._window_start = time.monotonic()
        self._bytes = 0

    def check(self, count: int) -> None:
        self._bytes += count
        now = time.monotonic()
        seconds = now - self._window_start
        if seconds < self._policy.stall_seconds:
            return
        if self._bytes < self._policy.min_stall_bytes:
            raise TransientError(f"stalled: {self._bytes} bytes in {seconds:.0f} s")
        self._window_start, self._bytes = now, 0


def _check_space(target: Path, needed: int) -> None:
    free = shutil.disk_usage(target.parent).free
    if free < needed:
        raise OSError(errno.ENOSPC, f"{free} bytes are free, {needed} are needed")


def _describe_local_failure(target: Path, error: OSError) -> str:
    hint = "ENGINE_CACHE can name another folder"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{target}: the disk is full: {error.strerror}. {hint}"
    return f"{target}: cannot be written: {error.strerror or error}. {hint}"
