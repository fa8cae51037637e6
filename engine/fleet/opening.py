"""From a picture's name to what a detector takes: here, on the web, or in an object store."""

from __future__ import annotations

from io import BytesIO

from engine.fleet import storage
from engine.inputs import Wanted
from engine.sources import media
from engine.sources.remote_picture import RemotePicture
from engine.vision import picture_limits


class StoredPicture:
    """A file to engine.vision.image.read(), fetched at the first call; hindrances are OSErrors."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._content: BytesIO | None = None

    def read(self, most: int = -1) -> bytes:
        if self._content is None:
            self._content = BytesIO(self._fetched())
        return self._content.read(most)

    def _fetched(self) -> bytes:
        files, path = storage.locate(self.name)
        with files.open_input_file(path) as file:
            if file.size() > picture_limits.BYTES:
                raise OSError(f"more than {picture_limits.BYTES} bytes")
            content: bytes = file.read()
            return content


def opened(name: str) -> Wanted:
    """Nothing is read yet."""
    if media.is_url(name):
        return RemotePicture(name)  # type: ignore[return-value]
    if storage.is_remote(name):
        return StoredPicture(name)  # type: ignore[return-value]
    return name
