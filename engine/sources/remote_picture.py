"""Pictures at http:// and https:// URLs, fetched on demand in bounded time and size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from threading import Event
from typing import TYPE_CHECKING, cast

from engine.files.naming import without_login
from engine.sources import addresses
from engine.version import __version__

if TYPE_CHECKING:
    from http.client import HTTPResponse

    from engine.concurrency.socket_deadline import SocketDeadline

MAX_BYTES = 64 << 20
READ_TIMEOUT = 15.0  # seconds without a byte
TOTAL_TIMEOUT = 60.0  # seconds for the whole picture

# Types of contents: cameras send an endless series of pictures as multipart/x-mixed-replace.
MANY_PICTURES, VIDEO = "multipart/", "video/"

_CHUNK = 1 << 16


@dataclass(eq=False)
class RemotePicture:
    """A file object for engine.vision.image.read(); a failed download is an OSError."""

    address: str = field(repr=False)  # with user and password, if needed
    max_bytes: int = MAX_BYTES
    read_timeout: float = READ_TIMEOUT
    total_timeout: float = TOTAL_TIMEOUT
    uses_proxies: bool = True  # whether to use the environment's proxies
    deadline_of: Callable[..., SocketDeadline] | None = None  # default: SocketDeadline
    stopped: Event | None = None  # ends the download from another thread
    _content: BytesIO | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return without_login(self.address)

    def read(self, size: int = -1) -> bytes:
        """Fetch the picture on the first call; after the end the next call fetches it again."""
        if self._content is None:
            self._content = BytesIO(self._fetch())
        block = self._content.read(size)
        if not block:
            self._content = None
        return block

    def content_type(self) -> str:
        """Request the content type, such as "image/jpeg"; the content is not read."""
        with self._answer() as response:
            return response.headers.get_content_type()

    def _fetch(self) -> bytes:
        content = bytearray()
        with self._answer() as response:
            kind = response.headers.get_content_type()
            if kind.startswith((MANY_PICTURES, VIDEO)):  # which may never end
                raise OSError(f"expected a picture, got a video ({kind})")
            while chunk := response.read1(_CHUNK):
                content += chunk
                if len(content) > self.max_bytes:
                    raise OSError(f"more than {self.max_bytes} bytes")
        length = response.headers.get("Content-Length")
        if length is not None and length.isdecimal() and int(length) > len(content):
            raise OSError(f"ended after {len(content)} of {length} bytes")
        return bytes(content)

    @contextmanager
    def _answer(self) -> Iterator[HTTPResponse]:
        """Send the request; any failure, even of reads in the `with` block, is an OSError."""
        # http.client and ssl are slow to import and rarely needed
        from engine.concurrency.socket_deadline import SocketDeadline

        kind = self.deadline_of or SocketDeadline
        with kind(self.total_timeout, stopped=self.stopped) as deadline:
            try:
                with self._translated_errors(), self._open(deadline) as response:
                    yield response
            except OSError:
                if deadline.has_expired:
                    raise self._too_slow() from None
                raise
        if deadline.has_expired:  # a connection that was shut down may look like a regular end
            raise self._too_slow()

    def _open(self, deadline: SocketDeadline) -> HTTPResponse:
        from urllib import request as urllib_request

        from engine.sources.same_host_redirects import SameHostRedirects

        opener = urllib_request.OpenerDirector()  # without ftp:, file: and data:
        for handler in (
            urllib_request.ProxyHandler(None if self.uses_proxies else {}),
            *deadline.handlers(),
            urllib_request.HTTPDefaultErrorHandler(),
            urllib_request.HTTPErrorProcessor(),
            SameHostRedirects(),
        ):
            opener.add_handler(handler)
        address, login = addresses.request_of(self.address)
        headers = {"User-Agent": f"engine/{__version__}"}
        request = urllib_request.Request(address, headers=headers)
        for header, value in login.items():
            request.add_unredirected_header(header, value)
        response = opener.open(request, timeout=self.read_timeout)
        if response is None:  # no handler knows the scheme of a redirect
            raise OSError("was redirected to an address that is not http: or https:")
        return cast("HTTPResponse", response)

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        from http.client import HTTPException
        from socket import gaierror
        from urllib.error import HTTPError, URLError

        try:
            yield
        except HTTPError as error:
            raise OSError(f"the server answered {error.code} {error.reason}") from None
        except URLError as error:
            if isinstance(error.reason, gaierror):
                raise OSError("host name not found") from None
            if isinstance(error.reason, TimeoutError):  # also from TLS
                raise OSError(f"no answer for {self.read_timeout:g} s") from None
            raise OSError(str(error.reason)) from None
        except TimeoutError:
            raise OSError(f"no data for {self.read_timeout:g} s") from None
        except (HTTPException, ValueError) as error:
            raise OSError(str(error) or type(error).__name__) from None

    def _too_slow(self) -> OSError:
        if self.stopped is not None and self.stopped.is_set():
            return OSError("interrupted")
        return OSError(f"not finished after {self.total_timeout:g} s")
