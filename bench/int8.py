"""int8.py IMAGES NET.onnx...: errors, size and speed of exported networks in onnxruntime, by turns.

IMAGES: CIFAR-10's test_batch.bin, or a folder with one of images per class. Networks have --preprocess:

    amptrain export --weights RUN --preprocess -o fp32.onnx
    amptrain export --weights RUN --preprocess --dtype int8 -o int8.onnx
    python bench/int8.py IMAGES fp32.onnx int8.onnx
"""
import os
import sys
import time

import numpy
import onnxruntime
from PIL import Image


def open_images(path):
    if os.path.isfile(path):
        rows = numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)
        pixels = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        yield from ((pixels[i:i + 100], rows[i:i + 100, 0]) for i in range(0, len(rows), 100))
        return
    for label, name in enumerate(sorted(os.listdir(path))):
        for file in sorted(os.listdir(f"{path}/{name}")):
            yield numpy.asarray(Image.open(f"{path}/{name}/{file}").convert("RGB"))[None], numpy.array([label])


options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
nets = [onnxruntime.InferenceSession(net, options, providers=["CPUExecutionProvider"]) for net in sys.argv[2:]]
errors, best, images = [0] * len(nets), [float("inf")] * len(nets), 0
for pixels, labels in open_images(sys.argv[1]):
    images += len(labels)
    for k, net in enumerate(nets):
        begin = time.perf_counter()
        outputs = net.run(None, {"input": pixels})[0]
        best[k] = min(best[k], (time.perf_counter() - begin) / len(labels))
        errors[k] += int((outputs.argmax(1) != labels).sum())
for k, net in enumerate(sys.argv[2:]):
    print(f"{net}: {errors[k]} errors of {images}, {os.path.getsize(net)} bytes, {1e3 * best[k]:.3f} ms an image")
