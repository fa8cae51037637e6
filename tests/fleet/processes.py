"""The processes that a command has started, read from /proc."""

from pathlib import Path


def below(pid):
    """Return all descendants of a process: id and command line."""
    children, commands = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            commands[int(folder.name)] = (folder / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):  # it has ended in the meantime
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found, waiting = {}, [pid]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child in commands:
                found[child] = commands[child]
                waiting.append(child)
    return found


def workers_of(pid):
    """Return Ray's workers that hold a detector."""
    return [each for each, command in below(pid).items() if "ShardWorker" in command]


def resident_mib(pid):
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 2**20
    except (OSError, IndexError):
        return 0.0
