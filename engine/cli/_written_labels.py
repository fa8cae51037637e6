"""Label files that runs have written, for those who use them as ground truth."""

from __future__ import annotations

import filecmp
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import Path, PurePath

from engine.cli._output_files import real
from engine.cli._output_record import labels_in, owners_in


class WrittenLabels:
    """Label files and their pictures, as the records in folders of labels tell.

    Pictures that differ in their ending alone have names with numbers there.
    """

    def __init__(self) -> None:
        self._real = lru_cache(maxsize=4096)(real)
        self._pictures: dict[str, Mapping[str, str]] = {}  # by names, in each folder
        self._names: dict[str, Mapping[str, str]] = {}  # by pictures
        self._namesakes: dict[str, Mapping[str, Sequence[str]]] = {}

    def file_of(self, picture: Path, folders: Iterable[Path]) -> Path | None:
        """Return the file that a run has written for a picture into one of the folders."""
        identity = self.identity(picture)
        for folder in folders:
            name = self._names_in(folder).get(identity)
            if name is not None and (file := folder / f"{name}.txt").is_file():
                return file
        return None

    def picture_of(self, file: Path) -> str | None:
        """Return the picture that a run has written a label file for."""
        for folder in file.parents:
            if picture := self._pictures_in(folder).get(_name_in(folder, file)):
                return picture
        return None

    def likely_file_of(
        self, picture: Path, folders: Iterable[Path], named: Path | None = None
    ) -> Path | None:
        """Return the file for a picture that has moved since, or whose record was copied.

        Then the ends of paths tell: of the first record the one picture with most of them, and
        with a folder in common, unless there is a file that is `named` like the picture.
        """
        for folder in dict.fromkeys(folders):
            names = self._pictures_in(folder)
            if not names:
                continue
            alike = {
                name: self._likeness(picture, name, names[name])
                for name in self._namesakes_in(folder).get(picture.stem, ())
            }
            most = max(alike.values(), default=0)
            best = [folder / f"{name}.txt" for name, parts in alike.items() if parts == most]
            if most >= (1 if named else 2) and len(best) == 1 and best[0].is_file():
                return best[0]
            break
        own = None if named is None else self.picture_of(named)
        return None if own and os.path.exists(own) else named  # noqa: PTH110

    def _likeness(self, picture: Path, name: str, own: str) -> int:
        """Return how many parts at the end of two paths agree; 0 if these are two pictures.

        All folders of the label file's name agree. If the picture that it was written for is still
        there, the other one is a copy of it, in other folders.
        """
        path, other = PurePath(self.identity(picture)), PurePath(own)
        parts = _common_end(path.with_suffix(""), other.with_suffix(""))
        needed = len(PurePath(name).parts)
        if parts < needed:
            return 0
        is_there = os.path.exists(own)  # noqa: PTH110
        if is_there and (path.parent == other.parent or needed < 2):
            return parts if _are_equal(picture, own) else 0
        return parts + (path.suffix == other.suffix)

    def _namesakes_in(self, folder: Path) -> Mapping[str, Sequence[str]]:
        """Return the names of label files by the stems of their pictures."""
        where = self._real(folder)
        if where not in self._namesakes:
            found: dict[str, list[str]] = {}
            for name, own in self._pictures_in(folder).items():
                found.setdefault(PurePath(own).stem, []).append(name)
            self._namesakes[where] = found
        return self._namesakes[where]

    def identity(self, picture: Path) -> str:
        """Return a picture as records name it."""
        return os.path.join(self._real(picture.parent), picture.name)  # noqa: PTH118

    def _names_in(self, folder: Path) -> Mapping[str, str]:
        pictures, where = self._pictures_in(folder), self._real(folder)
        if where not in self._names:
            self._names[where] = {picture: name for name, picture in pictures.items()}
        return self._names[where]

    def _pictures_in(self, folder: Path) -> Mapping[str, str]:
        where = self._real(folder)
        if where not in self._pictures:
            owners_in(where)  # warns of a record that cannot be read
            self._pictures[where] = labels_in(where)
        return self._pictures[where]


def written_labels(files: Iterable[Path]) -> list[Path]:
    """Return the label files that runs have written; they may have been corrected since."""
    written = WrittenLabels()
    return [file for file in files if written.picture_of(file) is not None]


def _are_equal(picture: Path, other: str) -> bool:
    try:
        return filecmp.cmp(picture, other, shallow=False)
    except OSError:
        return False


def _name_in(folder: Path, file: Path) -> str:
    return file.relative_to(folder).with_suffix("").as_posix()


def _common_end(one: PurePath, other: PurePath) -> int:
    """Return how many parts at the end of two paths are equal."""
    pairs = zip(reversed(one.parts), reversed(other.parts), strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
