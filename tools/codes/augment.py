"""Augmentation on the GPU: scenes are turned, mirrored, zoomed, lit, blurred and coloured.

Zooming takes place while a scene is scaled to the network's input, so that a scene of 832 pixels
also gives close-ups of its codes without being enlarged.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812
from scene_pool import FAINT
from torch import Tensor

_SHORTEST_SIDE = 5.0
_LEAST_VISIBLE = 0.45
_LARGEST = 1.2  # longer side of a code after zooming, in sides of the picture
_ZOOMED_SHARE, _ZOOMS = 0.6, (0.4, 2.5)
_CUT_SHARE, _CUT_FILL = 0.09, (0.9, 1.12)  # codes cut out: their sides, in sides of the picture
_CUT_SIDES = 0.2, 0.07  # of the smallest codes that are cut out: the longer and the shorter one
_MIN_CONTRAST = 0.017  # standard deviation of grey values in the middle of a code,
_FULL_SIDE = 80.0  # if its longer side has this many pixels or more; a smaller one needs more
_SAMPLES = 10
_STRETCH = 0.25  # of the logarithm of the aspect ratio


@torch.no_grad()
def augment(
    pictures: Tensor, boxes: Tensor, side: int, strength: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Augment square pictures (batch, rows, columns, 3) of bytes and scale them to `side`.

    Boxes are (batch, codes, 5): class, NONE or FAINT, x, y, width and height, relative to the
    picture. Return the pictures (batch, 3, side, side) in 0..1, the boxes in pixels, which of them
    are codes, and which are codes that are too faint to ask for them.

    `strength` is 0 or 1: whether to zoom. A CUDA graph can hold all of it: tensors have fixed
    sizes, nothing is read back, and torch.where gets no numbers, which it would copy.
    """
    batch, device = len(pictures), pictures.device
    matrix = _random_turns(batch, device)
    is_code = boxes[..., 0] >= 0
    centre = (boxes[..., 1:3] * 2 - 1) @ matrix.transpose(1, 2)
    size = boxes[..., 3:5] @ matrix.abs().transpose(1, 2)
    scale, shift = _random_zoom(centre, size, is_code, strength)
    # A point is mapped to matrix @ point * scale + shift; grid_sample needs the inverse.
    inverse = matrix.transpose(1, 2) / scale[:, None, :]
    offset = -(inverse @ shift[:, :, None])
    grid = F.affine_grid(
        torch.cat([inverse, offset], 2), [batch, 3, side, side], align_corners=False
    )
    # Pad with grey: reflected codes would have no boxes, and replicated edges look like barcodes.
    levels = pictures.float().sub_(127.5).permute(0, 3, 1, 2)
    result = F.grid_sample(levels, grid, align_corners=False).mul_(1 / 255).add_(0.5)
    centre, size = centre * scale[:, None] + shift[:, None], size * scale[:, None]
    low = ((centre + 1) / 2 - size / 2) * side
    high = ((centre + 1) / 2 + size / 2) * side
    inner_low, inner_high = low.clamp(0, side), high.clamp(0, side)
    shown = (inner_high - inner_low).clamp(min=0)
    visible = shown.prod(2) / (high - low).prod(2).clamp(min=1e-6)
    good = is_code & (visible > _LEAST_VISIBLE) & (shown.amin(2) >= _SHORTEST_SIDE)
    hidden = is_code & ~good & (visible > 0.02)
    is_faint = (boxes[..., 0] == FAINT) & (visible > 0.02)
    result = _jitter_colors(_disturb(_hide(result, inner_low, inner_high, hidden)))
    least = _MIN_CONTRAST * (_FULL_SIDE / shown.amax(2).clamp(1.0, _FULL_SIDE)).pow(0.6)
    is_clear = _contrast(result, inner_low, inner_high) > least
    rows = torch.cat([boxes[..., :1], (inner_low + inner_high) / 2, shown], 2)
    return result, rows, good & is_clear, is_faint | (good & ~is_clear)


def _random_turns(batch: int, device: torch.device) -> Tensor:
    """Return random quarter turns and mirrorings; half of them without a turn."""
    quarter = torch.randint(0, 4, (batch,), device=device)
    quarter = quarter * (torch.rand(batch, device=device) < 0.5)
    angle = quarter * (torch.pi / 2)
    cosine, sine = angle.cos().round(), angle.sin().round()
    mirror = torch.randint(0, 2, (batch,), device=device) * 2.0 - 1
    rows = torch.stack([cosine * mirror, -sine, sine * mirror, cosine], 1)
    return rows.view(batch, 2, 2)


def _random_zoom(
    centre: Tensor, size: Tensor, is_code: Tensor, strength: Tensor
) -> tuple[Tensor, Tensor]:
    """Return scales and shifts that keep a random code of each picture in the frame."""
    batch, device = len(centre), centre.device

    def draw(*shape: int) -> Tensor:
        return torch.rand(batch, *shape, device=device)

    low, high = (math.log(zoom) for zoom in _ZOOMS)
    moved = (draw(1) < _ZOOMED_SHARE) * strength
    zoom = (low + (high - low) * draw(1)) * moved
    stretch = (draw(1) - 0.5) * 2 * _STRETCH * moved
    scale = torch.cat([zoom + stretch, zoom - stretch], 1).exp()
    largest = (size * is_code[..., None]).amax(1).clamp(min=0.05)
    scale = torch.where(scale > 1, torch.minimum(scale, (_LARGEST / largest).clamp(min=1)), scale)
    chosen = (draw(is_code.shape[1]) + is_code).argmax(1)[:, None, None].expand(-1, 1, 2)
    target = (draw(2) * 2 - 1) * 0.85
    wanted = target - centre.gather(1, chosen)[:, 0] * scale
    has_codes = is_code.any(1, keepdim=True) & (scale > 1)
    room = (scale - 1).abs() + 0.1 * (draw(1) < 0.2)
    wanted = torch.where(has_codes, wanted, (draw(2) * 2 - 1) * room)
    shift = torch.minimum(torch.maximum(wanted, -room), room) * moved
    # A picture that somebody cut out around a code is stretched to the network's square.
    extent = size.gather(1, chosen)[:, 0]
    is_large = (extent.amax(1) > _CUT_SIDES[0]) & (extent.amin(1) > _CUT_SIDES[1])
    is_cut = (is_large & is_code.any(1))[:, None] & (draw(1) < _CUT_SHARE * strength)
    fill = _CUT_FILL[0] + (_CUT_FILL[1] - _CUT_FILL[0]) * draw(2)
    cut = fill / extent.clamp(min=_CUT_SIDES[1])
    aside = (draw(2) - 0.5) * 0.08 - centre.gather(1, chosen)[:, 0] * cut
    return torch.where(is_cut, cut, scale), torch.where(is_cut, aside, shift)


def _hide(pictures: Tensor, low: Tensor, high: Tensor, which: Tensor) -> Tensor:
    """Cover boxes with grey: codes of which too little is left to count."""
    at = torch.arange(pictures.shape[-1], device=pictures.device) + 0.5
    column, row = (
        (at >= low[..., i, None] - 2) & (at <= high[..., i, None] + 2) & which[..., None]
        for i in range(2)
    )
    cover = torch.bmm(row.half().transpose(1, 2), column.half())
    return pictures.masked_fill_(cover[:, None] > 0, 0.5)


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
    """Add moiré, glare, blur, noise and specks to some of the pictures, whose order is random."""
    batch, _, side, _ = pictures.shape
    device = pictures.device
    at = torch.linspace(-1, 1, side, device=device)
    across, down = at[None, None, None, :], at[None, None, :, None]
    first = 0

    def some(share: float, *, overlap: float = 0.0) -> Tensor:
        """Return the next pictures as a view; `overlap` goes back by a share of the batch."""
        nonlocal first
        first = max(0, first - round(overlap * batch))
        last = min(batch, first + max(1, round(share * batch)))
        part = pictures[first:last]
        first = last
        return part

    def draw(part: Tensor, low: float, high: float, channels: int = 1) -> Tensor:
        return torch.empty(len(part), channels, 1, 1, device=device).uniform_(low, high)

    part = some(0.06)  # moiré, with a phase for each colour
    angle, waves = draw(part, 0, torch.pi), draw(part, 8, 240)
    bow = draw(part, -0.6, 0.6)
    phase = (across * angle.cos() + down * angle.sin() + bow * across * down) * waves
    part *= 1 + draw(part, 0.03, 0.22) * (phase + draw(part, 0, 3, 3)).sin()
    part = some(0.06)  # glare
    left, top = draw(part, -1, 1), draw(part, -1, 1)
    angle = draw(part, 0, torch.pi)
    x = (across - left) * angle.cos() + (down - top) * angle.sin()
    y = (down - top) * angle.cos() - (across - left) * angle.sin()
    spot = (-(x / draw(part, 0.05, 0.9)).square() - (y / draw(part, 0.03, 0.3)).square()).exp()
    part += spot * draw(part, 0.2, 0.9)
    for share, reach in ((0.08, 3), (0.05, 5), (0.04, 9)):
        part = some(share, overlap=0.02)
        part.copy_(F.avg_pool2d(part, reach, 1, reach // 2, count_include_pad=False))
    part = some(0.25, overlap=0.12)
    part += torch.randn_like(part) * draw(part, 0.005, 0.07)
    part = some(0.06, overlap=0.03)  # specks: dead pixels, dust, bad copies
    speck = torch.rand_like(part[:, :1]) < draw(part, 0.001, 0.05)
    part.copy_(torch.where(speck, (torch.rand_like(part[:, :1]) < 0.5).to(part.dtype), part))
    return pictures


def _jitter_colors(pictures: Tensor) -> Tensor:
    batch, device = len(pictures), pictures.device

    def draw(low: float, high: float, channels: int = 1) -> Tensor:
        return torch.empty(batch, channels, 1, 1, device=device).uniform_(low, high)

    contrast = torch.where(draw(0, 1) < 0.15, draw(0.3, 0.8), draw(0.75, 1.3))
    gains = draw(0.88, 1.12, 3)
    factor, added = contrast * gains, (0.5 - 0.5 * contrast + draw(-0.12, 0.12)) * gains
    is_negative = draw(0, 1) < 0.05
    factor = torch.where(is_negative, -factor, factor)
    added = torch.where(is_negative, 1 - added, added)
    result = torch.addcmul(added, pictures, factor)
    grey = result[-max(1, round(0.12 * batch)) :]
    grey.copy_(grey.mean(1, keepdim=True).expand_as(grey))
    return result.clamp_(0, 1)
