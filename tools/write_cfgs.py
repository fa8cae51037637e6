"""Write cfg/*.cfg from the descriptions in tools/networks: python -m tools.write_cfgs [NAME…]"""

from __future__ import annotations

import argparse
from pathlib import Path

from engine.errors import suggest
from tools.networks import classifiers, efficient, yolo_1_2, yolo_3, yolo_4, yolo_4_scaled, yolo_7
from tools.networks.cfg_builder import NETWORKS

MODULES = (classifiers, efficient, yolo_1_2, yolo_3, yolo_4, yolo_4_scaled, yolo_7)
FOLDER = Path(__file__).parents[1] / "cfg"


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", type=_known, metavar="NAME", help="networks (all)")
    for name in parser.parse_args(words).names or NETWORKS:
        text = str(NETWORKS[name]())
        (FOLDER / f"{name}.cfg").write_text(text, encoding="ascii", newline="\n")


def _known(name: str) -> str:
    if name not in NETWORKS:
        raise argparse.ArgumentTypeError(f"no network {name!r}.{suggest(name, NETWORKS)}")
    return name


if __name__ == "__main__":
    main()
