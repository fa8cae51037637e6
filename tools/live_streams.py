"""Measure live streams through one detector, as cameras of a building would send them.

    python -m tools.live_streams --streams 16 --seconds 600 --device cuda --precision float16
    python -m tools.live_streams --streams 4 --seconds 600 --batch 4 --json streams.json

A process of its own sends MJPEG over HTTP: 640 x 480 pixels, 25 frames a second for each stream.
The frames are crops of docs/parcel.jpg that move from frame to frame. In the middle of the time one
stream is killed for --away seconds: its connection breaks and its port refuses others.

For each stream it prints results a second and the longest time without one. The killed stream's
time away is left out and printed separately. `back` is the time from when the port listens again
to the next result. Memory is that of the detector's process, read every 30 seconds.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import count, pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from PIL import Image

import engine

ROOT = Path(__file__).resolve().parent.parent
SIZE, RATE, FRAMES = (640, 480), 25, 50
HEAD = b"HTTP/1.0 200 OK\r\nContent-Type: multipart/x-mixed-replace; boundary=frame\r\n\r\n"


class Camera:
    """An MJPEG server that sends `parts` at a constant rate, and can be killed and revived."""

    def __init__(self, parts: Sequence[bytes]) -> None:
        self._parts = parts
        self._clients: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._start()

    def kill(self) -> None:
        """Break all connections and refuse new ones."""
        for each in (self._listener, *self._clients):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._clients.clear()

    def revive(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._start()

    def _start(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self._clients.append(client)
                threading.Thread(target=self._send, args=(client,), daemon=True).start()

    def _send(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(1 << 16)
            client.sendall(HEAD)
            begin = time.monotonic()
            for number in count():
                time.sleep(max(0.0, begin + number / RATE - time.monotonic()))
                client.sendall(self._parts[number % len(self._parts)])


def moving_crops() -> list[bytes]:
    """Return the parts of an MJPEG stream: crops of a photograph that move back and forth."""
    parts = []
    with Image.open(ROOT / "docs" / "parcel.jpg") as picture:
        for number in range(FRAMES):
            step = abs(number - FRAMES // 2)
            left = step * (picture.width - SIZE[0]) // (FRAMES // 2)
            top = step * (picture.height - SIZE[1]) // (FRAMES // 2)
            buffer = io.BytesIO()
            crop = picture.crop((left, top, left + SIZE[0], top + SIZE[1]))
            crop.save(buffer, "JPEG", quality=85)
            jpeg = buffer.getvalue()
            head = b"--frame\r\nContent-Type: image/jpeg\r\nContent-Length: %d\r\n\r\n" % len(jpeg)
            parts.append(head + jpeg + b"\r\n")
    return parts


def send(streams: int, seconds: float, away: float, pipe: Connection) -> None:
    """Send all streams, and kill the last one for a while in the middle of `seconds`."""
    parts = moving_crops()
    cameras = [Camera(parts) for _ in range(streams)]
    pipe.send([camera.port for camera in cameras])
    pipe.recv()  # the first result of every stream is there
    time.sleep(seconds / 2 - away)
    killed = time.monotonic()
    cameras[-1].kill()
    time.sleep(away)
    cameras[-1].revive()
    pipe.send((killed, time.monotonic()))
    pipe.recv()


def resident() -> float:
    """Return the MiB that this process holds."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of one run."""
    context = get_context("spawn")
    pipe, theirs = context.Pipe()
    sender = context.Process(
        target=send, args=(options.streams, options.seconds, options.away, theirs), daemon=True
    )
    sender.start()
    theirs.close()  # so that reading ends if the sender does
    names = [f"http://127.0.0.1:{port}/{k}.mjpg" for k, port in enumerate(pipe.recv())]
    times: dict[str, list[float]] = {name: [] for name in names}
    memory: list[float] = []
    begin = used = end = 0.0
    with engine.load(
        device=options.device, precision=options.precision, batch=options.batch
    ) as detector:
        results = detector.stream(names, on_error="skip")
        for result in results:
            now = time.monotonic()
            times[str(result.path)].append(now)
            if not begin:
                if all(times.values()):
                    pipe.send("begin")
                    begin, used = now, time.process_time()
                    times = {name: [now] for name in names}
                continue
            if now >= begin + 30 * len(memory):
                memory.append(round(resident(), 1))
            if now >= begin + options.seconds:
                end, used = now, time.process_time() - used
                break
        results.close()
    killed, revived = pipe.recv()
    pipe.send("end")
    sender.join()
    back = min(t for t in times[names[-1]] if t > revived) - revived
    gaps = [longest_gap(own, revived if name == names[-1] else None) for name, own in times.items()]
    away = revived + back - killed
    rates = [
        len(own) / (end - begin - (away if name == names[-1] else 0)) for name, own in times.items()
    ]
    return {
        "streams": options.streams,
        "seconds": round(end - begin, 1),
        "rates": [round(rate, 2) for rate in rates],
        "longest_gaps_s": [round(gap, 3) for gap in gaps],
        "back_s": round(back, 2),
        "cores": round(used / (end - begin), 2),
        "memory_mib": memory,
    }


def longest_gap(moments: Sequence[float], revived: float | None) -> float:
    """Return the longest time without a result, but not the one in which a stream was revived."""
    return max(
        after - before
        for before, after in pairwise(moments)
        if revived is None or not before <= revived <= after
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--away", type=float, default=12.0, help="seconds; below half of --seconds")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(words)
    if options.streams < 1:
        parser.error(f"--streams: expected 1 or more, got {options.streams}")
    if not 0 < options.away < options.seconds / 2:
        bound = f"expected more than 0 and less than half of --seconds {options.seconds:g}"
        parser.error(f"--away: {bound}, got {options.away:g}")
    figures = measure(options)
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
