"""Names of unfinished files, which identify the process that writes them."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import time
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from uuid import uuid4

_NAME = re.compile(r"\.(?P<system>[0-9a-f]{8})-(?P<process>\d{1,10})-[0-9a-f]{32}\.part")
_IDLE_SECONDS = 24 * 3600  # after which another system's unchanged file is abandoned


def make() -> str:
    """Return a new name, unique even among containers with the same process ids."""
    return f".{_system()}-{os.getpid()}-{uuid4().hex}.part"


@lru_cache(maxsize=1024)
def remove_abandoned(folder: Path) -> None:
    """Remove unfinished files of dead processes, once for each folder."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is not None:
                with suppress(OSError):
                    if _is_abandoned(match, entry.stat().st_mtime):
                        Path(entry.path).unlink()


def _is_abandoned(match: re.Match[str], written: float) -> bool:
    if match["system"] == _system():
        return not _is_alive(int(match["process"]))
    return time.time() - written > _IDLE_SECONDS


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # where os.kill() would end the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # it belongs to another user
        return True
    return True


@lru_cache(maxsize=1)
def _system() -> str:
    """Return a name for the process-id namespace of this process."""
    facts = [platform.node()]
    with suppress(OSError):
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text("ascii"))
        facts.append(str(Path("/proc/self/ns/pid").stat().st_ino))
    return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:8]
