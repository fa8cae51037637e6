"""Write cfg/*.cfg from the descriptions in tools/networks: python -m tools.write_cfgs [NAME…]"""

from __future__ import annotations

import sys
from pathlib import Path

from tools.networks import classifiers, efficient, yolo_1_2, yolo_3, yolo_4, yolo_4_scaled, yolo_7
from tools.networks.text import NETWORKS

AUTHORS = (classifiers, efficient, yolo_1_2, yolo_3, yolo_4, yolo_4_scaled, yolo_7)
FOLDER = Path(__file__).parents[1] / "cfg"


def main(names: list[str]) -> None:
    for name in names or NETWORKS:
        text = str(NETWORKS[name]())
        (FOLDER / f"{name}.cfg").write_text(text, encoding="ascii", newline="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
