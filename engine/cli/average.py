"""Average several .weights files of one network, as typed for darknet: CFG OUT WEIGHTS…."""

from __future__ import annotations

import argparse

from engine.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cfg", metavar="CFG", help="the network of all files")
    parser.add_argument("output", metavar="OUT", help="the .weights file to write")
    parser.add_argument("weights", nargs="+", metavar="WEIGHTS", help="the files to average")
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")


def run(arguments: argparse.Namespace) -> int:
    from engine.cli import _output_files
    from engine.darknet import cfg, graph, surgery, weights
    from engine.files.atomic import NewFile
    from engine.files.naming import shown

    output, overwrite = arguments.output, arguments.overwrite
    _output_files.check_ending("OUT", output, ".weights")
    reserved = _output_files.ReservedPaths([arguments.cfg, *arguments.weights])
    _output_files.check_output("OUT", output, reserved, overwrite=overwrite)
    if len(arguments.weights) < 2:
        raise InputError("average: expected two or more WEIGHTS after OUT, got one")
    network = graph.build(cfg.read(arguments.cfg))
    arrays = surgery.average(network, arguments.weights)
    seen = weights.read_header(arguments.weights[-1]).seen
    new = NewFile(output, overwrite=overwrite, hint=_output_files.HINT)
    with new as file, file.part.open("wb") as out:
        weights.write(out, network, arrays, seen=seen)
    print(
        f"{shown(output)}: {network.weights_bytes:,} bytes, the average of {len(arguments.weights)}"
    )
    return 0
