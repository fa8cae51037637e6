"""Time each stage from files, arrays and videos to boxes, and the complete stream.

The stages of a stream run concurrently, each on its own number of threads or processes. The slowest
stage limits the stream's throughput and determines the advice for a faster one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from engine.backends.frame_picture import FramePicture
from engine.benchmark.stages import TimeBudget, Timing
from engine.benchmark.workload import Workload
from engine.darknet.names import default_names
from engine.inputs import Intake
from engine.picture_runs import Pace, PictureRuns
from engine.settings import Settings
from engine.sources.card_decoder import CardDecoder
from engine.vision import image, turbo_jpeg
from engine.vision.boxes import Kind, Suppression
from engine.vision.image import Picture
from engine.vision.plain_jpeg import plain_jpeg

if TYPE_CHECKING:
    from engine.backends.base import TimedProgram

STAGES = ("read", "decode", "copy", "scale", "forward", "suppress")
_PREPARING = frozenset({"read", "decode", "scale"})  # stages that run on a stream's workers

_MIN_REPEATS = 5
_MOST_FRAMES = 100  # frames of a video decoded to time it
_VIDEO_PASSES = 3
_MIN_BATCHES = 3
_CARD_CHANNELS = 3  # a GPU decodes only pictures with this many channels
_START_SECONDS = 1.0  # a stream's decoding processes need this long to start


@dataclass(frozen=True)
class SourceTimes:
    """The throughput of one kind of source, from pictures to boxes.

    `milliseconds` is the time of each stage for one picture in one thread or process, without
    stages that this kind of source does not have. `at_once` is the number of pictures that a stage
    processes concurrently.
    """

    source: str
    batch: int
    workers: int
    milliseconds: Mapping[str, float]
    at_once: Mapping[str, int]
    pictures_per_second: float  # throughput of the stream
    is_on_card: bool = False  # whether the GPU decodes

    @property
    def bound(self) -> str:
        """The stage with the lowest throughput.

        One worker does all stages of _PREPARING; if they are the bottleneck, this is the longest of
        them.
        """
        alone = (each for each in self.milliseconds if each not in _PREPARING)
        together: dict[str, tuple[str, ...]] = {each: (each,) for each in alone}
        together["workers"] = tuple(each for each in self.milliseconds if each in _PREPARING)

        def taken(name: str) -> float:
            return sum(self.milliseconds[each] / self.at_once[each] for each in together[name])

        return max(together[max(together, key=taken)], key=self.milliseconds.__getitem__)


def measure(
    workload: Workload,
    timings: Sequence[Timing],
    budget: TimeBudget,
    *,
    workers: int,
    processors: int,
    file: Path,
    video: str | None = None,
) -> Iterator[SourceTimes]:
    """Yield the times for arrays, for a file that is read repeatedly, and for a video.

    `timings` is what stages.measure() returned for one batch.
    """
    batch = timings[0].batch
    pixels = image.read(str(file), channels=workload.graph.net.channels).pixels
    program = workload.compile(batch)
    try:
        runs, settings = _runs(workload, program, batch)
        with closing(runs):
            threads = workers + program.runs_ahead
            lanes = dict.fromkeys(STAGES, 1) | dict.fromkeys(
                _PREPARING, max(1, min(threads, processors))
            )

            def times(
                source: str,
                pictures: Iterable[Any],
                before: Mapping[str, float],
                *,
                is_on_card: bool = False,
                **more: int,
            ) -> SourceTimes:
                rate = _stream_rate(runs, settings, pictures, workers, budget)
                common = _common(timings, scales=not program.scales_pictures)
                if is_on_card:
                    del common["copy"]
                    more = {"decode": 1}
                taken, at_once = {**before, **common}, {**lanes, **more}
                return SourceTimes(source, batch, workers, taken, at_once, rate, is_on_card)

            card = None if workload.decoders is None else CardDecoder(workload.decoders[1])

            arrays = [pixels.copy() for _ in range(max(batch, 8))]  # more than a cache holds
            yield times("arrays", cycle(arrays), {})
            files = cycle([str(file)])
            taken, is_on_card = _file_times(file, workload, budget, batch)
            yield times("files", files, taken, is_on_card=is_on_card)
            if video is not None:
                frames = _frames(video, card)
                taken, is_on_card = _video_times(video, card)
                yield times("video", frames, taken, is_on_card=is_on_card, decode=1)
    finally:
        program.close()


def advice(times: SourceTimes, *, processors: int, precision: str, is_gpu: bool) -> str:
    """Return advice on speeding up a stream, given its slowest stage."""
    match times.bound:
        case "read":
            return "put the files on a faster disk, or into a .tar, which is read in one go"
        case "decode" if times.source == "video":
            return "run several videos at once, or a smaller video"
        case "decode" if times.is_on_card:
            return "smaller pictures, since the engine of the GPU decodes all that it can"
        case "decode" if times.at_once["decode"] < processors:
            return f"--workers {processors}, the number of processors, decodes more at once"
        case "decode":
            command = turbo_jpeg.command_that_helps()
            return f"{command or 'more processors'}, or smaller pictures"
        case "copy":
            return "pass rows of an array from Detector.pin(), which needs no copy"
        case "scale" if times.at_once["scale"] < processors:
            return f"--workers {processors}, the number of processors, scales more at once"
        case "scale":
            return "smaller pictures, or a GPU, which scales by itself"
        case "suppress":
            return "a higher threshold, or fewer classes, leaves fewer boxes"
    hints = ["a larger --batch"] if times.batch == 1 and is_gpu else []
    hints += ["--precision float16"] if is_gpu and precision == "float32" else []
    return " or ".join([*hints, "a smaller --size"] if hints else ["a smaller --size or network"])


def write_picture(path: Path, workload: Workload) -> None:
    """Write a JPEG with the benchmark's picture size and about as many bytes as such a photo.

    Noise would take three times as long to decode.
    """
    from PIL import Image

    height, width, _ = workload.pictures(1)[0].shape
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (height // 16 + 2, width // 16 + 2, 3), np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height)), np.int16)
    noisy = smooth + random.integers(-12, 13, smooth.shape, np.int16)
    content = BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(content, "JPEG", quality=90)
    path.write_bytes(content.getvalue())


def _runs(workload: Workload, program: TimedProgram, batch: int) -> tuple[PictureRuns, Settings]:
    graph = workload.graph
    intake = replace(Intake.of(graph), scales=not program.scales_pictures)
    kind, beta = graph.nms
    settings = Settings(batch=batch, threshold=workload.threshold(program) or Settings.threshold)
    runs = PictureRuns(
        *(graph, program, intake, Suppression(settings.nms, cast(Kind, kind), beta), settings),
        labels=default_names(graph.classes),
        is_untrusted=False,
        jpeg_decoder=None if workload.decoders is None else workload.decoders[0],
    )
    return runs, settings


def _common(timings: Sequence[Timing], *, scales: bool) -> dict[str, float]:
    """Return the milliseconds per picture of the stages that all sources share."""
    taken = {each.stage: each.median / each.batch for each in timings}
    found = {"copy": taken["upload"], "forward": taken["forward"]}
    if scales:
        found["scale"] = taken["preprocess"]
    found["suppress"] = taken["download"] + taken["postprocess"]
    return found


def _file_times(
    file: Path, workload: Workload, budget: TimeBudget, batch: int
) -> tuple[dict[str, float], bool]:
    """Return the milliseconds of reading and decoding, and whether the GPU decodes."""
    content = file.read_bytes()
    channels = workload.graph.net.channels
    decoder = None if workload.decoders is None else workload.decoders[0]
    jpeg = plain_jpeg(content) if channels == _CARD_CHANNELS else None
    decode: Callable[[], object] = partial(image.read, content, channels=channels)
    count, is_on_card = 1, False
    if decoder is not None and jpeg is not None and decoder.decode([jpeg])[0] is not None:
        decode, count, is_on_card = partial(decoder.decode, [jpeg] * batch), batch, True
    taken = {"read": _timed(file.read_bytes, budget), "decode": _timed(decode, budget) / count}
    return taken, is_on_card


def _timed(call: Callable[[], object], budget: TimeBudget) -> float:
    """Return the median milliseconds of a call."""
    taken: list[float] = []
    end = time.perf_counter() + budget.seconds / 4
    while len(taken) < _MIN_REPEATS or time.perf_counter() < end:
        start = time.perf_counter()
        call()
        taken.append((time.perf_counter() - start) * 1e3)
    return median(taken)


def _video_times(name: str, card: CardDecoder | None) -> tuple[dict[str, float], bool]:
    """Return the milliseconds of decoding and converting a frame, and whether the GPU does it."""
    milliseconds: list[float] = []
    on_card: list[bool] = []
    _decode(name, card, 1)  # imports the decoder, and opens the GPU's
    for _ in range(_VIDEO_PASSES):
        start = time.perf_counter()
        on_card = _decode(name, card, _MOST_FRAMES)
        milliseconds.append((time.perf_counter() - start) * 1e3 / len(on_card))
    return {"decode": median(milliseconds)}, sum(on_card) > len(on_card) / 2


def check_video(name: str) -> None:
    """Raise ImageError if a video has no frame that can be decoded."""
    _decode(name, None, 1)


def _decode(name: str, card: CardDecoder | None, most: int) -> list[bool]:
    """Decode and convert the first frames of a video; return for each whether the GPU did it."""
    from engine.sources import video

    with closing(cast("Any", video.frames(name, card=card))) as frames:
        return [isinstance(each.picture(name), FramePicture) for each in islice(frames, most)]


def _frames(name: str, card: CardDecoder | None) -> Iterator[Picture]:
    """Yield the frames of a video in an endless loop."""
    from engine.sources import video

    while True:
        for each in video.frames(name, card=card):
            yield each.picture(name)


def _stream_rate(
    runs: PictureRuns,
    settings: Settings,
    pictures: Iterable[Any],
    workers: int,
    budget: TimeBudget,
) -> float:
    """Return the pictures per second of a stream after its warm-up."""
    batch = settings.batch
    stream = runs.stream(
        *(cast("Any", pictures), "yield", settings), bgr=False, keep="never", pace=Pace(workers)
    )
    warm_up = max(budget.warm_up, min(_START_SECONDS, budget.seconds))
    begin = start = now = time.perf_counter()
    first = count = 0
    with closing(stream):
        for count, _ in enumerate(stream, start=1):
            if count % batch:
                continue
            now = time.perf_counter()
            if not first:
                if now - begin >= warm_up:
                    first, start = count, now
            elif count - first >= _MIN_BATCHES * batch and now - start >= budget.seconds:
                break
    return (count - first) / (now - start) if now > start else float("inf")
