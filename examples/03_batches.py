"""Run several pictures at once, with other settings for one call."""

from engine import Result, load

with load(batch=8) as detector:
    paths = ["docs/parcel.jpg", "docs/scene.jpg", "docs/parcel.jpg"]
    results: list[Result] = detector(paths)
    sure = detector(paths, threshold=0.7, classes=["barcode", "qr"], max_detections=1)
    for before, after in zip(results, sure, strict=True):
        print(f"{len(before)} boxes, of which {len(after)} sure")
