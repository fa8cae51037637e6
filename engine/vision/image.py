"""Read a picture from a path, bytes, file, Pillow image or array."""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, TypeAlias, TypeGuard, cast

import numpy as np

from engine.arrays import Array
from engine.concurrency.cached_property import cached_property
from engine.errors import ImageError
from engine.files.naming import line_of, shown
from engine.files.regular import open_without_waiting, read_at_once
from engine.files.stamp import NO_FILE, Stamp
from engine.vision import damage as damages
from engine.vision import picture_limits
from engine.vision.decode import (
    LENIENT_HINT,
    Admit,
    Decoded,
    check_size,
    decode,
    decode_error,
    load,
)
from engine.vision.orientation import as_stored, upright
from engine.vision.pixels import from_array, from_image, with_channels
from engine.vision.turbo_jpeg import MakePixels, new_pixels

if TYPE_CHECKING:
    from PIL import Image  # slow to import, and not needed for arrays

    from engine.vision.frame import Frame

_log = logging.getLogger("engine")
_BLOCK = 1 << 20
_MAX_PROFILE_BYTES = 4 << 20
_MAX_DPI = 65535  # maximum in a JPEG
_HINTS = {
    "~": " The name begins with ~, which only a shell expands.",
    "#": " A list has no comments: each of its lines is a name, as for darknet.",
}
_STORE_HINT = " Only --ray reads from stores such as s3://."
_FIRST_TRANSPOSED = 5  # EXIF orientations from 5 on swap width and height


class ArrayLike(Protocol):
    def __array__(self) -> Array: ...


if TYPE_CHECKING:
    _File: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO
    Source: TypeAlias = "_File | Image.Image | Array | ArrayLike | Picture"
else:
    Source = object  # naming the types would import Pillow


class Decoder(Protocol):
    """Decodes in place of read_encoded(), for example in another process.

    The picture has `channels`, unless its pixels are floats.
    """

    def __call__(
        self,
        content: bytes,
        name: str,
        *,
        channels: int,
        orient: bool,
        max_pixels: int,
        lenient: bool,
    ) -> Picture: ...


@dataclass(frozen=True, eq=False)
class Picture:
    """Pixels (height, width, channels), uint8 or float32 in 0..1, upright, and their path.

    The pixels may share memory with the array they were read from.
    """

    pixels: Array
    path: str | None = None
    icc_profile: bytes | None = field(default=None, repr=False)  # for the RGB pixels
    dpi: tuple[float, float] | None = None
    damage: str | None = None  # damage of a file that was decoded nevertheless
    orientation: int = 1  # EXIF orientation of the file, whether applied or not
    frame: Frame | None = None  # if the picture is a frame of a video
    stamp: Stamp | None = field(default=None, repr=False)  # the file's stamp when it was read

    @classmethod
    def of(cls, pixels: Array) -> Picture:
        """Return the picture of an array, avoiding the slow __init__ of a frozen dataclass."""
        picture = cls.__new__(cls)
        picture.__dict__["pixels"] = pixels
        return picture

    def of_frame(self, frame: Frame) -> Picture:
        """Set the video frame of a newly created picture, and return it."""
        self.__dict__["frame"] = frame
        return self

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height."""
        height, width = self.pixels.shape[:2]
        return width, height

    @property
    def channels(self) -> int:
        return int(self.pixels.shape[2])

    @property
    def name(self) -> str:
        """Return the name in messages: the path, with the number of a frame."""
        name = "picture" if self.path is None else shown(self.path)
        return name if self.frame is None else f"{name}: video: frame {self.frame.number}"

    def with_channels(self, channels: int) -> Picture:
        pixels = with_channels(self.pixels, channels, self.name)
        return self if pixels is self.pixels else replace(self, pixels=pixels)

    def to_image(self) -> Image.Image:
        """Return an RGB Pillow image for any number of channels."""
        pixels = self.with_channels(3).pixels
        if pixels.dtype != np.uint8:
            pixels = np.rint(pixels * 255).astype(np.uint8)
        from PIL import Image

        image = Image.fromarray(pixels)
        image.info |= {
            name: value
            for name in ("icc_profile", "dpi")
            if (value := getattr(self, name)) is not None
        }
        return image


class EncodedPicture(Picture):
    """A picture whose pixels were decoded elsewhere; they are decoded here only on access."""

    def __init__(
        self,
        size: tuple[int, int],
        path: str | None,
        decode: Callable[[], Picture],
        stamp: Stamp | None = None,
    ):
        self.__dict__.update(_size=size, path=path, _decode=decode, stamp=stamp)

    @cached_property
    def _decoded(self) -> Picture:
        decode: Callable[[], Picture] = self.__dict__["_decode"]
        decoded = decode()
        del self.__dict__["_decode"]  # releases the encoded picture
        return decoded

    @property
    def size(self) -> tuple[int, int]:
        size: tuple[int, int] = self.__dict__["_size"]
        return size

    @property
    def pixels(self) -> Array:
        return self._decoded.pixels

    @property
    def icc_profile(self) -> bytes | None:
        return self._decoded.icc_profile

    @property
    def dpi(self) -> tuple[float, float] | None:
        return self._decoded.dpi

    @property
    def damage(self) -> str | None:
        return self._decoded.damage

    @property
    def orientation(self) -> int:
        return self._decoded.orientation

    def with_channels(self, channels: int) -> Picture:
        return self._decoded.with_channels(channels)


@dataclass(frozen=True, eq=False)
class Encoded:
    """The bytes of a picture, and the path they were read from."""

    content: bytes
    path: str | None = None
    stamp: Stamp | None = None  # as in a Picture


def encoded_of(source: Source) -> Encoded | None:
    """Return the content of a path, bytes or a file, or None for an already decoded source."""
    if source is None or isinstance(source, Picture) or _is_array(source) or is_image(source):
        return None
    at_once = _content_at_once(source)
    if at_once is not None:
        return Encoded(at_once[0], cast("str", source), at_once[1])
    path = path_of(source)
    name = "picture" if path is None else shown(path)
    try:
        content, stamp = _content(source, name)
        return Encoded(content, path, stamp)
    except MemoryError as error:
        raise ImageError(f"{name}: picture: does not fit into memory") from error


def read(
    source: Source | Encoded,
    *,
    channels: int = 3,
    orient: bool = True,
    bgr: bool = False,
    max_pixels: int | None = None,
    lenient: bool = False,
    decoder: Decoder | None = None,
) -> Picture:
    """Read a picture with 1 (grey), 3 (RGB) or 4 (RGBA) channels.

    The source is the path of a file, an encoded picture as bytes, a file opened in binary mode, a
    Pillow image, or an array. An array is (height, width) or (height, width, channels) of uint8,
    uint16, bool or floats in 0..1, in RGB order unless `bgr`. With `orient` the EXIF orientation is
    applied. With `lenient`, a JPEG may be truncated; what is missing is grey. `decoder` decodes
    paths, bytes and files.
    """
    if isinstance(source, Picture):
        return source.with_channels(channels)
    if not bgr and needs_no_conversion(source, channels, max_pixels):
        return Picture(source)
    most = picture_limits.PIXELS if max_pixels is None else max_pixels
    path = source.path if isinstance(source, Encoded) else path_of(source)
    name = "picture" if path is None else shown(path)
    if source is None:
        hint = "Could imread() not read it?"
        raise ImageError(f"{name}: expected a picture, got None. {hint}")
    if bgr and not _is_array(source):
        raise ImageError(f"{name}: bgr: only an array can be in BGR order")
    try:
        stamp = _stamp_without_file(source)
        if _is_array(source):
            picture = Picture(_read_array(source, name, bgr=bgr, max_pixels=most))
        elif is_image(source):
            loaded = Decoded(*load(source, name, max_pixels=most))
            picture = _from_decoded(loaded, name, orient=orient)
        else:
            decode_encoded = decoder or _read_encoded_here
            content, stamp = _content(source, name)
            picture = decode_encoded(
                *(content, name),
                channels=channels,
                orient=orient,
                max_pixels=most,
                lenient=lenient,
            )
        return replace(picture, path=path, stamp=stamp).with_channels(channels)
    except MemoryError as error:
        raise ImageError(f"{name}: picture: does not fit into memory") from error


def are_uniform_arrays(
    sources: Sequence[object], *, channels: int = 3, max_pixels: int | None = None
) -> TypeGuard[Sequence[Array]]:
    """Return whether the sources are arrays of one shape that read() would return unchanged."""
    first = sources[0] if sources else None
    if not needs_no_conversion(first, channels, max_pixels):
        return False
    shape, kind = first.shape, first.dtype
    for each in sources:
        if type(each) is not np.ndarray or each.dtype is not kind or each.shape != shape:
            return False
        if not each.flags.c_contiguous:
            return False
    return True


def needs_no_conversion(source: object, channels: int, max_pixels: int | None) -> TypeGuard[Array]:
    """Return whether a source is a valid array in its final form, the fast path."""
    if type(source) is not np.ndarray or source.dtype.char != "B" or source.ndim != 3:
        return False
    most = picture_limits.PIXELS if max_pixels is None else max_pixels
    height, width, have = source.shape
    is_wanted = have == channels and have in (1, 3, 4) and 0 < width * height <= most
    return is_wanted and source.flags.c_contiguous


def read_encoded(
    content: bytes,
    name: str,
    *,
    orient: bool,
    max_pixels: int,
    lenient: bool,
    hint: str = "",
    admit: Admit | None = None,
    make: MakePixels = new_pixels,
) -> Picture:
    """Decode an encoded picture with its own channels; the result has no path.

    `hint` ends the error for a damaged JPEG. The pixels of intact ones may be in an array from
    `make`.
    """
    decoded = decode(
        *(content, name),
        max_pixels=max_pixels,
        lenient=lenient,
        hint=hint,
        admit=admit,
        make=make,
    )
    found = damages.describe(content, decoded.image if decoded.pixels is None else None)
    if found:
        _log.warning("%s: %s", name, found)
    return replace(_from_decoded(decoded, name, orient=orient), damage=found)


def _read_encoded_here(content: bytes, name: str, *, channels: int, **options: Any) -> Picture:
    return read_encoded(content, name, hint=LENIENT_HINT, **options)


def _from_decoded(decoded: Decoded, name: str, *, orient: bool) -> Picture:
    image, orientation, pixels = decoded
    try:
        pixels = from_image(image, name) if pixels is None else pixels
    except ImageError:
        raise
    except Exception as error:  # Pillow cannot convert the mode
        raise decode_error(name, error) from error
    if image.format == "TIFF":
        pixels = pixels if orient else as_stored(pixels, orientation)
    elif orient:
        pixels = upright(pixels, orientation)
    dpi = _dpi_of(image)
    if dpi and orient and orientation >= _FIRST_TRANSPOSED:
        dpi = dpi[::-1]
    return Picture(pixels, None, _rgb_profile_of(image), dpi, orientation=orientation)


def _read_array(source: object, name: str, *, bgr: bool, max_pixels: int) -> Array:
    array = _as_array(source, name)
    if array.ndim in (2, 3):
        check_size(array.shape[1], array.shape[0], name, max_pixels=max_pixels)
    return from_array(array, name, bgr=bgr)


def _rgb_profile_of(image: Image.Image) -> bytes | None:
    """Return the ICC profile, unless it describes CMYK or grey, which are converted to RGB."""
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes) or len(profile) > _MAX_PROFILE_BYTES:
        return None
    return profile if profile[16:20] == b"RGB " else None


def _dpi_of(image: Image.Image) -> tuple[float, float] | None:
    """Return the resolution if it is one that every format can store."""
    try:
        horizontal, vertical = map(float, image.info["dpi"])
    except (KeyError, TypeError, ValueError, ArithmeticError):
        return None
    is_valid = 1 <= horizontal <= _MAX_DPI and 1 <= vertical <= _MAX_DPI
    return (horizontal, vertical) if is_valid else None


def is_image(source: object) -> TypeGuard[Image.Image]:
    """Detect Pillow images without importing Pillow: none exist before it is imported."""
    return isinstance(source, getattr(sys.modules.get("PIL.Image"), "Image", ()))


def _is_array(source: object) -> bool:
    if isinstance(source, np.ndarray):
        return True
    # numpy.str_ is a path: a str with the attributes of an array
    return hasattr(source, "__array__") and not (is_image(source) or isinstance(source, str))


def _as_array(source: object, name: str) -> Array:
    try:
        return np.asarray(source)
    except Exception as error:  # for example, another library's array on a device
        raise ImageError(
            f"{name}: picture: cannot be converted to an array: {line_of(error)}"
        ) from error


def path_of(source: object) -> str | None:
    """Return the path of a picture for its result."""
    if isinstance(source, np.ndarray):
        return None
    if isinstance(source, str):
        return str.__str__(source) or None  # also for a subclass, such as numpy.str_
    if is_image(source):
        named = getattr(source, "filename", None)
    elif isinstance(source, os.PathLike):
        named = os.fspath(source)
    else:
        named = getattr(source, "name", None)  # a file's path or descriptor
    if isinstance(named, bytes):
        return os.fsdecode(named)
    return named if isinstance(named, str) and named else None


def _stamp_without_file(source: object) -> Stamp | None:
    """Return the stamp of a picture that was not given by a path.

    An object with a name may differ from the file of that name: a Pillow image may be another page
    or have been drawn on, and an open file may be in an archive.
    """
    return None if path_of(source) is None else NO_FILE


def read_again(path: str, stamp: Stamp | None, *, orient: bool, lenient: bool = False) -> Picture:
    """Read the picture of a result again; refuse a file that has changed."""
    if stamp == NO_FILE:
        hint = "Pass the picture"
        raise ImageError(
            f"{shown(path)}: picture: was not kept and was not read from a path. {hint}"
        )
    picture = read(path, orient=orient, lenient=lenient)
    if stamp is not None and picture.stamp != stamp:
        hint = "Pass the picture"
        raise ImageError(f"{picture.name}: has changed since it was read. {hint}")
    return picture


def _content(source: object, name: str) -> tuple[bytes, Stamp | None]:
    if isinstance(source, Encoded):
        return source.content, source.stamp
    if isinstance(source, (str, os.PathLike)):
        return _content_of_file(os.fspath(source), name)
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source), None
    if hasattr(source, "read"):
        return _content_of_stream(source, name), _stamp_without_file(source)
    raise ImageError(
        f"{name}: source: expected a path, bytes, a file, a Pillow image or an array,"
        f" got {type(source).__name__}"
    )


def _content_at_once(source: object) -> tuple[bytes, Stamp] | None:
    """Return the content and stamp of an ordinary file, or None if anything is unusual.

    This is a fast path: reading thousands of files a second spends a third of the time here.
    """
    if not isinstance(source, str):
        return None
    try:
        about = os.stat(source)  # noqa: PTH116
        size = about.st_size
        if not (stat.S_ISREG(about.st_mode) and 0 < size <= picture_limits.BYTES):
            return None
        content = read_at_once(source, size + 1)
    except (OSError, ValueError):
        return None
    return (content, Stamp.of(about)) if len(content) == size else None


def _content_of_file(path: str | bytes, name: str) -> tuple[bytes, Stamp]:
    text = os.fsdecode(path)
    if text.lower().startswith(("http://", "https://", "file://")):
        raise ImageError(f"{name}: picture: expected a path, got an address")
    try:
        about = os.stat(path)  # noqa: PTH116 - a str path stays as the user wrote it
        if not stat.S_ISREG(about.st_mode):
            kind = "a folder" if stat.S_ISDIR(about.st_mode) else "a pipe or device"
            raise ImageError(f"{name}: picture: expected a file, got {kind}")
        _check_bytes(about.st_size, name)
        with open_without_waiting(path) as file:
            content = file.read(about.st_size + 1)
            while len(content) > about.st_size and (more := file.read(_BLOCK)):  # it has grown
                content += more
                _check_bytes(len(content), name)
    except (OSError, ValueError) as error:
        if isinstance(error, ImageError):
            raise
        reason = error.strerror if isinstance(error, OSError) else str(error)
        hint = _STORE_HINT if "://" in text else _HINTS.get(text[:1], "")
        raise ImageError(f"{name}: picture: cannot be read: {reason}.{hint}") from error
    _check_bytes(len(content), name)
    return content, Stamp.of(about)


def _content_of_stream(source: Any, name: str) -> bytes:
    content = bytearray()
    try:
        block = source.read(_BLOCK) or _first_block(source)
        while block:
            if not isinstance(block, (bytes, bytearray)):
                raise ImageError(
                    f"{name}: picture: expected a file in binary mode, got one in text mode."
                    " Open it with 'rb'."
                )
            content += block
            _check_bytes(len(content), name)
            block = source.read(_BLOCK)  # a raw file may return less than requested
    except ImageError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # the file may be a member of an archive or an HTTP response
        raise ImageError(f"{name}: picture: cannot be read: {line_of(error)}") from error
    return bytes(content)


def _first_block(source: Any) -> Any:
    """Return the first block; like Pillow, rewind a file left at its end by a save or read."""
    is_seekable = getattr(source, "seekable", None)
    if is_seekable is None:  # mmap before Python 3.13, SpooledTemporaryFile before 3.11
        try:
            source.seek(0)
        except (AttributeError, OSError):
            return b""
    elif callable(is_seekable) and is_seekable():
        source.seek(0)
    else:
        return b""
    return source.read(_BLOCK)


def _check_bytes(count: int, name: str) -> None:
    if count > picture_limits.BYTES:
        raise ImageError(
            f"{name}: picture: expected at most {picture_limits.BYTES} bytes, got {count}"
        )
