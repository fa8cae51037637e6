"""Darknet's options: those that darknet's commands accept here, and hints for other commands."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from engine.errors import InputError, suggest

Actions: TypeAlias = Mapping[str, Callable[[argparse.Namespace], int]]


class Option(NamedTuple):
    """An option of darknet; `kind` is the type of its value, or None for a switch."""

    name: str
    kind: type[float] | type[int] | type[str] | None
    help: str


# Every darknet command parses all of these, even those that it does not need.
OPTIONS = (
    Option("-thresh", float, "minimum score (0.25; yolo 0.2, detect 0.24)"),
    Option("-hier", float, "threshold in a class tree (0.5)"),
    Option("-nms", float, "maximum IoU within a class (0.45)"),
    Option("-ext_output", None, "print the box of each object"),
    Option("-letter_box", None, "keep the proportions of the picture"),
    Option("-out", str, "test: JSON file to write; valid: what the names of its files begin with"),
    Option("-save_labels", None, "test: write a label file next to each picture that has none"),
    Option("-iou_thresh", float, "map: minimum IoU of a hit (0.5)"),
    Option("-points", int, "map: recalls at which precision is read; 0, 11 or 101 (0)"),
    Option("-num_of_clusters", int, "calc_anchors: number of anchors (5)"),
    Option("-width", int, "calc_anchors: width of the network"),
    Option("-height", int, "calc_anchors: height of the network"),
    Option("-c", int, "demo: number of the camera (0)"),
    Option("-out_filename", str, "demo: video to write"),
    Option("-prefix", str, "demo: write PREFIX_00000001.jpg for each frame"),
    Option("-json_file_output", str, "demo: JSON file to write"),
    Option("-mjpeg_port", int, "demo: port that shows the frames in a browser"),
    Option("-http_port", int, "demo: an older name of -mjpeg_port"),
    Option("-json_port", int, "demo: port that sends the objects of each frame as JSON"),
    Option("-time_limit_sec", int, "demo: stop after this time"),
    Option("-dontdraw_bbox", None, "demo: draw no boxes"),
    Option("-t", int, "classifier: number of classes to print"),
    Option("-i", int, "number of the GPU; -1 is the CPU (0, or the CPU if there is no GPU)"),
    Option("-nogpu", None, "run on the CPU"),
)

# These control windows, training or darknet's diagnostics; results do not depend on them.
IGNORED = (
    *(Option(name, None, "no effect here") for name in (
        *("-dont_show", "-show", "-show_imgs", "-benchmark", "-benchmark_layers", "-map", "-clear"),
        *("-cuda_debug_sync", "-dontuse_opencv", "-topk"),
    )),
    *(Option(name, str, "no effect here") for name in (
        *("-gpus", "-avgframes", "-s", "-chart", "-mAP_epochs"),
    )),
)  # fmt: skip

# hank-ai's fork ignores dashes and underscores in options, and adds these names.
_FORK = {
    "camera": "-c",
    "threshold": "-thresh",
    "nmsthresh": "-nms",
    "noshow": "-dont_show",
}

# Darknet commands that have another name here.
COMMANDS = {"ops": "info", "speed": "benchmark", "partial": "weights cut"}

NO_TRAINING = "the engine runs networks and does not train them"

_NOT_NEEDED = "not needed"

# Equivalents of darknet's options in all other commands.
EQUIVALENTS = {
    "-thresh": "--threshold",
    "-hier": "--hierarchy",
    "-nms": "--nms",
    "-i": "--device cuda:N",
    "-gpus": "--device cuda:N",
    "-nogpu": "--device cpu",
    "-out": "--json FILE --json-style darknet",
    "-json_file_output": "--json FILE --json-style darknet",
    "-ext_output": _NOT_NEEDED,
    "-dont_show": _NOT_NEEDED,
    "-save_labels": "--save-txt DIR",
    "-letter_box": "--resize letterbox",
    "-prefix": "-o DIR",
    "-out_filename": "-o FILE",
    "-c": "the number of the camera instead of a picture",
    "-s": "--stride",
    "-t": "--top-k",
    "-top": "--top-k",
    "-topk": "--top-k",
    "-iou_thresh": "--match-iou",
    "-points": "--points",
}

# Equivalents of ultralytics' options and commands whose names resemble other names here.
_ULTRALYTICS = {
    "--source": "the pictures, without an option",
    "--project": "-o DIR",
    "--name": "-o DIR",
    "--view-img": "-o DIR",
    "--show": "-o DIR",
    "--save-crop": "--crops DIR",
    "--exist-ok": "--overwrite",
    "--conf-thres": "--threshold",
    "--iou-thres": "--nms",
    "--img-size": "--imgsz",
    "--vid-stride": "--stride",
}
_ULTRALYTICS_WORDS = {
    "model": "--cfg and --weights",
    "source": _ULTRALYTICS["--source"],
    "conf": "--threshold",
    "iou": "--nms",
    "imgsz": "--imgsz",
}
ULTRALYTICS_COMMANDS = {"predict": "detect", "track": "detect --track", "val": "evaluate"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options of darknet's commands."""
    for name, kind, text in (*OPTIONS, *IGNORED):
        dest = name.lstrip("-")
        if kind is None:
            parser.add_argument(name, dest=dest, action="store_true", help=text)
        elif kind is str:
            parser.add_argument(name, action=_StoreFirst, dest=dest, metavar="X", help=text)
        else:
            parser.add_argument(
                name, action=_StoreFirst, dest=dest, type=kind, metavar="N", help=text
            )


class _StoreFirst(argparse.Action):
    """Keep the first value of a repeated option, as darknet does; argparse keeps the last."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is None:
            setattr(namespace, self.dest, values)


def add_action(parser: argparse.ArgumentParser, actions: Collection[str], files: str) -> None:
    """Add the arguments of a command that has actions, such as detector test."""
    parser.add_argument("action", metavar="ACTION", help=", ".join(actions))
    parser.add_argument("files", nargs="*", metavar=files, help="in darknet's order")
    add_arguments(parser)


def run_action(command: str, arguments: argparse.Namespace, actions: Actions) -> int:
    action = arguments.action
    if action == "train":
        raise InputError(f"{command} train: {NO_TRAINING}")
    if command == "yolo" and action in ("detect", *ULTRALYTICS_COMMANDS):
        here = ULTRALYTICS_COMMANDS.get(action, action)
        raise InputError(f"yolo {action} is ultralytics' command. Here it is {here}")
    if action not in actions:
        hint = suggest(action, actions)
        raise InputError(f"{command}: expected {', '.join(actions)}, got {action!r}.{hint}")
    return actions[action](arguments)


def after_command(argv: Sequence[str]) -> list[str]:
    """Move -i N and -nogpu, which darknet accepts anywhere, to the place after the command.

    Here options follow their command, and only some commands have these two.
    """
    end = 0
    while end < len(argv) and argv[end] in ("-i", "-nogpu"):
        end += 2 if argv[end] == "-i" else 1
    return [*argv[end : end + 1], *argv[:end], *argv[end + 1 :]]


def is_typed_for_darknet(argv: Sequence[str], known: Collection[str]) -> bool:
    """Return whether options are darknet's, and none is a long option known to a command here."""
    darknets = {option.name for option in (*OPTIONS, *IGNORED)} - set(known)
    has_ours = any(word[:2] == "--" and word.partition("=")[0] in known for word in argv)
    return not has_ours and any(word in darknets for word in argv)


def respelled(argv: Sequence[str], known: Collection[str]) -> list[str]:
    """Return the words of a darknet command with its options in AlexeyAB's spelling."""
    if OPTIONS[0].name not in known:
        return list(argv)
    usual = {_letters(option.name): option.name for option in (*OPTIONS, *IGNORED)} | _FORK
    words = []
    for word in argv:
        name, equals, value = word.partition("=")
        is_option = name[:1] == "-" and name not in known
        words.append(usual.get(_letters(name), name) + equals + value if is_option else word)
    return words


def _letters(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def refuse(argv: Sequence[str], known: Collection[str]) -> None:
    """Raise an error for options that argparse would misread, such as -out as -o ut."""
    takes_darknets = OPTIONS[0].name in known
    for word in argv:
        if word.partition("=")[0] in known:
            continue
        if takes_darknets and word[:1] == "-" and word[1:2].isalpha():
            raise InputError(f"unknown option {word!r}.{suggest(word, known)}")
        if word in EQUIVALENTS:
            raise InputError(f"{word} is darknet's option. Here it is {EQUIVALENTS[word]}")
        name, equals, _ = word.partition("=")
        if equals and name in _ULTRALYTICS_WORDS and not os.path.lexists(word):
            here = _ULTRALYTICS_WORDS[name]
            raise InputError(f"{name}= is ultralytics' spelling. Here it is {here}")
        name = name.replace("_", "-")
        if name in _ULTRALYTICS and not takes_darknets:
            raise InputError(f"{name} is ultralytics' option. Here it is {_ULTRALYTICS[name]}")
