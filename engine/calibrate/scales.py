"""Calibrate a network: from its files and pictures to what a .scales file holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import nan
from pathlib import Path

from engine import __version__
from engine.arrays import Array
from engine.backends.base import Device
from engine.backends.host_processing import scaled
from engine.calibrate.choose import Chosen, Measurement, Report, choose
from engine.calibrate.collect import can_measure, count_magnitudes
from engine.calibrate.histogram import Histogram
from engine.darknet.graph import Graph
from engine.errors import ImageError, InputError
from engine.files.naming import shown
from engine.inputs import Intake
from engine.plan.build import Plan
from engine.scales import LayerScale, Scales
from engine.sources.pictures import name_of, pictures_of
from engine.vision.image import Source

_log = logging.getLogger("engine")


@dataclass(frozen=True)
class Calibration:
    """The options of calibrate()."""

    pictures: int = 300  # maximum number of pictures
    measured: int = 8  # how many of these are used to measure errors
    target: float = 0.1  # the error that the network may have
    recursive: bool = False  # whether pictures in subfolders are used, too


def calibrate(
    graph: Graph,
    plan: Plan,
    weights: str | Path,
    digests: tuple[str, str],
    sources: Sequence[str],
    device: Device,
    options: Calibration,
    *,
    warn: Report,
    report: Report = lambda text: None,
) -> tuple[Scales, Chosen]:
    """Return the scales of a network.

    `plan` must be unfused. `digests` belong to the .cfg and `weights` as they were read: the files
    may have changed since. `warn` receives the errors of pictures that cannot be read, `report` the
    progress.
    """
    if not can_measure(device):
        raise InputError(f"{device.name}: expected the CPU or one GPU. Try: --device cpu")
    if graph.task == "other":
        raise InputError(f"{graph.file}: finds neither boxes nor classes in pictures")
    kept: list[Array] = []
    names: list[str] = []

    def rows() -> Iterator[Array]:
        found = pictures_of(sources, recursive=options.recursive)
        for name, row in islice(_rows(graph, found, warn), options.pictures):
            report(f"picture {len(names) + 1}: running in float32")
            names.append(name)
            if len(kept) < options.measured:
                kept.append(row)
            yield row

    histograms = count_magnitudes(plan, device, rows())
    if not names:
        raise InputError("no picture could be read: expected some, best a few hundred")
    measurement = Measurement(plan, device, kept)
    if not measurement.has_finite_outputs:
        raise InputError(
            f"{shown(weights)}: the network's outputs are not finite in float32, so the error of "
            "int8 cannot be measured. Check the weights with: compare"
        )
    _warn_of_infinite_values(histograms, names)
    chosen = choose(measurement, histograms, options.target, report)
    about = {
        "engine": __version__,
        "pictures": str(len(names)),
        "limits": chosen.method,
        "error": f"{chosen.error:.4f}",
    }
    layers = tuple(_layer(node.kind, number, chosen) for number, node in enumerate(graph.nodes))
    return Scales(*digests, layers, about), chosen


def _layer(kind: str, number: int, chosen: Chosen) -> LayerScale:
    ranges = chosen.ranges
    way = "-"
    if number in chosen.errors:
        way = "float" if number in ranges.floats else "int8"
    return LayerScale(kind, ranges.largest[number], way, chosen.errors.get(number, nan))


def _warn_of_infinite_values(histograms: Sequence[Histogram], names: Sequence[str]) -> None:
    found = [each.infinite_at for each in histograms if each.infinite_at is not None]
    if found:
        what = "%s: %d layers have values that are not finite, so int8 leaves them float"
        _log.warning(what, shown(names[min(found)]), len(found))


def _rows(
    graph: Graph, sources: Iterable[Source | ImageError], warn: Callable[[str], None]
) -> Iterator[tuple[str, Array]]:
    """Yield the name of each picture and the network's input."""
    intake = Intake.of(graph)
    for source in sources:
        batch = intake.prepare([source])
        (picture,) = batch.pictures
        if isinstance(picture, ImageError):
            warn(str(picture))
        else:
            yield name_of(source) or "picture", scaled(batch.placed)
