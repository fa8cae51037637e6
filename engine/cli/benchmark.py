"""Measure the speed of a network by stages: benchmark NET, a .cfg or a name of the zoo.

Each batch is timed from pictures in memory to boxes, and as a stream of arrays, files and a video,
with the stage that bounds each stream. A GPU scales pictures in its forward stage; a CPU decodes
boxes in its download stage. Speed does not depend on the weights: without any, random ones are
used.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.arguments import parse_integer
from engine.cli import _model, _network, _output_files, _sources
from engine.cli._stderr import print_stderr
from engine.cli._table import align
from engine.errors import ImageError, InputError
from engine.settings import LARGEST_BATCH, LARGEST_WORKERS
from engine.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.backends.base import Device
    from engine.benchmark.layers import LayerTime, Profile
    from engine.benchmark.sources import SourceTimes
    from engine.benchmark.stages import TimeBudget, Timing
    from engine.benchmark.workload import Workload
    from engine.cli._table import Cell

JSON_VERSION = 1
_MOST_WORKERS = 16  # maximum default


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("inputs", nargs="*", metavar="NET", help="a CFG or a name, and WEIGHTS")
    _network.add_arguments(parser)
    running = parser.add_argument_group("running")
    running.add_argument(
        "--device", default="auto", help="auto, cpu, cuda (all GPUs), cuda:0 or cuda:0,1 (auto)"
    )
    running.add_argument("--precision", default="float32", help=_model.PRECISIONS)
    running.add_argument("--scales", metavar="FILE", help=_model.SCALES)
    running.add_argument("--threads", type=int, metavar="N", help="threads of the CPU backend")
    running.add_argument(
        "--batch", type=batches, default=(1,), metavar="N,N", help="batch sizes to measure (1)"
    )
    running.add_argument("--image", metavar="FILE", help="a picture (noise of 768 x 576)")
    running.add_argument("--video", metavar="FILE", help="a video, to be streamed, too")
    _sources.add_decode(running)
    running.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="workers of a stream (one for each processor, up to 16)",
    )
    running.add_argument(
        "--no-passes", action="store_true", help="run the plan as written, without optimisation"
    )
    running.add_argument("--warm-up", type=_seconds, default=0.2, metavar="S", help="warm-up (0.2)")
    running.add_argument(
        "--seconds", type=_seconds, default=3.0, metavar="S", help="time of each measurement (3)"
    )
    tables = parser.add_argument_group("tables")
    tables.add_argument("--layers", action="store_true", help="the time of each op")
    tables.add_argument(
        "--algorithms", action="store_true", help="each convolution with each algorithm of a GPU"
    )
    tables.add_argument(
        "--peers", action="store_true", help="compare with OpenCV DNN, ONNX Runtime and PyTorch"
    )
    tables.add_argument("--json", metavar="FILE", help="all numbers; - is stdout, without tables")
    tables.add_argument("--plot", metavar="FILE", help="a PNG chart of pictures per second")
    tables.add_argument("--overwrite", action="store_true", help="replace existing files")


def run(arguments: argparse.Namespace) -> int:
    from engine.files.atomic import is_stdout

    _network.take_network(arguments)
    if arguments.json and is_stdout(arguments.json):
        arguments.json = "-"
    reserved = _output_files.ReservedPaths(
        [*_model.files(arguments), arguments.image, arguments.video]
    )
    for option in ("json", "plot"):
        path = getattr(arguments, option)
        if path not in (None, "-"):
            _output_files.check_output(f"--{option}", path, reserved, overwrite=arguments.overwrite)
    if arguments.plot:
        _output_files.check_ending("--plot", arguments.plot, ".png")
    return _measure(arguments)


def _measure(arguments: argparse.Namespace) -> int:
    from engine.backends import open_chosen, open_decoders
    from engine.benchmark import algorithms
    from engine.loading import is_for_gpu

    decodes = is_for_gpu(arguments.decode, untrusted=False)
    device = open_chosen(arguments.device, arguments.threads)
    try:
        if arguments.algorithms:
            algorithms.require_autotuning(device)
        graph, plan, is_trained = _network.read_or_make(arguments)
        from engine.benchmark.stages import TimeBudget
        from engine.benchmark.workload import Workload, takes_pictures

        if not takes_pictures(graph):
            _refuse_pictures(arguments)
        if arguments.video:
            from engine.benchmark.sources import check_video

            check_video(arguments.video)
        workload = Workload(
            graph,
            plan,
            device,
            arguments.precision,
            passes=_passes(arguments, device),
            is_trained=is_trained,
            picture=_picture(arguments.image, graph.net.channels),
            ranges=_network.ranges(arguments, graph, plan, is_trained=is_trained),
            decoders=open_decoders(device) if decodes else None,
        )
        if workload.ranges is not None and not workload.ready_plan.scales:
            from engine.passes.quantise import ALL_FLOAT

            print_stderr(f"Warning: {graph.file}: int8: {ALL_FLOAT}")
        budget = TimeBudget(arguments.warm_up, arguments.seconds)
        report = _Report(workload, is_quiet=arguments.json == "-")
        report.stages(arguments.batch, budget)
        if workload.takes_pictures:
            report.sources(arguments, budget)
        if arguments.layers:
            report.layers(arguments.batch)
        if arguments.algorithms:
            report.algorithms(arguments.batch)
        if arguments.peers:
            report.peers(arguments.batch, budget)
    finally:
        device.close()
    report.write(arguments)
    if report.failure is not None:
        raise report.failure
    return 0


def _refuse_pictures(arguments: argparse.Namespace) -> None:
    """Refuse options that do not apply to a network whose input is not a picture."""
    given = [each for each in ("image", "video", "workers") if getattr(arguments, each) is not None]
    if arguments.decode != "auto":
        given.append("decode")
    if given:
        raise InputError(f"--{given[0]}: this network does not process pictures")


def _passes(arguments: argparse.Namespace, device: Device) -> Sequence[str]:
    if arguments.no_passes:
        return ()
    if arguments.precision != "int8":
        return device.passes
    from engine.passes import FUSING

    return FUSING


class _Report:
    """Prints each table once it is measured; collects the numbers for --json and --plot."""

    def __init__(self, workload: Workload, *, is_quiet: bool) -> None:
        self._workload = workload
        self._is_quiet = is_quiet
        net = workload.graph.net
        self.about: dict[str, Any] = {
            "engine": __version__,
            "network": workload.graph.file,
            "input": [net.channels, net.height, net.width],
            "weights": "given" if workload.is_trained else "random",
            "device": workload.device.name,
            "machine": workload.device.describe(),
            "precision": workload.precision,
            "passes": list(workload.passes),
        }
        self.failure: ImageError | None = None  # a video's error; the rest is still measured
        self._tables: dict[str, list[dict[str, Any]]] = {}
        self._timings: dict[int, list[Timing]] = {}
        self._speeds: dict[str, dict[str, float]] = {}
        self._print(
            f"{workload.graph.file}, input {net.shape}, {workload.precision}, "
            f"{workload.device.name}: {self.about['machine']}, engine {__version__}"
        )

    def stages(self, batches: tuple[int, ...], budget: TimeBudget) -> None:
        from engine.benchmark import stages

        headings = ("batch", "stage", "median ms", "p90", "p99", "pictures/s")
        rows: list[tuple[Cell, ...]] = [headings]
        for batch in batches:
            timings = self._timings[batch] = stages.measure(self._workload, batch, budget)
            for each in timings:
                self._add("stages", each, pictures_per_second=_finite(each.rate))
                numbers = (each.median, each.p90, each.p99)
                rows.append((batch, each.stage, *numbers, _rate(each)))
            (forward,) = (each for each in timings if each.stage == "forward")
            self._note_speed("forward", batch, forward.rate)
        self._table(rows)

    def sources(self, arguments: argparse.Namespace, budget: TimeBudget) -> None:
        """Show the bottleneck of arrays, files and a video."""
        from tempfile import TemporaryDirectory

        from engine.backends.cpu.workers import thread_count
        from engine.benchmark import sources

        processors = thread_count()
        workers = arguments.workers or min(processors, _MOST_WORKERS)
        precision = self._workload.precision
        is_gpu = self._workload.device.name.startswith("cuda")
        headings = ("batch", "source", *sources.STAGES, "stream/s", "bound by")
        rows: list[tuple[Cell, ...]] = [headings]
        hints = []
        with TemporaryDirectory() as folder:
            file = Path(arguments.image or Path(folder, "picture.jpg"))
            if not arguments.image:
                sources.write_picture(file, self._workload)
            for batch, timings in self._timings.items():
                measured = sources.measure(
                    *(self._workload, timings, budget),
                    workers=workers,
                    processors=processors,
                    file=file,
                    video=None if self.failure else arguments.video,
                )
                for each in self._until_failure(measured):
                    hint = sources.advice(
                        each, processors=processors, precision=precision, is_gpu=is_gpu
                    )
                    rate = each.pictures_per_second
                    self._add("sources", each, bound=each.bound, advice=hint)
                    self._note_speed(f"{each.source} to boxes", batch, rate)
                    cells = (each.milliseconds.get(stage, "-") for stage in sources.STAGES)
                    rows.append((batch, each.source, *cells, f"{rate:.1f}", each.bound))
                    hints.append(
                        f"batch {batch}, {each.source}: {each.bound} bounds. Faster: {hint}"
                    )
        title = f"streams with {workers} workers, milliseconds of a picture in each stage alone"
        self._table(rows, title=title)
        for hint in hints:
            self._print(hint)

    def _until_failure(self, measured: Iterator[SourceTimes]) -> Iterator[SourceTimes]:
        """Yield what is measured until a video fails, and keep that error for the end."""
        try:
            yield from measured
        except ImageError as error:
            self.failure = error

    def layers(self, batches: tuple[int, ...]) -> None:
        from engine.benchmark import layers

        for batch in batches:
            profile = layers.measure(self._workload, batch)
            headings = ("layer", "section", "op", "output", "ms", "share", "GFLOP/s", "algorithm")
            rows: list[tuple[Cell, ...]] = [headings + _ROOFLINE * (profile.bound is not None)]
            for each in profile.layers:
                more = {"operations_per_second": each.rate, "reached": each.reached}
                self._add("layers", each, batch=batch, **more)
                names = (each.layer, each.section, each.op, each.shape)
                work = f"{each.rate / 1e9:.1f}" if each.operations else "-"
                cells = (*names, each.milliseconds, f"{each.share:.1%}", work)
                rows.append((*cells, each.algorithm or "-", *_bound_cells(each)))
            self._table(rows, title=f"batch {batch}, op by op")
            self._roofline(profile)

    def _roofline(self, profile: Profile) -> None:
        if profile.bound is None or profile.reached is None:
            return
        lost = [{"layer": each.layer, "op": each.op} for each in profile.losses()]
        self._tables.setdefault("rooflines", []).append(
            {
                "batch": profile.batch,
                "forward_milliseconds": profile.forward,
                "bound_milliseconds": profile.bound,
                "reached": profile.reached,
                "lost": lost,
            }
        )
        self._print("")
        self._print(
            f"forward {profile.forward:.3f} ms, at least {profile.bound:.3f} ms: "
            f"{profile.reached:.1%} of the roofline. Largest losses:"
        )
        rows = []
        for each in profile.losses():
            assert each.bound is not None
            lost_us = f"{each.lost * 1e3:.1f} us of {each.milliseconds * 1e3:.1f}"
            names = (f"layer {each.layer} [{each.section}]", each.op, each.shape)
            rows.append((*names, lost_us, each.bound.limit, each.bound.reason))
        for line in align(rows):
            self._print(line)

    def algorithms(self, batches: tuple[int, ...]) -> None:
        from engine.benchmark import algorithms

        for batch in batches:
            headings = ("layers", "convolution", "algorithm", "", "us", "TFLOP/s", "of peak")
            rows: list[tuple[Cell, ...]] = [headings]
            for each in algorithms.measure(self._workload, batch):
                self._add("algorithms", each, batch=batch)
                layers = ", ".join(map(str, each.layers))
                chosen = "chosen" if each.is_chosen else ""
                speed = (each.microseconds, each.rate / 1e12)
                share = "-" if each.share is None else f"{each.share:.1%}"
                rows.append((layers, each.convolution, each.algorithm, chosen, *speed, share))
            self._table(rows, title=f"batch {batch}, each convolution with each algorithm")

    def peers(self, batches: tuple[int, ...], budget: TimeBudget) -> None:
        from engine.benchmark import peers

        headings = ("batch", "program", "median ms", "p90", "p99", "pictures/s", "engine / it")
        rows: list[tuple[Cell, ...]] = [headings]
        messages: list[str] = []
        for batch in batches:
            found = peers.measure(self._workload, batch, budget, tell=messages.append)
            for name, each in found.items():
                title = peers.PEERS.get(name, name)
                ratio = found[peers.ENGINE].median / each.median
                self._add("peers", each, program=name, pictures_per_second=_finite(each.rate))
                self._note_speed(title, batch, each.rate, group=f"batch {batch}, host to host")
                numbers = (each.median, each.p90, each.p99)
                rows.append((batch, title, *numbers, _rate(each), f"{ratio:.2f}"))
        for line in dict.fromkeys(messages):
            print_stderr(line)
        self._table(rows, title="forward, from host memory to host memory, interleaved")

    def write(self, arguments: argparse.Namespace) -> None:
        from engine.benchmark import chart
        from engine.files.atomic import write_new

        options = {"overwrite": arguments.overwrite, "hint": _output_files.HINT}
        document = {"version": JSON_VERSION, **self.about, **self._tables}
        text = json.dumps(document, indent=1, allow_nan=False) + "\n"
        if arguments.json == "-":
            sys.stdout.write(text)
        elif arguments.json:
            write_new(arguments.json, text.encode(), **options)
        if arguments.plot:
            title = f"{self.about['network']}, {self.about['precision']}: pictures per second"
            content = chart.png(title, self.about["machine"], self._speeds)
            write_new(arguments.plot, content, **options)

    def _add(self, table: str, row: Any, **more: object) -> None:
        self._tables.setdefault(table, []).append({**asdict(row), **more})

    def _note_speed(self, bar: str, batch: int, rate: float, *, group: str = "") -> None:
        self._speeds.setdefault(bar, {})[group or f"batch {batch}"] = rate
        forward = self._speeds.get("forward", {})
        if not group and forward[f"batch {batch}"] < rate:  # it is at least as fast
            forward[f"batch {batch}"] = rate

    def _table(self, rows: list[tuple[Cell, ...]], *, title: str = "") -> None:
        self._print("")
        if title:
            self._print(title)
        for line in align(rows):
            self._print(line)

    def _print(self, line: str) -> None:
        if not self._is_quiet:
            print(line, flush=True)


_ROOFLINE = ("least us", "reached", "limit")


def _bound_cells(each: LayerTime) -> tuple[Cell, ...]:
    if each.bound is None or each.reached is None:
        return ()
    return f"{each.bound.milliseconds * 1e3:.2f}", f"{each.reached:.0%}", each.bound.limit


def _rate(timing: Timing) -> Cell:
    rate = _finite(timing.rate)
    return "-" if rate is None else f"{rate:.1f}"


def _finite(rate: float) -> float | None:
    return None if rate == float("inf") else rate


def _picture(path: str | None, channels: int) -> Any:
    from engine.vision import image

    if path is None:
        return None
    return image.read(Path(path), channels=channels).pixels


def batches(text: str) -> tuple[int, ...]:
    """Parse 1 or 1,8,64."""
    numbers = tuple(parse_integer(word) or 0 for word in text.split(","))
    if not all(1 <= number <= LARGEST_BATCH for number in numbers):
        raise argparse.ArgumentTypeError(
            f"expected numbers from 1 to {LARGEST_BATCH}, got {text!r}"
        )
    return numbers


def _workers(text: str) -> int:
    number = parse_integer(text)
    if not number or number > LARGEST_WORKERS:
        expected = f"expected a number from 1 to {LARGEST_WORKERS}"
        raise argparse.ArgumentTypeError(f"{expected}, got {text!r}")
    return number


def _seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < 3600:
        raise argparse.ArgumentTypeError(f"expected seconds, got {text!r}")
    return number
