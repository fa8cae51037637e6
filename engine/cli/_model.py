"""Options that name a model and say how to run it, shared by commands that look at pictures."""

from __future__ import annotations

import argparse
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine import bundled
from engine.cli._download import progress_of
from engine.cli._stderr import tell
from engine.errors import ConfigError, InputError
from engine.files.naming import shown

if TYPE_CHECKING:
    from engine.detector import Detector


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
    """All but the inputs."""
    model = parser.add_argument_group("model")
    model.add_argument(
        "--model",
        metavar="NAME",
        help="a network of the zoo: see models list; fetched at first",
    )
    model.add_argument("--cfg", metavar="FILE", help="the network, in place of --model")
    model.add_argument("--weights", metavar="FILE", help="its weights")
    model.add_argument("--names", metavar="FILE", help="class names, one a line")
    model.add_argument("--data", metavar="FILE", help="darknet's .data file, for its names")
    running = parser.add_argument_group("running")
    running.add_argument(
        "--device", default="auto", help="auto, cpu, cuda (all cards), cuda:0 or cuda:0,1 (auto)"
    )
    running.add_argument("--precision", default="float32", help="float32, tf32 or float16")
    running.add_argument(
        "--batch", type=int, default=batch, metavar="N", help=f"pictures at once ({batch})"
    )
    running.add_argument("--threads", type=int, metavar="N", help="threads of the CPU backend")
    running.add_argument("--size", type=size, metavar="N|WxH", help="instead of the cfg's")
    running.add_argument(
        "--resize", default="cfg", help="cfg, stretch, letterbox or exact: see docs/parity.md (cfg)"
    )
    running.add_argument(
        "--no-passes", action="store_true", help="run the plan as written, without optimisation"
    )
    running.add_argument("--no-exif", action="store_true", help="ignore EXIF orientation")


def take_inputs(arguments: argparse.Namespace) -> list[str]:
    """The pictures; leading DATA, CFG and WEIGHTS among them become the options they stand for."""
    inputs: list[str] = list(arguments.inputs)
    while inputs and (kind := _kind_of(inputs[0])) and getattr(arguments, kind) is None:
        setattr(arguments, kind, inputs.pop(0))
    if misplaced := next(filter(_kind_of, inputs), None):
        raise InputError(f"{shown(misplaced)}: name the model once, before the pictures")
    if not inputs:
        raise InputError("no picture named: expected at least one SOURCE")
    return inputs


def _kind_of(name: str) -> str | None:
    """The option that a file of the model stands for."""
    kind = Path(name).suffix.lower().lstrip(".")
    return kind if kind in ("data", "cfg", "weights") else None


def load(arguments: argparse.Namespace, *, has_default: bool = True, **more: Any) -> Detector:
    """The detector that the options describe; `more` are arguments of engine.load()."""
    import engine

    fill_in(arguments, has_default=has_default)
    return engine.load(
        arguments.cfg,
        arguments.weights,
        arguments.names,
        data=arguments.data,
        device=arguments.device,
        precision=arguments.precision,
        batch=arguments.batch,
        threads=arguments.threads,
        size=arguments.size,
        resize=arguments.resize,
        passes=not arguments.no_passes,
        orient=not arguments.no_exif,
        **more,
    )


def files(arguments: argparse.Namespace) -> list[str | Path | None]:
    """Whatever describes the model, as far as it is known before it is fetched."""
    given = [arguments.cfg, arguments.weights, arguments.names, arguments.data]
    if arguments.data and not arguments.names:
        from engine.darknet.names import find_names

        with suppress(ConfigError):  # told when it is read
            given.append(find_names(arguments.data))
    if arguments.model:
        from engine.models import registry, store

        model = registry.find(arguments.model)
        return [*given, model.cfg, store.path(model), model.names]
    box = None if arguments.cfg or arguments.weights else bundled.default_model()
    return [*given, *(box or ())]


def fill_in(arguments: argparse.Namespace, *, has_default: bool = True) -> None:
    """Complete what names the model: with files of the zoo, or with those of the default model."""
    if arguments.model:
        _fill_in_model_of_the_zoo(arguments)
    else:
        _fill_in_default_model(arguments, bundled.default_model() if has_default else None)


def _fill_in_model_of_the_zoo(arguments: argparse.Namespace) -> None:
    """With --weights only the .cfg and the names are the zoo's."""
    from engine.models import registry, store

    if arguments.cfg:
        raise InputError("--model and --cfg: expected one of them, got both")
    model = registry.find(arguments.model)
    if not arguments.weights:
        if store.path(model):
            arguments.weights = store.path(model)
        else:
            with progress_of(model) as show:
                arguments.weights = store.pull(model, progress=show)
    arguments.cfg = model.cfg
    arguments.names = arguments.names or (None if arguments.data else model.names)


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
            f"no model: name one with --model, or with {missing}; {guide} tells about weights"
        )
    arguments.cfg, arguments.weights = model.cfg, model.weights
    arguments.names = arguments.names or (None if arguments.data else model.names)
    others = "others: --model NAME (engine models list), or --cfg and --weights"
    tell(f"model: {model.cfg.stem}, the one in the box; {others}")


def network(text: str) -> str | Path:
    """The .cfg that is meant: a file, or the name of a network of the zoo."""
    from engine.models import registry

    if Path(text).suffix == ".cfg" or Path(text).is_file():
        return text
    return registry.find(text).cfg


def size(text: str) -> int | tuple[int, int]:
    """416 or 608x416 (width x height)."""
    numbers = text.lower().split("x")
    if len(numbers) > 2 or not all(number.isdecimal() and number.isascii() for number in numbers):
        raise argparse.ArgumentTypeError(f"expected N or WxH, got {text!r}")
    width, height = int(numbers[0]), int(numbers[-1])
    return width if len(numbers) == 1 else (width, height)
