"""Draw the picture of the README: labels and codes on a procedural surface.

python tools/codes/example.py docs/parcel.jpg
"""

from __future__ import annotations

import sys
from typing import Any

import cv2
from scenes import SceneGenerator

SEED, NUMBER, SIDE = 7, 1065, 720


class SurfaceSceneGenerator(SceneGenerator):
    """A generator whose backgrounds are surfaces only, without photographs."""

    def _background(self, random: Any, size: tuple[int, int]) -> Any:
        picture = self._surfaces[random.integers(len(self._surfaces))]
        return cv2.resize(picture, size)


def main() -> int:
    scene = SurfaceSceneGenerator(SEED, each=40, surfaces=40).scene(
        NUMBER, (SIDE, SIDE), stretched=False
    )
    print(len(scene.codes), "codes")
    cv2.imwrite(sys.argv[1], scene.picture, [cv2.IMWRITE_JPEG_QUALITY, 90])
    return 0


if __name__ == "__main__":
    sys.exit(main())
