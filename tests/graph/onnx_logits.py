"""onnx_logits.py pictures FOLDER SIZE CHANNELS: makes a folder of classes of noise, and FOLDER.npy of the
same numbers. SIZE: SIDE or HEIGHTxWIDTH.
onnx_logits.py sizes FOLDER COUNT: makes a folder of as many images of odd sizes, and FOLDER.npz of
the same numbers.
onnx_logits.py images NET FOLDER.npz PREDICTIONS TOLERANCE: what onnxruntime makes of these images, each in its own size,
beside predict --json --top CLASSES.
onnx_logits.py compare NET LOGITS FOLDER.npy TOLERANCE: what onnxruntime computes of them, beside ours."""
import json
import os
import struct
import sys
import zlib

import numpy


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 1)) +
                   chunk(b"IEND", b""))


def pictures(folder, size, channels):
    height, width = (size.split("x") * 2)[:2]
    images = numpy.random.default_rng(1).integers(0, 256, (6, int(height), int(width), channels), dtype=numpy.uint8)
    for i, pixels in enumerate(images):
        os.makedirs(f"{folder}/class{i // 2}", exist_ok=True)
        write_png(f"{folder}/class{i // 2}/{i}.png", pixels)
    numpy.save(f"{folder}.npy", images)


def sizes(folder, count):
    random = numpy.random.default_rng(2)
    arrays = {}
    os.makedirs(folder, exist_ok=True)
    for i in range(count):
        height, width = (1 + 2 * int(side) for side in random.integers(0, (20, 60, 200)[i % 3], 2))
        y, x = numpy.mgrid[:height, :width][..., None]
        waves = numpy.sin(y / random.uniform(1, 40, 3) + x / random.uniform(1, 40, 3))
        noise = random.integers(-30, 30, (height, width, 3))
        pixels = numpy.clip(127 + 100 * waves + noise, 0, 255).astype(numpy.uint8)
        write_png(f"{folder}/{i}.png", pixels)
        arrays[f"{i}.png"] = pixels
    numpy.savez(f"{folder}.npz", **arrays)


def images(net, arrays, predictions, tolerance):
    import onnx
    import onnxruntime

    onnx.checker.check_model(onnx.load(net), full_check=True)
    session = onnxruntime.InferenceSession(net, providers=["CPUExecutionProvider"])
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    worst = 0
    pixels_of = numpy.load(arrays)
    with open(predictions) as file:
        records = json.load(file)
    for record in records:
        pixels = pixels_of[os.path.basename(record["image"])]
        theirs = session.run(None, {"input": numpy.stack([pixels, pixels])})[0]
        ours = {entry["class"]: entry["probability"] for entry in record["top"]}
        for row in theirs:
            worst = max(worst, max(abs(p - ours[name]) for name, p in zip(classes, row)))
    print(f"{net}: {len(records)} images of odd sizes, largest difference {worst:.2g}")
    if not worst <= tolerance:
        sys.exit("too large")


def compare(net, logits, images, tolerance):
    import onnx
    import onnxruntime

    model = onnx.load(net)
    onnx.checker.check_model(model, full_check=True)
    said = {pair.key: pair.value for pair in model.metadata_props}
    mean, std = (numpy.array(eval(said[key]), numpy.float32) for key in ("mean", "std"))
    x = ((numpy.load(images) / numpy.float32(255) - mean) / std).transpose(0, 3, 1, 2)
    session = onnxruntime.InferenceSession(net, providers=["CPUExecutionProvider"])
    raw = session.get_inputs()[0].type == "tensor(uint8)"
    x = numpy.load(images) if raw else x.astype(numpy.float32)
    ours = numpy.load(logits)
    if session.get_outputs()[0].name == "probabilities":
        ours = numpy.exp(ours - ours.max(1, keepdims=True))
        ours /= ours.sum(1, keepdims=True)
    for batch in (x, x[:1]):
        theirs = session.run(None, {"input": batch})[0]
        worst = numpy.abs(theirs - ours[:len(batch)]).max()
        print(f"{net}: {len(batch)} images, largest difference {worst:.2g} of {numpy.abs(ours).max():.3g}")
        if not worst <= tolerance * numpy.abs(ours).max():
            sys.exit("too large")


if sys.argv[1] == "pictures":
    pictures(sys.argv[2], sys.argv[3], int(sys.argv[4]))
elif sys.argv[1] == "sizes":
    sizes(sys.argv[2], int(sys.argv[3]))
elif sys.argv[1] == "images":
    images(*sys.argv[2:5], float(sys.argv[5]))
else:
    compare(*sys.argv[2:5], float(sys.argv[5]))
