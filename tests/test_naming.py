"""Names of files, taken apart."""

from itertools import product
from pathlib import PurePath

from engine.files.naming import stem_and_suffix

PARTS = ("a", ".", "..", "...tar", "a.jpg", ".jpg", "a..b", ".a.b", "x.tar.gz", "", "a b.JPG", "…")


def test_stem_and_suffix_are_those_of_pathlib() -> None:
    for count in (1, 2, 3):
        for parts in product(PARTS, repeat=count):
            path = PurePath("/".join(parts))
            assert stem_and_suffix("/".join(parts)) == (path.stem, path.suffix)
