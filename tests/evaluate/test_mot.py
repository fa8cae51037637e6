"""MOTA, IDF1 and HOTA agree with motmetrics, TrackEval and a second, plain implementation."""

from itertools import permutations

import numpy as np
import pytest

from engine.errors import InputError
from engine.evaluate.mot import ALPHAS, Tally, Tracks, tally
from engine.evaluate.mot_files import find_pairs, read_tracks
from engine.track import Tracker
from tests.track.scenes import detections, follow, moving_objects


def overlap(a, b):
    wide = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    tall = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = max(wide, 0) * max(tall, 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def frames_of(truth, found):
    """Return for each frame the objects, the boxes and their overlap, as dictionaries."""
    frames = []
    for number in sorted({*truth.frames.tolist(), *found.frames.tolist()}):
        sides = []
        for tracks in (truth, found):
            here = tracks.frames == number
            boxes = tracks.boxes[here].tolist()
            sides.append(dict(zip(tracks.ids[here].tolist(), boxes, strict=True)))
        objects, boxes = sides
        iou = {(a, b): overlap(objects[a], boxes[b]) for a in objects for b in boxes}
        frames.append((list(objects), list(boxes), iou))
    return frames


def ways_to_pair(left, right):
    """Yield every way to pair the elements of two lists, until one list is used up."""
    if len(left) > len(right):
        for way in ways_to_pair(right, left):
            yield [(a, b) for b, a in way]
    else:
        for order in permutations(right, len(left)):
            yield list(zip(left, order, strict=True))


def plain_mota(frames):
    last, counts = {}, {"switches": 0, "misses": 0, "false_positives": 0}
    for objects, boxes, iou in frames:
        near = {pair: 1 - each for pair, each in iou.items() if 1 - each <= 0.5}
        kept = [(a, last[a]) for a in objects if (a, last.get(a)) in near]
        rest = [a for a in objects if a not in {a for a, _ in kept}]
        free = [b for b in boxes if b not in {b for _, b in kept}]
        ways = ([pair for pair in way if pair in near] for way in ways_to_pair(rest, free))
        new = min(ways, key=lambda way: (-len(way), sum(near[pair] for pair in way)))
        counts["switches"] += sum(a in last and last[a] != b for a, b in new)
        counts["misses"] += len(objects) - len(kept) - len(new)
        counts["false_positives"] += len(boxes) - len(kept) - len(new)
        last.update(new)
    return counts


def plain_id_matches(frames, truth, found):
    def together(a, b):
        return sum(1 - iou[a, b] <= 0.5 for _, _, iou in frames if (a, b) in iou)

    ways = ways_to_pair(sorted(set(truth.ids)), sorted(set(found.ids)))
    return max(sum(together(a, b) for a, b in way) for way in ways)


def plain_hota(frames, truth, found):
    """Follow the definition of the paper, with TrackEval's way to choose the matches."""
    objects = {each: int((truth.ids == each).sum()) for each in truth.ids.tolist()}
    boxes = {each: int((found.ids == each).sum()) for each in found.ids.tolist()}
    potential = dict.fromkeys([(a, b) for a in objects for b in boxes], 0.0)
    for _, _, iou in frames:
        for (a, b), each in iou.items():
            beside = sum(v for (x, y), v in iou.items() if x == a or y == b)
            potential[a, b] += each / beside if beside else 0
    alike = {(a, b): p / (objects[a] + boxes[b] - p) for (a, b), p in potential.items()}
    chosen = []
    for here, there, iou in frames:
        ways = ways_to_pair(here, there)
        best = max(ways, key=lambda way: sum(alike[p] * iou[p] for p in way), default=[])
        chosen.append([(pair, iou[pair]) for pair in best])
    scores = []
    for alpha in ALPHAS:
        matches = [pair for pairs in chosen for pair, each in pairs if each >= alpha - 1e-15]
        associations = []
        for pair in matches:
            true = matches.count(pair)
            associations.append(true / (objects[pair[0]] + boxes[pair[1]] - true))
        accuracy = len(matches) / (len(truth) + len(found) - len(matches))
        scores.append(np.sqrt(accuracy * np.mean(associations)) if matches else 0)
    return np.mean(scores)


def random_tracks(random, *, identities, frames):
    rows = []
    for frame in range(1, frames + 1):
        for identity in range(identities):
            if random.random() < 0.8:
                corner = np.array([25.0 * identity, 0]) + random.normal(0, 7, 2)
                rows.append((frame, 10 + identity, *corner, *random.uniform(20, 40, 2)))
    table = np.array(rows)
    return Tracks(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:])


@pytest.mark.parametrize("seed", range(8))
def test_random_tracks_match_the_plain_implementation(seed):
    random = np.random.default_rng(seed)
    truth = random_tracks(random, identities=int(random.integers(1, 5)), frames=6)
    found = random_tracks(random, identities=int(random.integers(1, 5)), frames=7)
    frames = frames_of(truth, found)
    got = tally(truth, found)
    for name, expected in plain_mota(frames).items():
        assert getattr(got, name) == expected, name
    assert got.id_matches == plain_id_matches(frames, truth, found)
    assert got.hota == pytest.approx(plain_hota(frames, truth, found), abs=1e-12)


# What motmetrics 1.4.0 and, from `hota` on, TrackEval 1.0.0 say about the tracks below.
LIBRARIES = {
    "mota": 0.6759581881533101,
    "motp": 0.21346907448143934,
    "idf1": 0.7891682785299806,
    "id_precision": 0.8869565217391304,
    "id_recall": 0.710801393728223,
    "matches": 209,
    "switches": 6,
    "misses": 72,
    "false_positives": 15,
    "fragmentations": 39,
    "mostly_tracked": 4,
    "mostly_lost": 0,
    "frames": 60,
    "objects": 287,
    "id_matches": 204,
    "hota": 0.5625520376224121,
    "detection_accuracy": 0.5536850884698673,
    "association_accuracy": 0.5717162203049074,
    "localisation_accuracy": 0.817182910117575,
}


@pytest.fixture(scope="module")
def made():
    truth = moving_objects(1, objects=8, frames=60)
    frames = detections(truth, 2, missed=0.2, wrong=2, noise=0.08)
    return truth, follow(Tracker(hits=1, iou=0.5), frames)


def test_the_metrics_of_libraries(made):
    assert {name: tally(*made).to_dict()[name] for name in LIBRARIES} == pytest.approx(
        LIBRARIES, abs=1e-9
    )


def test_perfect_tracks():
    truth = moving_objects(3, objects=4, frames=20)
    got = tally(truth, truth).to_dict()
    for name in ("mota", "idf1", "hota", "localisation_accuracy"):
        assert got[name] == pytest.approx(1, abs=1e-12)
    assert got["mostly_tracked"] == got["identities"] == 4


def test_nothing_found_and_nothing_there():
    truth = moving_objects(3, objects=4, frames=20)
    nothing = Tracks(np.empty(0, int), np.empty(0, int), np.empty((0, 4)))
    missed = tally(truth, nothing)
    assert (missed.mota, missed.idf1, missed.hota, missed.misses) == (0, 0, 0, len(truth))
    assert tally(nothing, truth).false_positives == len(truth)
    assert tally(nothing, nothing).frames == 0


def test_sequences_are_added(made):
    one, two = tally(*made), tally(made[0], made[0])
    both = Tally.total([one, two])
    assert both.misses == one.misses
    assert both.objects == 2 * one.objects
    assert min(one.hota, two.hota) < both.hota < max(one.hota, two.hota)
    assert both.mota == 1 - (1 - one.mota) / 2


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_columns_may_be_separated_by_spaces_and_end_early(tmp_path):
    tracks = read_tracks(write(tmp_path / "a.txt", "1,2,3,4,5,6,1,-1,-1,-1\r\n\n2 2 3.5 4 5 6\n"))
    assert tracks.frames.tolist() == [1, 2]
    assert tracks.boxes.tolist() == [[3, 4, 5, 6], [3.5, 4, 5, 6]]


def test_ground_truth_of_confidence_0_does_not_count(tmp_path):
    file = write(tmp_path / "gt.txt", "1,1,3,4,5,6,0\n1,2,3,4,5,6,1\n")
    assert read_tracks(file, is_truth=True).ids.tolist() == [2]
    assert read_tracks(file).ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,3\n", "a.txt:1: expected frame, identity, left, top, width, height, got 3 numbers"),
        ("1,a,3,4,5,6\n", "a.txt:1: expected numbers, got '1,a,3,4,5,6'"),
        ("1,1,3,4,nan,6\n", "a.txt:1: expected finite numbers, got"),
        ("1.5,1,3,4,5,6\n", "a.txt:1: expected integers up to 1e+15 for frame and identity, got"),
        ("9e30,1,3,4,5,6\n8e30,1,3,4,5,6\n", "a.txt:1: expected integers up to 1e+15 for"),
        ("1,-9007199254740993,3,4,5,6\n", "a.txt:1: expected integers up to 1e+15 for"),
        ("1,1,3,4,5,6\n1,1,3,4,5,6\n", "a.txt:2: identity 1 appears twice in frame 1, see line 1"),
    ],
)
def test_lines_that_cannot_be_read_are_named(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError) as caught:
        read_tracks(write(tmp_path / "a.txt", text).relative_to(tmp_path))
    assert str(caught.value).startswith(message)


def test_folders_are_paired_by_the_names_of_results(tmp_path):
    for name in ("truth/A/gt/gt.txt", "truth/B.txt", "found/A.txt", "found/B.txt"):
        write(tmp_path / name, "1,1,3,4,5,6\n")
    pairs = list(find_pairs(str(tmp_path / "truth"), str(tmp_path / "found")))
    assert [name for name, _, _ in pairs] == ["A", "B"]
    assert pairs[0][1] == tmp_path / "truth/A/gt/gt.txt"
    (tmp_path / "truth/B.txt").unlink()
    with pytest.raises(InputError, match=r"truth: expected B.txt or B/gt/gt.txt for .*B.txt"):
        list(find_pairs(str(tmp_path / "truth"), str(tmp_path / "found")))
    with pytest.raises(InputError, match="expected a file, as"):
        list(find_pairs(str(tmp_path / "truth"), str(tmp_path / "found/A.txt")))
    with pytest.raises(InputError, match="expected a folder, as"):
        list(find_pairs(str(tmp_path / "found/A.txt"), str(tmp_path / "found")))
    with pytest.raises(InputError, match=r"has no \.txt files"):
        list(find_pairs(str(tmp_path / "truth"), str(tmp_path / "truth")))


def test_false_boxes_where_nothing_is_there_are_errors():
    assert Tally(boxes=2, false_positives=2).mota == -2
