"""pixel_metrics.py make FOLDER SEED: images with random masks, of which pixels are ignored and classes may be
absent, and a network of random weights, net.ini; prints the number of classes.
pixel_metrics.py compare FOLDER EVAL.json PREDICTED: the metrics of eval are numpy's, and torchmetrics' where
it is installed, of the masks in FOLDER and those that `predict` wrote."""
import json
import os
import sys

import numpy
from PIL import Image

IGNORED = 255
MODEL = """[input]
channels = 3
size = 16
[layers]
conv1 = conv input filters=8 kernel=3 pad=1
relu1 = relu conv1
conv2 = conv relu1 filters=$classes kernel=3 pad=1
"""


def make(folder, seed):
    random = numpy.random.default_rng(int(seed))
    classes, images = int(random.integers(2, 10)), int(random.integers(1, 5))
    for part in ("images", "masks"):
        os.makedirs(f"{folder}/{part}")
    # Up to two classes occur in no mask; whether the network predicts them is left to chance.
    used = random.permutation(classes)[:max(2, classes - int(random.integers(0, 3)))]
    for i in range(images):
        size = tuple(random.integers(16, 60, 2))
        mask = used[random.integers(0, len(used), size)].astype(numpy.uint8)
        mask[random.random(size) < random.choice([0, 0.2, 0.9])] = IGNORED
        pixels = random.integers(0, 256, (*size, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(f"{folder}/images/{i}.png")
        Image.fromarray(mask).save(f"{folder}/masks/{i}.png")
    with open(f"{folder}/net.ini", "w") as file:
        file.write(MODEL)
    print(classes)


def near(name, ours, theirs, bound):
    if ours is None or numpy.isnan(theirs):
        good = ours is None and numpy.isnan(theirs)
    else:
        good = abs(ours - theirs) <= bound
    if not good:
        sys.exit(f"{name}: {ours}, not {theirs}")


def torch_metrics(truth, predicted, classes):
    """Of classes that occur, IoU and Dice; and the accuracy of pixels."""
    import torch
    from torchmetrics import functional

    both = torch.from_numpy(predicted).long(), torch.from_numpy(truth).long()
    options = {"num_classes": classes, "ignore_index": IGNORED}
    kept = both[0][both[1] != IGNORED], both[1][both[1] != IGNORED]
    iou = functional.classification.multiclass_jaccard_index(*both, average=None, **options).numpy()
    dice = functional.classification.multiclass_f1_score(*both, average=None, **options).numpy()
    right = functional.classification.multiclass_accuracy(*both, average="micro", **options).item()
    occurs = numpy.array([bool((kept[0] == c).any() or (kept[1] == c).any()) for c in range(classes)])
    return iou[occurs], dice[occurs], right


def compare(folder, evaluation, predicted):
    names = sorted(os.listdir(f"{folder}/masks"))
    read = [[numpy.array(Image.open(f"{part}/{name}")).ravel() for name in names]
            for part in (f"{folder}/masks", predicted)]
    truth, guess = (numpy.concatenate(parts) for parts in read)
    with open(evaluation) as file:
        ours = json.load(file)
    counted, classes = truth != IGNORED, len(ours["per_class"])
    kept, guessed = truth[counted], guess[counted]
    cells = numpy.zeros((classes, classes), numpy.int64)
    numpy.add.at(cells, (kept, guessed), 1)
    hit, rows, columns = numpy.diag(cells).astype(float), cells.sum(1), cells.sum(0)
    with numpy.errstate(invalid="ignore"):
        iou, dice = hit / (rows + columns - hit), 2 * hit / (rows + columns)
    for c, row in enumerate(ours["per_class"]):
        assert row["pixels"] == rows[c], (c, row, rows)
        near(f"IoU of {c}", row["iou"], iou[c], 1e-8)
        near(f"Dice of {c}", row["dice"], dice[c], 1e-8)
    assert ours["pixels"] == counted.sum() and ours["images"] == len(names)
    means = numpy.nanmean(iou), numpy.nanmean(dice), hit.sum() / counted.sum()
    words = f"{classes} classes, {len(kept)} pixels, IoU {means[0]:.6f}: numpy"
    for key, theirs in zip(("miou", "dice", "pixel_accuracy"), means):
        near(key, ours[key], theirs, 1e-8)
    try:
        found = torch_metrics(truth, guess, classes)
        words += ", torchmetrics"
    except ImportError:
        found = ()
    for key, theirs in zip(("miou", "dice", "pixel_accuracy"), found):
        near(f"{key} of torchmetrics", ours[key], float(numpy.mean(theirs)), 1e-6)       # in fp32
    print(words)


if __name__ == "__main__":
    {"make": make, "compare": compare}[sys.argv[1]](*sys.argv[2:])
