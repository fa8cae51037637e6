"""Name the best classes of a picture: python 08_classify.py net.cfg net.weights picture.jpg"""

import sys

import engine

if len(sys.argv) != 4:
    sys.exit(__doc__)

cfg, weights, picture = sys.argv[1:]
with engine.load(cfg, weights, top_k=3) as classifier:
    result = classifier.classify(picture)
    for label, score, _ in result:
        print(f"{label} {score:.3f}")
