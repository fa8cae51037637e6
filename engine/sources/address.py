"""Pictures at http:// and https:// addresses: fetched when read, in bounded time and size."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from io import BytesIO

from engine.version import __version__

MOST_BYTES = 64 << 20
SILENCE_SECONDS = 15.0  # without a byte
MOST_SECONDS = 60.0  # for the whole picture

_CHUNK = 1 << 16


@dataclass(eq=False)
class RemotePicture:
    """A file to engine.vision.image.read(); what hinders it is an OSError."""

    name: str
    most_bytes: int = MOST_BYTES
    silence_seconds: float = SILENCE_SECONDS
    most_seconds: float = MOST_SECONDS
    _content: BytesIO | None = field(default=None, init=False)

    def read(self, most: int = -1) -> bytes:
        """Fetched at the first call, and again after the end."""
        if self._content is None:
            self._content = BytesIO(self._fetched())
        block = self._content.read(most)
        if not block:
            self._content = None
        return block

    def _fetched(self) -> bytes:
        # http.client and ssl are slow to import, and most runs need neither
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        request = Request(self.name, headers={"User-Agent": f"engine/{__version__}"})
        deadline = time.monotonic() + self.most_seconds
        content = bytearray()
        try:
            with urlopen(request, timeout=self.silence_seconds) as response:
                if not response.url.lower().startswith(("http://", "https://")):
                    raise OSError(f"was sent on to {response.url}")
                while chunk := response.read1(_CHUNK):
                    content += chunk
                    self._check(len(content), deadline)
        except HTTPError as error:
            raise OSError(f"the server answered {error.code} {error.reason}") from None
        except URLError as error:
            raise OSError(str(error.reason)) from None
        except TimeoutError:
            raise OSError(f"silent for {self.silence_seconds:g} s") from None
        except (HTTPException, ValueError) as error:
            raise OSError(str(error) or type(error).__name__) from None
        length = response.headers.get("Content-Length")
        if length is not None and length.isdecimal() and int(length) > len(content):
            raise OSError(f"ended after {len(content)} of {length} bytes")
        return bytes(content)

    def _check(self, count: int, deadline: float) -> None:
        if count > self.most_bytes:
            raise OSError(f"more than {self.most_bytes} bytes")
        if time.monotonic() > deadline:
            raise OSError(f"not finished after {self.most_seconds:g} s")
