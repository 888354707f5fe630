"""client.py RUN FOLDER: uses the package in all ways; prints a line for each that is not as it should be."""
import array
import copy
import os
import subprocess
import sys
import threading
import warnings

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
    check("an image alone", network.predict(pixels) == network.predict([pixels]))
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
        check("an array alone", network.predict(picture) == network.predict([picture]))
    refused(amptrain.UsageError, "null character", network.predict, paths[0] + "\0")
    refused(amptrain.UsageError, "null character", network.embed, paths[:1], layer="\0")
    refused(TypeError, "load it again", copy.copy, network)
    warnings.simplefilter("ignore", DeprecationWarning)     # of Python 3.12 and later: there are other threads
    child = os.fork()
    if child == 0:
        refused(amptrain.UsageError, "load it again", network.predict, paths)
        network.close()
        sys.stdout.flush()
        os._exit(0)
    check("a fork ends", os.waitpid(child, 0)[1] == 0)
    results = []
    thread = threading.Thread(target=lambda: results.append(network.predict(paths * 8)))
    thread.start()
    while thread.is_alive() and network._calls == 0:
        pass
refused(amptrain.UsageError, "closed", network.predict, paths)
thread.join()
check("closing waits for calls", results == [predictions * 8])
refused(amptrain.UsageError, "batch is from 0", amptrain.load, run, batch=1 << 40)
refused(amptrain.UsageError, "batch: must be between", amptrain.load, run, batch=(1 << 31) - 1)
refused(amptrain.BadWeights, "/nowhere", amptrain.load, "/nowhere")
refused(amptrain.UsageError, "null character", amptrain.load, run, device="cpu\0x")
refused(amptrain.UsageError, "null character", amptrain.load, run, settings={"augment.val_crop": "28\0"})
refused(amptrain.UsageError, "val_crap", amptrain.load, run, settings={"augment.val_crap": 3})
