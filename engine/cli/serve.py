"""Serve a model over HTTP: POST a picture to /detect or /classify, or drop it on the page at /.

By default only programs on this machine can connect (see --host). Nothing is encrypted, and without
--token every client may use the server: put a proxy with HTTPS in front of it first.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from engine import extras
from engine.cli import INTERRUPTED, _model, _network, _sources, _tracking
from engine.cli._output_files import ReservedPaths
from engine.errors import InputError
from engine.files.naming import shown
from engine.files.regular import read_bytes

if TYPE_CHECKING:
    from socket import socket
    from types import ModuleType

    from engine.serve.access import Access, AccessLog
    from engine.serve.darknet_ports import DarknetPorts
    from engine.serve.server_limits import ServerLimits
    from engine.vision.decode_pool import DecodePool

_MIB = 1 << 20
_MAX_TOKEN_BYTES = 4096


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="FILE", help="CFG and WEIGHTS")
    _model.add_options(parser, batch=8)
    found = parser.add_argument_group("results (defaults for requests)")
    found.add_argument(
        "--threshold",
        "--thresh",
        "--conf",
        type=float,
        default=0.25,
        help="minimum score (0.25)",
    )
    found.add_argument(
        "--nms", "--iou", type=float, default=0.45, help="maximum IoU within a class (0.45)"
    )
    found.add_argument(
        "--read", action="store_true", help="read the codes that are found: see docs/codes.md"
    )
    _model.add_tiles(found)
    found.add_argument("--top-k", type=int, default=5, metavar="N", help="best classes (5)")
    server = parser.add_argument_group("server")
    server.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    server.add_argument("--port", type=int, default=8000, help="0 selects a free port (8000)")
    server.add_argument(
        "--wait-ms",
        type=float,
        default=5.0,
        metavar="MS",
        help="how long to wait for more pictures to fill a batch (5)",
    )
    live = parser.add_argument_group("live sources: see docs/cameras.md")
    live.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="NAME",
        help="a camera's number, a stream or a video to run all the time; may be repeated",
    )
    live.add_argument(
        "--decode",
        default="auto",
        metavar="auto|cpu|gpu",
        help="decode sources on the CPU or GPU: see docs/gpu.md (auto: cpu)",
    )
    _tracking.add_settings(live, numbers="[SOURCE:]")
    for kind, what in (("json", "results"), ("mjpeg", "frames")):
        live.add_argument(
            f"--{kind}-port",
            type=int,
            action="append",
            default=[],
            metavar="PORT",
            help=f"send {what} of a source as darknet's -{kind}_port does; one for each --source",
        )
    access = parser.add_argument_group("access")
    access.add_argument(
        "--token", metavar="WORD", help="what clients must send: Authorization: Bearer WORD"
    )
    access.add_argument(
        "--token-file",
        metavar="FILE",
        help="read the token from a file, which hides it from process lists",
    )
    access.add_argument(
        "--cors",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin call the server, such as https://example.org; * is any",
    )
    access.add_argument(
        "--allow-urls",
        action="store_true",
        help="let clients name pictures by URL, at public addresses only",
    )
    access.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name of the server in requests, besides localhost; * is any",
    )
    access.add_argument("--access-log", metavar="FILE", help="a line for each request; - is stderr")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--queue",
        type=_count,
        default=64,
        metavar="N",
        help="maximum pictures in progress; further requests are refused (64)",
    )
    limits.add_argument(
        "--memory",
        type=_mebibytes,
        default=1024,
        metavar="MIB",
        help="maximum memory for pictures in progress (1024)",
    )
    limits.add_argument(
        "--max-body",
        type=_mebibytes,
        default=32,
        metavar="MIB",
        help="maximum size of a request (32)",
    )
    limits.add_argument(
        "--max-pixels",
        type=_count,
        default=50_000_000,
        metavar="N",
        help="maximum pixels of a picture (50 million)",
    )
    limits.add_argument(
        "--max-tiles",
        type=_count,
        default=256,
        metavar="N",
        help="maximum tiles of a picture (256)",
    )
    limits.add_argument(
        "--decode-seconds",
        type=_seconds,
        default=2,
        metavar="S",
        help="maximum processor time to decode a picture (2)",
    )
    limits.add_argument(
        "--body-seconds",
        type=_seconds,
        default=10,
        metavar="S",
        help="maximum time to receive a body (10)",
    )
    limits.add_argument(
        "--drain-seconds",
        type=_seconds,
        default=30,
        metavar="S",
        help="time to answer open requests before the server exits (30)",
    )


def run(arguments: argparse.Namespace) -> int:
    _network.refuse_rest(_network.take_files(arguments, arguments.inputs))
    server = _server()
    from engine.serve.live import LiveOptions

    limits = _limits(arguments)
    is_followed = _tracking.has_any(arguments)
    if is_followed and not arguments.source:
        raise InputError("--track, --line and --zone: only with --source")
    if arguments.decode == "gpu" and not arguments.source:
        raise InputError("--decode gpu: only with --source. Processes decode what clients send")
    plans = _tracking.plans(arguments, len(arguments.source)) if is_followed else ()
    live = LiveOptions(arguments.source, plans)
    _return_large_blocks()
    if not 0 <= arguments.wait_ms <= 10_000:
        raise InputError(f"--wait-ms: expected 0 to 10000, got {arguments.wait_ms:g}")
    access, access_log = _access(arguments)
    with (
        access_log or nullcontext(),
        server.bind(arguments.host, arguments.port) as bound,
        _darknet_ports(arguments, access) as ports,
        closing(_decoders(arguments)) as decoders,  # before any GPU context or thread exists
    ):
        chosen = {name: getattr(arguments, name) for name in ("threshold", "nms", "top_k", "read")}
        chosen |= _model.tiling(arguments) | _sources.decoding(arguments)
        with _model.load(arguments, **chosen) as detector:
            address = server.address_of(bound)

            def print_address() -> None:
                print(f"{address}  {detector.task} on {detector.device}", flush=True)
                for kind in ("json", "mjpeg"):
                    for name, each in zip(live.titles, getattr(ports, kind), strict=False):
                        print(f"{server.address_of(each)}  {kind} of {name}", flush=True)

            http_server = server.Server(
                *(detector, limits, decoders),
                wait_seconds=arguments.wait_ms / 1e3,
                on_ready=print_address,
                access=access,
                access_log=access_log,
                live=live,
                ports=ports,
            )
            if not http_server.serve_on(bound):
                decoders.close()
                _exit_at_once()
    return 0


@contextmanager
def _darknet_ports(arguments: argparse.Namespace, access: Access) -> Iterator[DarknetPorts]:
    """Bind the ports of --json-port and --mjpeg-port."""
    from engine.serve.darknet_ports import DarknetPorts
    from engine.serve.server import bind

    with ExitStack() as stack:
        bound: dict[str, list[socket]] = {}
        for kind in ("json", "mjpeg"):
            option, ports = f"--{kind}-port", getattr(arguments, f"{kind}_port")
            if len(ports) > len(arguments.source):
                got = f"got {len(ports)} for {len(arguments.source)}"
                raise InputError(f"{option}: expected at most one for each --source, {got}")
            bound[kind] = [
                stack.enter_context(bind(arguments.host, port, option=option)) for port in ports
            ]
        ports = DarknetPorts(**bound)
        ports.refuse_token(access)
        yield ports


def _exit_at_once() -> None:
    """End the process without waiting for its threads, which may decode for a long time."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(INTERRUPTED)


def _return_large_blocks() -> None:
    from engine.serve.allocator import return_large_blocks

    return_large_blocks()


def _decoders(arguments: argparse.Namespace) -> DecodePool:
    from engine.backends.cpu.workers import thread_count
    from engine.vision.decode_pool import DecodeLimits, DecodePool, usual_count

    limits = DecodeLimits(seconds=arguments.decode_seconds)
    pool = DecodePool(usual_count(thread_count()), limits)
    pool.start()
    return pool


def _server() -> ModuleType:
    try:
        from engine.serve import server
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        raise InputError(
            f"serve: {package} is not installed. Run: {extras.command('serve')}"
        ) from None
    return server


def _access(arguments: argparse.Namespace) -> tuple[Access, AccessLog | None]:
    from engine.serve.access import Access, AccessLog

    token = arguments.token
    if arguments.token_file:
        if token is not None:
            raise InputError("--token and --token-file: expected one of them, got both")
        token = _read_token(arguments.token_file)
    hosts = tuple(arguments.allow_host)
    access = Access(token, tuple(arguments.cors), arguments.allow_urls, hosts)
    return access, AccessLog(_access_log(arguments)) if arguments.access_log else None


def _access_log(arguments: argparse.Namespace) -> str:
    """Return the access log's path; refuse a file that the server reads."""
    path: str = arguments.access_log
    inputs = [*_model.files(arguments), arguments.token_file, *arguments.source]
    if path != "-" and ReservedPaths(inputs).is_input(path):
        raise InputError(f"--access-log {shown(path)}: would add lines to a file that is read")
    return path


def _read_token(path: str) -> str:
    content = read_bytes(path, InputError, limit=_MAX_TOKEN_BYTES)
    return content.decode("ascii", "replace").strip()


def _limits(arguments: argparse.Namespace) -> ServerLimits:
    from engine.serve.server_limits import ServerLimits

    return ServerLimits(
        queue=arguments.queue,
        body_bytes=int(arguments.max_body * _MIB),
        pixels=arguments.max_pixels,
        tiles=arguments.max_tiles,
        memory_bytes=int(arguments.memory * _MIB),
        body_seconds=arguments.body_seconds,
        drain_seconds=arguments.drain_seconds,
    )


def _mebibytes(text: str) -> float:
    """Parse --memory and --max-body."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= sys.maxsize / _MIB:
        raise argparse.ArgumentTypeError(f"expected a number of MiB, got {text!r}")
    return number


def _count(text: str) -> int:
    """Parse --queue, --max-pixels and --max-tiles."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of 1 or more, got {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    """Parse --decode-seconds, --body-seconds and --drain-seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return number
