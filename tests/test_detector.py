"""engine.load() and the Detector that it returns."""

import copy
import io
import pickle
import shutil
import tarfile
import tempfile
import threading
import zipfile

import numpy as np
import pytest
from PIL import Image, ImageSequence

import engine
from engine.errors import ConfigError, EngineError, ImageError, InputError, WeightsError
from engine.settings import Settings


def load(model, **options):
    files = {"cfg": model.cfg, "weights": model.weights}
    return engine.load(**{**files, "device": "cpu", **options})


@pytest.fixture
def detector(tiny_detector):
    with load(tiny_detector, names=tiny_detector.names, batch=2) as detector:
        yield detector


def picture(seed, width=50, height=40):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def values(result):
    return result.boxes.tolist(), result.scores.tolist(), result.labels


@pytest.fixture
def files(tmp_path):
    paths = [tmp_path / f"{number}.png" for number in range(5)]
    for number, path in enumerate(paths):
        Image.fromarray(picture(number)).save(path)
    return paths


def test_repr_names_network_size_and_device(detector, tiny_detector):
    assert repr(detector) == f"<Detector: detector {tiny_detector.cfg.name}, 64 x 48, on cpu>"


@pytest.mark.parametrize("copied", [pickle.dumps, copy.deepcopy, copy.copy])
def test_a_detector_is_not_copied(detector, copied):
    with pytest.raises(TypeError, match=r"^a Detector cannot be .*: call engine\.load"):
        copied(detector)


# ---------------------------------------------------------------- pictures


def test_every_form_of_a_picture_gives_the_same_result(detector, files):
    array = picture(0)
    encoded = files[0].read_bytes()
    forms = [str(files[0]), files[0], encoded, io.BytesIO(encoded), Image.open(files[0]), array]
    results = [values(detector(form)) for form in forms]
    assert len(results[0][0]) > 0
    assert all(result == results[0] for result in results)


def test_bgr_arrays_are_converted_to_rgb(detector):
    array = picture(0)
    assert values(detector(array[..., ::-1], bgr=True)) == values(detector(array))
    assert values(detector(array[..., ::-1])) != values(detector(array))


def test_list_gives_the_same_as_single_pictures(detector, files):
    alone = [values(detector(path)) for path in files]
    assert [values(result) for result in detector(files)] == alone
    assert detector([]) == []


def test_labels_scores_and_boxes_belong_together(detector):
    result = detector(picture(0))
    for found, box, score, label in zip(
        result, result.boxes, result.scores, result.labels, strict=True
    ):
        assert (found.label, found.score) == (label, score)
        assert np.allclose(found.box, box)
        assert label in ("cat", "dog", "cow")


def test_picture_without_a_file_can_be_plotted(detector):
    assert detector(picture(0)).plot().size == (50, 40)


@pytest.mark.parametrize(
    ("chosen", "least"), [({"threshold": 0.9}, 0.9), ({"threshold": 0.25}, 0.25)]
)
def test_every_score_reaches_the_threshold(tiny_detector, chosen, least):
    with load(tiny_detector, **chosen) as detector:
        assert (detector(picture(0)).scores > least).all()


def test_without_names_labels_are_numbers_or_those_next_to_the_cfg(tiny_detector, tmp_path):
    cfg = shutil.copy(tiny_detector.cfg, tmp_path / "my.cfg")
    with engine.load(cfg, tiny_detector.weights, device="cpu") as detector:
        assert detector.labels == ("class 0", "class 1", "class 2")
    (tmp_path / "my.names").write_text("a\nb\nc\n")
    with engine.load(cfg, tiny_detector.weights, device="cpu") as detector:
        assert detector.labels == ("a", "b", "c")
    (tmp_path / "my.names").write_text("a\n")
    with pytest.raises(ConfigError, match=r"my\.names: expected 3 names"):
        engine.load(cfg, tiny_detector.weights, device="cpu")


@pytest.mark.parametrize(
    "names",
    [
        ["cat", "dog", "cow"],
        {2: "cow", 0: "cat", 1: "dog"},
        np.array(["cat", "dog", "cow"]),
    ],
)
def test_names_may_be_given_as_a_sequence(tiny_detector, names):
    with load(tiny_detector, names=names) as detector:
        assert detector.labels == ("cat", "dog", "cow")
        assert {type(each) for each in detector.labels} == {str}


def test_names_may_be_given_through_a_data_file(tiny_detector, tmp_path):
    data = tmp_path / "obj.data"
    data.write_text(f"classes=3\nnames={tiny_detector.names}\n")
    with load(tiny_detector, data=data) as detector:
        assert detector.labels == ("cat", "dog", "cow")


def test_numpy_numbers_are_accepted(tiny_detector):
    options = {"threshold": np.float32(0.3), "batch": np.int64(2), "top_k": np.int8(3)}
    more = {"max_detections": np.int64(4), "size": np.int64(64), "threads": np.int32(1)}
    with load(tiny_detector, **options, **more) as detector:
        assert detector.size == (64, 64)
        assert repr(detector.settings) == repr(
            Settings(float(np.float32(0.3)), batch=2, top_k=3, max_detections=4)
        )


def test_another_size_of_input(tiny_detector):
    with load(tiny_detector, size=(96, 64)) as detector:
        assert detector.size == (96, 64)
        assert detector.forward(np.zeros((1, 3, 64, 96), np.float32))[0].shape == (1, 16, 16, 24)


def test_letterbox_gives_other_boxes_than_stretch(tiny_detector):
    found = []
    for resize in ("cfg", "stretch", "letterbox"):
        with load(tiny_detector, resize=resize) as detector:
            found.append(values(detector(picture(0, 40, 80))))
    assert found[0] == found[1] != found[2]


def test_a_classifier_names_its_best_classes(tiny_classifier):
    with load(tiny_classifier, names=tiny_classifier.names, top_k=2) as classifier:
        result = classifier(picture(0))
        best = list(result)
        assert len(best) == 2
        assert best[0].score >= best[1].score
        assert result.probabilities.sum() == pytest.approx(1, abs=1e-5)
        assert len(classifier([picture(0), picture(1)])) == 2


# ---------------------------------------------------------------- streams


def test_a_stream_keeps_the_order(detector, files):
    streamed = [values(result) for result in detector.stream(iter(files))]
    assert streamed == [values(result) for result in detector(files)]


def encoded(pixels):
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "BMP")
    return content.getvalue()


def frames_of_one_buffer(pictures):
    buffer = np.empty_like(pictures[0])
    for each in pictures:
        buffer[:] = each
        yield buffer


def frames_of_one_image(pictures):
    image = Image.new("RGB", pictures[0].shape[1::-1])
    for each in pictures:
        image.paste(Image.fromarray(each))
        yield image


def frames_of_one_file(pictures):
    yield from pages(pictures)


def one_file(pictures):
    file = io.BytesIO()
    for each in pictures:
        file.seek(0)
        file.write(encoded(each))
        file.seek(0)
        yield file


def images_of_one_file(pictures):
    """Images that nobody decodes before the file holds the next one."""
    return map(Image.open, one_file(pictures))


def images_of_closed_files(pictures):
    for each in pictures:
        with io.BytesIO(encoded(each)) as file, Image.open(file) as image:
            yield image


def encoded_in_one_buffer(pictures):
    buffer = bytearray()
    for each in pictures:
        buffer[:] = encoded(each)
        yield buffer


def members_of_zip(pictures):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number, each in enumerate(pictures):
            archive.writestr(f"{number}.bmp", encoded(each))
        for name in archive.namelist():
            with archive.open(name) as member:
                yield member


def members_of_tar(pictures):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for number, each in enumerate(pictures):
            content, entry = encoded(each), tarfile.TarInfo(f"{number}.bmp")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    file.seek(0)
    with tarfile.open(fileobj=file) as archive:
        for entry in archive:
            yield archive.extractfile(entry)


def temporary_files(pictures):
    for each in pictures:
        with tempfile.NamedTemporaryFile() as file:
            file.write(encoded(each))
            file.seek(0)
            yield file


def pages(pictures):
    """Pillow's iterator, which has __getitem__ and gives one image again and again."""
    first, *others = map(Image.fromarray, pictures)
    file = io.BytesIO()
    first.save(file, "TIFF", save_all=True, append_images=others)
    return ImageSequence.Iterator(Image.open(file))


class Camera:
    """Frames of one buffer, from an object that is no iterator and has read() as a file has."""

    def __init__(self, pictures):
        self._pictures = pictures

    def read(self):
        raise NotImplementedError

    def __iter__(self):
        return frames_of_one_buffer(self._pictures)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "frames",
    [
        Camera,
        frames_of_one_buffer,
        frames_of_one_image,
        frames_of_one_file,
        images_of_one_file,
        images_of_closed_files,
        encoded_in_one_buffer,
        one_file,
        members_of_zip,
        members_of_tar,
        temporary_files,
        pages,
    ],
)
def test_a_generator_may_use_one_buffer_for_all_pictures(detector, frames, workers):
    pictures = [picture(number) for number in range(7)]
    streamed = detector.stream(frames(pictures), workers=workers)
    assert [values(each) for each in streamed] == [values(detector(each)) for each in pictures]


def test_a_copied_image_keeps_its_name_and_orientation(detector, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(picture(0)).save(tmp_path / "x.tif", exif=exif)
    image = Image.open(tmp_path / "x.tif")
    image.load()
    expected = detector(tmp_path / "x.tif")
    (found,) = detector.stream(iter([image]))
    assert (found.size, values(found)) == ((40, 50), values(expected))
    assert found.path == str(tmp_path / "x.tif")


def test_files_in_memory_keep_their_names(detector, files):
    class Named(io.BytesIO):
        pass

    def named(kind):
        for number, path in enumerate(files):
            with kind(path.read_bytes()) as file:
                file.name = f"cam{number}.png"
                yield file

    for kind in (io.BytesIO, Named):
        found = list(detector.stream(named(kind), workers=2))
        assert [each.path for each in found] == [f"cam{each}.png" for each in range(len(files))]


def test_files_that_take_long_are_read_by_the_workers(detector, files):
    class Slow(io.RawIOBase):
        def __init__(self, content):
            self.file = io.BytesIO(content)
            self.thread = None

        def readable(self):
            return True

        def readinto(self, memory):
            self.thread = threading.current_thread().name
            return self.file.readinto(memory)

    slow = [Slow(path.read_bytes()) for path in files]
    assert len(list(detector.stream(iter(slow), workers=3))) == len(files)
    assert all(each.thread.startswith("stream-make") for each in slow)


def test_files_that_are_closed_after_they_were_given_are_read(detector, files):
    def opened():
        for path in files:
            with path.open("rb") as file:
                yield file

    found = list(detector.stream(opened()))
    assert [values(each) for each in found] == [values(each) for each in detector(files)]
    assert [each.path for each in found] == list(map(str, files))


def test_a_damaged_image_and_a_huge_array_of_a_generator_are_errors_of_their_own(detector, files):
    content = files[0].read_bytes()
    damaged = Image.open(io.BytesIO(content[: len(content) // 2]))
    huge = np.broadcast_to(np.uint8(0), (200_000, 200_000, 3))
    outcomes = list(detector.stream(iter([damaged, huge, picture(0)]), on_error="yield"))
    assert "cannot be decoded" in str(outcomes[0])
    assert isinstance(outcomes[1], ImageError)
    assert values(outcomes[2]) == values(detector(picture(0)))


def test_rows_of_pin_and_pictures_of_a_list_are_not_copied(detector):
    rows = detector.pin(np.stack([picture(0), picture(1)]))
    for given in (iter(rows), list(rows)):
        streamed = detector.stream(given, keep_pictures=True)
        assert all(np.shares_memory(each.picture.pixels, rows) for each in streamed)


@pytest.mark.parametrize("good", [1, 2, 3])
def test_pictures_before_an_error_of_the_generator_get_their_results(detector, good):
    def sources():
        yield from map(picture, range(good))
        raise ValueError("the camera is gone")

    stream = detector.stream(sources())
    found = [values(next(stream)) for _ in range(good)]
    assert found == [values(detector(picture(number))) for number in range(good)]
    with pytest.raises(ValueError, match="the camera is gone"):
        next(stream)


def test_paths_of_numpy_are_paths(detector, files):
    paths = np.array([str(each) for each in files])
    expected = [values(each) for each in detector(files)]
    assert [values(each) for each in detector(list(paths))] == expected
    assert [values(each) for each in detector.stream(paths)] == expected
    assert [values(detector(each)) for each in paths] == expected
    assert type(detector(paths[0]).path) is str
    assert len(detector(np.str_(files[0].parent))) == len(files)


def test_a_stream_reads_no_further_than_one_batch_ahead(detector):
    taken = []

    def sources():
        for number in range(1000):
            taken.append(number)
            yield picture(number)

    stream = detector.stream(sources())
    next(stream)
    stream.close()
    assert len(taken) <= 4  # two batches of two


@pytest.mark.parametrize("on_error", ["raise", "yield", "skip"])
@pytest.mark.parametrize("has_state", [False, True])
def test_a_folder_named_like_a_picture_stands_for_those_inside(
    tiny_detector, detector, files, tmp_path, monkeypatch, on_error, has_state
):
    if has_state:
        detector = load(tiny_detector, names=tiny_detector.names)
    folder = tmp_path / "album.jpg"
    (folder / "deeper.png").mkdir(parents=True)
    inside = [folder / "a.png", folder / "b.png", folder / "deeper.png" / "c.png"]
    for each in inside:
        shutil.copy(files[0], each)
    monkeypatch.setattr(detector._runs, "has_state", has_state)
    sources = list(map(str, [files[0], folder, *files[1:]]))
    for recursive, among in ((False, inside[:2]), (True, inside)):
        found = [
            each.path for each in detector.stream(sources, recursive=recursive, on_error=on_error)
        ]
        assert found == list(map(str, [files[0], *among, *files[1:]]))
    assert [each.path for each in detector(sources)] == list(
        map(str, [files[0], *inside[:2], *files[1:]])
    )
    (outcome,) = detector.stream([str(folder)], expand=False, on_error="yield")
    assert type(outcome) is ImageError
    assert "expected a file, got a folder" in str(outcome)
    given = detector.stream([outcome, str(files[0])], on_error="yield")
    assert [type(each) for each in given] == [ImageError, engine.Result]


@pytest.mark.parametrize(("on_error", "kinds"), [("yield", "RER"), ("skip", "RR"), ("raise", "RX")])
def test_an_unreadable_picture_in_a_stream(detector, files, on_error, kinds):
    files[1].write_bytes(b"\x89PNG\r\n\x1a\n and then nothing")
    seen = ""
    try:
        for outcome in detector.stream(files[:3], on_error=on_error):
            seen += "E" if isinstance(outcome, ImageError) else "R"
    except ImageError:
        seen += "X"
    assert seen == kinds


def test_no_reading_thread_outlives_a_stream_that_raised(detector, files):
    files[0].write_bytes(b"")
    with pytest.raises(ImageError) as caught:
        detector(files)
    assert caught.value  # the traceback keeps every frame of the stream alive
    assert not [each for each in threading.enumerate() if each.name.startswith("stream-")]


def test_unknown_on_error_is_refused_at_once(detector):
    with pytest.raises(InputError, match=r"on_error: expected .*Did you mean 'yield'"):
        detector.stream([], on_error="yeild")


@pytest.mark.parametrize("workers", [0, 1.5, "2"])
def test_invalid_numbers_of_workers_are_refused(detector, workers):
    with pytest.raises(InputError, match=f"workers: expected an integer of .*, got {workers!r}"):
        detector.stream([], workers=workers)


def test_an_absurd_number_of_workers_is_refused(detector):
    with pytest.raises(InputError, match=r"^workers: expected at most 1024, got 100000$"):
        detector.stream([], workers=100_000)


def test_many_threads_get_their_own_answers(tiny_detector):
    with load(tiny_detector, batch=2) as detector:
        expected = [values(detector(picture(seed))) for seed in range(8)]
        wrong = []

        def work(seed):
            for _ in range(5):
                if values(detector(picture(seed))) != expected[seed]:
                    wrong.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong


# ---------------------------------------------------------------- arrays


def test_layer_outputs_has_one_array_for_each_section(detector):
    x = np.random.default_rng(0).random((2, 3, 48, 64), np.float32)
    layers = detector.layer_outputs(x)
    assert [each.shape for each in layers] == [
        (2, 8, 24, 32),
        (2, 8, 12, 16),
        (2, 16, 12, 16),
        (2, 16, 12, 16),
    ]
    assert np.allclose(detector.forward(x)[0], layers[-1], rtol=1e-4, atol=1e-6)


def test_passes_change_no_answer(tiny_detector):
    x = np.random.default_rng(0).random((1, 3, 48, 64), np.float32)
    with load(tiny_detector) as fused, load(tiny_detector, passes=False) as naive:
        assert np.allclose(fused.forward(x)[0], naive.forward(x)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 3, 48, 64), np.float32), "expected 1 to 2 rows, got 3"),
        (np.zeros((0, 3, 48, 64), np.float32), "expected 1 to 2 rows, got 0"),
        (np.zeros((1, 3, 64, 48), np.float32), "expected float32"),
        (np.zeros((1, 3, 48, 64), np.uint8), "got uint8"),
        ("dog.jpg", "expected float32"),
    ],
)
def test_forward_refuses_arrays_that_do_not_fit(detector, x, message):
    with pytest.raises(InputError, match=message):
        detector.forward(x)


@pytest.mark.parametrize("threshold", ["x", float("nan"), -1, 2])
def test_candidates_refuse_an_invalid_threshold(detector, threshold):
    x = np.zeros((1, 3, 48, 64), np.float32)
    with pytest.raises(InputError, match="threshold: expected a number from 0 to 1"):
        detector.candidates(x, threshold=threshold)


def test_rows_of_a_batch_are_no_sequence(tiny_recurrent_detector):
    """Each row has a state of its own, so that a batch would change what is found."""
    pictures = [picture(seed) for seed in range(4)]
    with load(tiny_recurrent_detector, batch=2) as network:
        for run in (lambda: network(pictures), lambda: list(network.stream(pictures))):
            with pytest.raises(InputError, match="batch: expected 1 for a recurrent network: each"):
                run()
    with load(tiny_recurrent_detector) as network:
        assert len(network(pictures)) == 4


def test_a_recurrent_network_remembers_until_it_is_reset(tiny_recurrent):
    x = np.ones((1, 5), np.float32)
    with load(tiny_recurrent) as network:
        first, second = network.forward(x)[0], network.forward(x)[0]
        network.reset()
        assert np.array_equal(network.forward(x)[0], first)
        assert not np.array_equal(first, second)
        with pytest.raises(InputError, match=r"net\.cfg: finds neither boxes nor classes"):
            network(picture(0))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": -1}, "threshold: expected a number from 0 to 1, got -1"),
        ({"threshold": float("nan")}, "threshold"),
        ({"threshold": 50}, "threshold: expected a number from 0 to 1, got 50. Did you mean 0.5?"),
        ({"threshold": 101}, "threshold: expected a number from 0 to 1, got 101$"),
        ({"nms": 2}, "nms: expected a number from 0 to 1, got 2"),
        ({"hierarchy": 1.5}, "hierarchy: expected a number from 0 to 1, got 1.5"),
        ({"nms": "much"}, "nms"),
        ({"hierarchy": None}, "hierarchy"),
        ({"batch": 0}, "batch: expected an integer of 1 or more, got 0"),
        ({"batch": 1.5}, "batch"),
        ({"top_k": 0}, "top_k"),
        ({"size": 0}, "size"),
        ({"size": (1, 2, 3)}, "size"),
        ({"max_pixels": 0}, "max_pixels: expected an integer of 1 or more, got 0"),
        ({"resize": "leterbox"}, "resize: .*Did you mean 'letterbox'"),
        ({"size": 64.0}, "size: expected a whole number, or width and height, got 64.0"),
        ({"threads": 0}, "threads: expected an integer of 1 or more, got 0"),
        ({"threads": "2"}, "threads: expected an integer of 1 or more, got '2'"),
        ({"batch": 10**30}, "batch: expected at most 2147483647, got 10"),
        ({"top_k": True}, "top_k: expected an integer of 1 or more, got True"),
        ({"threshold": 10**400}, "threshold: expected a number from 0 to 1, got 10"),
        ({"precision": None}, "precision: expected a name such as 'float32', got None"),
        ({"device": -1}, "device: expected a name such as 'cpu', or the number of a GPU, got -1"),
        ({"cfg": 5}, "cfg: expected a file's name, got 5"),
        ({"weights": [1] * 999}, r"weights: expected a file's name, got \[1, 1, .{,20}\.\.\.\]$"),
        ({"data": b"obj.data"}, "data: expected a file's name, got b'obj.data'"),
        ({"precision": "float31"}, "Did you mean 'float32'"),
        ({"names": ["cat"]}, "names: expected 3, one for each class, got 1"),
        ({"names": ("cat", "dog", 5)}, "names: expected text for each class, got 5"),
        ({"names": b"cat"}, "names: expected text for each class, got 99"),
        ({"names": {"cat", "dog", "cow"}}, "names: expected a list, or a dict .*, got {'cat'"),
        ({"names": {1: "a", 2: "b", 3: "c"}}, "names: expected a list, or a dict with the keys 0"),
        ({"names": 5}, "names: expected a list, .* got 5"),
    ],
)
def test_invalid_arguments_are_refused(tiny_detector, options, message):
    with pytest.raises(InputError, match=message):
        load(tiny_detector, **options)


def test_files_that_do_not_match_are_refused(tiny_detector, tiny_classifier):
    with pytest.raises(WeightsError):
        engine.load(tiny_detector.cfg, tiny_classifier.weights, device="cpu")
    with pytest.raises(ConfigError):
        engine.load(tiny_detector.weights, tiny_detector.weights, device="cpu")
    with pytest.raises(ConfigError, match="expected 3 names"):
        load(tiny_detector, names=tiny_classifier.names)


def test_swapped_files_are_refused_as_such(tiny_detector, tmp_path):
    large = tmp_path / "large.weights"
    with large.open("wb") as file:
        file.truncate(1 << 28)
    for weights in (tiny_detector.weights, large, tmp_path / "none.weights"):
        with pytest.raises(
            ConfigError, match=r"expected a \.cfg, got a \.weights file\. Are the two"
        ):
            engine.load(weights, tiny_detector.cfg, device="cpu")
    with pytest.raises(InputError, match=r"expected a \.cfg and then its \.weights, got no"):
        engine.load(large)


def test_an_unknown_device_is_refused(tiny_detector):
    with pytest.raises(engine.DeviceError, match="Did you mean 'cuda'"):
        load(tiny_detector, device="cudda")


def test_a_closed_detector_says_so(tiny_detector):
    detector = load(tiny_detector)
    detector.close()
    detector.close()
    with pytest.raises(EngineError, match="closed"):
        detector(picture(0))


def test_one_unreadable_picture_of_a_list_raises_and_names_it(detector, files):
    files[3].write_bytes(b"")
    with pytest.raises(ImageError, match=r"3\.png"):
        detector(files)
