"""The training loss: CIoU of boxes, cross-entropy of objectness and classes.

A code is assigned to each anchor whose width and height are within a factor of four, or else
to the nearest anchor, in the cell of its centre and in the two nearest neighbours, which
can reach it because scale_x_y is 2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.darknet.layers.yolo import Yolo

_MAX_RATIO = 4.0
_BOX_WEIGHT, _OBJECTNESS_WEIGHT, _CLASS_WEIGHT = 0.12, 0.7, 0.25
# Weights of objectness at strides 64, 32, 16 and 8: fine maps have more empty cells.
_BALANCE = (0.12, 0.4, 1.0, 4.0)
_MAX_EXPONENT = 4.0
# A found code has at least this objectness: otherwise long thin codes, whose boxes overlap less,
# score below look-alikes. The rest is the overlap, so that NMS keeps the best box.
_LEAST_OBJECTNESS = 0.5


def decode_sizes(raw: Tensor, anchors: Tensor) -> Tensor:
    return raw.clamp(-_MAX_EXPONENT, _MAX_EXPONENT).exp() * anchors


def decode_offsets(raw: Tensor, scale: float) -> Tensor:
    return raw.sigmoid() * scale - (scale - 1) / 2


class CodeLoss:
    """The loss, computed with tensors of fixed sizes so that a CUDA graph can hold it."""

    def __init__(self, layers: list[Yolo], device: torch.device) -> None:
        """`layers` are those of the heads, for the largest codes first."""
        self._scales = [layer.scale_x_y for layer in layers]
        self._anchors = [
            torch.tensor(layer.selected_anchors(), dtype=torch.float32, device=device)
            for layer in layers
        ]
        self._every = torch.cat(self._anchors)
        self._ways = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], device=device)

    def __call__(
        self, heads: list[Tensor], truth: Tensor, is_code: Tensor, is_faint: Tensor, side: int
    ) -> Tensor:
        """Return the loss; `truth` (batch, codes, 5) has class, x, y, width and height in pixels.

        Only the rows where `is_code` is true count. Where `is_faint` is true, objectness inside
        the box is neither asked for nor wrong. `side` is that of the pictures.
        """
        batch, codes = is_code.shape
        good = is_code.flatten()
        rows = truth.flatten(0, 1).masked_fill(~good[:, None], 1.0)
        fits = (_fits(rows, self._every) & good[:, None]).split([len(a) for a in self._anchors], 1)
        picture = torch.arange(batch, device=rows.device)[:, None].expand(batch, codes).flatten()
        total = heads[0].new_zeros(())
        each = zip(heads, fits, self._anchors, self._scales, _BALANCE, strict=True)
        for raw, fitting, anchors, scale, balance in each:
            size = side / raw.shape[2]
            wanted = self._assign(raw.shape, rows, picture, fitting, anchors / size, size)
            asked = 1 - _inside(truth / size, is_faint, raw.shape[2])
            total = total + _head_loss(raw, wanted, asked, scale, balance)
        return total

    def _assign(
        self,
        shape: torch.Size,
        rows: Tensor,
        picture: Tensor,
        fits: Tensor,
        anchors: Tensor,
        size: float,
    ) -> Targets:
        _, count, grid, _, entries = shape
        centre, extent = rows[:, 1:3] / size, rows[:, 3:] / size
        cell = centre.floor()
        way = (centre - cell >= 0.5) * 2.0 - 1
        cells = cell + way * self._ways[:, None]  # (3, codes, 2)
        valid = ((cells >= 0) & (cells < grid)).all(2)
        mask = valid[..., None] & fits
        column, row = cells.clamp(0, grid - 1).long().unbind(2)
        anchor = torch.arange(count, device=rows.device)
        index = ((picture * grid + row) * grid + column)[..., None] * count + anchor
        box = torch.cat([centre - cells, extent.expand(3, -1, -1)], 2)
        box = box[:, :, None].expand(-1, -1, count, -1)
        kinds = torch.arange(entries - 5, device=rows.device) == rows[:, :1]
        return Targets(
            index.flatten(),
            mask.flatten().float(),
            kinds.float()[None, :, None].expand(3, -1, count, -1).flatten(0, 2),
            box.flatten(0, 2),
            anchors.expand(*mask.shape, 2).flatten(0, 2),
        )


@dataclass(frozen=True)
class Targets:
    """The predictors of one head that should find codes, and their targets."""

    index: Tensor  # into rows of (picture, row, column, anchor)
    mask: Tensor  # 0 for those that do not count
    kinds: Tensor  # one-hot
    box: Tensor  # relative to the cell, in cells
    anchors: Tensor  # in cells


def _inside(boxes: Tensor, which: Tensor, grid: int) -> Tensor:
    """Return 1 for the cells (batch, rows, columns) that touch some of the boxes, else 0."""
    at = torch.arange(grid, device=boxes.device)
    low, high = (boxes[..., 1:3] + sign * boxes[..., 3:] / 2 for sign in (-1, 1))
    column, row = (
        (at + 1 > low[..., i, None]) & (at < high[..., i, None]) & which[..., None] for i in (0, 1)
    )
    return (torch.bmm(row.float().transpose(1, 2), column.float()) > 0).float()


def _head_loss(raw: Tensor, wanted: Targets, asked: Tensor, scale: float, balance: float) -> Tensor:
    flat = raw.permute(0, 2, 3, 1, 4).flatten(0, 3)
    own = flat.index_select(0, wanted.index)
    count = wanted.mask.sum().clamp(min=1)
    sizes = decode_sizes(own[:, 2:4], wanted.anchors)
    overlap = ciou(torch.cat([decode_offsets(own[:, :2], scale), sizes], 1), wanted.box)
    boxes = ((1 - overlap) * wanted.mask).sum() / count
    kinds = F.binary_cross_entropy_with_logits(own[:, 5:], wanted.kinds, reduction="none")
    kinds = (kinds.mean(1) * wanted.mask).sum() / count
    found = _LEAST_OBJECTNESS + (1 - _LEAST_OBJECTNESS) * overlap.detach().clamp(0, 1)
    objectness = flat.new_zeros(len(flat))
    objectness.scatter_reduce_(0, wanted.index, found * wanted.mask, "amax")
    weight = asked[..., None].expand(-1, -1, -1, raw.shape[1]).flatten()
    weight = torch.maximum(weight, (objectness > 0).float())
    objectness_loss = F.binary_cross_entropy_with_logits(flat[:, 4], objectness, weight)
    return (
        _BOX_WEIGHT * boxes + _CLASS_WEIGHT * kinds + _OBJECTNESS_WEIGHT * balance * objectness_loss
    )


def _fits(rows: Tensor, anchors: Tensor) -> Tensor:
    """Return for each code and each anchor of all heads whether they belong together."""
    ratio = rows[:, None, 3:] / anchors
    worst = torch.maximum(ratio, 1 / ratio).amax(2)
    return (worst < _MAX_RATIO) | (worst == worst.amin(1, keepdim=True))


def ciou(first: Tensor, second: Tensor) -> Tensor:
    """Return the complete IoU of pairs of boxes x, y, w, h."""
    low_1, high_1 = first[:, :2] - first[:, 2:] / 2, first[:, :2] + first[:, 2:] / 2
    low_2, high_2 = second[:, :2] - second[:, 2:] / 2, second[:, :2] + second[:, 2:] / 2
    common = _area((torch.minimum(high_1, high_2) - torch.maximum(low_1, low_2)).clamp(min=0))
    union = _area(first[:, 2:]) + _area(second[:, 2:]) - common + 1e-7
    overlap = common / union
    hull = torch.maximum(high_1, high_2) - torch.minimum(low_1, low_2)
    distance = (first[:, :2] - second[:, :2]).square().sum(1) / (hull.square().sum(1) + 1e-7)
    angle_1 = torch.atan(first[:, 2] / (first[:, 3] + 1e-7))
    angle_2 = torch.atan(second[:, 2] / (second[:, 3] + 1e-7))
    shape = 4 / math.pi**2 * (angle_2 - angle_1).square()
    with torch.no_grad():
        weight = shape / (shape - overlap + 1 + 1e-7)
    return overlap - distance - weight * shape


def _area(size: Tensor) -> Tensor:
    # The gradient of prod() counts zeros on the host, which a CUDA graph cannot hold.
    return size[:, 0] * size[:, 1]
