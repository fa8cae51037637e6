"""Result.to_df(): a data frame of the library that is installed."""

import sys
from types import ModuleType

import pytest

from engine.errors import InputError
from engine.vision import tables
from engine.vision.serialize import CSV_COLUMNS
from tests.vision.results import RESULT


class Frame(dict):
    pass


@pytest.fixture
def installed(monkeypatch):
    """Pretend that only the libraries named are installed."""

    def pretend(*names):
        for name in names:
            module = ModuleType(name)
            module.DataFrame = type(f"{name}Frame", (Frame,), {})
            monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.setattr(tables, "find_spec", lambda name: name in names or None)

    return pretend


@pytest.mark.parametrize(
    ("names", "library", "expected"),
    [
        (("pandas", "polars"), None, "pandasFrame"),
        (("polars",), None, "polarsFrame"),
        (("pandas", "polars"), "polars", "polarsFrame"),
    ],
)
def test_columns(installed, names, library, expected):
    installed(*names)
    frame = RESULT.to_df(library)
    assert type(frame).__name__ == expected
    assert tuple(frame) == CSV_COLUMNS
    assert frame["label"] == ["dog", "cat", "dog"]
    assert frame["left"] == [20, 0, 50]
    assert all(column == [] for column in RESULT[:0].to_df(library).values())


def test_no_library(installed):
    installed()
    with pytest.raises(InputError, match="pandas or polars: is not installed"):
        RESULT.to_df()
    with pytest.raises(InputError, match="polars: is not installed"):
        RESULT.to_df("polars")
    with pytest.raises(InputError, match="Did you mean 'pandas'"):
        RESULT.to_df("panda")


@pytest.mark.slow
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_real_data_frame(library):
    pytest.importorskip(library, reason=f"{library} is not installed. Run: pip install {library}")
    frame = RESULT.to_df(library)
    assert list(frame.columns) == list(CSV_COLUMNS)
    assert frame.shape == (3, len(CSV_COLUMNS))
    assert RESULT[:0].to_df(library).shape == (0, len(CSV_COLUMNS))
