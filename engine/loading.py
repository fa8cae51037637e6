"""load(): from a .cfg and a .weights file to a Detector.

A GPU initialises on a thread while Python imports the modules that run a network. Therefore this
file imports almost nothing at module level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from reprlib import repr as brief
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias

from engine.arguments import check_kind, is_whole, naming_unknown, whole
from engine.concurrency import fork_safety  # noqa: F401  # before any thread imports the rest
from engine.errors import InputError, suggest, within_memory

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from engine.darknet.graph import Graph
    from engine.detector import Detector
    from engine.models.store import ModelFiles
    from engine.plan.build import Plan
    from engine.settings import Tiles
    from engine.vision.decode_pool import DecodePool

DECODE = ("auto", "cpu", "gpu")

Size: TypeAlias = "int | tuple[int, int]"  # one number for both sides, or (width, height)


@naming_unknown
@within_memory("load")
def load(
    cfg: str | Path | None = None,
    weights: str | Path | None = None,
    names: str | Path | Sequence[str] | Mapping[int, str] | None = None,
    *,
    data: str | Path | None = None,
    device: str | int = "auto",
    threads: int | None = None,
    precision: str = "float32",
    scales: str | Path | None = None,
    batch: int = 1,
    size: Size | None = None,
    resize: str = "cfg",
    orient: bool = True,
    max_pixels: int | None = None,
    lenient: bool = False,
    decode: str = "auto",
    untrusted: bool = False,
    threshold: float = 0.25,
    nms: float = 0.45,
    hierarchy: float = 0.5,
    classes: Collection[str | int] | None = None,
    exclude: Collection[str | int] | None = None,
    max_detections: int | None = None,
    agnostic_nms: bool = False,
    top_k: int = 5,
    read: bool = False,
    tiles: Tiles | None = None,
    overlap: float = 0.2,
    passes: bool = True,
    conf: float | None = None,
    iou: float | None = None,
    imgsz: Size | None = None,
    half: bool = False,
) -> Detector:
    """Load a network and return it as a Detector.

    cfg        a .cfg file; without `weights` the name of a network of the zoo, like "yolov4-tiny",
               whose weights are downloaded on first use; without both the bundled model, which
               finds machine-readable codes
    names      a .names file, a list of names, or a dict of names by number; `data` is a .data file
               that says where the .names file is; without both, the .names file next to the .cfg
               with the same name, or else "class 0" and so on
    device     "auto" (a usable GPU, else the CPU), "cpu", "cuda", "cuda:1" or 1; `threads` for the
               CPU
    precision  "float32", "float64" (CPU), "tf32", "float16" (GPU), or "int8", which needs the file
               that `engine calibrate` makes: `scales`, by default next to the weights
    batch      the maximum number of pictures in one run; a longer list takes several runs
    size       the size of the network's input, in place of the .cfg's
    resize     "cfg" (what the .cfg asks for), "stretch", "letterbox", "exact" (as "cfg", with the
               rounding error of darknet's own resize)
    orient     apply the EXIF orientation; boxes refer to the upright picture
    max_pixels the maximum number of pixels of a picture (89,478,485, which is 256 MiB of RGB);
               larger pictures are refused before they are decoded
    lenient    read truncated JPEGs, which are otherwise an error; the missing part is grey
    decode     "gpu" decodes JPEGs and videos with the engines of the GPU: see docs/gpu.md; "cpu"
               and, for now, "auto" decode them on the CPU, bit-identical as always
    untrusted  decode pictures in processes with limits on processor time and memory; videos are
               refused: see docs/security.md
    threshold  the lowest score of a box to return; `hierarchy` is the same inside a class tree
    nms        the overlap above which boxes of one class are suppressed
    classes    the classes to return, by name or number; `exclude`: all classes but these
    max_detections  the maximum number of boxes of one picture, best scores first
    agnostic_nms    suppress overlapping boxes of different classes, too
    top_k      the number of classes that a classifier returns
    read       read the codes that are found, by zxing-cpp: a Detection has their `text`, `format`
               and `corners`; codes that are read without being detected are added
    tiles      cut large pictures into tiles, so that small objects are seen: "auto" where anything
               would be scaled down by more than 2, a number for the sides of the tiles in pixels,
               or (columns, rows); tiles of several pictures fill the runs of a `batch`
    overlap of neighbouring tiles, relative to their sides
    passes     False runs the network op by op, exactly as in its .cfg

    `conf`, `iou`, `imgsz` (a number, or height and width) and `half` are ultralytics' names for
    threshold, nms, size and precision="float16".

    Examples:
        >>> detector = engine.load()  # or "yolov4-tiny"; or "my.cfg", "my.weights", "my.names"
        >>> print(detector("docs/parcel.jpg"))
        docs/parcel.jpg, 720 x 720: 2 barcode, 2 datamatrix, 1 qr, 1 aztec, 1 pdf417
    """
    from engine.backends import device_name, open_decoders, open_in_background, warm_up
    from engine.settings import Settings

    for name, path in (("cfg", cfg), ("weights", weights), ("data", data), ("scales", scales)):
        check_kind(name, path, (str, PathLike, NoneType), "a file's name")
    device = device_name(device)
    if is_for_gpu(decode, untrusted=untrusted) and device == "auto":
        device = "cuda:0"  # its errors say what is missing
    threshold = _alias("threshold", threshold, 0.25, "conf", conf)
    nms = _alias("nms", nms, 0.45, "iou", iou)
    sides = _sides(_alias("size", size, None, "imgsz", imgsz))
    if imgsz is not None and sides is not None:
        sides = sides[::-1]  # ultralytics names the height first
    precision = _alias("precision", precision, "float32", "half", "float16" if half else None)
    check_kind("precision", precision, str, "a name such as 'float32'")
    if scales is not None and precision != "int8":
        raise InputError(f"scales: only for precision int8, got {brief(precision)}")
    if max_pixels is not None:
        max_pixels = whole("max_pixels", max_pixels)
    settings = Settings(  # checked before files are read
        *(threshold, nms, hierarchy, top_k, batch, max_detections),
        read=read,
        tiles=tiles,
        overlap=overlap,
    )
    with _decoders(threads, untrusted=untrusted) as decoders, warm_up(device):
        if cfg is None or weights is None:
            found = _located(cfg, weights)
            cfg, weights = found.cfg, found.weights
            names = found.names if names is None and data is None else names
        with open_in_background(device, threads) as opening:
            from engine.darknet import cfg as darknet_cfg
            from engine.darknet import graph as darknet_graph
            from engine.darknet import weights as darknet_weights
            from engine.darknet.lower import lower
            from engine.detector import Detector
            from engine.inputs import Intake
            from engine.passes import optimise
            from engine.vision.classes import chosen_classes

            network = darknet_graph.build(darknet_cfg.read(cfg), size=sides)
            labels = labels_of(names, data, network, cfg)
            settings = replace(settings, classes=chosen_classes(classes, exclude, labels))
            ranges = None
            if precision == "int8":
                from engine import scales as scales_file

                kinds = [node.kind for node in network.nodes]
                found_scales = scales_file.load(scales, cfg, weights, kinds)
                ranges = found_scales.ranges
            intake = Intake.of(
                *(network, resize),
                orient=orient,
                max_pixels=max_pixels,
                lenient=lenient,
                decoder=decoders.read if decoders else None,
            )

            weights_file = darknet_weights.WeightsFile(weights)

            def read_plan() -> Plan:
                return lower(network, weights_file.load(network))

            plan = read_plan()
            expected = _passes(opening.passes, passes, precision)
            ready = optimise(plan, expected)
            machine = opening.result()
            wanted = _passes(lambda: machine.passes, passes, precision)
            if wanted != expected:
                ready = optimise(plan, wanted)
            jpeg_decoder, videos = open_decoders(machine) if decode == "gpu" else (None, None)
            return Detector(
                *(network, ready, read_plan, machine, settings),
                labels=labels,
                intake=intake,
                agnostic_nms=agnostic_nms,
                precision=precision,
                passes=wanted,
                ranges=ranges,
                decoders=decoders,
                jpeg_decoder=jpeg_decoder,
                videos=videos,
            )


def _passes(of_device: Callable[[], Sequence[str]], passes: bool, precision: str) -> Sequence[str]:
    """Return the passes to run; all devices quantise the same plan."""
    if not passes:
        return ()
    if precision != "int8":
        return of_device()
    from engine.passes import FUSING

    return FUSING


def is_for_gpu(decode: object, *, untrusted: bool) -> bool:
    """Validate `decode` and return whether a GPU is to decode pictures."""
    if decode not in DECODE:
        hint = suggest(decode, DECODE) if isinstance(decode, str) else ""
        raise InputError(f"decode: expected {', '.join(DECODE)}, got {brief(decode)}.{hint}")
    if decode == "gpu" and untrusted:
        raise InputError("decode: gpu: not with untrusted, which decodes in processes")
    return decode == "gpu"


@contextmanager
def _decoders(threads: int | None, *, untrusted: bool) -> Iterator[DecodePool | None]:
    """Yield processes for untrusted pictures; end them if loading fails."""
    if not untrusted:
        yield None
        return
    from engine.backends.cpu.workers import thread_count
    from engine.vision.decode_pool import DecodePool, usual_count

    pool = DecodePool(usual_count(threads or thread_count()))
    try:
        yield pool
    except BaseException:
        pool.close()
        raise


def _located(name: str | Path | None, weights: str | Path | None) -> ModelFiles:
    from pathlib import Path

    from engine.files.naming import shown
    from engine.models.store import locate, locate_default  # needed only without files

    if name is None:
        if weights is not None:
            raise InputError(f"{shown(weights)}: expected its .cfg, too, got none")
        return locate_default()
    if Path(name).suffix.lower() == ".weights":
        raise InputError(f"{shown(name)}: expected a .cfg and then its .weights, got no .cfg")
    if Path(name).suffix == ".cfg":
        raise InputError(f"{shown(name)}: expected its weights, too, got none")
    return locate(str(name))


def _alias(name: str, value: Any, default: Any, alias: str, given: Any) -> Any:
    """Return the value of an argument that may be given under either of two names."""
    if given is None:
        return value
    if value != default:
        raise InputError(f"{name} and {alias}: expected one of them, got both")
    return given


def _sides(size: Size | None) -> tuple[int, int] | None:
    if size is None:
        return None
    is_pair = isinstance(size, Iterable) and not isinstance(size, Set)  # a set has no order
    sides: tuple[Any, ...] = tuple(size) if is_pair else (size, size)  # type: ignore[arg-type]
    if len(sides) != 2 or not all(map(is_whole, sides)):
        raise InputError(f"size: expected a whole number, or width and height, got {brief(size)}")
    return int(sides[0]), int(sides[1])


def labels_of(
    names: str | Path | Sequence[str] | Mapping[int, str] | None,
    data: str | Path | None,
    network: Graph,
    cfg: str | Path,
) -> tuple[str, ...]:
    """Return the names of the network's classes, as load() documents them."""
    import numpy as np

    from engine.darknet.names import default_names, find_names, names_of, read_names

    classes = network.classes
    if names is None and data is not None:
        names = find_names(data)
    if names is None:
        names = names_of(cfg)
    if names is None:
        return default_names(classes)
    if isinstance(names, (str, PathLike)):
        return read_names(names, classes, allow_longer=network.task == "classifier")
    if isinstance(names, np.ndarray):
        names = names.tolist()
    elif isinstance(names, Mapping) and set(names) == set(range(len(names))):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, Sequence):
        raise InputError(
            f"names: expected a list, or a dict with the keys 0, 1, …, got {brief(names)}"
        )
    if len(names) != classes:
        raise InputError(f"names: expected {classes}, one for each class, got {len(names)}")
    for each in names:
        check_kind("names", each, str, "text for each class")
    return tuple(names)
