"""A folder with darknet's data set, in which the commands run."""

import pytest

from tests.cli.darknet import parcel_set


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    parcel_set.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path
