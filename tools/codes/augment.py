"""Augmentation on the GPU: scenes are turned, mirrored, zoomed, lit, blurred and coloured.

Zooming takes place while a scene is scaled to the network's input, so that a scene of 832 pixels
also gives close-ups of its codes without being enlarged.
"""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

_SHORTEST_SIDE = 6.0
_LEAST_VISIBLE = 0.45
_LARGEST = 1.2  # longer side of a code after zooming, in sides of the picture
_ZOOMED_SHARE, _ZOOMS = 0.6, (0.4, 2.5)
_MIN_CONTRAST = 0.022  # standard deviation of grey values in the middle of a code
_SAMPLES = 10
_STRETCH = 0.25  # of the logarithm of the aspect ratio


def augment(pictures: Tensor, boxes: Tensor, side: int, *, strong: bool) -> tuple[Tensor, Tensor]:
    """Augment square pictures (batch, 3, rows, columns) in 0..1 and scale them to `side`.

    Boxes are (batch, max_boxes, 5), padded with class -1. Return the pictures and rows of picture,
    class, centre x, y, width and height in pixels.
    """
    batch, device = len(pictures), pictures.device
    matrix = _random_turns(batch, device)
    is_code = boxes[..., 0] >= 0
    centre = (boxes[..., 1:3] * 2 - 1) @ matrix.transpose(1, 2)
    size = boxes[..., 3:5] @ matrix.abs().transpose(1, 2)
    scale = torch.ones(batch, 2, device=device)
    shift = torch.zeros(batch, 2, device=device)
    if strong:
        scale, shift = _random_zoom(centre, size, is_code)
    # A point is mapped to matrix @ point * scale + shift; grid_sample needs the inverse.
    inverse = matrix.transpose(1, 2) / scale[:, None, :]
    offset = -(inverse @ shift[:, :, None])
    grid = F.affine_grid(
        torch.cat([inverse, offset], 2), [batch, 3, side, side], align_corners=False
    )
    # Pad with grey: reflected codes would have no boxes, and replicated edges look like barcodes.
    result = F.grid_sample(pictures - 0.5, grid, align_corners=False) + 0.5
    centre, size = centre * scale[:, None] + shift[:, None], size * scale[:, None]
    low = ((centre + 1) / 2 - size / 2) * side
    high = ((centre + 1) / 2 + size / 2) * side
    inner_low, inner_high = low.clamp(0, side), high.clamp(0, side)
    shown = (inner_high - inner_low).clamp(min=0)
    visible = shown.prod(2) / (high - low).prod(2).clamp(min=1e-6)
    good = is_code & (visible > _LEAST_VISIBLE) & (shown.amin(2) >= _SHORTEST_SIDE)
    hidden = is_code & ~good & (visible > 0.02)
    result = _jitter_colors(_disturb(_hide(result, inner_low, inner_high, hidden)))
    good &= _contrast(result, inner_low, inner_high) > _MIN_CONTRAST
    picture = torch.arange(batch, device=device)[:, None].expand_as(good)
    rows = torch.cat(
        [
            picture[..., None].float(),
            boxes[..., :1],
            (inner_low + inner_high) / 2,
            shown,
        ],
        2,
    )
    return result, rows[good]


def _random_turns(batch: int, device: torch.device) -> Tensor:
    """Return random quarter turns and mirrorings; half of them without a turn."""
    quarter = torch.randint(0, 4, (batch,), device=device)
    quarter = torch.where(torch.rand(batch, device=device) < 0.5, 0, quarter)
    angle = quarter * (torch.pi / 2)
    cosine, sine = angle.cos().round(), angle.sin().round()
    mirror = torch.where(torch.rand(batch, device=device) < 0.5, -1.0, 1.0)
    rows = torch.stack([cosine * mirror, -sine, sine * mirror, cosine], 1)
    return rows.view(batch, 2, 2)


def _random_zoom(centre: Tensor, size: Tensor, is_code: Tensor) -> tuple[Tensor, Tensor]:
    """Return scales and shifts that keep a random code of each picture in the frame."""
    batch, device = len(centre), centre.device

    def draw(*shape: int) -> Tensor:
        return torch.rand(batch, *shape, device=device)

    low, high = (torch.tensor(zoom).log().item() for zoom in _ZOOMS)
    moved = draw(1) < _ZOOMED_SHARE
    zoom = (low + (high - low) * draw(1)) * moved
    stretch = (draw(1) - 0.5) * 2 * _STRETCH * moved
    scale = torch.cat([zoom + stretch, zoom - stretch], 1).exp()
    largest = torch.where(is_code[..., None], size, 0).amax(1).clamp(min=0.05)
    scale = torch.where(scale > 1, torch.minimum(scale, (_LARGEST / largest).clamp(min=1)), scale)
    weights = is_code.float() + 1e-6
    chosen = torch.multinomial(weights, 1)[..., None].expand(-1, 1, 2)
    target = (draw(2) * 2 - 1) * 0.85
    wanted = target - centre.gather(1, chosen)[:, 0] * scale
    has_codes = is_code.any(1, keepdim=True) & (scale > 1)
    room = (scale - 1).abs() + 0.1 * (draw(1) < 0.2)
    wanted = torch.where(has_codes, wanted, (draw(2) * 2 - 1) * room)
    return scale, torch.minimum(torch.maximum(wanted, -room), room) * moved


def _hide(pictures: Tensor, low: Tensor, high: Tensor, which: Tensor) -> Tensor:
    """Cover boxes with grey: codes of which too little is left to count."""
    at = torch.arange(pictures.shape[-1], device=pictures.device) + 0.5
    column, row = (
        (at >= low[..., i, None] - 2) & (at <= high[..., i, None] + 2) & which[..., None]
        for i in range(2)
    )
    cover = torch.bmm(row.half().transpose(1, 2), column.half())
    return torch.where(cover[:, None] > 0, 0.5, pictures)


def _contrast(pictures: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return the standard deviation of a grid of pixels in the middle of each box."""
    side, device = pictures.shape[-1], pictures.device
    at = 0.25 + 0.5 * (torch.arange(_SAMPLES, device=device) + 0.5) / _SAMPLES
    places = (low[..., None] + (high - low)[..., None] * at).long().clamp(0, side - 1)
    column, row = places[..., 0, :], places[..., 1, :]
    picture = torch.arange(len(pictures), device=device)[:, None, None, None]
    grey = pictures[:, 1]
    values = grey[picture, row[..., :, None], column[..., None, :]]
    return values.flatten(2).std(2)


def _disturb(pictures: Tensor) -> Tensor:
    """Add moiré, glare, blur and noise to some of the pictures."""
    batch, _, side, _ = pictures.shape
    device = pictures.device
    at = torch.linspace(-1, 1, side, device=device)
    across, down = at[None, None, None, :], at[None, None, :, None]

    def some(share: float) -> Tensor:
        count = int(batch * share + random.random())
        return torch.randperm(batch, device=device)[:count]

    def draw(count: int, low: float, high: float, channels: int = 1) -> Tensor:
        return torch.empty(count, channels, 1, 1, device=device).uniform_(low, high)

    chosen = some(0.06)  # moiré, with a phase for each colour
    if count := len(chosen):
        angle, waves = draw(count, 0, torch.pi), draw(count, 8, 120)
        bow = draw(count, -0.6, 0.6)
        phase = (across * angle.cos() + down * angle.sin() + bow * across * down) * waves
        strength = draw(count, 0.03, 0.22)
        pictures[chosen] *= 1 + strength * (phase + draw(count, 0, 3, 3)).sin()
    chosen = some(0.06)  # glare
    if count := len(chosen):
        left, top = draw(count, -1, 1), draw(count, -1, 1)
        angle = draw(count, 0, torch.pi)
        x = (across - left) * angle.cos() + (down - top) * angle.sin()
        y = (down - top) * angle.cos() - (across - left) * angle.sin()
        spot = (
            -(x / draw(count, 0.05, 0.9)).square() - (y / draw(count, 0.03, 0.3)).square()
        ).exp()
        pictures[chosen] += spot * draw(count, 0.2, 0.9)
    for share, reach in ((0.1, 3), (0.05, 5)):
        chosen = some(share)
        if len(chosen):
            soft = F.avg_pool2d(pictures[chosen], reach, 1, reach // 2, count_include_pad=False)
            pictures[chosen] = soft
    chosen = some(0.25)
    if count := len(chosen):
        part = pictures[chosen]
        pictures[chosen] = part + torch.randn_like(part) * draw(count, 0.005, 0.07)
    return pictures


def _jitter_colors(pictures: Tensor) -> Tensor:
    batch, device = len(pictures), pictures.device

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        values = torch.empty(batch, channels, 1, 1, device=device).uniform_(low, high)
        return values.to(pictures.dtype)

    contrast = torch.where(draw(0, 1) < 0.15, draw(0.3, 0.8), draw(0.75, 1.3))
    result = (pictures - 0.5) * contrast + 0.5 + draw(-0.12, 0.12)
    result = result * draw(0.88, 1.12, 3)
    grey = result.mean(1, keepdim=True).expand_as(result)
    result = torch.where(draw(0, 1) < 0.12, grey, result)
    result = torch.where(draw(0, 1) < 0.03, 1 - result, result)
    return result.clamp(0, 1)
