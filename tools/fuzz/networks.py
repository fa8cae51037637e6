"""Networks for fuzzing: which are small enough to run, and how their text is mutated."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from engine.darknet.graph import Graph
from engine.darknet.layers import LAYERS
from tools.fuzz import seeds

MAX_WORK = 3 * 10**6  # operations, parameters and values moved
MAX_LAYERS = 250

NUMBERS = (
    *("0", "1", "2", "3", "5", "7", "-1", "-2", "-1000", "16", "31", "33", "255", "256", "1024"),
    *(
        "65536",
        "65537",
        "1000000",
        "46341",
        "2147483647",
        "2147483648",
        "4294967296",
        "1" + "0" * 30,
    ),
    *("0.5", ".5", "1e9", "1e-9", "-0.0", "1e308", "1e309", "nan", "inf", "0x10", "1,", ",", "1,2"),
    *("-1,-2", "0,1,2,3", "0,0,0,0", "", " ", "#", "180###P6", "leaky", "mish", "softmax", "swish"),
    *("per_channel", "avg_maxpool", "normalize_channels", "greedynms", "/dev/zero", ".", "\0", "é"),
)

_VALUE = re.compile(r"(?m)=(.*)$")
_SECTION = re.compile(r"(?m)^\[")


def is_small(network: Graph, *, layers: int = MAX_LAYERS) -> bool:
    """Return whether the network loads and runs fast enough for the time limit."""
    moved = network.net.shape.size + sum(
        node.shape.size + node.layer.padded(*node.shapes).size for node in network.nodes
    )
    parameters = sum(each.size for node in network.nodes for each in node.parameters)
    work = network.operations + parameters + moved * network.net.time_steps
    return work <= MAX_WORK and len(network.nodes) <= layers


def write_cfg(text: bytes, folder: Path) -> Path:
    path = folder / "net.cfg"
    path.write_bytes(text)
    return path


def mutate_text(text: str, random: Random) -> str:
    """Return a changed text that is usually still a network."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        text = random.choice(_MUTATIONS)(text, random)
    return text


def _parts(text: str) -> list[str]:
    """Return the text before the first section and all sections."""
    starts = [found.start() for found in _SECTION.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _change_value(text: str, random: Random) -> str:
    values = list(_VALUE.finditer(text))
    if not values:
        return text
    chosen = random.choice(values)
    number = chosen[1].strip()
    new = random.choice(NUMBERS)
    if number.lstrip("-").isdigit() and len(number) < 12 and random.random() < 0.6:
        new = str(random.choice((int(number) + 1, int(number) - 1, -int(number), int(number) * 2)))
    elif "," in number and random.random() < 0.6:
        items = number.split(",")
        index = random.randrange(len(items))
        items[index : index + random.randrange(2)] = [random.choice(NUMBERS)]
        new = ",".join(items)
    return f"{text[: chosen.start(1)]}{new}{text[chosen.end(1) :]}"


def _drop_line(text: str, random: Random) -> str:
    lines = text.split("\n")
    del lines[random.randrange(len(lines))]
    return "\n".join(lines)


def _add_option(text: str, random: Random) -> str:
    """Add an option from a section of another network."""
    lines = _any_network(random).split("\n")
    options = [line for line in lines if "=" in line]
    new = random.choice(options) if options else "stride=2"
    into = text.split("\n")
    into.insert(random.randrange(len(into) + 1), new)
    return "\n".join(into)


def _repeat_section(text: str, random: Random) -> str:
    parts = _parts(text)
    parts.insert(random.randrange(1, len(parts) + 1), random.choice(parts))
    return "".join(parts)


def _drop_section(text: str, random: Random) -> str:
    parts = _parts(text)
    del parts[random.randrange(len(parts))]
    return "".join(parts)


def _move_section(text: str, random: Random) -> str:
    parts = _parts(text)
    one, other = random.randrange(len(parts)), random.randrange(len(parts))
    parts[one], parts[other] = parts[other], parts[one]
    return "".join(parts)


def _foreign_section(text: str, random: Random) -> str:
    parts = _parts(text)
    new = random.choice(_parts(_any_network(random)))
    parts.insert(random.randrange(1, len(parts) + 1), f"\n{new}\n")
    return "".join(parts)


def _empty_section(text: str, random: Random) -> str:
    parts = _parts(text)
    parts.insert(random.randrange(1, len(parts) + 1), f"\n[{random.choice(sorted(LAYERS))}]\n")
    return "".join(parts)


def _truncate(text: str, random: Random) -> str:
    """Keep only the first sections, so that later steps run on small networks, too."""
    parts = _parts(text)
    return "".join(parts[: random.randrange(2, max(len(parts), 3) + 1)])


def _change_character(text: str, random: Random) -> str:
    index = random.randrange(len(text) + 1)
    return f"{text[:index]}{random.choice('[]=,;#-.0 x' + chr(10) + chr(0))}{text[index + 1 :]}"


def _any_network(random: Random) -> str:
    return random.choice(seeds.networks())


_MUTATIONS = (
    *(_change_value,) * 8,
    *(_add_option,) * 2,
    *(_foreign_section,) * 2,
    *(_truncate,) * 2,
    *(_drop_line, _repeat_section, _drop_section, _move_section, _empty_section, _change_character),
)
