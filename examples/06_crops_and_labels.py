"""Make a data set: a label file and cropped pictures of every detection."""

from pathlib import Path

import engine

folder = Path("dataset")
folder.mkdir(exist_ok=True)
with engine.load(threshold=0.5) as detector:
    for result in detector.stream("docs/*.jpg"):
        assert result.path is not None
        name = Path(result.path).stem
        result.save_txt(folder / f"{name}.txt", conf=True, overwrite=True)
        for path in result.save_crop(folder / "crops", overwrite=True):
            print(path)
