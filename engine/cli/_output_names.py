"""Output names of sources: the folders below the common one, and the stem."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import PurePath, PurePosixPath
from types import MappingProxyType

from engine.cli._frame_names import FrameNames
from engine.cli._sources import NamedMedia
from engine.concurrency.cached_property import cached_property
from engine.files.naming import shown
from engine.files.real_paths import real
from engine.outputs import file_names
from engine.outputs.record import FILE as RECORD
from engine.outputs.record import OutputRecord, Owned, identity
from engine.sources.item import Item
from engine.sources.media import Media, MediaKind, is_url, media_of
from engine.sources.video_writer import extension_for

_log = logging.getLogger("engine")
_NOBODY = ""  # the owner if two folders give a name to different pictures
_ANY_VIDEO = ".*"  # suffix of video keys: v.mp4 and v.mkv would both have frames v_000012
_OF_FRAMES = ("labels", "labels of others", "crops")  # outputs with a file for each frame


class OutputNames:
    """Unique names without an extension for the outputs of sources, such as cam1/day2/img000.

    A name contains the folders of its source below `common`, or the whole path of a source outside
    `common`. With `resumes`, a source keeps the name that it has in the records of the output
    `folders`, and no other source gets that name. If frames have files, no picture gets the name of
    a frame; with `resumes` or `replaces` this includes frames of earlier runs.
    """

    def __init__(
        self,
        common: str | None,
        *,
        is_flat: bool,
        needs_stems: bool,
        folders: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
        resumes: bool = False,
        replaces: bool = False,
    ) -> None:
        """Create the object; with `needs_stems`, x.jpg and x.png differ, as both would write x.txt.

        The names of videos x.mp4 and x.mkv always differ. `folders` maps each output folder to what
        the run writes there: pictures, crops or labels.
        """
        self._common = common
        self._is_flat = is_flat
        self._needs_stems = needs_stems
        self._used: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number appended to a name
        self._folders: dict[str, str] = {}  # output folders by source folders
        self._real = lru_cache(maxsize=None)(real)
        self._records = [OutputRecord(each, self._key_of, holds) for each, holds in folders.items()]
        self._reopened: list[OutputRecord] = []  # records that only this run has reopened
        self._owners: dict[str, str] = {}  # pictures by the keys of names from earlier runs
        self._earlier: dict[str, list[str]] = {}  # names from earlier runs by picture
        self._keeps_any = False  # whether a source keeps an earlier name
        self._owner_met = _NOBODY  # the owner of a name that another picture wanted
        self._frames = FrameNames()
        written = {each for record in self._records for each in record.holds}
        self._frames_have_files = not written.isdisjoint(_OF_FRAMES)
        for record in self._records if resumes or replaces else ():
            for each in record.owners.values():
                if any(map(each.may_have, _OF_FRAMES)):
                    self._frames.add(each.name, is_video=media_of(each.picture).has_frames)
        for record in self._records if resumes else ():
            for key, (name, picture, is_done, *_) in record.owners.items():
                if not picture:
                    continue
                is_shared = self._owners.setdefault(key, picture) != picture
                self._owners[key] = _NOBODY if is_shared else picture
                if is_done:  # otherwise a run was giving the picture a new name
                    self._earlier.setdefault(picture, []).append(name)

    @property
    def has_folders(self) -> bool:
        """Whether any files will use these names."""
        return bool(self._records)

    def name_of(self, media: Media) -> tuple[str, bool]:
        """Return the name for the next source, and whether it got a number."""
        wanted = self._wanted(media)
        if media.kind is MediaKind.BROKEN:
            return wanted, False
        return self._unused(wanted, self._identity(media.name), is_video=media.has_frames)

    def name_of_member(self, wanted: str, item: Item) -> str:
        """Return the name for the next picture of an archive; log it if it gets a number."""
        if not self.has_folders:
            return wanted
        wanted = PurePosixPath(wanted).name if self._is_flat else wanted
        name, has_number = self._unused(wanted, self._identity(item.name))
        if has_number:
            _announce(item.name, name)
        return name

    def folders_left_out(self, item: Item) -> str:
        """Return the folders of a source that its name lacks because names are flat."""
        source = item.name.removesuffix(f"#{item.member}") if item.member else item.name
        return self._folder_of(media_of(source)) if self._is_flat else ""

    def assign(self, found: Sequence[Media]) -> tuple[NamedMedia, ...]:
        """Name the sources that are known in advance; log all numbers in one line."""
        self._reserve_frames(found)
        named = []
        numbered: list[NamedMedia] = []
        for media in found:
            name, has_number = self.name_of(media)
            named.append(NamedMedia(media, name))
            if has_number:
                numbered.append(named[-1])
        if numbered and self.has_folders:
            media, name = numbered[0]
            _log.warning(
                "Outputs of %d of %d sources get a number, because another source has their names: "
                "%s for %s%s",
                *(len(numbered), len(named), shown(name), shown(media.name)),
                ", …" if len(numbered) > 1 else "",
            )
            if self._owner_met and not self._keeps_any:
                what = (
                    "--resume: an earlier run wrote these names for other pictures, such as %s. "
                    "If pictures have moved since, remove %s from the folders of outputs"
                )
                _log.warning(what, shown(self._owner_met), RECORD)
        return tuple(named)

    def assign_lazily(self, media: Iterable[Media]) -> Iterator[NamedMedia]:
        """Yield each source with its name as it arrives; log each number."""
        for each in media:
            name, has_number = self.name_of(each)
            if has_number and self.has_folders:
                _announce(each.name, name)
            yield NamedMedia(each, name)

    def claim(self, name: str, source: str, *, is_written: bool = False) -> None:
        """Record in all folders that a name belongs to a source, unless already recorded."""
        for record in self._records:
            record.claim(Owned(name, self._identity(source)), is_written=is_written)

    def has_files(self, name: str, source: str) -> bool:
        """Return whether labels or an annotated copy with this name exist."""
        owned = Owned(name, self._identity(source))
        return any(record.has_file(owned) for record in self._records)

    def names_before(self, source: str) -> Sequence[str]:
        """Return the names that outputs of a source have had."""
        return self._names_by_picture.get(self._identity(source), ())

    @cached_property
    def _names_by_picture(self) -> Mapping[str, Sequence[str]]:
        names: dict[str, list[str]] = {}
        for record in self._records:
            for each in record.owners.values():
                mine = names.setdefault(each.picture, [])
                if each.name not in mine:
                    mine.append(each.name)
        return names

    def leave_unfinished(self, name: str, video: str) -> None:
        """Record that the annotated video with this name is incomplete."""
        for record in self._records:
            if "pictures" in record.holds:
                record.claim(Owned(name, self._identity(video), is_done=False))

    def reopen(self, found: Sequence[NamedMedia]) -> None:
        """Mark the outputs of these sources, which the run replaces, as not done."""
        named = [Owned(output, self._identity(media.name)) for media, output in found]
        archives = tuple(
            self._identity(media.name) for media, _ in found if media.kind is MediaKind.ARCHIVE
        )
        for record in self._records:
            record.reopen(named, archives)

    def reopen_all(self) -> None:
        """Mark all existing outputs as not done: the run replaces any that it encounters."""
        self._reopened = [each for each in self._records if not each.reopen_all()]

    def close_all(self) -> None:
        """Record that the run is over, unless an earlier run of the kind was stopped."""
        for record in self._reopened:
            record.close_all()

    def is_due(self, name: str, source: str) -> bool:
        """Return whether a run that should have replaced the outputs of a source did not."""
        owned = Owned(name, self._identity(source))
        return any(record.is_due(owned) for record in self._records)

    def shows_more(self, name: str, source: str) -> bool:
        """Return whether an earlier run hid less in the pictures of a source."""
        owned = Owned(name, self._identity(source))
        return any(record.shows_more(owned) for record in self._records)

    def _wanted(self, media: Media) -> str:
        default = "video" if media.has_frames else "picture"
        stem = file_names.stem_of(media.name, default)
        folder = "" if self._is_flat else self._folder_of(media)
        return f"{folder}/{stem}" if folder else stem

    def _reserve_frames(self, found: Iterable[Media]) -> None:
        """Reserve names for pictures that videos might take first: other programs rely on them.

        If an earlier run gave a video such a name, the picture gets a number.
        """
        for media in found:
            if media.has_frames or media.kind is MediaKind.BROKEN:
                continue
            if not self._frames.clash(wanted := self._wanted(media), is_video=False):
                self._frames.add(wanted, is_video=False)

    def _unused(self, wanted: str, picture: str, *, is_video: bool = False) -> tuple[str, bool]:
        earlier = self._earlier.get(picture, [])
        while earlier:  # a source that is named twice has two
            owned = Owned(name := earlier.pop(0), picture)
            if self._take(owned, self._key_of(owned), is_video=is_video):
                self._keeps_any = True
                return name, False
        ending = self._ending_of(picture)
        counted = wanted + ending
        name, number = wanted, self._numbers.get(counted, 1)
        while not self._take(Owned(name, picture), name + ending, is_video=is_video):
            number += 1
            name = f"{wanted}-{number}"
            self._numbers[counted] = number
        return name, name != wanted

    def _take(self, owned: Owned, key: str, *, is_video: bool) -> bool:
        if (owner := self._owners.get(key, owned.picture)) != owned.picture:
            self._owner_met = self._owner_met or owner
            return False
        if key in self._used:
            return False
        if self._frames_have_files and self._frames.clash(owned.name, is_video=is_video):
            return False
        self._used.add(key)
        self._frames.add(owned.name, is_video=is_video)
        return True

    def _key_of(self, owned: Owned) -> str:
        return owned.name + self._ending_of(owned.picture)

    def _ending_of(self, picture: str) -> str:
        if self._needs_stems:
            return ""
        media = media_of(picture)
        return _ANY_VIDEO if media.has_frames else ending_of(media)

    def _identity(self, name: str) -> str:
        """Return a path that does not depend on the current folder or on links to folders."""
        return identity(name, self._real)

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


def _announce(source: str, name: str) -> None:
    what = "%s: another source has the names of its outputs, so they are called %s"
    _log.warning(what, shown(source), shown(name))


def common_folder(found: Iterable[Media]) -> str | None:
    """Return the innermost folder that holds all sources, or the folder that was searched."""
    searched = {each.root for each in found if each.root is not None and _is_local(each)}
    folders = {os.path.abspath(each) for each in searched}  # noqa: PTH100
    folders.update(_parent(each.name) for each in found if each.root is None and _is_local(each))
    try:
        return os.path.commonpath(folders) if folders else None
    except ValueError:  # on different drives
        return None


def _is_local(media: Media) -> bool:
    is_file = media.kind in (MediaKind.PICTURE, MediaKind.VIDEO, MediaKind.ARCHIVE)
    return is_file and not is_url(media.name) and "\0" not in media.name


def _parent(name: str) -> str:
    return os.path.dirname(os.path.abspath(name))  # noqa: PTH100, PTH120 - keeps undecodable bytes


def ending_of(media: Media) -> str:
    """Return the extension of the annotated copy of a source."""
    if media.kind is MediaKind.ARCHIVE:  # its outputs go into a folder
        return ""
    return extension_for(media.name) if media.has_frames else file_names.suffix_of(media.name)
