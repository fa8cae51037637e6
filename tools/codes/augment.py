"""Augmentation on the GPU: scenes are rotated, mirrored, scaled and colour-jittered."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

_SHORTEST_SIDE = 8.0
_LEAST_VISIBLE = 0.4


def augment(pictures: Tensor, boxes: Tensor, *, strong: bool) -> tuple[Tensor, Tensor]:
    """Augment pictures (batch, 3, side, side) in 0..1 and their boxes.

    Boxes are (batch, max_boxes, 5), padded with class -1. Return the pictures and rows of picture,
    class, centre x, y, width and height in pixels.
    """
    batch, _, side, _ = pictures.shape
    device = pictures.device
    matrix = _random_turns(batch, device)
    scale = torch.ones(batch, device=device)
    shift = torch.zeros(batch, 2, device=device)
    if strong:
        moved = torch.rand(batch, device=device) < 0.5
        scale = torch.where(moved, torch.empty_like(scale).uniform_(0.7, 1.5), scale)
        room = (scale - 1).abs() + 0.1
        shift = torch.where(
            moved[:, None], torch.empty_like(shift).uniform_(-1, 1) * room[:, None], shift
        )
    # A point is mapped to matrix @ point * scale + shift; grid_sample needs the inverse.
    inverse = matrix.transpose(1, 2) / scale[:, None, None]
    offset = -(inverse @ shift[:, :, None])
    grid = F.affine_grid(torch.cat([inverse, offset], 2), list(pictures.shape), align_corners=False)
    # Pad with grey: reflected codes would have no boxes, and replicated edges look like barcodes.
    result = _jitter_colors(F.grid_sample(pictures - 0.5, grid, align_corners=False) + 0.5)
    centre = boxes[..., 1:3] * 2 - 1
    centre = (centre @ matrix.transpose(1, 2)) * scale[:, None, None] + shift[:, None]
    size = (boxes[..., 3:5] @ matrix.abs().transpose(1, 2)) * scale[:, None, None]
    low = ((centre + 1) / 2 - size / 2) * side
    high = ((centre + 1) / 2 + size / 2) * side
    inner_low, inner_high = low.clamp(0, side), high.clamp(0, side)
    shown = (inner_high - inner_low).clamp(min=0)
    visible = shown.prod(2) / (high - low).prod(2).clamp(min=1e-6)
    good = (boxes[..., 0] >= 0) & (visible > _LEAST_VISIBLE) & (shown.amin(2) >= _SHORTEST_SIDE)
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


def _jitter_colors(pictures: Tensor) -> Tensor:
    batch, device = len(pictures), pictures.device

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        values = torch.empty(batch, channels, 1, 1, device=device).uniform_(low, high)
        return values.to(pictures.dtype)

    result = (pictures - 0.5) * draw(0.75, 1.25) + 0.5 + draw(-0.12, 0.12)
    result = result * draw(0.88, 1.12, 3)
    grey = result.mean(1, keepdim=True).expand_as(result)
    result = torch.where(draw(0, 1) < 0.12, grey, result)
    result = torch.where(draw(0, 1) < 0.03, 1 - result, result)
    return result.clamp(0, 1)
