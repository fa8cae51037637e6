"""List the sections of .cfg files with their options and defaults."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from engine.cli._table import align
from engine.errors import InputError, suggest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("section", nargs="?", help="show only this section")


def run(arguments: argparse.Namespace) -> int:
    from engine.darknet import options
    from engine.darknet.layers import LAYERS
    from engine.darknet.layers.net import Net

    sections: dict[str, type] = {**dict.fromkeys(Net.spellings, Net), **LAYERS}
    wanted = arguments.section.strip("[]") if arguments.section else None
    if wanted and wanted not in sections:
        raise InputError(f"no section [{wanted}].{suggest(wanted, sections)}")
    for kind in dict.fromkeys([sections[wanted]] if wanted else sections.values()):
        spellings = [name for name, each in sections.items() if each is kind]
        print(*(f"[{name}]" for name in spellings))
        pairs = zip(options.keys(kind), options.option_fields(kind), strict=True)
        rows = [(f"  {key}", _default(field)) for key, field in pairs]
        print(*align(rows), sep="\n")
    return 0


def _default(field: dataclasses.Field[Any]) -> str:
    value = field.default
    if field.metadata.get("required"):
        return "required"
    if value is None or value == ():
        return "-"
    if isinstance(value, bool):
        return str(int(value))
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
