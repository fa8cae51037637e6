"""detect --ray: messages without Ray, refusals, starting and resuming a run."""

import json
import os
import re
import signal
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from engine import ImageError, cli, extras
from engine.cli import _ray
from engine.vision.result import Result
from tests import needs
from tests.fleet.expected import write_pictures
from tests.pictures import write_picture


@pytest.fixture
def words(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "pictures", 3)
    return ["detect", str(model.cfg), str(model.weights), "pictures", "--out", "out"]


@pytest.fixture
def has_ray():
    needs.package("ray.data")


def error_of(capsys, *words):
    assert cli.main(words) in (2, 3, 4)
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    return told.err.removeprefix("Error: ").rstrip()


@pytest.mark.parametrize("missing", ["ray", "pyarrow"])
def test_missing_ray_is_reported_with_an_install_hint(words, capsys, monkeypatch, missing):
    if missing == "pyarrow":
        needs.package("ray")
    for name in [each for each in sys.modules if each.startswith("engine.fleet.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    told = error_of(capsys, *words, "--ray")
    assert told == f"--ray: {missing} is not installed. Run: {extras.command('ray')}"


class _ToldError(Exception): ...


@pytest.mark.parametrize("given", [["--decode", "gpu"], []])
def test_workers_are_told_where_to_decode(words, has_ray, monkeypatch, given):
    from engine.fleet.packed_model import PackedModel

    def pack(*files, **options):
        raise _ToldError(options)

    monkeypatch.setattr(PackedModel, "pack", pack)
    with pytest.raises(_ToldError) as caught:  # the model was loaded, on a CPU
        cli.main([*words, "--ray", *given])
    (options,) = caught.value.args
    assert options.get("decode") == (given[1] if given else None)


@pytest.mark.parametrize(
    ("given", "address", "inputs"),
    [
        ("a --ray", "local", "a"),
        ("--ray auto a", "auto", "a"),
        ("--ray head.cluster:6379 a b", "head.cluster:6379", "a b"),
        ("--ray 10.0.0.1:6379 a", "10.0.0.1:6379", "a"),
        ("--ray a b", "local", "a b"),
        ("--ray s3://bucket/pictures b", "local", "s3://bucket/pictures b"),
        ("--ray net.cfg net.weights a", "local", "net.cfg net.weights a"),
        ("net.cfg net.weights --ray a b", "local", "net.cfg net.weights a b"),
    ],
)
def test_argument_after_ray_is_an_address_or_a_picture(given, address, inputs):
    parser = cli.parser_of("detect")
    arguments = parser.parse([*given.split(), "--out", "out"])
    _ray._separate_address(arguments)
    assert (arguments.ray, arguments.inputs) == (address, inputs.split())


def test_cluster_options_need_ray(words, capsys):
    assert error_of(capsys, *words) == "--out: only with --ray"
    assert error_of(capsys, *words[:-2], "--actors", "1:2") == "--actors: only with --ray"
    assert "expected N or MIN:MAX, got 'x'" in error_of(capsys, *words, "--actors", "x")


def test_other_outputs_are_refused(words, capsys, has_ray):
    assert error_of(capsys, *words, "--ray", "--json", "x.json") == "--json: not with --ray"
    assert error_of(capsys, *words, "--ray", "--save-txt", "x") == "--save-txt: not with --ray"
    assert error_of(capsys, *words, "--ray", "--save-conf") == "--save-conf: not with --ray"
    told = error_of(capsys, *words[:-2], "--ray")
    assert told == "--ray: expected --out DIR for the results"
    told = error_of(capsys, *words, "--ray", "ray://head:10001")
    assert told.startswith("--ray: expected auto or host:port, got 'ray://head:10001'. Run this on")


def test_impossible_runs_are_refused_before_the_cluster_starts(
    words, capsys, has_ray, tiny_classifier
):
    assert "Ray assigns the GPUs" in error_of(capsys, *words, "--ray", "--device", "cuda:1")
    told = error_of(capsys, *words, "--ray", "--actors", "2:1")
    assert told == "actors: expected MIN:MAX with MIN up to MAX, got 2:1"
    told = error_of(capsys, *words, "--ray", "--actors", "0")
    assert told == "actors: expected 1 or more, got 0"
    assert "threads: expected 1 or more" in error_of(capsys, *words, "--ray", "--threads", "-1")
    assert "format: expected parquet or" in error_of(capsys, *words, "--ray", "--format", "csv")
    assert "shard: expected 1 or more" in error_of(capsys, *words, "--ray", "--shard", "0")
    assert "threshold: expected a number" in error_of(capsys, *words, "--ray", "--thresh", "-1")
    assert "none.weights" in error_of(
        *(capsys, "detect", words[1], "none.weights", "pictures", "--ray", "--out", "out")
    )
    told = error_of(capsys, "detect", *tiny_classifier.options, "pictures", "--ray", "--out", "o")
    assert "is not a detector. Try: classify" in told
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("--batch 0", "batch: expected an integer of 1 or more, got 0"),
        ("--workers 0", "workers: expected an integer of 1 or more, got 0"),
        ("--threads 0", "threads: expected 1 or more, got 0"),
        ("--precision flaot16", "precision: expected float32, tf32, float16, int8, float64, got"),
        ("--half --device cpu", "cpu: precision: expected float32 or float64 or int8, got"),
        ("--precision float64 --device cuda", "precision: float64: only on a CPU"),
        ("--decode maybe", "decode: expected auto, cpu, gpu, got 'maybe'"),
        ("--decode gpu --device cpu", "decode: gpu: "),
    ],
)
def test_what_every_worker_refuses_is_refused_before_there_is_a_run(
    words, capsys, has_ray, given, reason
):
    assert error_of(capsys, *words, "--ray", *given.split()).startswith(reason)
    assert not Path("out").exists()


@pytest.fixture
def begin(has_ray, tmp_path):
    """DetectionRun.open() in a folder; nothing works on it."""
    from engine.fleet.detection_run import DetectionRun
    from engine.fleet.listing import Entry

    def begun(count=5, about=None, **options):
        entries = (Entry(f"{number}.jpg") for number in range(count))
        return DetectionRun.open(
            str(tmp_path / "out"), entries, about or {"threshold": 0.5}, **options
        )

    return begun


def names_in(run):
    from engine.fleet.shard_plan import ShardPlan

    plan = ShardPlan(run.files.folder)
    return [[each.name for each in plan.entries(shard)] for shard in range(plan.shards)]


def test_pictures_that_were_added_get_shards_of_their_own(begin):
    first = begin(5, size=2)
    planned = names_in(first)
    for count in (9, 9, 3):  # those that are gone stay in their shards
        again = begin(count, size=3)
        assert (again.shards, again.pictures) == (5, 9)
        assert names_in(again) == [*planned, ["5.jpg", "6.jpg", "7.jpg"], ["8.jpg"]]
        assert again.finished_shards() == {}


def test_what_cannot_be_listed_is_told_and_not_planned(has_ray, tmp_path):
    from engine.errors import InputError
    from engine.fleet.detection_run import DetectionRun
    from engine.fleet.listing import Entry

    out, lost, picture = tmp_path / "out", Entry("lost", problem="lost: no folder"), Entry("a.jpg")
    with pytest.raises(InputError, match="lost: no folder"):
        DetectionRun.open(str(out), [lost], {})
    assert not out.exists()
    run = DetectionRun.open(str(out), [lost, picture], {})
    assert (names_in(run), run.problems) == ([["a.jpg"]], ("lost: no folder",))
    run = DetectionRun.open(str(out), [Entry("lost/b.jpg"), picture], {})
    assert (names_in(run), run.problems) == ([["a.jpg"], ["lost/b.jpg"]], ())
    with pytest.raises(InputError, match=r"a\.jpg: has changed since the run began"):
        DetectionRun.open(str(out), [Entry("a.jpg", 3)], {})


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_only_failed_pictures_are_read_again(begin, tiny_detector, tmp_path, form):
    import engine
    from engine.fleet.listing import Entry
    from engine.fleet.shard_files import detect, detect_again

    names = [str(tmp_path / f"{number}.png") for number in range(4)]
    entries = [Entry(name) for name in names]
    for number in (0, 2):
        write_picture(Path(names[number]), seed=number)
    files = begin(form=form).files
    with engine.load(tiny_detector.cfg, tiny_detector.weights, threshold=0.1) as detector:
        files.write(0, detect(detector, entries, workers=1))
        write_picture(Path(names[1]), seed=1)
        Path(names[2]).unlink()
        found = detect_again(detector, entries, files.read(0), workers=1)
        write_picture(Path(names[2]), seed=2)
        expected = detect(detector, entries, workers=1)
    assert found.to_pylist() == expected.to_pylist()
    assert found["error"].null_count == 3


def test_another_run_in_its_folder_is_refused(begin, tmp_path, capsys):
    from engine.errors import EngineError, InputError

    begin()
    with pytest.raises(InputError, match=r"was started with threshold 0\.5, not 0\.25\. Name"):
        begin(about={"threshold": 0.25})
    with pytest.raises(InputError, match='was started with format "parquet", not "jsonl"'):
        begin(form="jsonl")
    with pytest.raises(EngineError, match="5 of 5 shards are missing") as missing:
        begin(5, size=1, overwrite=True).check_complete()
    assert missing.value.exit_code == 1
    (tmp_path / "out" / "run.json").write_text("{}")
    with pytest.raises(InputError, match=r"run\.json: is damaged"):
        begin()


def test_the_same_name_in_another_folder_is_another_source(begin, tmp_path, monkeypatch):
    from engine.errors import InputError

    places = [tmp_path / "monday", tmp_path / "tuesday"]
    for each in places:
        (each / "pictures").mkdir(parents=True)
    monkeypatch.chdir(places[0])
    sources = {"sources": ["pictures", "-", "s3://bucket/x"]}
    begin(about=sources)
    about = tmp_path / "out" / "run.json"
    assert json.loads(about.read_text())["sources"][0] == str(places[0] / "pictures")
    begin(about={"sources": [str(places[0] / "pictures/"), "-", "s3://bucket/x"]})
    monkeypatch.chdir(places[1])
    with pytest.raises(InputError, match=r'sources "[^"]*/monday/pictures", not "[^"]*/tue'):
        begin(about=sources)
    about.write_text(json.dumps({**json.loads(about.read_text()), **sources}))
    begin(about=sources)  # an earlier version kept the names as they were typed


def test_relative_names_of_an_earlier_version_are_found_or_refused(has_ray, tmp_path, monkeypatch):
    from engine.errors import InputError
    from engine.fleet.detection_run import DetectionRun
    from engine.fleet.listing import list_entries

    out = tmp_path / "out"
    for day in ("monday", "tuesday"):
        write_pictures(tmp_path / day / "pictures", 3)
    (tmp_path / "empty").mkdir()

    def begin(*names):
        return DetectionRun.open(str(out), list_entries(names), {"sources": names})

    def about(**more):
        text = json.dumps({**json.loads((out / "run.json").read_text()), **more})
        (out / "run.json").write_text(text)
        return text

    monkeypatch.chdir(tmp_path / "monday")
    begin("pictures")
    old = about(sources=["./pictures"])
    assert begin("pictures").pictures == 3
    refused = f"{out}: was started with ./pictures in another folder, where it named other pictures"
    for day in ("tuesday", "empty"):
        monkeypatch.chdir(tmp_path / day)
        about(sources=["./pictures"])
        plan = (out / "pictures.parquet").read_bytes()
        with pytest.raises(InputError, match=re.escape(refused)):
            begin("pictures")
        assert (out / "run.json").read_text() == old
        assert (out / "pictures.parquet").read_bytes() == plan
        with pytest.raises(InputError, match=r'started with sources "\./pictures", not "[^"]*jpg"'):
            begin("../monday/a.jpg")
        assert begin("../monday/pictures").pictures == 3
        assert json.loads((out / "run.json").read_text())["sources"] == [
            str(tmp_path / "monday/pictures")
        ]


@pytest.mark.parametrize("name", ["pictures.parquet", "shard-000000.parquet", "run.json"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_files_of_others_with_a_name_of_a_run_are_kept(begin, tmp_path, name, overwrite):
    import pyarrow.parquet

    from engine.errors import InputError

    file = tmp_path / "out" / name
    file.parent.mkdir()
    pyarrow.parquet.write_table(pyarrow.table({"path": ["a.jpg"], "bytes": [b"mine"]}), file)
    before = file.read_bytes()
    with pytest.raises(InputError) as refused:
        begin(overwrite=overwrite)
    assert file.read_bytes() == before
    reasons = {"run.json": "run.json: is damaged, or of another program. Name another folder"}
    expected = reasons.get(name, "contains other files. Name another folder, or pass --overwrite")
    if overwrite:
        expected = f"contains {name}, which is not from a run of the engine. Name another folder"
    assert str(refused.value) == f"{file.parent}: {expected}"


def test_shards_beyond_those_of_the_run_are_kept(begin, tmp_path):
    from engine.errors import InputError

    begin(3, size=1)
    other = tmp_path / "out" / "shard-000003.jsonl"
    other.write_text("{}")
    with pytest.raises(InputError, match=r"contains shard-000003\.jsonl, which is not from a run"):
        begin(overwrite=True)
    assert other.exists()


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize("length", [0, 60])
def test_a_damaged_shard_is_made_again(begin, form, length, caplog):
    from engine.fleet import rows

    run = begin(2, size=1, form=form)
    for shard in range(2):
        run.files.write(shard, rows.table(["a"], [many_boxes(3)]))
    file = Path(run.files.folder.name) / run.files.name(1)
    file.write_bytes(file.read_bytes()[:length])
    assert begin(2, size=1, form=form).finished_shards() == {0: (1, 3, 1, 0)}
    (said,) = caplog.messages
    assert said.startswith(f"{file.parent}: {file.name}: is damaged and will be rebuilt: ")
    assert "\n" not in said


def test_a_damaged_plan_is_told(begin, tmp_path):
    from engine.errors import InputError

    begin()
    plan = tmp_path / "out" / "pictures.parquet"
    plan.write_bytes(plan.read_bytes()[:50])
    with pytest.raises(
        InputError, match=r"pictures\.parquet: is damaged\. Name another folder, or"
    ):
        begin()
    assert begin(overwrite=True).finished_shards() == {}


def test_a_run_that_ended_before_its_description_begins_again(begin, tmp_path):
    """The plan is written first."""
    begin(3, size=1)
    (tmp_path / "out" / "run.json").unlink()
    assert begin(3, size=1).shards == 3
    (tmp_path / "out" / "run.json").unlink()
    assert begin(3, size=1, overwrite=True).shards == 3


def test_foreign_folder_is_refused(begin, tmp_path):
    from engine.errors import InputError

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "holidays.jpg").write_bytes(b"mine")
    with pytest.raises(InputError, match="contains other files"):
        begin()
    begin(overwrite=True)
    assert (tmp_path / "out" / "holidays.jpg").read_bytes() == b"mine"


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_shard_is_read_as_it_was_written(begin, form):
    from engine.fleet import rows

    found = rows.table(["a", "b", "c"], [many_boxes(1), ImageError("b: no"), many_boxes(60_000)])
    files = begin(3, form=form).files
    files.write(0, found)
    assert files.read(0).equals(found)
    assert begin(3, form=form).finished_shards() == {0: (3, 60_001, 2, 1)}


def many_boxes(count):
    random = np.random.default_rng(0)
    boxes, scores = random.random((count, 4), np.float32), random.random(count, np.float32)
    return Result((640, 480), boxes, scores, np.zeros(count, np.int64), ("cat",))


def test_overwriting_forgets_the_shards_of_the_run_before(begin):
    from engine.fleet import rows

    first = begin(1)
    first.files.write(0, rows.table(["a"], [many_boxes(2)]))
    assert list(begin(1).finished_shards()) == [0]
    assert begin(1, overwrite=True).finished_shards() == {}


def test_overwriting_keeps_a_run_until_the_next_one_is_planned(begin, tmp_path):
    from engine.errors import InputError
    from engine.fleet import rows

    begin(1).files.write(0, rows.table(["a"], [many_boxes(2)]))
    before = sorted(each.name for each in (tmp_path / "out").iterdir())
    with pytest.raises(InputError, match="the lists are empty"):
        begin(0, overwrite=True)
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == before
    assert list(begin(1).finished_shards()) == [0]


def test_half_an_overwriting_leaves_no_plan_of_another_run(begin, monkeypatch):
    """Until run.json is gone the plan is its own, and after that there is nothing to resume."""
    from engine.fleet import rows
    from engine.fleet.storage import Folder

    done = []
    for action in ("delete", "write"):
        real = getattr(Folder, action)

        def noted(folder, name, *content, action=action, real=real):
            done.append((action, name))
            real(folder, name, *content)

        monkeypatch.setattr(Folder, action, noted)
    run = begin(2, size=1)
    for shard in range(2):
        run.files.write(shard, rows.table(["a"], [many_boxes(1)]))
    done.clear()
    begin(2, size=1, overwrite=True)
    assert done == [
        ("delete", "shard-000000.parquet"),
        ("delete", "shard-000001.parquet"),
        ("delete", "run.json"),
        ("write", "pictures.parquet"),
        ("write", "run.json"),
    ]


def test_overwriting_keeps_files_of_the_other_format(begin, tmp_path):
    from engine.errors import InputError

    begin(3, size=1)
    mine = tmp_path / "out" / "shard-000000.jsonl"
    mine.write_text("converted")
    with pytest.raises(InputError, match=r"contains shard-000000\.jsonl, which is not from a run"):
        begin(3, size=1, overwrite=True)
    assert mine.read_text() == "converted"


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
def test_a_shard_that_lacks_rows_or_columns_is_made_again(begin, form, caplog):
    import pyarrow

    from engine.fleet import rows

    whole = rows.table(["a", "b"], [many_boxes(1), many_boxes(2)])
    for wrong in (whole.slice(0, 1), pyarrow.table({"other": [1, 2]})):
        files = begin(2, form=form).files
        files.write(0, wrong)
        assert begin(2, form=form).finished_shards() == {}
        files.write(0, whole)
        assert begin(2, form=form).finished_shards() == {0: (2, 3, 2, 0)}
    assert all("is damaged and will be rebuilt" in each for each in caplog.messages)


def test_run_without_pictures_is_refused(begin):
    from engine.errors import InputError

    with pytest.raises(InputError, match="the lists are empty"):
        begin(0)


def test_a_recurrent_network_is_refused(has_ray, words, capsys, tiny_recurrent_detector):
    """Each worker would begin with a state that depends on the shards before."""
    from engine.errors import InputError
    from engine.fleet.detect import Detect

    files = [str(tiny_recurrent_detector.cfg), str(tiny_recurrent_detector.weights)]
    told = error_of(capsys, "detect", *files, *words[3:], "--ray", "local")
    reason = "is recurrent: it needs all pictures in their order, on one machine"
    assert told == f"--ray: {files[0]}: {reason}"
    with pytest.raises(InputError, match=reason):
        Detect(*files, device="cpu")


def test_model_is_sent_with_the_files_it_names(has_ray, tmp_path, model):
    from engine.errors import ConfigError
    from engine.fleet.packed_model import PackedModel
    from tests.small_models import write_model

    region = """
[net]
width=32
height=32
channels=3

[convolutional]
filters={filters}
activation=linear

[region]
classes=3
num=1
anchors=1,1
softmax=1
tree={tree}
"""
    (tmp_path / "trees").mkdir()
    (tmp_path / "trees" / "3.tree").write_text("animal -1\ncat 0\ndog 0\n")
    text = region.format(filters=8, tree="trees/3.tree")
    written = write_model(tmp_path, text, ["animal", "cat", "dog"])
    packed = PackedModel.pack(written.cfg, written.weights, ("animal", "cat", "dog"))
    (tmp_path / "trees" / "3.tree").unlink()
    with packed.load(device="cpu") as detector:
        assert detector.labels == ("animal", "cat", "dog")
    other = PackedModel.pack(model.cfg, model.weights, ("cat", "dog", "cow"))
    renamed = PackedModel.pack(model.cfg, model.weights, ("cat", "dog", "horse"))
    assert len({packed.digest, other.digest, renamed.digest}) == 3
    other_folder = tmp_path / "other"
    other_folder.mkdir()
    (other_folder / "3.tree").write_text("animal -1\ncat 0\ndog 0\n")
    absolute = region.format(filters=8, tree=other_folder / "3.tree")
    written = write_model(other_folder, absolute, ["animal", "cat", "dog"])
    with pytest.raises(ConfigError, match="tree: expected a file in the folder"):
        PackedModel.pack(written.cfg, written.weights, ())


def test_unreachable_ray_is_reported_at_once(words, capsys, has_ray):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    told = error_of(capsys, *words, "--ray", address)
    assert told.startswith(f"ray: {address}: cannot be reached: ")
    assert "refused" in told


def test_run_json_describes_the_run(words, has_ray, monkeypatch, tmp_path):
    """Run until Ray would start."""
    from engine.fleet import detection_run

    def no_ray(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(detection_run, "ray_session", no_ray)
    assert cli.main([*words, "--ray", "--thresh", "0.7", "--classes", "0", "--size", "64"]) == 130
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert {name: about[name] for name in ("sources", "threshold", "classes", "size")} == {
        "sources": [str(Path("pictures").absolute())],
        "threshold": 0.7,
        "classes": [0],
        "size": 64,
    }
    assert (about["pictures"], about["shards"]) == (3, 1)


def test_run_json_tells_names_from_numbers(words, has_ray, monkeypatch, tmp_path):
    from engine.fleet import detection_run

    def no_ray(*_, **__):
        raise KeyboardInterrupt

    (tmp_path / "numbers.names").write_text("1\n0\ncow\n")
    monkeypatch.setattr(detection_run, "ray_session", no_ray)
    chosen = ("--names", str(tmp_path / "numbers.names"), "--classes", "1,cow", "--exclude", "2")
    assert cli.main([*words, "--ray", *chosen]) == 130
    about = json.loads((tmp_path / "out" / "run.json").read_text())
    assert (about["classes"], about["exclude"]) == (["1", "cow"], [2])


def test_a_signal_ends_the_start_of_ray_like_any_other(words, has_ray, monkeypatch):
    """Ray's own handler would end the process with status 15."""
    import ray

    def init(*_, **__):
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(number))
        signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(ray, "init", init)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main([*words, "--ray"]) == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_local_ray_collects_no_usage_statistics(has_ray, monkeypatch):
    """Ray asks as it starts, and Ray Data again when a run begins."""
    import ray

    from engine.fleet.worker_pool import ray_session

    name, asked = "RAY_USAGE_STATS_ENABLED", []
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ray, "init", lambda *_, **__: asked.append(os.environ.get(name)))
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with ray_session():
        asked.append(os.environ.get(name))
    assert asked == ["0", "0"]
    assert name not in os.environ
