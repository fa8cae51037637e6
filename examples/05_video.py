"""Count what is in every tenth frame of a video: python 05_video.py street.mp4"""

import sys
from collections import Counter

import engine

if len(sys.argv) != 2:
    sys.exit(__doc__)

with engine.load() as detector:
    for number, result in enumerate(detector.stream(sys.argv[1], stride=10)):
        print(number * 10, dict(Counter(result.labels)))
