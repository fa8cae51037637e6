"""Darknet's options and what stands for them here, for those who type them from habit."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from engine.errors import InputError

_LEFT_OUT = "nothing: it is always so"

HERE = {
    "-thresh": "--threshold",
    "-hier": "--hierarchy",
    "-nms": "--nms",
    "-i": "--device cuda:N",
    "-gpus": "--device cuda:N",
    "-nogpu": "--device cpu",
    "-out": "--json FILE --json-style darknet",
    "-json_file_output": "--json FILE --json-style darknet",
    "-ext_output": _LEFT_OUT,
    "-dont_show": _LEFT_OUT,
    "-save_labels": "--save-txt DIR",
    "-letter_box": "--resize letterbox",
    "-prefix": "-o DIR",
    "-out_filename": "-o FILE",
    "-c": "the camera's number in place of a picture",
    "-s": "--stride",
    "-t": "--top-k",
    "-top": "--top-k",
    "-topk": "--top-k",
    "-iou_thresh": "--match-iou",
    "-points": "--points",
}


def refuse(argv: Sequence[str], known: Collection[str]) -> None:
    """argparse would take -out for -o ut."""
    for word in argv:
        if word in HERE and word not in known:
            raise InputError(f"{word} is darknet's option. Here it is {HERE[word]}")
