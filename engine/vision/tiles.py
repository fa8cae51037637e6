"""Cut a large picture into overlapping tiles, and merge the boxes that are found in them.

Boxes of different tiles show one object if they agree in the area that both tiles see: both boxes
are clipped to that area, and their overlap is measured there. A box edge at an inner edge of its
tile is cut: the object may continue, so the edge is moved to the tile's. Two halves of an object
agree in the strip that both tiles see, and a half agrees with the whole object, however small the
half is. Adjacent objects do not agree.

Boxes of one tile never show the same object, as its NMS has already decided. This keeps close
objects apart; therefore pairs are joined in the order of their overlap.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from engine.arrays import Array
from engine.errors import InputError
from engine.settings import Tiles
from engine.vision.boxes import NO_BOXES, Boxes, Suppression
from engine.vision.neighbours import Neighbours
from engine.vision.nms import suppress
from engine.vision.postprocess import MAX_SCORES

Sides = tuple[int, int]
Area = tuple[int, int, int, int]  # left, top, right, bottom in pixels of the picture

MOST_TILES = 1024  # per picture
MOST_BOXES = 100_000  # in all tiles of a picture

_UNCUT = 2.0  # a picture that is scaled down by at most this is not cut by "auto",
_SHRINKING = 1.4  # and nothing in its smallest tiles is scaled down by more than this
_NEXT_LEVEL = 2.0  # tiles of "auto" are this much larger from level to level

_NEAR = 0.02  # an edge of a box this near to its tile's, relative to the tile, is cut,
_NEAR_OF_BOX = 0.05  # and this much of the box more, as large boxes are less exact
_REACH = 0.01  # extends tiles, relative to their size, so that adjacent ones share a strip
_IOU = 0.45  # least IoU of two boxes that show the same object
_LOOSE_IOU, _LOOSE_IOS = 0.25, 0.75  # the same, if one box is almost inside the other
_BLOCK = 256  # parts processed at once
_MOST_PARTNERS = 32  # average per box, which bounds the memory for pairs
_MOST_PAIRS = MAX_SCORES**2  # comparisons, if there are more than MAX_SCORES boxes


def areas_of(picture: Sides, network: Sides, tiles: Tiles, overlap: float) -> tuple[Area, ...]:
    """Return the whole picture and its tiles, or () if the picture is better not cut.

    `tiles` is a side in pixels of the picture, or (columns, rows), or "auto": tiles in which
    nothing is scaled down by more than 2, and larger ones with two, four, … times their sides. So
    for objects of any size there is a tile that shows the entire object large enough.
    """
    if tiles == "auto":
        areas = _automatic(picture, network, overlap)
    elif isinstance(tiles, tuple):
        columns, rows = (min(pair) for pair in zip(tiles, picture, strict=True))
        if columns * rows > MOST_TILES:
            side = max(tiles)
            hint = f"These are columns and rows: for tiles of {side} pixels, give {side} alone"
            raise _too_many_error(picture, (columns, rows), hint)
        sides = _side_of(picture[0], columns, overlap), _side_of(picture[1], rows, overlap)
        areas = _grid(picture, sides, (columns, rows), overlap)
    else:
        areas = _even_grid(picture, (int(tiles), int(tiles)), overlap)
    return () if len(areas) < 2 else ((0, 0, *picture), *areas)


def _automatic(picture: Sides, network: Sides, overlap: float) -> list[Area]:
    """Return the tiles of all levels, the smallest ones last."""
    shrinking = max(picture[0] / network[0], picture[1] / network[1])
    if shrinking <= _UNCUT:
        return []
    scale = max(
        _side_of(extent, _count(extent, _SHRINKING * side, overlap), overlap) / side
        for extent, side in zip(picture, network, strict=True)
    )
    scale = min(scale, _SHRINKING)
    levels: list[list[Area]] = []
    while not levels or scale * math.sqrt(_NEXT_LEVEL) < shrinking:
        sides = math.ceil(network[0] * scale), math.ceil(network[1] * scale)
        levels.append(_even_grid(picture, sides, overlap))
        scale *= _NEXT_LEVEL
    return [area for level in reversed(levels) for area in level]


def _even_grid(picture: Sides, sides: Sides, overlap: float) -> list[Area]:
    width, height = (min(pair) for pair in zip(sides, picture, strict=True))
    counts = _count(picture[0], width, overlap), _count(picture[1], height, overlap)
    return _grid(picture, (width, height), counts, overlap)


def _count(extent: int, side: float, overlap: float) -> int:
    """Return how many tiles cover an extent with at least this overlap."""
    if extent <= side:
        return 1
    step = max(side * (1 - overlap), 1)
    return 1 + math.ceil((extent - side) / step - 1e-9)


def _side_of(extent: int, count: int, overlap: float) -> int:
    """Return the side of `count` tiles that cover an extent with this overlap."""
    return math.ceil(extent / (count - (count - 1) * overlap))


def _grid(picture: Sides, sides: Sides, counts: Sides, overlap: float) -> list[Area]:
    columns, rows = counts
    if columns * rows > MOST_TILES:
        side = math.sqrt(math.prod(picture) / MOST_TILES) / (1 - overlap)
        larger = 100 * math.ceil(side / 100 + 0.5)
        while math.prod(_count(extent, larger, overlap) for extent in picture) > MOST_TILES:
            larger *= 2  # a narrow picture has one row of tiles at any size
        raise _too_many_error(picture, counts, f"Try a size of {larger} pixels")
    width, height = sides
    lefts, tops = (
        [round(number * (extent - side) / max(count - 1, 1)) for number in range(count)]
        for extent, side, count in zip(picture, sides, counts, strict=True)
    )
    return [(left, top, left + width, top + height) for top in tops for left in lefts]


def _too_many_error(picture: Sides, counts: Sides, hint: str) -> InputError:
    return InputError(
        f"tiles: expected at most {MOST_TILES} of a picture, got {counts[0]} x {counts[1]} for "
        f"{picture[0]} x {picture[1]}. {hint}"
    )


# ---------------------------------------------------------------- merging


def merge(
    found: Sequence[Boxes],
    areas: Sequence[Area],
    suppression: Suppression,
    *,
    max_detections: int | None = None,
    warn: Callable[[str], object] | None = None,
) -> Boxes:
    """Return the boxes of a picture, given those of its tiles; the first area is all of it.

    Boxes of one object are merged: into the uncut one with the best score, or else the smallest box
    around all of them, with their best score. If there are more than MOST_BOXES, or too many
    overlap, only the best are merged, and `warn` gets one line.
    """
    parts = [(number, each) for number, each in enumerate(found) if len(each)]
    if not parts:
        return NO_BOXES
    tile = np.repeat([number for number, _ in parts], [len(each) for _, each in parts])
    xywh, scores, class_ids, objectness = (
        np.concatenate([getattr(each, column) for _, each in parts])
        for column in ("xywh", "scores", "class_ids", "objectness")
    )
    order = np.argsort(-scores, kind="stable")[:MOST_BOXES]
    tile, scores, class_ids, objectness = (
        each[order] for each in (tile, scores, class_ids, objectness)
    )
    whole = np.array(areas[0], np.float64)
    frames = np.array(areas, np.float64)[tile]
    edges, cut = _clip_to_tiles(_in_picture(xywh[order], frames), frames, whole)
    groups = np.zeros_like(class_ids) if suppression.across_classes else class_ids
    reach = np.tile(_REACH * (frames[:, 2:] - frames[:, :2]), 2) * np.array([-1, -1, 1, 1])
    seen = frames + reach
    probes = np.where(cut, seen, edges)
    width, height = areas[0][2:]
    near = Neighbours(probes, groups, (width, height))
    most = len(order)
    while most > MAX_SCORES and near.count() > _MOST_PAIRS:
        most = max(most * 3 // 4, MAX_SCORES)
        near = Neighbours(probes[:most], groups[:most], (width, height))
    if most < len(xywh) and warn is not None:
        warn(f"only the best {most:,} of {len(xywh):,} boxes are merged. Raise the threshold")
    edges, cut, seen, probes, tile, groups = (
        each[:most] for each in (edges, cut, seen, probes, tile, groups)
    )
    clusters = _clusters(edges, probes, seen, tile, near)
    is_cut = np.asarray(cut.any(axis=1))
    boxes, best = _one_each(edges, is_cut, clusters)
    near = Neighbours(boxes, groups[best], (width, height))
    keeps = ~_covered(boxes, is_cut, clusters, tile, near)
    best, boxes = best[keeps], boxes[keeps]
    centres, sides = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
    merged = Boxes(
        np.hstack([centres, sides] / np.array([width, height])).astype(np.float32),
        scores[best],
        class_ids[best],
        objectness[best],
    )
    return suppress(merged, suppression).select(max_detections=max_detections)


def _in_picture(xywh: Array, frames: Array) -> Array:
    """Return edges in pixels of the picture, given boxes relative to their tiles."""
    origin, sides = frames[:, :2], frames[:, 2:] - frames[:, :2]
    centre, half = xywh[:, :2].astype(np.float64), xywh[:, 2:] / 2.0
    return np.hstack([origin + (centre - half) * sides, origin + (centre + half) * sides])


def _clip_to_tiles(edges: Array, frames: Array, whole: Array) -> tuple[Array, Array]:
    """Clip boxes at the inner edges of their tiles; also return which edges are cut there."""
    is_inner = frames != whole
    outward = np.array([-1, -1, 1, 1])
    beyond = (edges - frames) * outward  # how far a box goes past its tile
    sides = np.tile(frames[:, 2:] - frames[:, :2], 2)
    near = _NEAR * sides + _NEAR_OF_BOX * np.tile(edges[:, 2:] - edges[:, :2], 2)
    cut = is_inner & (beyond >= -near)
    return np.where(is_inner & (beyond > 0), frames, edges), cut


def _clusters(edges: Array, probes: Array, seen: Array, tile: Array, near: Neighbours) -> Array:
    """Return for each box the number of its cluster: the index of its best box."""
    most = _MOST_PARTNERS * len(edges)
    pairs: list[tuple[Array, ...]] = []
    count = 0
    for each in _pairs(edges, probes, seen, tile, near):
        pairs.append(each)
        count += len(each[0])
        if count > 2 * most:
            pairs = [tuple(column[:most] for column in _by_overlap(pairs))]
            count = most
    leader = list(range(len(edges)))
    if pairs:
        _, first, second = (column[:most] for column in _by_overlap(pairs))
        _join(leader, tile.tolist(), first.tolist(), second.tolist())
    return np.array([_leader_of(leader, each) for each in range(len(edges))])


def _by_overlap(pairs: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    """Return the columns of pairs, sorted by falling overlap."""
    overlap, first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((second, first, -overlap))
    return overlap[order], first[order], second[order]


def _pairs(
    edges: Array, probes: Array, seen: Array, tile: Array, near: Neighbours
) -> Iterator[tuple[Array, Array, Array]]:
    """Yield overlaps and indices of pairs from different tiles that show the same object."""
    for first, second in near.touching(np.arange(len(edges))):
        chosen = np.flatnonzero((first < second) & (tile[first] != tile[second]))
        first, second = first[chosen], second[chosen]
        shared = _clipped(seen[first], seen[second])
        exact = _overlaps(edges[first], edges[second], shared)
        probed = _overlaps(probes[first], probes[second], shared)
        agree = np.flatnonzero(_are_one(*exact) | _are_one(*probed))
        yield np.maximum(exact[0], probed[0])[agree], first[agree], second[agree]


def _overlaps(a: Array, b: Array, shared: Array) -> tuple[Array, Array]:
    """Return IoU and intersection over the smaller of pairs, within the areas that tiles share."""
    a, b = _clipped(a, shared), _clipped(b, shared)
    inside, of_a, of_b = _extent(_clipped(a, b)), _extent(a), _extent(b)
    union, smaller = of_a + of_b - inside, np.minimum(of_a, of_b)
    zero = np.zeros_like(inside)
    iou = np.divide(inside, union, out=zero.copy(), where=union > 0)
    return iou, np.divide(inside, smaller, out=zero, where=smaller > 0)


def _clipped(a: Array, b: Array) -> Array:
    return np.hstack([np.maximum(a[:, :2], b[:, :2]), np.minimum(a[:, 2:], b[:, 2:])])


def _extent(edges: Array) -> Array:
    width, height = np.maximum(edges[:, 2:] - edges[:, :2], 0).T
    return np.asarray(width * height)


def _are_one(iou: Array, ios: Array) -> Array:
    return np.asarray((iou >= _IOU) | ((iou >= _LOOSE_IOU) & (ios >= _LOOSE_IOS)))


def _join(leader: list[int], tile: list[int], first: list[int], second: list[int]) -> None:
    """Join pairs in the given order, unless a cluster would get two boxes of one tile."""
    tiles = [1 << each for each in tile]  # a bit for each tile of a cluster
    for one, other in zip(first, second, strict=True):
        one, other = _leader_of(leader, one), _leader_of(leader, other)
        if one != other and not tiles[one] & tiles[other]:
            best, worse = min(one, other), max(one, other)
            leader[worse] = best
            tiles[best] |= tiles[worse]


def _leader_of(leader: list[int], each: int) -> int:
    while leader[each] != each:
        leader[each] = each = leader[leader[each]]
    return each


def _one_each(edges: Array, is_cut: Array, clusters: Array) -> tuple[Array, Array]:
    """Return one box for each cluster, and the index of its best score, by descending score."""
    best, number = np.unique(clusters, return_inverse=True)
    boxes = np.empty((len(best), 4))
    boxes[:, :2], boxes[:, 2:] = np.inf, -np.inf
    np.minimum.at(boxes[:, :2], number, edges[:, :2])
    np.maximum.at(boxes[:, 2:], number, edges[:, 2:])
    complete = np.flatnonzero(~is_cut)[::-1]  # the best score is written last
    boxes[number[complete]] = edges[complete]
    return boxes, best


def _covered(boxes: Array, is_cut: Array, clusters: Array, tile: Array, near: Neighbours) -> Array:
    """Return which clusters are only parts that lie in the box of another cluster.

    A tile may show too little of a large object for an exact box. A part that is itself covered
    does not cover others with a worse score.
    """
    best, number = np.unique(clusters, return_inverse=True)
    is_part = np.ones(len(best), bool)
    is_part[number[~is_cut]] = False
    tiles = _bits(tile, number, len(best))
    areas = _extent(boxes)
    covered = np.zeros(len(best), bool)
    parts = np.flatnonzero(is_part)
    for start in range(0, len(parts), _BLOCK):
        block = parts[start : start + _BLOCK]
        undecided = [(block[:0], block[:0])]
        for part, other in near.touching(block):
            inside = _extent(_clipped(boxes[part], boxes[other]))
            covers = (inside > _LOOSE_IOS * areas[part]) & (areas[other] > areas[part])
            part, other = part[covers], other[covers]
            apart = ~(tiles[part] & tiles[other]).any(axis=1)  # one tile's boxes differ
            part, other = part[apart], other[apart]
            depends = is_part[other] & (other >= block[0]) & (other < part)
            undecided.append((part[depends], other[depends]))
            covered[part[~depends & ((other > part) | ~covered[other])]] = True
        part, other = (np.concatenate(column) for column in zip(*undecided, strict=True))
        order = part.argsort(kind="stable")
        for one, another in zip(part[order].tolist(), other[order].tolist(), strict=True):
            covered[one] |= not covered[another]
    return covered


def _bits(tile: Array, number: Array, count: int) -> Array:
    """Return for each cluster a row of bits, set for each tile that it has boxes of."""
    bits = np.zeros((count, tile.max() // 8 + 1), np.uint8)
    np.bitwise_or.at(bits, (number, tile // 8), (1 << tile % 8).astype(np.uint8))
    return bits
