"""Fetching of pictures that clients name by URL, from public addresses only."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from engine.concurrency.socket_deadline import SocketDeadline
from engine.errors import ImageError
from engine.files.naming import shown
from engine.serve.rejection import no_memory
from engine.sources.remote_picture import RemotePicture

_THREADS = 8
_READ_SECONDS = 5.0
_TOTAL_SECONDS = 10.0
# IPv6 networks whose addresses contain an IPv4 address, and where it begins.
_TRANSLATED = ((ipaddress.ip_network("64:ff9b::/96"), 12), (ipaddress.ip_network("2002::/16"), 2))


class PictureFetcher:
    """Threads that fetch pictures for clients.

    A name is resolved once per connection, including redirects, and the connection is made to the
    checked address, so that DNS rebinding is useless. The environment's proxies are not used,
    because they would resolve names themselves.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="serve-fetch")

    async def fetch(self, url: str, reserve: Callable[[int], bool]) -> bytes:
        """Return the content at `url`; raise ImageError if it cannot be fetched."""
        loop = asyncio.get_running_loop()
        fetch = partial(self._fetch, url, reserve)
        try:  # the fetch's deadline does not cover name resolution
            return await asyncio.wait_for(
                loop.run_in_executor(self._threads, fetch), _TOTAL_SECONDS + _READ_SECONDS
            )
        except asyncio.TimeoutError:
            raise ImageError(f"{shown(url)}: not finished after {_TOTAL_SECONDS:g} s") from None

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _fetch(self, url: str, reserve: Callable[[int], bool]) -> bytes:
        if not url.lower().startswith(("http://", "https://")):
            raise ImageError(f"{shown(url)}: expected an address with http:// or https://")
        picture = RemotePicture(
            *(url, self._max_bytes, _READ_SECONDS, _TOTAL_SECONDS),
            uses_proxies=False,
            deadline_of=PublicOnlyDeadline,
        )
        try:
            content = picture.read()
        except (OSError, UnicodeError) as error:
            raise ImageError(f"{shown(url)}: {error}") from None
        if not reserve(len(content)):
            raise no_memory("a picture")
        return content


class PublicOnlyDeadline(SocketDeadline):
    """Connects to public addresses only."""

    def connect(self, address: tuple[str, int], *args: Any, **kwargs: Any) -> socket.socket:
        host, port = address
        return super().connect((public_address(host, port), port), *args, **kwargs)


def public_address(host: str, port: int) -> str:
    """Resolve `host` and return its first address, if all of them are public."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not addresses or not all(map(is_public, addresses)):
        raise OSError(f"{shown(host)}: expected a public address, got one of a private network")
    return addresses[0]


def is_public(text: str) -> bool:
    """Return whether an address belongs to the public internet."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:  # an address with a scope, such as fe80::1%eth0
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return is_public(str(address.ipv4_mapped))
        if address.teredo is not None:
            return False
        for network, start in _TRANSLATED:
            if address in network:
                return is_public(str(ipaddress.IPv4Address(address.packed[start : start + 4])))
    return address.is_global and not (
        address.is_multicast or address.is_private or address.is_reserved
    )
