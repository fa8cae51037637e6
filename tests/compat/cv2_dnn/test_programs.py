"""Programs for cv2.dnn run with the shim, alone and inside an installed OpenCV.

ENGINE_YOLOV3_TINY names the folder of yolov3-tiny.weights.
"""

from types import SimpleNamespace

import pytest

from engine.compat import cv2_dnn
from tests import needs
from tests.compat.cv2_dnn import networks
from tests.compat.cv2_dnn.figures import FIGURES, assert_same_boxes, iou
from tests.compat.cv2_dnn.programs import PROGRAMS
from tests.lanes import slow_except

pytestmark = needs.shared("models", "images")

FAST = ("detection_model", "rows_of_columns")
EVERY_PICTURE = "detection_model"
# Other programs only use the same functions in other ways: pictures with no, few and many boxes.
FEW_PICTURES = {
    "yolov3-tiny": [2],
    "yolo-fastest-1.1-coco": [1, 4],
    "yoloface-500k-v1": [0, 1],
}


def without_opencv():
    """Return what a program uses of cv2, made of the shim alone."""
    return SimpleNamespace(
        dnn=cv2_dnn,
        dnn_DetectionModel=cv2_dnn.DetectionModel,
        CV_8U=cv2_dnn.CV_8U,
        getTickFrequency=lambda: 1e9,
    )


def files_of(network):
    cfg, weights = networks.NETWORKS[network]
    if not weights.is_file():
        pytest.skip(
            "ENGINE_YOLOV3_TINY names no weights. Set it to DIR of ../shared/get_yolov3_tiny.sh DIR"
        )
    return str(cfg), str(weights)


@pytest.mark.slow
@pytest.mark.parametrize("network", slow_except(["yoloface-500k-v1"], networks.NETWORKS))
@pytest.mark.parametrize("name", slow_except(FAST, PROGRAMS))
def test_a_program_finds_what_it_finds_with_opencv(name, network):
    files = files_of(network)
    expected = FIGURES["programs"][name][network]
    assert len(expected) == 10
    numbers = range(10) if name == EVERY_PICTURE else FEW_PICTURES[network]
    for picture in (networks.pictures()[number] for number in numbers):
        found = PROGRAMS[name](without_opencv(), *files, networks.read(picture))
        assert_same_boxes(found, expected[picture.name])


def test_few_pictures_have_no_few_and_many_boxes():
    names = [picture.name for picture in networks.pictures()]
    for by_network in FIGURES["programs"].values():
        counts = [
            len(by_network[network][names[number]])
            for network, numbers in FEW_PICTURES.items()
            for number in numbers
        ]
        assert min(counts) == 0
        assert max(counts) > 10
        assert 1 in counts


def test_the_recorded_figures_hold_boxes():
    """The comparison would succeed with empty lists."""
    for name, by_network in FIGURES["programs"].items():
        counts = {n: sum(map(len, each.values())) for n, each in by_network.items()}
        assert set(counts) == set(networks.NETWORKS)
        assert all(count >= 3 for count in counts.values()), (name, counts)


@pytest.mark.parametrize("name", slow_except(FAST, PROGRAMS))
def test_a_program_runs_in_an_installed_opencv(name):
    needs.package("cv2")
    cv2 = cv2_dnn.install()
    files = files_of("yoloface-500k-v1")
    expected = FIGURES["programs"][name]["yoloface-500k-v1"]
    for picture in networks.pictures()[:4]:
        found = PROGRAMS[name](cv2, *files, networks.read(picture))
        assert_same_boxes(found, expected[picture.name])


def test_iou_of_boxes():
    assert iou([0, 0, 10, 10], [0, 0, 10, 10]) == 1
    assert iou([0, 0, 10, 10], [5, 0, 10, 10]) == pytest.approx(1 / 3)
    assert iou([0, 0, 1, 1], [5, 5, 1, 1]) == 0
