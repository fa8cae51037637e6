"""Detect in one picture, print the boxes and save an annotated copy."""

import engine

with engine.load() as detector:  # the bundled model; or load("my.cfg", "my.weights", "my.names")
    result = detector("docs/parcel.jpg")
    print(result)
    for found in result:
        print(f"{found.label} {found.score:.2f} at {found.box.left:.0f}, {found.box.top:.0f}")
    print(result.save("found.png", overwrite=True))
