"""Effects of lighting and a phone camera: shadows, glare, blur, noise and JPEG."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

Picture = NDArray[np.uint8]
Random = np.random.Generator

_NOISE_SIDE = 1600


class Camera:
    """A simulated camera; it crops noise from one large array, because sampling noise is slow."""

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self._noise = random.standard_normal((_NOISE_SIDE, _NOISE_SIDE, 3)).astype(np.float32)

    def photograph(
        self, random: Random, scene: Picture, blur: float, *, harsh: float = 1.0
    ) -> Picture:
        """Return the scene as a phone would store it; `blur` is the blur radius in pixels."""
        picture = _lit(random, scene, harsh)
        picture = _blurred(random, picture, blur)
        picture = self._exposed(random, picture, harsh)
        if random.random() < 0.4 * harsh:
            picture = _sharpened(random, picture)
        if random.random() < 0.75 * harsh:
            picture = _compressed(random, picture)
        return picture

    def copy_digitally(self, random: Random, page: Picture) -> Picture:
        """Return a rendered page as it may be stored: perhaps softened, perhaps compressed."""
        if random.random() < 0.3:
            page = cv2.GaussianBlur(page, (0, 0), random.uniform(0.3, 1.5))
        return _compressed(random, page) if random.random() < 0.5 else page

    def _exposed(self, random: Random, picture: Picture, harsh: float) -> Picture:
        """Apply white balance, exposure, contrast and sensor noise."""
        dim = random.random() < 0.15 * harsh
        exposure = random.uniform(0.18, 0.5) if dim else random.uniform(0.7, 1.25)
        gains = exposure * random.normal(1, 0.06, size=3)
        gamma = random.uniform(0.75, 1.3)
        steps = np.arange(256)[:, None] / 255
        table = np.clip(255 * np.clip(steps * gains, 0, 1) ** gamma, 0, 255)
        toned = cv2.LUT(picture, table.astype(np.uint8).reshape(256, 1, 3))
        strength = random.uniform(2, 14) if dim else random.choice([0, 1, 3, 8]) * harsh
        if strength < 1:
            return toned
        height, width = picture.shape[:2]
        top = int(random.integers(_NOISE_SIDE - height + 1))
        left = int(random.integers(_NOISE_SIDE - width + 1))
        noise = self._noise[top : top + height, left : left + width]
        if random.random() < 0.4:
            noise = cv2.GaussianBlur(noise, (3, 3), 0) * 1.6
        mixed = cv2.addWeighted(toned.astype(np.float32), 1, noise, strength, 0)
        return cv2.convertScaleAbs(np.clip(mixed, 0, 255))


def _lit(random: Random, scene: Picture, harsh: float) -> Picture:
    """Apply uneven light, the edge of a shadow, and glare."""
    height, width = scene.shape[:2]
    light = np.ones((24, 24), np.float32)
    rows, columns = np.mgrid[-1:1:24j, -1:1:24j].astype(np.float32)
    angle = random.uniform(0, 2 * np.pi)
    across = columns * np.cos(angle) + rows * np.sin(angle)
    light += across * random.uniform(0, 0.35) * harsh
    if random.random() < 0.25 * harsh:
        edge = (across - random.uniform(-0.6, 0.6)) / random.choice([0.02, 0.15, 0.5])
        light *= 1 - random.uniform(0.25, 0.65) / (1 + np.exp(-np.clip(edge, -30, 30)))
    shade = cv2.resize(light, (width, height), interpolation=cv2.INTER_LINEAR)
    if random.random() < 0.12 * harsh:
        _cast_shadow(random, shade)
    picture = cv2.multiply(scene, cv2.merge([shade] * 3), dtype=cv2.CV_8U)
    if random.random() < 0.18 * harsh:
        glare = np.zeros((96, 96), np.float32)
        centre = tuple(int(v) for v in random.integers(0, 96, size=2))
        axes = tuple(int(v) for v in random.integers(3, 28, size=2))
        cv2.ellipse(glare, centre, axes, random.uniform(0, 180), 0, 360, 1, -1)
        glare = cv2.GaussianBlur(glare, (0, 0), random.uniform(2, 9))
        glare *= random.uniform(60, 300)
        spot = cv2.convertScaleAbs(cv2.resize(glare, (width, height)))
        picture = cv2.add(picture, cv2.merge([spot] * 3))
    return picture


def _cast_shadow(random: Random, shade: NDArray[np.float32]) -> None:
    """Darken a polygon, as a hard shadow."""
    height, width = shade.shape
    corners = random.uniform(-0.3, 1.3, size=(4, 2)) * (width, height)
    mask = np.zeros((height, width), np.uint8)
    cv2.fillConvexPoly(mask, cv2.convexHull(corners.astype(np.int32)), 255)
    mask = cv2.blur(mask, (int(random.choice([1, 5, 15])),) * 2)
    shade *= 1 - mask.astype(np.float32) / 255 * random.uniform(0.3, 0.65)


def _blurred(random: Random, picture: Picture, radius: float) -> Picture:
    if radius < 0.3:
        return picture
    if random.random() < 0.4:
        size = max(3, int(radius * 3.5) | 1)
        kernel = np.zeros((size, size), np.float32)
        angle = random.uniform(0, np.pi)
        arm = np.array([np.cos(angle), np.sin(angle)]) * (size // 2)
        middle = np.array([size // 2, size // 2])
        start, end = np.rint(middle - arm).astype(int), np.rint(middle + arm).astype(int)
        cv2.line(kernel, start.tolist(), end.tolist(), 1.0, 1)
        return cv2.filter2D(picture, -1, kernel / kernel.sum())
    if random.random() < 0.3:
        size = max(3, int(radius * 2.6) | 1)
        disc = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (size, size)).astype(np.float32)
        return cv2.filter2D(picture, -1, disc / disc.sum())
    return cv2.GaussianBlur(picture, (0, 0), radius)


def _sharpened(random: Random, picture: Picture) -> Picture:
    """Sharpen the picture as phones do, which leaves light and dark lines along edges."""
    amount = random.uniform(0.2, 1.6)
    soft = cv2.GaussianBlur(picture, (0, 0), random.uniform(0.5, 1.6))
    return cv2.addWeighted(picture, 1 + amount, soft, -amount, 0)


def _compressed(random: Random, picture: Picture) -> Picture:
    quality = int(random.choice([20, 30, 45, 70, 85, 95]))
    stored = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
    return cv2.imdecode(stored, cv2.IMREAD_COLOR)
