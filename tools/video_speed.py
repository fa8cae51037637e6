"""Time a video of 3,000 frames from the file to boxes, decoded by the card (NVDEC) and by the CPU.

Also measure several such files at once, the decoder alone and memory, and check whether pixels and
boxes are those of the CPU. The video is repeated to this length without encoding it:

python tools/video_speed.py VIDEO.mp4 --json tools/results/FILE.json
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

_REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_REPOSITORY), str(_REPOSITORY / "tools")]

import av  # noqa: E402
import numpy as np  # noqa: E402
import random_model  # noqa: E402

import engine  # noqa: E402
from engine.backends.frame_picture import FramePicture  # noqa: E402
from engine.sources import video  # noqa: E402

_AT_ONCE = 8
_RUNS = 3
_COMPARED = 200
_CPU_FRAMES = 600
_BOXES = 10  # of a frame, about


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("video")
    parser.add_argument("--frames", type=int, default=3000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--json", type=Path, help="write all rows")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        name = str(work / "long.mp4")
        _repeat(arguments.video, name, arguments.frames)
        cfg = _REPOSITORY / "cfg/yolov4-tiny.cfg"
        rows = []
        for row in _rows(cfg, random_model.save(cfg, work), name, arguments):
            rows.append(row)
            print(row, flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    return 0


def _rows(cfg: Path, weights: Path, name: str, arguments: Any) -> Iterator[dict[str, Any]]:
    def load(decode: str) -> engine.Detector:
        options: Any = {"precision": "float16", "batch": arguments.batch}
        return engine.load(cfg, weights, device="cuda:0", decode=decode, **options)

    with load("gpu") as detector, load("cpu") as on_cpu:
        for each in (detector, on_cpu):
            list(each.stream(name, max_frames=2 * arguments.batch))
            each._program.settle()
        with closing(video.frames(name)) as frames:  # type: ignore[type-var]
            samples = [each.pixels() for each in islice(frames, 0, 400, 50)]
        threshold = random_model.threshold(on_cpu, samples, _BOXES)
        device: Any = detector._device
        about = {"card": device.card.model, "cores": os.cpu_count(), "PyAV": av.__version__}
        yield {"what": "about", **about, "frames": arguments.frames, "batch": arguments.batch}
        yield _compared(detector, on_cpu, name, threshold)

        def to_boxes() -> int:
            return _count(detector.stream(name, threshold=threshold))

        ways: dict[str, Callable[[], int]] = {
            "NVDEC alone, by FFmpeg": lambda: _alone(detector, name),
            "to boxes": to_boxes,
            "NVDEC alone, at once": lambda: _at_once(lambda: _alone(detector, name)),
            "to boxes, at once": lambda: _at_once(
                lambda: _count(detector.stream(name, threshold=threshold))
            ),
            "to boxes, one list": lambda: _count(
                detector.stream([name] * _AT_ONCE, threshold=threshold, at_once=_AT_ONCE)
            ),
        }
        if _has_nvvc():
            ways["NVDEC alone, by PyNvVideoCodec"] = lambda: _by_nvvc(name)
        ways["to boxes, decoded by the CPU"] = lambda: _count(
            on_cpu.stream(name, max_frames=_CPU_FRAMES, threshold=threshold)
        )
        rates: dict[str, list[float]] = {each: [] for each in ways}
        for _ in range(_RUNS):
            for what, way in ways.items():
                start = time.perf_counter()
                count = way()
                rates[what].append(count / (time.perf_counter() - start))
                memory = {"free on the card, MiB": device.free_memory() >> 20, "RSS, MiB": _rss()}
                yield {"what": what, "frames": count, "a second": round(rates[what][-1]), **memory}
        found = {what: round(median(each)) for what, each in rates.items()}
        alone = max(found[each] for each in found if "alone, by" in each)
        yield {
            "what": "medians",
            **found,
            "to boxes / alone": round(found["to boxes"] / alone, 3),
            "at once / one": round(found["to boxes, at once"] / found["to boxes"], 2),
            "one list / one": round(found["to boxes, one list"] / found["to boxes"], 2),
        }


def _repeat(source: str, target: str, frames: int) -> None:
    """Write the packets of a video again and again."""
    with av.open(target, "w") as out:
        stream: Any = None
        offset = count = 0
        while count < frames:
            with av.open(source) as container:
                given = container.streams.video[0]
                stream = stream or out.add_stream_from_template(given)
                end = offset
                for packet in container.demux(given):
                    if packet.dts is None or count == frames:
                        continue
                    assert packet.pts is not None
                    packet.pts += offset
                    packet.dts += offset
                    end = max(end, packet.pts + int(packet.duration or 0))
                    packet.stream = stream
                    out.mux(packet)
                    count += 1
                offset = end


def _alone(detector: engine.Detector, name: str) -> int:
    """Decode only, as the engine does, without the conversion and everything after it."""
    return _count(video.frames(name, card=detector.card_decoder))


def _count(items: Any) -> int:
    return sum(1 for _ in items)


def _at_once(way: Callable[[], int]) -> int:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(way())) for _ in range(_AT_ONCE)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return sum(counts)


def _has_nvvc() -> bool:
    try:
        import PyNvVideoCodec  # noqa: F401
    except ImportError:
        return False
    return True


def _by_nvvc(name: str) -> int:
    import PyNvVideoCodec

    demuxer = PyNvVideoCodec.CreateDemuxer(name)
    decoder = PyNvVideoCodec.CreateDecoder(
        gpuid=0,
        codec=demuxer.GetNvCodecId(),
        cudacontext=0,
        cudastream=0,
        usedevicememory=True,
    )
    return sum(len(decoder.Decode(packet)) for packet in demuxer)


def _compared(
    detector: engine.Detector, on_cpu: engine.Detector, name: str, threshold: float
) -> dict[str, Any]:
    """Compare pixels and boxes of the first frames."""
    worst = there = 0
    with closing(video.frames(name, card=detector.card_decoder)) as frames:  # type: ignore[type-var]
        for each, other in zip(islice(frames, _COMPARED), video.frames(name), strict=False):
            picture = each.picture(name)
            there += isinstance(picture, FramePicture)
            assert (each.number, each.seconds) == (other.number, other.seconds)
            worst = max(worst, int(np.abs(picture.pixels.astype(int) - other.pixels()).max()))
    found = [
        each.stream(name, max_frames=_COMPARED, threshold=threshold) for each in (detector, on_cpu)
    ]
    differing = boxes = 0
    furthest = 0.0
    for left, right in zip(*found, strict=True):
        boxes += len(right)
        if left.boxes.shape != right.boxes.shape or (left.class_ids != right.class_ids).any():
            differing += 1
        elif len(left):
            furthest = max(furthest, float(np.abs(left.scores - right.scores).max()))
    return {
        "what": "compared with the CPU",
        "frames": _COMPARED,
        "on the card": there,
        "largest difference of pixels": worst,
        "boxes": boxes,
        "pictures with other boxes": differing,
        "largest difference of scores": furthest,
    }


def _rss() -> int:
    """Return the MiB that the process has, less free memory that the C library keeps."""
    gc.collect()
    with suppress(OSError, AttributeError):  # other C libraries
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (pages * os.sysconf("SC_PAGE_SIZE")) >> 20


if __name__ == "__main__":
    sys.exit(main())
