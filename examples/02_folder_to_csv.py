"""Write a line for each box in a folder of pictures; a broken picture does not stop the run."""

import csv
from pathlib import Path

import engine
from engine.vision.serialize import CSV_COLUMNS

with engine.load(batch=4) as detector, Path("found.csv").open("w", newline="") as file:
    rows = csv.writer(file)
    rows.writerow(CSV_COLUMNS)
    for result in detector.stream("docs", on_error="yield", workers=2):
        if isinstance(result, engine.ImageError):
            print("left out:", result)
        else:
            rows.writerows(result.to_csv())
print(Path("found.csv").read_text())
