"""Options that select a model and how it runs, shared by all commands that process pictures."""

from __future__ import annotations

import argparse
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from engine import bundled
from engine.cli._download import progress_of
from engine.cli._stderr import print_stderr
from engine.errors import ConfigError, InputError
from engine.files import data_set_yaml
from engine.files.naming import shown
from engine.vision.extensions import is_picture

if TYPE_CHECKING:
    from engine.detector import Detector


PRECISIONS = "float32, tf32, float16 or int8"
SCALES = "of int8, made by: calibrate (next to the weights)"


def add_arguments(
    parser: argparse.ArgumentParser, metavar: str = "IMAGE", what: str = "pictures"
) -> None:
    parser.add_argument(
        "inputs",
        nargs="*",
        metavar=metavar,
        help=f"{what}; darknet's order CFG WEIGHTS {metavar}… works too",
    )
    add_options(parser)


def add_options(parser: argparse.ArgumentParser, *, batch: int = 1) -> None:
    """Add all arguments except the inputs."""
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        type=_zoo_name,
        metavar="NAME",
        help="a network of the zoo (see: models list), downloaded on first use",
    )
    model.add_argument("--cfg", metavar="FILE", help="the network, instead of --model")
    model.add_argument("--weights", metavar="FILE", help="its weights")
    model.add_argument(
        "--names", metavar="FILE", help="class names, one per line (those next to the .cfg)"
    )
    model.add_argument("--data", metavar="FILE", help="darknet's .data file, for its names")
    running = parser.add_argument_group("running")
    running.add_argument(
        "--device",
        default="auto",
        help="auto, cpu, cuda (all GPUs), cuda:0 or 0, cuda:0,1, ort (auto)",
    )
    precision = running.add_mutually_exclusive_group()
    precision.add_argument("--precision", default="float32", help=PRECISIONS)
    running.add_argument("--scales", metavar="FILE", help=SCALES)
    precision.add_argument(
        "--half",
        action="store_const",
        const="float16",
        dest="precision",
        help="the same as --precision float16",
    )
    running.add_argument(
        "--batch", type=int, default=batch, metavar="N", help=f"pictures per run ({batch})"
    )
    running.add_argument("--threads", type=int, metavar="N", help="threads of the CPU backend")
    running.add_argument(
        "--size", "--imgsz", type=size, metavar="N|WxH", help="instead of the cfg's"
    )
    running.add_argument(
        "--resize", default="cfg", help="cfg, stretch, letterbox or exact: see docs/parity.md (cfg)"
    )
    running.add_argument(
        "--no-passes", action="store_true", help="run the plan as written, without optimisation"
    )
    running.add_argument("--no-exif", action="store_true", help="ignore EXIF orientation")


def add_tiles(group: argparse._ArgumentGroup) -> None:
    """Add the options that cut large pictures into tiles."""
    group.add_argument(
        "--tiles",
        metavar="auto|SIZE|COLSxROWS",
        help="cut large pictures into tiles, to find small objects: see docs/tiles.md",
    )
    group.add_argument(
        "--overlap", type=float, metavar="F", help="overlap of tiles, 0 to 0.8 (0.2)"
    )


def tiling(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of engine.load() for the options of add_tiles() that were given."""
    given = {name: getattr(arguments, name) for name in ("tiles", "overlap")}
    return {name: value for name, value in given.items() if value is not None}


def take_inputs(
    arguments: argparse.Namespace,
    what: Literal["labelled pictures", "pictures"] = "pictures",
    *,
    may_be_none: bool = False,
) -> list[str]:
    """Return the pictures; leading DATA, CFG and WEIGHTS set the corresponding options."""
    inputs: list[str] = list(arguments.inputs)
    while inputs and (kind := _kind_of(inputs[0])) and getattr(arguments, kind) is None:
        setattr(arguments, kind, inputs.pop(0))
    if inputs and arguments.cfg and not arguments.weights and is_unnamed_weights(inputs[0]):
        arguments.weights = inputs.pop(0)
    for each in inputs:
        data_set_yaml.refuse(each, what, InputError)
    if misplaced := next(filter(_kind_of, inputs), None):
        raise InputError(f"{shown(misplaced)}: name the model once, before the pictures")
    if not inputs and not may_be_none:
        raise InputError("no picture named: expected at least one SOURCE")
    return inputs


def _kind_of(name: str) -> str | None:
    """Return the option that the extension of a file name implies, if any."""
    kind = Path(name).suffix.lower().lstrip(".")
    return kind if kind in ("data", "cfg", "weights") else None


def is_unnamed_weights(name: str) -> bool:
    """Return whether a file with another extension holds weights: darknet writes net.backup."""
    if is_picture(name) or _kind_of(name):
        return False
    from engine.darknet.weights import has_header

    return has_header(name)


def warm_up(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """Return a context in which the GPU initialises while modules and files are read."""
    from engine.backends import device_name, warm_up

    return warm_up(device_name(arguments.device))


def load(arguments: argparse.Namespace, *, has_default: bool = True, **more: Any) -> Detector:
    """Load the detector that the options describe; `more` is passed on to engine.load()."""
    import engine

    fill_in(arguments, has_default=has_default)
    return engine.load(
        arguments.cfg,
        arguments.weights,
        arguments.names,
        data=arguments.data,
        device=arguments.device,
        precision=arguments.precision,
        scales=arguments.scales,
        batch=arguments.batch,
        threads=arguments.threads,
        size=arguments.size,
        resize=arguments.resize,
        passes=not arguments.no_passes,
        orient=not arguments.no_exif,
        **more,
    )


def files(arguments: argparse.Namespace) -> list[str | Path | None]:
    """Return the files of the model that are known before it is downloaded."""
    given = [arguments.cfg, arguments.weights, arguments.names, arguments.data]
    given.append(getattr(arguments, "scales", None))
    if getattr(arguments, "precision", None) == "int8" and arguments.weights:
        from engine.scales import path_beside

        given.append(path_beside(arguments.weights))
    if not arguments.names:
        from engine.darknet.names import find_names, names_of

        with suppress(ConfigError):  # reported when the file is read
            if arguments.data:
                given.append(find_names(arguments.data))
            elif arguments.cfg:
                given.append(names_of(arguments.cfg))
    if arguments.model:
        from engine.models import registry, store

        model = registry.find(arguments.model)
        return [*given, model.cfg, store.path(model), model.names]
    default = None if arguments.cfg or arguments.weights else bundled.default_model()
    return [*given, *(default or ())]


def fill_in(arguments: argparse.Namespace, *, has_default: bool = True) -> None:
    """Set the model's missing files from the zoo, or to those of the default model."""
    if arguments.model:
        _fill_in_zoo_model(arguments)
    else:
        _fill_in_default_model(arguments, bundled.default_model() if has_default else None)


def _fill_in_zoo_model(arguments: argparse.Namespace) -> None:
    """Take the .cfg, the names and, without --weights, the weights from the zoo."""
    from engine.models import registry, store

    refuse_two(arguments)
    model = registry.find(arguments.model)
    if not arguments.weights:
        arguments.weights = store.local(model)
        if not arguments.weights:
            with progress_of(model) as show:
                arguments.weights = store.pull(model, progress=show)
    arguments.cfg = model.cfg
    arguments.names = arguments.names or (None if arguments.data else model.names)


def refuse_two(arguments: argparse.Namespace) -> None:
    """Raise if the arguments name two networks."""
    if arguments.model and arguments.cfg:
        raise InputError("--model and --cfg: expected one of them, got both")


def _fill_in_default_model(arguments: argparse.Namespace, model: bundled.Model | None) -> None:
    if arguments.cfg and arguments.weights:
        return
    if arguments.cfg or arguments.weights or model is None:
        missing = " and ".join(
            option
            for option, given in (("--cfg", arguments.cfg), ("--weights", arguments.weights))
            if not given
        )
        guide = bundled.folder("weights") / "README.md"
        raise InputError(
            f"no model: name one with --model, or with {missing}; {guide} lists weights"
        )
    arguments.cfg, arguments.weights = model.cfg, model.weights
    arguments.names = arguments.names or (None if arguments.data else model.names)
    if not getattr(arguments, "quiet", False):
        others = "others: --model NAME (see: engine models list), or --cfg and --weights"
        print_stderr(f"model: {model.cfg.stem} (bundled); {others}")


def network(text: str) -> str | Path:
    """Return the path of a .cfg, given as a file or as the name of a network of the zoo."""
    from engine.models import registry

    if Path(text).suffix == ".cfg" or Path(text).is_file():
        return text
    if os.path.exists(text) and not registry.knows(text):  # noqa: PTH110 - a name may be too long
        return text  # a pipe or a folder, for which reading raises a clear error
    return registry.find(text).cfg


def _zoo_name(text: str) -> str:
    if kind := _kind_of(text):
        hint = f"Use --{kind} {shown(text)}" + " and --weights FILE" * (kind == "cfg")
        raise argparse.ArgumentTypeError(f"expected the name of a network, got a file. {hint}")
    if not text:
        raise argparse.ArgumentTypeError("expected a name, got an empty one")
    return text


def size(text: str) -> int | tuple[int, int]:
    """Parse 416 or 608x416 (width x height)."""
    numbers = text.lower().split("x")
    if len(numbers) > 2 or not all(number.isdecimal() and number.isascii() for number in numbers):
        raise argparse.ArgumentTypeError(f"expected N or WxH, got {text!r}")
    width, height = int(numbers[0]), int(numbers[-1])
    if not width or not height:
        raise argparse.ArgumentTypeError(f"expected 1 pixel or more, got {text!r}")
    return width if len(numbers) == 1 else (width, height)


def check_classes(detector: Detector) -> None:
    """Raise if --classes and --exclude leave no class to find."""
    if detector.settings.classes == ():
        raise InputError("--classes and --exclude: leave no class to find")
