"""Pictures that are fetched only when they are read: from disks, the web and object stores."""

from __future__ import annotations

from io import BytesIO

from engine.fleet import storage
from engine.inputs import Wanted
from engine.sources import media
from engine.sources.remote_picture import RemotePicture
from engine.vision import picture_limits


class ObjectStorePicture:
    """A file-like object for engine.vision.image.read(), fetched at the first read.

    Failures are raised as OSError.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._content: BytesIO | None = None

    def read(self, size: int = -1) -> bytes:
        if self._content is None:
            self._content = BytesIO(self._fetch())
        return self._content.read(size)

    def _fetch(self) -> bytes:
        files, path = storage.locate(self.name)
        with files.open_input_file(path) as file:
            if file.size() > picture_limits.BYTES:
                raise OSError(f"more than {picture_limits.BYTES} bytes")
            content: bytes = file.read()
            return content


def open_lazily(name: str) -> Wanted:
    """Return a source for a detector without reading from it."""
    if media.is_url(name):
        return RemotePicture(name)  # type: ignore[return-value]
    if storage.is_remote(name):
        return ObjectStorePicture(name)  # type: ignore[return-value]
    return name
