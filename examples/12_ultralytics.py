"""Use ultralytics' YOLO on a darknet network."""

from engine.compat.ultralytics import YOLO

model = YOLO("codes")  # or "my.cfg" with my.weights and my.names next to it
for result in model.predict("docs/parcel.jpg", conf=0.5, save=True):
    print(result.verbose() + str(result.save_dir))
    for row in result.summary():
        print(row)
