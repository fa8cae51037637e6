"""Walk through folders of any depth: os.walk() is recursive before Python 3.12."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator


def walk(
    folder: str, onerror: Callable[[OSError], object] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield a folder, the names of its folders, and those of its files; then the same below it.

    Links to folders are not followed. `onerror` is called for a folder that cannot be read.
    """
    waiting = [folder]
    while waiting:
        inner = waiting.pop()
        folders: list[str] = []
        files: list[str] = []
        try:
            with os.scandir(inner) as entries:
                for each in entries:
                    (folders if _is_folder(each) else files).append(each.name)
        except OSError as error:
            if onerror is not None:
                onerror(error)
            continue
        yield inner, folders, files
        paths = [os.path.join(inner, each) for each in reversed(folders)]  # noqa: PTH118
        waiting += [each for each in paths if not (os.path.islink(each) or _is_junction(each))]  # noqa: PTH114


# for Windows; exists since Python 3.12
_is_junction: Callable[[str], bool] = getattr(os.path, "isjunction", lambda path: False)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # not a folder, as in os.walk()
        return False
