"""Warnings about what a search skips: files in other formats, parts of archives."""

from __future__ import annotations

import logging
from collections import Counter

from engine import extras
from engine.files.naming import shown
from engine.vision.extensions import EXTRA, needs_extra, unsupported_format

_log = logging.getLogger("engine")


class LeftOut:
    """Counts the unreadable files of a folder or an archive, and warns of them and of damage."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self.links = 0  # links to pictures in an archive
        self.videos = 0  # videos in an archive
        self.has_end = True  # whether an archive has its end marker
        self.has_more = False  # data after the end marker, such as a second archive

    def add(self, name: str) -> bool:
        """Count a file of a format that cannot be read; return whether it is one."""
        unsupported = unsupported_format(name)
        if unsupported:
            self._counts[unsupported] += 1
        return bool(unsupported)

    def warn(self, where: str) -> None:
        if not self.has_end:
            what = "%s: archive: has no end marker, so it may have been cut off"
            _log.warning(what, shown(where))
        if self.has_more:
            what = "%s: archive: what follows its end marker, perhaps another archive, is skipped"
            _log.warning(what, shown(where))
        if self.links:
            what = "%s: links to pictures are skipped: %d. Pack files in place of them"
            _log.warning(what, shown(where), self.links)
        if self.videos:
            what = "%s: archive: videos are skipped: %d. Unpack them to read their frames"
            _log.warning(what, shown(where), self.videos)
        if not self._counts:
            return
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self._counts.items()))
        install = ""
        if any(map(needs_extra, self._counts)):
            install = f", or run: {extras.command(EXTRA)}"
        _log.warning(
            "%s: files in formats that cannot be read are skipped: %s. "
            "Convert them to JPEG or PNG%s",
            *(shown(where), kinds, install),
        )
