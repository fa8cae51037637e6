"""track(): identities as ultralytics gives them, from frame to frame and from call to call."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine.compat.ultralytics import YOLO
from engine.compat.ultralytics.following import Following
from engine.errors import InputError
from engine.vision.frame import Frame
from engine.vision.image import read
from tests import needs
from tests.pictures import write_video
from tests.vision.results import RESULT

PARCEL = read(Path(__file__).parents[3] / "docs" / "parcel.jpg").pixels[:, :, ::-1]
LEFT = np.hstack([PARCEL[:, :360], np.full_like(PARCEL[:, 360:], 128)])


def moved(frame, pixels):
    return np.roll(frame, pixels, axis=1)


@pytest.fixture
def codes():
    model = YOLO("codes").to("cpu")
    yield model
    model.close()


def ids_by_place(result):
    """Return the identities of the boxes from the top to the bottom of the picture."""
    return result.boxes.id[np.argsort(result.boxes.xyxy[:, 1])].int().tolist()


@pytest.mark.slow
def test_identities_last_from_call_to_call_if_they_shall(codes):
    (first,) = codes.track(PARCEL, persist=False)
    known = ids_by_place(first)
    assert sorted(known) == list(range(1, len(known) + 1))
    for step in range(1, 4):
        (result,) = codes.track(moved(PARCEL, 5 * step), persist=True)
        assert ids_by_place(result) == known
    for _ in range(2):  # a track that begins late gets its identity in its second frame
        (elsewhere,) = codes.track(moved(PARCEL, 360), persist=True)
    assert max(elsewhere.boxes.id) > len(known)
    for _ in range(2):
        (anew,) = codes.track(LEFT)
        assert sorted(anew.boxes.id.tolist()) == list(range(1, len(anew) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("persist", [False, True])
def test_each_video_begins_anew_unless_identities_persist(codes, tmp_path, persist):
    av = needs.package("av")

    for name, still in (("a.mp4", PARCEL), ("b.mp4", PARCEL[::-1])):
        with av.open(str(tmp_path / name), "w") as container:
            stream = container.add_stream(container.default_video_codec, rate=10)
            stream.width = stream.height = 720
            stream.bit_rate = 8_000_000
            for step in range(4):
                frame = np.ascontiguousarray(moved(still, 5 * step)[:, :, ::-1])
                container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
            container.mux(stream.encode())
    names = [str(tmp_path / name) for name in ("a.mp4", "b.mp4")]
    results = list(codes.track(names, stream=True, persist=persist))
    assert [Path(each.path).name for each in results] == ["a.mp4"] * 4 + ["b.mp4"] * 4
    first, second = results[:4], results[4:]
    assert set(ids_by_place(first[0])) <= set(ids_by_place(first[3]))
    assert min(first[0].boxes.id) == 1
    is_anew = sorted(second[0].boxes.id.tolist()) == list(range(1, len(second[0]) + 1))
    assert is_anew is not persist


def test_what_belongs_to_no_track_is_shown_only_if_nothing_does():
    following = Following()
    low = replace(RESULT, scores=np.full(len(RESULT), 0.15, np.float32))
    assert following.follow(low, "a", persist=True) is low
    followed = following.follow(RESULT, "b", persist=False)
    assert followed.scores.tolist() == [each for each in RESULT.scores if each >= 0.25]
    assert followed.track_ids.tolist() == list(range(1, len(followed) + 1))


def test_what_is_new_waits_for_its_second_frame():
    following = Following()
    followed = [following.follow(each, "a", persist=True) for each in (RESULT[:0], RESULT, RESULT)]
    assert [len(each) for each in followed] == [0, 0, len(RESULT)]
    assert followed[1].track_ids is None


@pytest.mark.parametrize("name", ["a.mp4", "b.mp4"])
def test_frames_are_counted_whatever_their_times(name):
    following = Following()
    known = following.follow(at(RESULT, 5.0), "a.mp4", persist=True).track_ids.tolist()
    for seconds in (8.0, 1.0):
        followed = following.follow(at(RESULT, seconds), name, persist=True)
        assert followed.track_ids.tolist() == known
        assert followed.frame.seconds == seconds


def at(result, seconds):
    return replace(result, frame=Frame("a.mp4", 0, seconds, Fraction(25)))


def test_each_live_source_has_a_tracker():
    following = Following()
    cameras = "rtsp://a/1", "rtsp://b/1"
    moved_ = replace(RESULT, xywhn=RESULT.xywhn[::-1])
    for _ in range(3):
        ids = [
            following.follow(result, name, persist=False).track_ids.tolist()
            for name, result in zip(cameras, (RESULT, moved_), strict=True)
        ]
        assert ids == [[1, 2, 3], [1, 2, 3]]


def test_results_tell_identities_as_ultralytics_does(codes, tmp_path):
    (result,) = codes.track(PARCEL)
    count = len(result)
    assert result.boxes.is_track
    assert result.boxes.shape == result.boxes.data.shape == (count, 7)
    np.testing.assert_array_equal(result.boxes.data[:, 4], result.boxes.id)
    np.testing.assert_array_equal(result.boxes.data[:, 5], result.boxes.conf)
    ids = [int(box.id) for box in result.boxes]
    assert ids == result.boxes.id.cpu().numpy().astype(int).tolist()
    assert int(result[-1].boxes.id) == ids[-1]
    assert [each["track_id"] for each in result.summary()] == ids
    assert result.to_csv().splitlines()[0] == "name,class,confidence,box,track_id"
    result.save_txt(tmp_path / "a.txt", save_conf=True)
    lines = [line.split() for line in (tmp_path / "a.txt").read_text().splitlines()]
    assert [(len(line), int(line[6])) for line in lines] == [(7, each) for each in ids]


def test_files_are_written_into_a_folder_of_that_name(codes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (result,) = codes.track(PARCEL, save_txt=True)
    assert result.save_dir == "runs/detect/track"
    assert (tmp_path / "runs/detect/track/labels/image0.txt").read_text().count("\n") == len(result)


def test_no_viewer_opens_for_each_frame_of_a_video(model, tmp_path, monkeypatch):
    needs.package("av")
    monkeypatch.setattr(Image.Image, "show", lambda image: pytest.fail("a viewer opened"))
    write_video(tmp_path / "a.mp4")
    for run in (model.predict, model.track):
        with pytest.raises(InputError, match=r"show: expected pictures: .* cv2\.imshow"):
            run(str(tmp_path / "a.mp4"), show=True)


def test_what_would_be_ignored_is_refused(model, classifier):
    with pytest.raises(
        InputError, match=r"tracker: .*'byte\.yaml'\. Did you mean 'bytetrack\.yaml'"
    ):
        model.track("a.png", tracker="byte.yaml")
    with pytest.raises(InputError, match=r"gmc: is not an option of track\(\)"):
        model.track("a.png", gmc=True)
    with pytest.raises(InputError, match=r"track\(\): expected a detector, got a class"):
        classifier.track("a.png")
