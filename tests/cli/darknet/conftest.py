"""A folder with darknet's data set, in which the commands run."""

import shutil

import pytest

from tests.cli.darknet import parcel_set


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parcel")
    parcel_set.write(folder)
    return folder


@pytest.fixture(autouse=True)
def here(written, tmp_path, monkeypatch):
    shutil.copytree(written, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path
