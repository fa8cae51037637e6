"""The server under load."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

    def memory_mib(self) -> float:
        pages = int(Path(f"/proc/{self._child.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def metric(self, name: str) -> float:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0


@contextmanager
def serving(*options: str) -> Iterator[ServerProcess]:
    process = ServerProcess(options)
    try:
        yield process
    finally:
        status = process.stop()
    if status:
        raise SystemExit(f"the server ended with status {status}")
