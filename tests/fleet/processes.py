"""The processes that a command has started, read from /proc."""

import os
from io import FileIO
from pathlib import Path


def below(pid):
    """Return all descendants of a process: id and command line."""
    children = {}
    with os.scandir("/proc") as entries:
        names = [each.name for each in entries if each.name.isdecimal()]
    for name in names:
        # "stat" would add up the times of all threads, of which Ray's processes have many.
        parent = _read(name, "status").partition("\nPPid:\t")[2].partition("\n")[0]
        children.setdefault(parent, []).append(name)
    found, waiting = {}, [str(pid)]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            found[int(child)] = _read(child, "cmdline").replace("\0", " ")
            waiting.append(child)
    return found


def _read(pid, name):
    """Return the text of a file in /proc; that of a process that has ended is empty."""
    try:
        with FileIO(f"/proc/{pid}/{name}") as file:
            return file.readall().decode(errors="replace")
    except OSError:
        return ""


def workers_among(processes):
    """Return those of Ray's workers that hold a detector."""
    return [each for each, command in processes.items() if "ShardWorker" in command]


def resident_mib(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    except (OSError, IndexError):
        return 0.0
