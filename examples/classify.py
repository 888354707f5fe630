"""classify.py: prints the most probable class of each image.

    pip install amptrain-*.whl
    python3 classify.py RUN|FILE IMAGE...
"""
import sys

import amptrain

with amptrain.load(sys.argv[1]) as network:
    images = sys.argv[2:]
    for image, prediction in zip(images, network.predict(images, errors="return")):
        if isinstance(prediction, amptrain.AmptrainError):
            print(f"{image}: error: {prediction}")
        else:
            print(f"{image}: {prediction.label} {prediction.probability:.4f}")
