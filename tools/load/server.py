"""The server under load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class ServerProcess:
    """`python -m engine serve` in a process of its own."""

    def __init__(self, options: Sequence[str]) -> None:
        command = [sys.executable, "-m", "engine", "serve", "--port", "0", *options]
        self._child = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._child.stdout is not None
        first_line = self._child.stdout.readline()
        if not first_line:
            raise SystemExit(f"the server does not start: {' '.join(command)}")
        self.port = int(first_line.split()[0].rpartition(":")[2])

    def stop(self) -> int:
        self._child.terminate()
        return self._child.wait(60)

    def timed_stop(self) -> tuple[float, int]:
        """Send SIGTERM and return the seconds until the end, and the exit status."""
        start = time.perf_counter()
        status = self.stop()
        return time.perf_counter() - start, status

    def memory_mib(self) -> float:
        return _resident_mib(self._child.pid)

    def tree_memory_mib(self) -> float:
        """Return the resident memory of the server and its processes, with the files they share."""
        children = Path(f"/proc/{self._child.pid}/task/{self._child.pid}/children")
        found = self.memory_mib()
        for each in children.read_text().split():
            with suppress(OSError):  # it has just been replaced
                found += _resident_mib(int(each)) + _shared_mib(int(each))
        return found

    def metric(self, name: str) -> float:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


def _resident_mib(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _shared_mib(process: int) -> float:
    """Return the size of files in memory that no process maps."""
    files = [each for each in Path(f"/proc/{process}/fd").iterdir() if _is_in_memory(each)]
    return sum(each.stat().st_blocks * 512 for each in files) / 2**20


def _is_in_memory(file: Path) -> bool:
    return str(file.readlink()).startswith("/memfd:")


@contextmanager
def serving(*options: str) -> Iterator[ServerProcess]:
    process = ServerProcess(options)
    try:
        yield process
    finally:
        status = process.stop()
    if status:
        raise SystemExit(f"the server ended with status {status}")
