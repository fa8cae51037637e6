"""tools/codes/read.py counts what is read in the pictures of tools/codes/composed.py."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from tests import needs

zxing = needs.package("zxingcpp")
TOOLS = Path(__file__).parents[1] / "tools/codes"


@pytest.fixture(scope="module")
def tools():
    """Import the two files of a folder that is no package."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        names = ("composed", "read")
        yield [importlib.import_module(name) for name in names]
        for name in names:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def scene(tools):
    return tools[0].ComposedScenes(71).scene(3)


def test_scenes_are_the_same_each_time_and_say_what_they_should(tools, scene):
    composed, read = tools
    again = composed.ComposedScenes(71).scene(3)
    assert again.codes == scene.codes
    assert np.array_equal(again.pixels, scene.pixels)
    assert scene.pixels.shape == (1536, 2048, 3)
    found = dict(read._alone(scene.pixels))
    assert len(scene.codes) == 2  # with modules of 3 and 5 pixels: both are read
    for code in scene.codes:
        assert read._contains(code.corners, found[code.text])
        assert not read._contains(code.corners, (5, 5))


def test_texts_count_where_they_belong(tools, scene, capsys):
    _, read = tools
    first, second = scene.codes
    right = [(each.text, read._middle(each.corners)) for each in scene.codes]
    moved = (first.text, read._middle(second.corners))
    tally = read.Tally()
    tally.add(0, scene.codes, right, right[:1])
    tally.add(1, scene.codes, [moved], right)
    assert (tally.codes.total(), tally.ours.total(), tally.alone.total()) == (4, 2, 3)
    assert (tally.texts, tally.wrong, tally.lost) == (3, 1, 2)
    tally.print()
    assert "0.667 times as many; 2 that zxing-cpp alone reads are lost" in capsys.readouterr().out
