"""The public names of the package."""

import subprocess
import sys
from pathlib import Path

import pytest

import engine

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", engine.__all__)
def test_every_public_name_exists(name):
    assert getattr(engine, name) is not None
    assert name in dir(engine)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        _ = engine.laod


def test_public_names_are_sorted_and_complete():
    assert engine.__all__ == sorted(engine.__all__)
    assert set(engine._LAZY) < set(engine.__all__)


def test_operators_are_attributes_of_the_package():
    code = "import engine; print(engine.ops.conv2d.__name__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "conv2d"


@pytest.mark.parametrize("module", ["engine", "engine.detector"])
def test_importing_touches_neither_cuda_nor_network(module):
    code = (
        f"import sys, {module}; "
        "print(sorted({'pycuda', 'skcuda', 'socket', 'ssl', 'urllib.request'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "kind", [engine.Classification, engine.Detection, engine.Detector, engine.Result]
)
def test_what_users_touch_has_types(kind):
    """Only JSON values and other libraries' objects are Any; overloads type the calls."""
    untyped = {
        name
        for name, value in vars(kind).items()
        if name == "__call__" or not name.startswith("_")
        if "Any" in str(annotations_of(value).get("return"))
    }
    exempt = {"to_dict", "to_coco", "to_df", "to_supervision", "__call__", "classify", "stream"}
    assert untyped <= exempt


def annotations_of(member):
    function = member.fget if isinstance(member, property) else member
    return getattr(getattr(function, "__func__", function), "__annotations__", {})
