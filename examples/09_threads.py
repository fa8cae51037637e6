"""Call one detector from many threads: each gets the result of its own picture."""

from concurrent.futures import ThreadPoolExecutor

import engine

paths = ["docs/parcel.jpg", "docs/scene.jpg"] * 4
with engine.load() as detector, ThreadPoolExecutor(4) as threads:
    for path, result in zip(paths, threads.map(detector, paths), strict=True):
        assert result.path == path
        print(result)
