"""--ray of detect and classify: process pictures on a Ray cluster and write results in shards."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from types import ModuleType
from typing import TYPE_CHECKING, Any

from engine import extras
from engine.cli import FAILED, _model
from engine.cli._ray_noise import without_false_alarm
from engine.cli._ray_silence import Silence
from engine.cli._stderr import print_stderr
from engine.errors import InputError
from engine.version import __version__

if TYPE_CHECKING:
    from engine.fleet.listing import Entry
    from engine.fleet.packed_model import PackedModel
    from engine.fleet.rows import Tally

_ADDRESS = re.compile(r"auto|local|[^/\\]+:\d+")
_CLIENT = "ray://"
_MODEL_FILES = (".cfg", ".data", ".weights")
_ONLY_WITH = ("out", "format", "actors", "shard")
_ONLY_WITHOUT = (
    "output",
    "json",
    "json_style",
    "jsonl",
    "csv",
    "save_txt",
    "save_conf",
    "crops",
    "coco_dataset",
    "images_json",
    "csv_all",
    "flat",
    "show_tiles",
    "blur",
    "pixelate",
    "fail_fast",
    "max_frames",
    "reconnect",
    "track",
    "track_low",
    "track_lost",
    "line",
    "zone",
    "anchor",
    "save_mot",
)
_PRECISIONS = ("float32", "tf32", "float16", "int8", "float64")
_MAX_PROBLEMS = 20  # maximum number printed
_PROGRESS_SECONDS = 10.0  # between two lines of progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    fleet = parser.add_argument_group("on a cluster: see docs/cluster.md")
    fleet.add_argument(
        "--ray",
        nargs="?",
        const="local",
        metavar="ADDRESS",
        help="auto or host:port of a Ray cluster; without an address, a local one",
    )
    fleet.add_argument("--out", metavar="DIR", help="where to write results; also s3://… etc.")
    fleet.add_argument("--format", metavar="F", help="parquet or jsonl (parquet)")
    fleet.add_argument(
        "--actors", type=_bounds, metavar="N|MIN:MAX", help="workers (as many as fit)"
    )
    fleet.add_argument("--shard", type=int, metavar="N", help="pictures per file (32 to 1000)")


def is_wanted(arguments: argparse.Namespace) -> bool:
    if arguments.ray is not None:
        return True
    for name in _ONLY_WITH:
        if getattr(arguments, name) is not None:
            raise InputError(f"--{name}: only with --ray")
    return False


def run(arguments: argparse.Namespace, *, task: str = "detector", **options: Any) -> int:
    """Start or resume the run in --out; `options` are arguments of engine.load()."""
    fleet = _fleet()
    _separate_address(arguments)
    for name in _ONLY_WITHOUT:
        if getattr(arguments, name, None):
            raise InputError(f"--{name.replace('_', '-')}: not with --ray")
    if not arguments.out:
        raise InputError("--ray: expected --out DIR for the results")
    least, most = arguments.actors or (1, None)
    resources = fleet.WorkerResources(
        *(arguments.device, 1 if arguments.threads is None else arguments.threads, least, most),
        autoscales=most is not None and arguments.ray != fleet.LOCAL,
    )
    inputs = _model.take_inputs(arguments)
    model = _packed(arguments, task, options)
    about = {
        "engine": __version__,
        "sources": inputs,
        "recursive": arguments.recursive,
        "model": model.digest,
        **({} if task == "detector" else {"task": task}),
        **model.options,
    }
    run = fleet.DetectionRun.open(
        *(arguments.out, _entries(arguments, inputs), about),
        form=arguments.format or "parquet",
        size=arguments.shard,
        overwrite=arguments.overwrite,
    )
    progress = _Progress(run.pictures, task, is_wanted=not arguments.quiet)
    progress.add_problems(run.problems, len(run.problems))
    done = {
        shard: tally for shard, tally in run.finished_shards().items() if not tally.failed_pictures
    }
    for tally in done.values():
        progress.add(tally)
    left = [each for each in range(run.shards) if each not in done]
    if left:
        # Ray reports lost workers on stdout, which must hold nothing but the counts
        with (
            without_false_alarm(),
            redirect_stdout(sys.stderr),
            progress.of_run(arguments.out),
            fleet.ray_session(arguments.ray, model_bytes=model.size),
            Silence(progress.print) as silence,
        ):
            progress.start()
            for result in run.process(left, model, resources, workers=arguments.workers):
                silence.end()
                progress.add(result.tally)
                progress.add_problems(result.problems, result.failed_pictures)
    run.check_complete()
    progress.end_problems(arguments.out)
    if not left:
        progress.print("nothing left to do")
    progress.end(f"{run.shards} files in {arguments.out}")
    return FAILED if progress.total.failed_pictures or run.problems else 0


def _fleet() -> ModuleType:
    try:
        from engine.fleet import detection_run
    except ImportError as error:
        raise InputError(
            f"--ray: {error.name} is not installed. Run: {extras.command('ray')}"
        ) from None
    return detection_run


def _separate_address(arguments: argparse.Namespace) -> None:
    """Move the argument after --ray to the inputs, unless it is an address."""
    word = arguments.ray
    if _ADDRESS.fullmatch(word):
        return
    if word.startswith(_CLIENT):
        hint = "Run this on a machine of the cluster, for instance by: ray job submit"
        raise InputError(f"--ray: expected auto or host:port, got {word!r}. {hint}")
    arguments.ray = "local"
    of_model = [each.lower().endswith(_MODEL_FILES) for each in (word, *arguments.inputs)]
    arguments.inputs.insert(0 if of_model[0] else [*of_model[1:], False].index(False), word)


def _packed(arguments: argparse.Namespace, task: str, chosen: dict[str, Any]) -> PackedModel:
    """Load the model once, so that its errors are reported before the cluster starts."""
    import engine
    from engine.fleet.packed_model import PackedModel
    from engine.fleet.ray_resources import NO_STATE

    _check_workers_options(arguments)
    _model.fill_in(arguments, has_default=task == "detector")
    files = arguments.cfg, arguments.weights
    chosen = dict(chosen)
    is_cpu = arguments.device == "cpu"  # the workers load the model in the same way
    decode = {"decode": chosen.pop("decode")} if "decode" in chosen and not is_cpu else {}
    options: dict[str, Any] = {
        "size": arguments.size,
        "resize": arguments.resize,
        "passes": not arguments.no_passes,
        "orient": not arguments.no_exif,
        **chosen,
    }
    if is_cpu or arguments.precision == "int8" or arguments.scales:
        options |= {"precision": arguments.precision, "scales": arguments.scales}
    with engine.load(
        *files, arguments.names, data=arguments.data, device="cpu", **options
    ) as detector:
        if detector.task != task:
            other = {"detector": "classify", "classifier": "detect"}[task]
            raise InputError(f"{arguments.cfg}: is not a {task}. Try: {other}")
        if detector.has_state:
            raise InputError(f"--ray: {arguments.cfg}: {NO_STATE}")
        _model.check_classes(detector)
        labels = detector.labels
    for name in ("classes", "exclude"):
        if options.get(name):
            options[name] = [each.resolved(labels) for each in options[name]]
    options |= {"precision": arguments.precision, "batch": arguments.batch, **decode}
    return PackedModel.pack(*files, labels, task=task, **options)


def _check_workers_options(arguments: argparse.Namespace) -> None:
    """Refuse options that every worker would refuse, since run.json would keep them."""
    from engine.arguments import whole
    from engine.errors import suggest
    from engine.loading import is_for_gpu
    from engine.settings import LARGEST_WORKERS, Settings

    Settings(batch=arguments.batch)
    whole("workers", arguments.workers, most=LARGEST_WORKERS)
    is_for_gpu(arguments.decode, untrusted=arguments.untrusted)
    if arguments.precision not in _PRECISIONS:
        known, hint = ", ".join(_PRECISIONS), suggest(arguments.precision, _PRECISIONS)
        raise InputError(f"precision: expected {known}, got {arguments.precision!r}.{hint}")
    if arguments.precision == "float64" and arguments.device == "cuda":
        raise InputError("precision: float64: only on a CPU. Add: --device cpu")


def _entries(arguments: argparse.Namespace, names: list[str]) -> Iterator[Entry]:
    from engine.cli import _stdin
    from engine.fleet.listing import list_entries
    from engine.sources.expand import STDIN

    given = _stdin.names() if STDIN in names else ()
    return list_entries(names, recursive=arguments.recursive, stdin=given)


def _bounds(text: str) -> tuple[int, int]:
    """Parse 4 or 1:8."""
    numbers = text.split(":")
    if len(numbers) > 2 or not all(each.isascii() and each.isdecimal() for each in numbers):
        raise argparse.ArgumentTypeError(f"expected N or MIN:MAX, got {text!r}")
    return int(numbers[0]), int(numbers[-1])


class _Progress:
    """Progress lines at intervals, for terminals and log files, and one at the end."""

    def __init__(self, pictures: int, task: str, *, is_wanted: bool) -> None:
        from engine.fleet.rows import Tally

        self.total: Tally = Tally()
        self._pictures = pictures
        self._task = task
        self._problems = self._failures = 0  # printed problems; failures of this run
        self._is_wanted = is_wanted
        self._earlier = 0  # pictures done by earlier runs
        self._start = self._last_line = time.perf_counter()

    @contextmanager
    def of_run(self, where: str) -> Iterator[None]:
        """Count what this run does, and print how far it got if it is interrupted."""
        self._earlier = self.total.pictures
        try:
            yield
        except KeyboardInterrupt:
            done = self.total.pictures - self._earlier
            plural = "s" * (done != 1)
            before = self._before()
            print_stderr(
                f"interrupted: at least {done} picture{plural} done{before}; results are in {where}"
            )
            raise

    def start(self) -> None:
        """Start the clock, once the workers are ready."""
        self._start = self._last_line = time.perf_counter()

    def add(self, tally: Tally) -> None:
        self.total = self.total.plus(tally)
        now = time.perf_counter()
        if self._is_wanted and now - self._last_line > _PROGRESS_SECONDS:
            self._last_line = now
            print_stderr(f"{self.total.pictures} of {self._pictures} pictures{self._rate()}")

    def end(self, where: str) -> None:
        if self._is_wanted:
            pictures, boxes, with_boxes, failed = self.total
            found = f", {boxes} boxes in {with_boxes}" if self._task == "detector" else ""
            counts = f"{pictures} pictures{found}, {failed} failed"
            print(f"{counts}{self._rate()}{self._before()}: {where}")

    def print(self, text: str) -> None:
        if self._is_wanted:
            print_stderr(text)

    def add_problems(self, problems: Sequence[str], failures: int) -> None:
        """Print why pictures failed, up to a limit."""
        self._failures += failures
        for problem in problems[: max(0, _MAX_PROBLEMS - self._problems)]:
            self._problems += 1
            print_stderr(f"Error: {problem}")

    def end_problems(self, where: str) -> None:
        if self._failures > self._problems:
            more = self._failures - self._problems
            print_stderr(f"{more} more pictures failed: see the column error in {where}")

    def _before(self) -> str:
        return f", {self._earlier} done before" if self._earlier else ""

    def _rate(self) -> str:
        new = self.total.pictures - self._earlier
        if not new:  # earlier runs have processed all pictures
            return ""
        return f", {new / (time.perf_counter() - self._start):.1f} per second"
