"""client.py RUN FOLDER: uses the package in all ways; prints a line for each that is not as it should be."""
import array
import os
import subprocess
import sys

import amptrain

run, folder = sys.argv[1:]
paths = [os.path.join(folder, name, f"{i}.png") for i in range(24) for name in ("apple", "pear")]


def check(name, good):
    if not good:
        print("not so:", name)


def refused(kind, words, function, *arguments, **named):
    try:
        function(*arguments, **named)
    except kind as error:
        check(f"{error}", words in str(error))
    else:
        check(words, False)


with amptrain.load(run, device="cpu") as network:
    check("what is known", network.task == "classify" and network.classes == ["apple", "pear"]
          and (network.height, network.width, network.channels) == (28, 28, 3) and network.device == "cpu")
    predictions = network.predict(paths)
    for path, prediction in zip(paths, predictions):
        print(f"{path}: {prediction.label} {prediction.probability:.4f}", file=sys.stderr)
    one = network.predict(paths[0], top=2)[0]
    check("the most probable ones", one[0] == predictions[0] and {p.label for p in one} == {"apple", "pear"})
    with open(paths[0], "rb") as file:
        check("bytes", network.predict([file.read()])[0] == predictions[0])
    pixels = memoryview(bytes(7 * i % 256 for i in range(20 * 30 * 3))).cast("B", (20, 30, 3))
    check("pixels", network.predict([pixels])[0].label in network.classes)
    features = network.embed(paths[:3])
    check("features", tuple(features.shape) == (3, 3136))
    mixed = network.predict([paths[0], "/nowhere.png"], errors="return")
    check("errors in place", mixed[0] == predictions[0] and isinstance(mixed[1], amptrain.BadData))
    refused(amptrain.BadData, "/nowhere.png: No such file", network.predict, ["/nowhere.png"])
    refused(amptrain.UsageError, "type f", network.predict,
            [memoryview(array.array("f", [0] * 12)).cast("B").cast("f", (2, 2, 3))])
    try:
        import numpy
    except ImportError:
        numpy = None
    if numpy:
        picture = numpy.asarray(pixels)
        flipped = numpy.ascontiguousarray(picture[::-1])[::-1]
        check("arrays with strides", network.predict([flipped]) == network.predict([picture]))
        check("grey arrays", network.predict([picture[:, :, 0]])[0].label in network.classes)
refused(amptrain.UsageError, "closed", network.predict, paths)
refused(amptrain.BadWeights, "/nowhere", amptrain.load, "/nowhere")
refused(amptrain.UsageError, "val_crap", amptrain.load, run, settings={"augment.val_crap": 3})
