"""Darknet's options and their equivalents here, for an error message with a hint."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.errors import InputError

_NOT_NEEDED = "not needed"

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


def refuse(argv: Sequence[str], known: Collection[str]) -> None:
    """Raise an error for an option of darknet; argparse would read -out as -o ut."""
    for word in argv:
        if word in EQUIVALENTS and word not in known:
            raise InputError(f"{word} is darknet's option. Here it is {EQUIVALENTS[word]}")
