"""Pictures in .tar files, such as WebDataset's, read without unpacking."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import PurePosixPath
from typing import IO, Any, NamedTuple

from engine.errors import ImageError
from engine.files.naming import shown
from engine.sources.left_out import LeftOut
from engine.vision import picture_limits
from engine.vision.extensions import VIDEO_EXTENSIONS, is_picture

SUFFIX = ".tar"
ERRORS = (tarfile.TarError, OSError)  # raised for a damaged archive
_BYTES_TO_TELL = 1024  # enough to recognise the format of a file
_PICTURES_AT_ONCE = 64  # per Extent, which one worker reads


class NamedBytes(BytesIO):
    """A file in memory whose name appears in error messages."""

    def __init__(self, name: str, content: bytes) -> None:
        super().__init__(content)
        self.name = name


class Extent(NamedTuple):
    """Consecutive pictures of an archive; the header of the first is at `offset`."""

    offset: int
    pictures: int


class Member(NamedTuple):
    """A picture of an archive: its path inside, and its content or an error."""

    path: str
    source: NamedBytes | ImageError


def is_archive(name: str) -> bool:
    return name.lower().endswith(SUFFIX)


def extents(name: str, file: IO[bytes]) -> Iterator[Extent]:
    """Yield the pictures of an archive called `name` in parts; only headers are read.

    A damaged archive raises one of ERRORS after its intact part.
    """
    offset = count = 0
    damage: Exception | None = None
    left_out = LeftOut()
    try:
        for info in _pictures(file, left_out):
            if count == 0:
                offset = info.offset
            count += 1
            if count == _PICTURES_AT_ONCE:
                yield Extent(offset, count)
                count = 0
    except ERRORS as error:
        damage = error
    if count:
        yield Extent(offset, count)
    left_out.warn(name)
    if damage is not None:
        raise damage


def paths(file: IO[bytes]) -> Iterator[str]:
    """Yield the paths of the pictures in an archive; only headers are read."""
    return (info.name for info in _pictures(file, LeftOut()))


def read(name: str, file: IO[bytes], extent: Extent | None = None) -> Iterator[Member]:
    """Yield the pictures of an archive called `name`, or those of one part."""
    left = None if extent is None else extent.pictures
    if extent is not None:
        file.seek(extent.offset)
    left_out = LeftOut()
    with _opened(file) as archive:
        for info in _members(archive, left_out):
            if left == 0:
                return
            left = None if left is None else left - 1
            yield Member(info.name, _source(f"{name}#{info.name}", archive, info))
    if extent is None:  # a part was found by extents(), which warns
        left_out.warn(name)


def output_of(path: str) -> str:
    """Return what the names of a member's output files begin with, inside any folder."""
    parts = [each for each in PurePosixPath(path).parts if each not in ("/", "..")]
    return PurePosixPath(*parts).with_suffix("").as_posix()


def _source(name: str, archive: tarfile.TarFile, info: tarfile.TarInfo) -> NamedBytes | ImageError:
    if info.size > picture_limits.BYTES:
        problem = f"expected at most {picture_limits.BYTES} bytes, got {info.size}"
        return ImageError(f"{shown(name)}: picture: {problem}")
    try:
        file = archive.extractfile(info)
        assert file is not None  # a regular file
        return NamedBytes(name, file.read())
    except ERRORS as error:
        return ImageError(f"{shown(name)}: picture: cannot be read: {error}")


def _pictures(file: IO[bytes], left_out: LeftOut) -> Iterator[tarfile.TarInfo]:
    with _opened(file) as archive:
        yield from _members(archive, left_out)


def _members(archive: Any, left_out: LeftOut) -> Iterator[tarfile.TarInfo]:
    for info in archive:
        archive.members.clear()  # otherwise it grows with the archive
        name = PurePosixPath(info.name).name
        if info.issym() or info.islnk():
            left_out.links += is_picture(name)
        elif not info.isreg():
            continue
        elif is_picture(name):
            yield info
        elif not left_out.add(name):
            left_out.videos += PurePosixPath(name).suffix.lower() in VIDEO_EXTENSIONS
    _check_end(archive, left_out)


def _check_end(archive: Any, left_out: LeftOut) -> None:
    """Raise if damage follows the last member, which `tarfile` takes for the end of the archive."""
    archive.fileobj.seek(archive.offset)
    header = archive.fileobj.read(tarfile.BLOCKSIZE)
    left_out.has_end = bool(header)
    if 0 < len(header) < tarfile.BLOCKSIZE:
        raise tarfile.ReadError("breaks off in the middle of a header")
    if any(header):
        raise tarfile.ReadError("invalid header")
    left_out.has_more = any(archive.fileobj.read(tarfile.RECORDSIZE))


def _opened(file: Any) -> tarfile.TarFile:
    start = file.tell()
    try:
        return tarfile.open(fileobj=file, mode="r:", errorlevel=1)
    except tarfile.ReadError:
        file.seek(start)
        from engine.vision import formats  # imports Pillow

        found, hint = formats.describe(file.read(_BYTES_TO_TELL))
        if not hint:
            raise
        raise tarfile.ReadError(f"expected a .tar file, got {found}.{hint}") from None
