"""One name for the output files of each source: its folders below the common one, and its stem."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from engine.cli._sinks import file_names
from engine.files.naming import shown
from engine.sources.item import Item
from engine.sources.media import Media, MediaKind, is_url
from engine.sources.video_writer import extension_for

_log = logging.getLogger("engine")


class OutputNames:
    """Names without an extension, such as cam1/day2/img000; no two sources get the same one.

    A name repeats the folders of its source below `common`. A source that is not in `common`
    repeats its whole path.
    """

    def __init__(self, common: str | None, *, is_flat: bool, needs_stems: bool) -> None:
        """Create names; with `needs_stems` x.jpg and x.png differ, as both would have a x.txt."""
        self._common = common
        self._is_flat = is_flat
        self._needs_stems = needs_stems
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number appended to a name
        self._folders: dict[str, str] = {}  # of outputs, by those of sources

    def name_of(self, media: Media) -> tuple[str, bool]:
        """Return the name for the next source, and whether a number distinguishes it."""
        default = "video" if media.has_frames else "picture"
        stem = file_names.stem_of(media.name, default)
        folder = "" if self._is_flat else self._folder_of(media)
        wanted = f"{folder}/{stem}" if folder else stem
        if media.kind is MediaKind.BROKEN:
            return wanted, False
        ending = _ending_of(media)
        name, number = wanted, self._numbers.get(wanted + ending, 1)
        while not self._take(name, ending):
            number += 1
            name = f"{wanted}-{number}"
            self._numbers[wanted + ending] = number
        return name, name != wanted

    def _take(self, name: str, ending: str) -> bool:
        key = name if self._needs_stems else name + ending
        before = len(self._used)
        self._used.add(key)
        return len(self._used) > before

    def _folder_of(self, media: Media) -> str:
        if not _is_local(media):
            return ""
        folder = os.path.dirname(media.name)  # noqa: PTH120 - keeps undecodable bytes
        if folder not in self._folders:
            self._folders[folder] = self._below_common(PurePath(_parent(media.name)))
        return self._folders[folder]

    def _below_common(self, folder: PurePath) -> str:
        if self._common is not None and folder.is_relative_to(self._common):
            folder = folder.relative_to(self._common)
        else:
            folder = folder.relative_to(folder.anchor)
        return "" if folder == PurePath() else folder.as_posix()


class MemberNames:
    """Names for the members of an archive, by their stems; the second of a name gets a number."""

    def __init__(self, *, announces: bool) -> None:
        self._announces = announces
        self._counts: dict[str, int] = {}

    def name_of(self, item: Item) -> str:
        wanted = name = item.output
        while name in self._counts:
            self._counts[wanted] += 1
            name = f"{wanted}-{self._counts[wanted]}"
        self._counts[name] = 1
        if name != wanted and self._announces:
            _announce(item.name, name)
        return name


def _announce(source: str, name: str) -> None:
    what = "%s: has the name of another source, so its outputs are called %s"
    _log.warning(what, shown(source), shown(name))


def assign(
    found: Iterable[Media], names: OutputNames, *, announces: bool, resumes: bool
) -> list[str]:
    """Return the names for sources that are known in advance; announce the numbers in one line."""
    assigned = []
    numbered: list[tuple[str, str]] = []
    for media in found:
        name, has_number = names.name_of(media)
        assigned.append(name)
        if has_number:
            numbered.append((media.name, name))
    if numbered and announces:
        source, name = numbered[0]
        _log.warning(
            "%d of %d sources have the name of another one, so their outputs get a number: "
            "%s for %s%s",
            *(len(numbered), len(assigned), shown(name), shown(source)),
            ", …" if len(numbered) > 1 else "",
        )
        if resumes:
            _log.warning(
                "--resume: these numbers fit only if no source of such a name was added or removed"
            )
    return assigned


def assign_lazily(
    media: Iterable[Media], names: OutputNames, *, announces: bool
) -> Iterator[tuple[Media, str]]:
    """Yield each source with its name as it arrives; announce each number."""
    for each in media:
        name, has_number = names.name_of(each)
        if has_number and announces:
            _announce(each.name, name)
        yield each, name


def common_folder(found: Iterable[Media]) -> str | None:
    """Return the innermost folder that holds all sources, or the folder that was searched."""
    folders = {
        os.path.abspath(each.root) if each.root is not None else _parent(each.name)  # noqa: PTH100
        for each in found
        if _is_local(each)
    }
    try:
        return os.path.commonpath(folders) if folders else None
    except ValueError:  # on different drives
        return None


def _is_local(media: Media) -> bool:
    is_file = media.kind in (MediaKind.PICTURE, MediaKind.VIDEO, MediaKind.ARCHIVE)
    return is_file and not is_url(media.name) and "\0" not in media.name


def _parent(name: str) -> str:
    return os.path.dirname(os.path.abspath(name))  # noqa: PTH100, PTH120 - keeps undecodable bytes


def _ending_of(media: Media) -> str:
    if media.kind is MediaKind.ARCHIVE:  # its outputs are in a folder
        return ""
    return extension_for(media.name) if media.has_frames else file_names.suffix_of(media.name)
