"""Pictures at http:// and https:// URLs, fetched on demand in bounded time and size."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from io import BytesIO

from engine.version import __version__

MAX_BYTES = 64 << 20
READ_TIMEOUT = 15.0  # seconds without a byte
TOTAL_TIMEOUT = 60.0  # seconds for the whole picture

_CHUNK = 1 << 16


@dataclass(eq=False)
class RemotePicture:
    """A file object for engine.vision.image.read(); a failed download is an OSError."""

    name: str
    max_bytes: int = MAX_BYTES
    read_timeout: float = READ_TIMEOUT
    total_timeout: float = TOTAL_TIMEOUT
    _content: BytesIO | None = field(default=None, init=False)

    def read(self, size: int = -1) -> bytes:
        """Fetch the picture on the first call; after the end the next call fetches it again."""
        if self._content is None:
            self._content = BytesIO(self._fetch())
        block = self._content.read(size)
        if not block:
            self._content = None
        return block

    def _fetch(self) -> bytes:
        # http.client and ssl are slow to import and rarely needed
        from http.client import HTTPException
        from urllib.error import HTTPError, URLError
        from urllib.request import Request, urlopen

        request = Request(self.name, headers={"User-Agent": f"engine/{__version__}"})
        deadline = time.monotonic() + self.total_timeout
        content = bytearray()
        try:
            with urlopen(request, timeout=self.read_timeout) as response:
                if not response.url.lower().startswith(("http://", "https://")):
                    raise OSError(f"was redirected to {response.url}")
                while chunk := response.read1(_CHUNK):
                    content += chunk
                    self._check(len(content), deadline)
        except HTTPError as error:
            raise OSError(f"the server answered {error.code} {error.reason}") from None
        except URLError as error:
            raise OSError(str(error.reason)) from None
        except TimeoutError:
            raise OSError(f"no data for {self.read_timeout:g} s") from None
        except (HTTPException, ValueError) as error:
            raise OSError(str(error) or type(error).__name__) from None
        length = response.headers.get("Content-Length")
        if length is not None and length.isdecimal() and int(length) > len(content):
            raise OSError(f"ended after {len(content)} of {length} bytes")
        return bytes(content)

    def _check(self, count: int, deadline: float) -> None:
        if count > self.max_bytes:
            raise OSError(f"more than {self.max_bytes} bytes")
        if time.monotonic() > deadline:
            raise OSError(f"not finished after {self.total_timeout:g} s")
