"""load(): from a .cfg and a .weights file to a Detector.

A GPU takes as long to wake up as Python takes to import what runs a network, and neither keeps the
other waiting: this file imports next to nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from engine.errors import InputError, within_memory

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from engine.darknet.graph import Graph
    from engine.detector import Detector
    from engine.models.store import Located
    from engine.plan.build import Plan

Size: TypeAlias = "int | tuple[int, int]"  # of both sides, or width and height


@within_memory("load")
def load(
    cfg: str | Path | None = None,
    weights: str | Path | None = None,
    names: str | Path | Sequence[str] | None = None,
    *,
    data: str | Path | None = None,
    device: str = "auto",
    threads: int | None = None,
    precision: str = "float32",
    batch: int = 1,
    size: Size | None = None,
    resize: str = "cfg",
    orient: bool = True,
    threshold: float = 0.25,
    nms: float = 0.45,
    hierarchy: float = 0.5,
    classes: Collection[str | int] | None = None,
    exclude: Collection[str | int] = (),
    max_detections: int | None = None,
    agnostic_nms: bool = False,
    top_k: int = 5,
    passes: bool = True,
) -> Detector:
    """A detector, or a classifier: the network tells.

    cfg        a .cfg file; without `weights` the name of a network of the zoo, like "yolov4-tiny",
               whose weights are downloaded when they are used first; without both the model in
               the box, which finds machine-readable codes
    names      a .names file or the names themselves; `data` is a .data file that says where it is
    device     "auto" (a usable GPU, else the CPU), "cpu", "cuda", "cuda:1"; `threads` for the CPU
    batch      how many pictures run at once at most; a longer list runs in several goes
    size       of the network's input instead of the .cfg's
    resize     "cfg" (what the .cfg asks for), "stretch", "letterbox", "exact" (as "cfg", with the
               fault of darknet's own resize)
    orient     apply the EXIF orientation; boxes refer to the upright picture
    threshold  boxes of a lower score are dropped; `hierarchy` is the same inside a class tree
    nms        boxes of one class that overlap more are suppressed
    classes    the only ones that are looked for, by name or number; `exclude`: all but these
    max_detections  how many of a picture's boxes are kept at most, the best ones
    agnostic_nms    boxes suppress those of other classes, too
    top_k      how many classes a classifier names
    passes     False runs the network op by op as its .cfg says
    """
    from engine.backends import opened_meanwhile, woken
    from engine.settings import Settings

    Settings(threshold, nms, hierarchy, top_k, batch, max_detections)  # before the files are read
    with woken(device):
        if cfg is None or weights is None:
            found = _located(cfg, weights)
            cfg, weights = found.cfg, found.weights
            names = found.names if names is None and data is None else names
        with opened_meanwhile(device, threads) as opening:
            from engine.darknet import cfg as darknet_cfg
            from engine.darknet import graph as darknet_graph
            from engine.darknet import weights as darknet_weights
            from engine.darknet.lower import lower
            from engine.detector import Detector, intake_of
            from engine.passes import optimise

            network = darknet_graph.build(darknet_cfg.read(cfg), size=_sides(size))
            labels = _labels(names, data, network)
            settings = Settings(
                *(threshold, nms, hierarchy, top_k, batch, max_detections),
                classes=_chosen_classes(classes, exclude, labels),
            )
            intake = intake_of(network, resize, orient=orient)

            def read_plan() -> Plan:
                return lower(network, darknet_weights.load(weights, network))

            plan = read_plan()
            expected = opening.passes() if passes else ()
            ready = optimise(plan, expected)
            machine = opening.result()
            wanted = machine.passes if passes else ()
            if wanted != expected:
                ready = optimise(plan, wanted)
            return Detector(
                *(network, ready, read_plan, machine, settings),
                labels=labels,
                intake=intake,
                agnostic_nms=agnostic_nms,
                precision=precision,
                passes=wanted,
            )


def _located(name: str | Path | None, weights: str | Path | None) -> Located:
    from pathlib import Path

    from engine.models.store import locate, locate_default  # only for those without files
    from engine.vision.naming import shown

    if name is None:
        if weights is not None:
            raise InputError(f"{shown(weights)}: expected its .cfg, too, got none")
        return locate_default()
    if Path(name).suffix == ".cfg":
        raise InputError(f"{shown(name)}: expected its weights, too, got none")
    return locate(str(name))


def _sides(size: Size | None) -> tuple[int, int] | None:
    if size is None:
        return None
    sides = (size, size) if isinstance(size, int) else tuple(size)
    if len(sides) != 2 or not all(isinstance(each, int) and each > 0 for each in sides):
        raise InputError(f"size: expected a whole number, or width and height, got {size!r}")
    return sides


def _labels(
    names: str | Path | Sequence[str] | None, data: str | Path | None, network: Graph
) -> tuple[str, ...]:
    from pathlib import Path

    from engine.darknet.names import default_names, find_names, read_names

    classes = network.classes
    if names is None and data is not None:
        names = find_names(data)
    if names is None:
        return default_names(classes)
    if isinstance(names, (str, Path)):
        return read_names(names, classes, may_be_longer=network.task == "classifier")
    if len(names) != classes:
        raise InputError(f"names: expected {classes}, one for each class, got {len(names)}")
    return tuple(names)


def _chosen_classes(
    classes: Collection[str | int] | None, exclude: Collection[str | int], labels: Sequence[str]
) -> tuple[int, ...] | None:
    from engine.vision.classes import numbers_of

    if classes is None and not exclude:
        return None
    every = range(len(labels))
    wanted = set(every if classes is None else numbers_of(classes, labels))
    unwanted = set(numbers_of(exclude, labels))
    for number in sorted((wanted | unwanted) - set(every)):
        raise InputError(f"classes: expected a number below {len(labels)}, got {number}")
    return tuple(sorted(wanted - unwanted))
