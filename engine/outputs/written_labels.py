"""Find the label files that runs wrote, and the pictures that belong to them."""

from __future__ import annotations

import filecmp
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePath

from engine.files.real_paths import real
from engine.outputs.file_names import video_of
from engine.outputs.label_digests import LabelDigests
from engine.outputs.record import FILE, labels_in, owners_in
from engine.sources.media import media_of


class WrittenLabels:
    """Label files and their pictures, according to the records in label folders.

    Pictures that differ only in their extension have numbered names there.
    """

    def __init__(self) -> None:
        self._real = lru_cache(maxsize=4096)(real)
        self._records: dict[str, _Record] = {}
        self._digests = lru_cache(maxsize=256)(lambda folder: LabelDigests(Path(folder)))

    def file_of(self, picture: Path, place: Path) -> Path | None:
        """Return the file that a run wrote for a picture, if a folder above `place` records it."""
        identity = self.identity(picture)
        for folder in place.absolute().parents:
            name = self._record(folder).names.get(identity)
            if name is not None and (file := folder / f"{name}.txt").is_file():
                return file if place.is_absolute() else Path(os.path.relpath(file))
        return None

    def picture_of(self, file: Path) -> str | None:
        """Return the picture that a run has written a label file for."""
        return next((picture for _, picture in self._owners_of(file)), None)

    def is_as_written(self, file: Path) -> bool:
        """Return whether a run has written a label file that has not been changed since."""
        names = file, file.with_name(f"{video_of(file.stem) or file.stem}.txt")
        for name in names:
            for folder, picture in self._owners_of(name):
                if name == file or media_of(picture).has_frames:
                    return not self._digests(str(folder)).is_corrected(_below(folder, file))
        return False

    def record_of(self, file: Path) -> Path | None:
        """Return the record that names the picture of a label file."""
        return next((folder / FILE for folder, _ in self._owners_of(file)), None)

    def file_of_moved(self, picture: Path, folder: Path) -> Path | None:
        """Return the file in `folder` that a run wrote for a picture before it was moved.

        It belongs to a picture of the same name, preferably with the same extension, that has the
        same content or no longer exists. If several fit, the name of the picture's folder must
        agree.
        """
        namesakes = self._namesakes(folder, picture.stem)
        same_ending = {file: own for file, own in namesakes.items() if own.suffix == picture.suffix}
        fitting = same_ending or namesakes
        gone = {file: own for file, own in fitting.items() if not os.path.exists(own)}  # noqa: PTH110
        copied = {file: own for file, own in fitting.items() if _are_equal(picture, own)}
        fitting = copied or gone
        if len(fitting) > 1:
            name = PurePath(self.identity(picture)).parent.name
            fitting = {file: own for file, own in fitting.items() if own.parent.name == name}
        return next(iter(fitting)) if len(fitting) == 1 else None

    def identity(self, picture: Path) -> str:
        """Return a picture's path in the form of the records."""
        return os.path.join(self._real(picture.parent), picture.name)  # noqa: PTH118

    def _owners_of(self, file: Path) -> Iterator[tuple[Path, str]]:
        """Yield folders whose record names the picture of a label file, and that picture."""
        for folder in file.absolute().parents:
            name = _below(folder, file.with_suffix(""))
            if picture := self._record(folder).pictures.get(name):
                yield folder, picture

    def _namesakes(self, folder: Path, stem: str) -> Mapping[Path, PurePath]:
        """Return the label files in a folder for pictures with a stem, and these pictures."""
        found: dict[Path, PurePath] = {}
        absolute = folder.absolute()
        for outer in (absolute, *absolute.parents):
            record = self._record(outer)
            for name in record.by_stem.get((absolute.relative_to(outer), stem), ()):
                file = folder / f"{PurePath(name).name}.txt"
                if file.is_file():
                    found.setdefault(file, PurePath(record.pictures[name]))
        return found

    def _record(self, folder: Path) -> _Record:
        where = self._real(folder)
        if where not in self._records:
            owners_in(where)  # warns about an unreadable record
            self._records[where] = _Record(labels_in(where))
        return self._records[where]


class _Record:
    """The content of one folder's record, by label file and by picture."""

    def __init__(self, pictures: Mapping[str, str]) -> None:
        self.pictures = pictures
        self.names = {picture: name for name, picture in pictures.items()}
        self.by_stem: dict[tuple[PurePath, str], list[str]] = defaultdict(list)
        for name, picture in pictures.items():
            self.by_stem[PurePath(name).parent, PurePath(picture).stem].append(name)


def _below(folder: Path, file: Path) -> str:
    return file.absolute().relative_to(folder).as_posix()


def _are_equal(picture: Path, other: PurePath) -> bool:
    try:
        return filecmp.cmp(picture, other, shallow=False)
    except OSError:
        return False
