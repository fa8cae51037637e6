"""Run darknet's detector commands as they are typed, with darknet's options and output.

test DATA CFG WEIGHTS [IMAGE]   print the objects of a picture; without IMAGE, of names on stdin
demo DATA CFG WEIGHTS [VIDEO]   print the objects of each frame; without VIDEO, of camera -c
map DATA CFG WEIGHTS            average precision over the labelled pictures of the list
valid DATA CFG WEIGHTS          write all boxes for the tools of VOC, COCO or ImageNet
recall DATA CFG WEIGHTS         how many labelled objects are covered by a box of any class
calc_anchors DATA -num_of_clusters N -width W -height H   anchors for labelled pictures
"""

from __future__ import annotations

import argparse

from engine.cli._darknet import files, options
from engine.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_action(parser, ACTIONS, "DATA CFG WEIGHTS [IMAGE]")


def run(arguments: argparse.Namespace) -> int:
    return options.run_action("detector", arguments, ACTIONS)


def _test(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import test

    return test.run(arguments, files.parse("detector test", arguments.files), threshold=0.25)


def _valid(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import valid
    from engine.darknet.names import read_data

    model = files.parse("detector valid", arguments.files)
    data, paths = read_data(model.data), files.listed(model.data, "valid")
    return valid.run(arguments, model, options=data, paths=paths)


def _map(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import map
    from engine.darknet.names import read_data

    model = files.parse("detector map", arguments.files)
    return map.run(arguments, model, options=read_data(model.data))


def _recall(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import recall

    model = files.parse("detector recall", arguments.files)
    return recall.run(arguments, model, paths=files.listed(model.data, "valid"))


def _demo(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import demo

    return demo.run(arguments, files.parse("detector demo", arguments.files), threshold=0.25)


def _calc_anchors(arguments: argparse.Namespace) -> int:
    from engine.cli._darknet import calc_anchors

    if len(arguments.files) != 1:
        raise InputError("detector calc_anchors: expected DATA and no other file")
    return calc_anchors.run(arguments, arguments.files[0])


ACTIONS: options.Actions = {
    "test": _test,
    "demo": _demo,
    "map": _map,
    "valid": _valid,
    "recall": _recall,
    "calc_anchors": _calc_anchors,
}
