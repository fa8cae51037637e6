"""Write the files of a report and print it, even if some of that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.errors import InputError


def write_all(files: Iterable[Callable[[], object]], show: Callable[[], object]) -> None:
    """Write every file, then print; raise the first error when all is done.

    The reader of stdout may have exited, as `head` does, or the disk may be full.
    """
    errors: list[Exception] = []
    for write in (*files, show):
        try:
            write()
        except (InputError, OSError) as error:
            errors.append(error)
    if errors:
        raise errors[0]
