"""--json-style coco and --coco-dataset, loaded by pycocotools."""

import json
import os
import shutil
import tarfile

import pytest

from tests import needs
from tests.cli.child import engine_here
from tests.pictures import write_picture, write_video
from tests.small_models import DETECTOR, write_model

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path):
    write_picture(tmp_path / "val/COCO_val2014_000000000785.jpg", seed=1)
    write_picture(tmp_path / "val/deep/000000000009.png", seed=2)
    write_picture(tmp_path / "val/dog.jpg", seed=3)
    return tmp_path


@pytest.fixture
def detect(tiny_detector, folder):
    def run(*arguments, **more):
        names = ["--names", tiny_detector.names, "--threshold", "0.01"]
        return engine_here("detect", *tiny_detector.options, *names, *arguments, cwd=folder, **more)

    return run


def results(folder):
    return json.loads((folder / "coco.json").read_text())


COCO = ["--json", "coco.json", "--json-style", "coco"]


def annotations(folder, categories=("cat", "dog", "cow"), **more):
    """Write a file that numbers all pictures and classes in another way."""
    truth = {
        "images": [
            {"id": 50, "file_name": "dog.jpg", "width": 50, "height": 40},
            {"id": 60, "file_name": "deep/000000000009.png", "width": 50, "height": 40},
            {"id": 70, "file_name": "COCO_val2014_000000000785.jpg", "width": 50, "height": 40},
        ],
        "categories": [{"id": 11 * at, "name": each} for at, each in enumerate(categories, 1)],
        **more,
    }
    (folder / "truth.json").write_text(json.dumps(truth))


def loaded(folder):
    coco = needs.package("pycocotools.coco")
    return coco.COCO(str(folder / "truth.json")).loadRes(str(folder / "coco.json"))


def test_ids_are_the_digits_at_the_end_of_a_name(detect, folder):
    assert detect("val/COCO_val2014_000000000785.jpg", "val/deep", *COCO).status == 0
    assert {each["image_id"] for each in results(folder)} == {785, 9}
    assert {each["category_id"] for each in results(folder)} <= {1, 2, 3}
    images = [{"id": 785, "width": 50, "height": 40}, {"id": 9, "width": 50, "height": 40}]
    annotations(folder, images=images, annotations=[])
    assert len(loaded(folder).anns) == len(results(folder)) > 0


def test_ids_are_those_of_an_annotation_file(detect, folder):
    annotations(folder, ["cow", "cat", "dog"], annotations=[])
    done = detect("val", "--recursive", *COCO, "--images-json", "truth.json", "--csv", "a.csv")
    assert done.status == 0
    assert {each["image_id"] for each in results(folder)} == {50, 60, 70}
    labels = [row.split(",")[2] for row in (folder / "a.csv").read_text().splitlines()[1:]]
    number_of = {"cow": 11, "cat": 22, "dog": 33}
    assert [each["category_id"] for each in results(folder)] == [number_of[each] for each in labels]
    assert len(loaded(folder).anns) == len(results(folder)) > 0


def test_a_test_set_without_annotations_numbers_pictures(detect, folder):
    annotations(folder)
    assert detect("val/dog.jpg", *COCO, "--images-json", "truth.json").status == 0
    assert {each["image_id"] for each in results(folder)} == {50}


def test_a_picture_is_not_taken_for_one_of_another_folder(detect, folder):
    annotations(folder)
    (folder / "val" / "deep").rename(folder / "elsewhere")
    done = detect("elsewhere", *COCO, "--images-json", "truth.json")
    assert done.status == 2
    assert (
        "elsewhere/000000000009.png: is not a picture of --images-json truth.json, which has "
        "deep/000000000009.png. The folders of both must be the same"
    ) in done.err
    assert not (folder / "coco.json").exists()


@pytest.mark.parametrize("inside", ["val/deep", "linked"])
def test_folders_outside_the_name_and_links_identify_a_picture(tiny_detector, folder, inside):
    annotations(folder)
    (folder / "linked").symlink_to(folder / "val/deep")
    truth = ["--images-json", str(folder / "truth.json")]
    where = folder / inside
    done = engine_here(
        "detect", *tiny_detector.options, "000000000009.png", *COCO, *truth, cwd=where
    )
    assert done.status == 0
    assert json.loads((where / "coco.json").read_text()) is not None


@pytest.mark.parametrize(
    ("sources", "more", "message"),
    [
        (["val/dog.jpg"], [], "--json-style coco: val/dog.jpg does not end in a number for image_"),
        (
            ["val/deep/000000000009.png", "other/9.jpg"],
            [],
            "image_id 9 of two pictures: val/deep/000000000009.png and other/9.jpg. Number them",
        ),
        (
            ["other/9.jpg"],
            ["--images-json", "truth.json"],
            "other/9.jpg: is not a picture of --images-json truth.json",
        ),
        (["val/dog.jpg"], ["--images-json", "no.json"], "no.json: cannot be read"),
    ],
)
def test_pictures_without_an_id_of_their_own_stop_the_run(detect, folder, sources, more, message):
    write_picture(folder / "other/9.jpg")
    annotations(folder)
    for way in ("named", "stdin"):
        if way == "named":
            done = detect(*sources, *COCO, *more)
        else:
            done = detect("-", *COCO, *more, "--quiet", stdin="\n".join(sources))
        assert (done.status, done.out) == (2, "")
        assert message in done.err
        assert len(done.err.splitlines()) == 1
        assert not (folder / "coco.json").exists()


def test_classes_that_the_annotation_file_lacks_stop_the_run(detect, folder):
    annotations(folder, ["bicycle"])
    done = detect("val/dog.jpg", *COCO, "--images-json", "truth.json")
    assert (done.status, done.out) == (2, "")
    assert "has 1 categories, the network 3 classes, none of which is called 'bicycle'" in done.err


def test_a_data_set_is_loaded_by_pycocotools(detect, folder):
    coco = needs.package("pycocotools.coco")
    (folder / "val" / "broken.jpg").write_bytes(b"no")
    done = detect("val", "--recursive", "--coco-dataset", "set.json", "--json", "all.json")
    assert done.status == 1
    found = coco.COCO(str(folder / "set.json"))
    assert [each["name"] for each in found.loadCats(found.getCatIds())] == ["cat", "dog", "cow"]
    images = found.loadImgs(found.getImgIds())
    names = [each["file_name"] for each in images]
    assert names == ["COCO_val2014_000000000785.jpg", "deep/000000000009.png", "dog.jpg"]
    assert {(each["width"], each["height"]) for each in images} == {(50, 40)}
    entries = json.loads((folder / "all.json").read_text())["images"]
    inside = [
        (entry["path"].removeprefix("val/"), each["label"])
        for entry in entries
        for each in entry.get("detections", ())
        if min(each["box"]["right"], 50) > max(each["box"]["left"], 0)
        if min(each["box"]["bottom"], 40) > max(each["box"]["top"], 0)
    ]
    anns = found.loadAnns(found.getAnnIds())
    name_of = {each["id"]: each["file_name"] for each in images}
    label_of = {each["id"]: each["name"] for each in found.loadCats(found.getCatIds())}
    pairs = [(name_of[each["image_id"]], label_of[each["category_id"]]) for each in anns]
    assert pairs == inside
    for each in anns:
        left, top, width, height = each["bbox"]
        assert min(left, top) >= 0
        assert left + width <= 50 + 1e-3
        assert top + height <= 40 + 1e-3
        assert each["area"] == pytest.approx(width * height, abs=1e-3)
        assert each["iscrowd"] == 0
    assert len({each["id"] for each in anns}) == len(anns) > 0


def test_results_and_data_set_of_a_run_have_the_same_ids(detect, folder):
    (folder / "val/dog.jpg").unlink()
    assert detect("val", "--recursive", *COCO, "--coco-dataset", "set.json").status == 0
    found = json.loads((folder / "set.json").read_text())
    assert {each["id"] for each in found["images"]} == {785, 9}
    ids = sorted(each["image_id"] for each in found["annotations"])
    assert ids == sorted(each["image_id"] for each in results(folder)) != []


def test_a_picture_that_is_named_twice_is_in_the_data_set_once(detect, folder):
    done = detect("val/dog.jpg", "val/dog.jpg", "--coco-dataset", "set.json")
    assert done.status == 0
    assert "--coco-dataset: val/dog.jpg is included once, although it was named twice" in done.err
    found = json.loads((folder / "set.json").read_text())
    assert [each["file_name"] for each in found["images"]] == ["dog.jpg"]


def test_a_data_set_names_the_folders_of_pictures_with_flat_outputs(detect, folder):
    for name in ("k/x/1.jpg", "k/y/1.jpg"):
        write_picture(folder / name)
    with tarfile.open(folder / "k/y/set.tar", "w") as archive:
        archive.add(folder / "val/dog.jpg", "deep/dog.jpg")
    where = ["-o", "drawn", "--coco-dataset", "set.json", "--flat"]
    assert detect("k/x/1.jpg", "k/y/1.jpg", "k/y/set.tar", *where).status == 0
    names = [each["file_name"] for each in json.loads((folder / "set.json").read_text())["images"]]
    assert names == ["x/1.jpg", "y/1.jpg", "y/set/deep/dog.jpg"]
    drawn = {each.name for each in (folder / "drawn").iterdir() if each.suffix == ".jpg"}
    assert drawn == {"1.jpg", "1-2.jpg", "dog.jpg"}


def test_a_data_set_without_pictures_is_valid(detect, folder):
    (folder / "broken.jpg").write_bytes(b"no")
    assert detect("broken.jpg", "--coco-dataset", "set.json").status == 1
    found = json.loads((folder / "set.json").read_text())
    assert (found["images"], found["annotations"]) == ([], [])
    assert len(found["categories"]) == 3


def test_frames_are_numbered(detect, folder):
    needs.package("av")
    write_video(folder / "street.mp4")
    assert detect("street.mp4", *COCO, "--coco-dataset", "set.json").status == 0
    images = json.loads((folder / "set.json").read_text())["images"]
    assert [each["file_name"] for each in images[:2]] == ["street_000000.jpg", "street_000001.jpg"]
    assert {each["image_id"] for each in results(folder)} <= set(range(len(images)))


@pytest.mark.parametrize("option", ["--json=x.json --json-style=coco", "--coco-dataset=x.json"])
def test_an_archive_is_refused_before_its_first_picture(detect, folder, option):
    annotations(folder)
    with tarfile.open(folder / "set.tar", "w") as archive:
        archive.add(folder / "val/dog.jpg", "dog.jpg")
        archive.add(folder / "val/dog.jpg", "cat.jpg")
    done = detect("set.tar", *option.split(), "--images-json=truth.json", "--csv=boxes.csv")
    assert done.status == 2
    assert "set/cat.jpg: is not a picture of --images-json truth.json" in done.err
    assert not (folder / "boxes.csv").exists()


@pytest.mark.parametrize("more", [[], ["--images-json", "truth.json"]])
def test_members_of_an_archive_are_named_like_annotated_pictures(detect, folder, more):
    annotations(folder)
    with tarfile.open(folder / "set.tar", "w") as archive:
        archive.add(folder / "val/dog.jpg", "dog.jpg")
        archive.add(folder / "val/deep/000000000009.png", "deep/000000000009.png")
    done = detect("set.tar", "-o", "out", "--coco-dataset", "set.json", *more)
    assert done.status == 0, done.err
    images = json.loads((folder / "set.json").read_text())["images"]
    names = [each["file_name"] for each in images]
    assert names == ["set/dog.jpg", "set/deep/000000000009.png"]
    assert all((folder / "out" / each).is_file() for each in names)
    assert not more or [each["id"] for each in images] == [50, 60]


def test_found_classes_that_the_annotation_file_lacks_are_named(detect, folder):
    annotations(folder, ["cat"])
    outputs = (*COCO, "--coco-dataset", "set.json")
    done = detect("val/dog.jpg", *outputs, "--images-json", "truth.json")
    assert done.status == 0
    found = {each["category_id"] for each in results(folder)}
    new = [f"{name} ({number})" for number, name in ((13, "dog"), (14, "cow")) if number in found]
    assert new
    what = "truth.json: has no category for classes that were found, which get new ids: "
    assert [line for line in done.err.splitlines() if what in line] == [f"{what}{', '.join(new)}"]


def test_categories_that_are_matched_in_order_are_announced_once(detect, folder):
    annotations(folder, ["rose", "oak", "fern"])
    outputs = (*COCO, "--coco-dataset", "set.json")
    done = detect("val/dog.jpg", *outputs, "--images-json", "truth.json")
    assert done.status == 0
    assert {each["category_id"] for each in results(folder)} <= {11, 22, 33}
    (line,) = (each for each in done.err.splitlines() if each.startswith("truth.json: "))
    assert line.endswith("count as that: rose = cat, oak = dog, fern = cow. See --names")


def test_evaluate_reads_a_data_set_with_several_classes_of_one_name(detect, folder, tiny_detector):
    (folder / "twice.names").write_text("cat\nCat\ncat\n")
    by_name = ("--names", "twice.names")
    done = detect("val/dog.jpg", "--coco-dataset", "set.json", *by_name)
    assert (done.status, done.err) == (0, "")
    more = ("--images", "val", "--json", "report.json", *by_name)
    done = engine_here("evaluate", *tiny_detector.options, "set.json", *more, cwd=folder)
    assert done.status == 0
    written = json.loads((folder / "set.json").read_text())["annotations"]
    counts = [sum(each["category_id"] == number for each in written) for number in (1, 2, 3)]
    classes = json.loads((folder / "report.json").read_text())["classes"]
    assert [each["objects"] for each in classes] == counts
    assert sum(map(bool, counts)) > 1


def test_an_annotation_file_without_categories_stops_the_run(detect, folder):
    annotations(folder, [])
    for outputs in (COCO, ["--coco-dataset", "set.json"]):
        done = detect("val/dog.jpg", *outputs, "--images-json", "truth.json")
        assert (done.status, done.out) == (2, "")
        assert done.err == "Error: truth.json: categories: expected at least one, got none\n"


def test_a_folder_and_an_archive_of_one_name_give_different_file_names(detect, folder):
    (folder / "set").mkdir()
    write_picture(folder / "set" / "1.png")
    with tarfile.open(folder / "set.tar", "w") as made:
        made.add(folder / "val" / "dog.jpg", "1.png")
    done = detect("set", "set.tar", "--coco-dataset", "set.json")
    images = json.loads((folder / "set.json").read_text())["images"]
    assert [each["file_name"] for each in images] == ["set/1.png", "set/1-2.png"]
    what = "set.tar#1.png: has the name of another picture, so its file_name is set/1-2.png"
    assert (done.status, what in done.err) == (0, True)


def test_eighty_classes_without_names_are_announced(folder, tmp_path_factory):
    cfg = DETECTOR.replace("classes=3", "classes=80").replace("filters=16", "filters=170")
    model = write_model(tmp_path_factory.mktemp("model"), cfg, [*map(str, range(80))])
    model.names.unlink()
    words = ("detect", "val/COCO_val2014_000000000785.jpg", *model.options, *COCO)
    what = "the 80 classes have no names, so category_id counts from 1 without the gaps of COCO's"
    done = engine_here(*words, cwd=folder)
    assert (done.status, what in done.err) == (0, True)
    annotations(folder, [f"c{number}" for number in range(80)])
    done = engine_here(*words, "--images-json", "truth.json", "--overwrite", cwd=folder)
    assert (done.status, what in done.err) == (0, False)


def test_a_file_name_of_two_images_is_refused(detect, folder):
    images = [{"id": each, "file_name": "dog.jpg", "width": 50, "height": 40} for each in (4, 9)]
    annotations(folder, images=images)
    done = detect("val/dog.jpg", *COCO, "--images-json", "truth.json")
    what = "val/dog.jpg: has the file_name of two images of truth.json, 4 and 9"
    assert (done.status, done.err) == (2, f"Error: {what}\n")
    assert not (folder / "coco.json").exists()


def test_a_name_that_is_not_utf_8_is_found_again(detect, folder, tiny_detector):
    name = os.fsdecode(b"\xe4x.jpg")
    shutil.copy(folder / "val/dog.jpg", folder / "val" / name)
    assert detect(f"val/{name}", "--coco-dataset", "set.json").status == 0
    (image,) = json.loads((folder / "set.json").read_text())["images"]
    assert image["file_name"] == "\\udce4x.jpg"
    done = detect(f"val/{name}", *COCO, "--images-json", "set.json")
    assert (done.status, [each["image_id"] for each in results(folder)][:1]) == (0, [image["id"]])
    network = [*tiny_detector.options, "--names", tiny_detector.names]
    scored = engine_here(
        *("evaluate", *network, "set.json", "--images", "val", "--save-coco", "saved"), cwd=folder
    )
    assert scored.status == 0
    again = json.loads((folder / "saved/ground_truth.json").read_text())["images"]
    assert [each["file_name"] for each in again] == ["val/\\udce4x.jpg"]


def test_a_video_next_to_other_sources_stops_the_run_before_it_starts(detect, folder):
    needs.package("av")
    write_video(folder / "a.mp4", count=2)
    write_video(folder / "b.mp4", count=2)
    for other in ("b.mp4", "val/deep/000000000009.png"):
        done = detect("a.mp4", other, *COCO, "--jsonl", "a.jsonl")
        assert (done.status, done.out) == (2, "")
        assert "a.mp4: its frames have the ids 0, 1, …, which pictures of other" in done.err
        assert not (folder / "a.jsonl").exists()
