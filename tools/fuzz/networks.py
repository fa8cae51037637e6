"""Networks as fuzzing sees them: which may be run, and how their text is changed."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

from engine.darknet.graph import Graph
from engine.darknet.layers import LAYERS
from tools.fuzz import seeds

MOST_WORK = 3 * 10**6  # multiplications, numbers kept and values moved: what a moment can do
MOST_LAYERS = 250

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


def is_small(network: Graph) -> bool:
    """Whether it loads and runs in a moment; a larger one may take its time."""
    moved = network.net.shape.size + sum(
        node.shape.size + node.layer.padded(*node.shapes).size for node in network.nodes
    )
    kept = sum(each.size for node in network.nodes for each in node.parameters)
    work = network.operations + kept + moved * network.net.time_steps
    return work <= MOST_WORK and len(network.nodes) <= MOST_LAYERS


def written(text: bytes, folder: Path) -> Path:
    path = folder / "net.cfg"
    path.write_bytes(text)
    return path


def change(text: str, random: Random) -> str:
    """Another text, mostly still a network."""
    for _ in range(random.choice((1, 1, 1, 2, 3, 5))):
        text = random.choice(_CHANGES)(text, random)
    return text


def _parts(text: str) -> list[str]:
    """The text before the first section, then every section."""
    starts = [found.start() for found in _SECTION.finditer(text)]
    return [text[a:b] for a, b in zip([0, *starts], [*starts, len(text)], strict=True)]


def _value(text: str, random: Random) -> str:
    places = list(_VALUE.finditer(text))
    if not places:
        return text
    chosen = random.choice(places)
    number = chosen[1].strip()
    new = random.choice(NUMBERS)
    if number.lstrip("-").isdigit() and len(number) < 12 and random.random() < 0.6:
        new = str(random.choice((int(number) + 1, int(number) - 1, -int(number), int(number) * 2)))
    elif "," in number and random.random() < 0.6:
        items = number.split(",")
        place = random.randrange(len(items))
        items[place : place + random.randrange(2)] = [random.choice(NUMBERS)]
        new = ",".join(items)
    return f"{text[: chosen.start(1)]}{new}{text[chosen.end(1) :]}"


def _drop_line(text: str, random: Random) -> str:
    lines = text.split("\n")
    del lines[random.randrange(len(lines))]
    return "\n".join(lines)


def _add_option(text: str, random: Random) -> str:
    """One that another section of some network has."""
    lines = _any(random).split("\n")
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
    new = random.choice(_parts(_any(random)))
    parts.insert(random.randrange(1, len(parts) + 1), f"\n{new}\n")
    return "".join(parts)


def _empty_section(text: str, random: Random) -> str:
    parts = _parts(text)
    parts.insert(random.randrange(1, len(parts) + 1), f"\n[{random.choice(sorted(LAYERS))}]\n")
    return "".join(parts)


def _cut(text: str, random: Random) -> str:
    """Only the first sections, so that what follows can be reached with little."""
    parts = _parts(text)
    return "".join(parts[: random.randrange(2, max(len(parts), 3) + 1)])


def _character(text: str, random: Random) -> str:
    place = random.randrange(len(text) + 1)
    return f"{text[:place]}{random.choice('[]=,;#-.0 x' + chr(10) + chr(0))}{text[place + 1 :]}"


def _any(random: Random) -> str:
    return random.choice(seeds.networks())


_CHANGES = (
    *(_value,) * 8,
    *(_add_option,) * 2,
    *(_foreign_section,) * 2,
    *(_cut,) * 2,
    *(_drop_line, _repeat_section, _drop_section, _move_section, _empty_section, _character),
)
