#!/usr/bin/env python3
"""train_segment.py AMPTRAIN DATA SET [EPOCHS [RUNS [PRECISIONS [DEVICE [RESULTS [WHO]]]]]]: a class for every
pixel, learned beside PyTorch by the same recipe, to the end: the metrics of whole validation images, their
means and deviations.

SET: em (conf/em.ini; RUNS: folds, 5), camvid (conf/camvid.ini; RUNS: seeds, 3) or camvid:deeplabv3_resnet50
(that network in place of the file's); DATA is the folder that has em-membrane/images and masks, or camvid/train
and val with images and masks. EPOCHS: the file's (0). RUNS: 2/5 is the second one of five alone. PRECISIONS:
"fp16" ("fp32 bf16 fp16"). PyTorch trains the same network with the same initial distributions, augmentation
(on the device), loss, optimizer, schedule and average in the same precision, by autocast. Every result is
added to RESULTS (train_segment.jsonl); those that it has are not computed again. WHO: "amptrain PyTorch".
Needs torch, torchvision, numpy, Pillow."""
import configparser
import copy
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as F
import torchvision
from PIL import Image

import peer_segment

CONF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conf")
if len(sys.argv) < 4:
    sys.exit(__doc__)
amptrain, data = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
which, _, arch = sys.argv[3].partition(":")
runs_of = {"em": "5", "camvid": "3"}
epochs, runs, precisions, device, results, whose = sys.argv[4:] + \
    ["0", runs_of[which], "fp16", "cuda", "train_segment.jsonl", "amptrain PyTorch"][len(sys.argv) - 4:]
ini = configparser.ConfigParser(inline_comment_prefixes=(";",))
ini.read(f"{CONF}/{which}.ini")
alone, _, runs = runs.rpartition("/")
epochs, runs, precisions = int(epochs) or ini.getint("train", "epochs"), int(runs), precisions.split()
CLASSES, IGNORE = {"em": (2, 255), "camvid": (11, 11)}[which]
METRIC = {"em": "val_dice", "camvid": "val_miou"}[which]


def numbers(section, key, default=""):
    return [float(word) for word in ini.get(section, key, fallback=default).replace("x", " ").split()]


# ---- Images ----

def files_of(part, run):
    """Pairs of an image and its mask; folds of em are every fifth slice."""
    folder = f"{data}/em-membrane" if which == "em" else f"{data}/camvid/{part}"
    pairs = list(zip(*([f"{folder}/{kind}/{name}" for name in sorted(os.listdir(f"{folder}/{kind}"))]
                       for kind in ("images", "masks"))))
    if which == "em":
        pairs = [pair for i, pair in enumerate(pairs) if (i % runs == run) == (part == "val")]
    return pairs


def loaded(files):
    images = numpy.stack([numpy.atleast_3d(numpy.asarray(Image.open(image))) for image, _ in files])
    masks = numpy.stack([numpy.asarray(Image.open(mask)) for _, mask in files]).astype(numpy.int64)
    if which == "em":
        masks = (masks > 0).astype(numpy.int64)
    return (torch.from_numpy(images).to(device).permute(0, 3, 1, 2),
            torch.from_numpy(masks).to(device))


def linked(files, folder):
    for kind, part in enumerate(("images", "masks")):
        os.makedirs(f"{folder}/{part}")
        for pair in files:
            os.symlink(pair[kind], f"{folder}/{part}/{os.path.basename(pair[kind])}")
    return folder


# ---- amptrain ----

def ours(work, run, precision):
    folders = [linked(files_of(part, run), f"{work}/{part}") for part in ("train", "val")]
    sets = [f"data.train={folders[0]}", f"data.val={folders[1]}", f"train.epochs={epochs}",
            f"run.seed={run + 1}", "train.eval_every=0", "checkpoint.every=0", "run.report=no",
            "log.tensorboard=no", f"amp.precision={precision}", f"run.device={device}"]
    if which == "em":
        sets += ["data.fold=", "augment.val_tile=512"]
    if arch:
        sets += [f"model.arch={arch}"]
    words = [amptrain, "train", "-q", "-c", f"{CONF}/{which}.ini", "-o", f"{work}/run"]
    words += [word for one in sets for word in ("-s", one)]
    done = subprocess.run(words, capture_output=True, text=True, env={"AMPTRAIN_DATADIR": CONF, **os.environ})
    if done.returncode:
        raise RuntimeError(done.stderr)
    with open(f"{work}/run/metrics.jsonl") as lines:
        return [json.loads(line) for line in lines if f'"{METRIC}"' in line][-1][METRIC]


# ---- PyTorch ----

class Crops:
    """Crops of random size and place, turned, mirrored, of other brightness."""

    def __init__(self, images, masks):
        self.images, self.masks = images, masks
        self.mean, self.std = (torch.tensor(numbers("augment", key), device=device).view(1, -1, 1, 1)
                               for key in ("mean", "std"))
        self.places = []                       # by image: rows and columns of some pixels of each class
        if ini.has_option("augment", "foreground"):
            self.places = [self.places_of(mask) for mask in masks.cpu().numpy()]

    @staticmethod
    def places_of(mask):
        found = (numpy.argwhere(mask == c) for c in range(1, CLASSES))
        return [some[numpy.random.permutation(len(some))[:64]] for some in found if len(some)]

    def box(self, image):
        """Middle and half sizes, of the image's."""
        h, w = self.images.shape[2:]
        low, high = numbers("augment", "scale")
        ratio = [math.log(r) for r in numbers("augment", "ratio", "0.75 1.3333")]
        area, wide = h * w * numpy.random.uniform(low, high), math.exp(numpy.random.uniform(*ratio))
        ch, cw = min(h, math.sqrt(area / wide)), min(w, math.sqrt(area * wide))
        least, most = numpy.array([0, 0]), numpy.array([h - ch, w - cw])
        if self.places and self.places[image] and numpy.random.rand() < ini.getfloat("augment", "foreground"):
            of_class = self.places[image][numpy.random.randint(len(self.places[image]))]
            shown = of_class[numpy.random.randint(len(of_class))]
            least, most = numpy.maximum(least, shown - (ch, cw)), numpy.minimum(most, shown)
        y, x = numpy.random.uniform(least, numpy.maximum(least, most))
        return (y + ch / 2) / h * 2 - 1, (x + cw / 2) / w * 2 - 1, ch / h, cw / w

    def transform(self, image):
        y, x, high, wide = self.box(image)
        h, w = self.images.shape[2:]
        angle = math.radians(ini.getfloat("augment", "rotate", fallback=0) * numpy.random.uniform(-1, 1))
        flips = [numpy.random.rand() < ini.getfloat("augment", key, fallback=0) for key in ("flip", "vflip")]
        sx, sy = wide * (1 - 2 * flips[0]), high * (1 - 2 * flips[1])
        cos, sin = math.cos(angle), math.sin(angle)
        return [[cos * sx, -sin * sy * h / w, x], [sin * sx * w / h, cos * sy, y]]

    def jittered(self, pixels):
        factors = [1 + how * (2 * torch.rand(len(pixels), 1, 1, 1, device=device) - 1)
                   for how in numbers("augment", "jitter")]
        shares = torch.tensor([0.299, 0.587, 0.114] if pixels.shape[1] == 3 else [1.0], device=device)
        grey = lambda: (pixels * shares.view(1, -1, 1, 1)).sum(1, keepdim=True)
        pixels = (pixels * factors[0]).clamp(0, 1)
        middle = grey().mean((1, 2, 3), keepdim=True)
        pixels = (middle + (pixels - middle) * factors[1]).clamp(0, 1)
        return (grey() + (pixels - grey()) * factors[2]).clamp(0, 1)

    def batch(self, rows):
        crop = [int(n) for n in numbers("augment", "crop")] * 2
        theta = torch.tensor([self.transform(int(i)) for i in rows], device=device, dtype=torch.float32)
        grid = F.affine_grid(theta, (len(rows), 1, crop[0], crop[1]), align_corners=False)
        images, masks = self.images[rows].float() / 255, self.masks[rows].unsqueeze(1).float()
        images = F.grid_sample(images, grid, "bilinear", "reflection", align_corners=False)
        masks = F.grid_sample(masks, grid, "nearest", "reflection", align_corners=False)
        return self.normalised(self.jittered(images)), masks.squeeze(1).long()

    def normalised(self, pixels):
        return ((pixels - self.mean) / self.std).to(memory_format=torch.channels_last)


def dice_ce(logits, labels):
    if isinstance(logits, dict):               # torchvision's
        return dice_ce(logits["out"], labels) + 0.5 * dice_ce(logits["aux"], labels)
    valid = labels != IGNORE
    truth = F.one_hot(labels * valid, CLASSES).permute(0, 3, 1, 2) * valid.unsqueeze(1)
    p = logits.float().softmax(1) * valid.unsqueeze(1)
    both, sums, of_truth = (p * truth).sum((0, 2, 3)), (p + truth).sum((0, 2, 3)), truth.sum((0, 2, 3))
    dice = ((2 * both + 1e-5) / (sums + 1e-5))[of_truth > 0].mean()
    return F.cross_entropy(logits.float(), labels, ignore_index=IGNORE) + 1 - dice


class UNetOfResNet34(torch.nn.Module):
    """That of segmentation_models_pytorch, with its initial values."""

    def __init__(self):
        super().__init__()
        net = torchvision.models.resnet34(weights=None)
        self.stages = torch.nn.ModuleList([torch.nn.Sequential(net.conv1, net.bn1, net.relu),
                                           torch.nn.Sequential(net.maxpool, net.layer1), net.layer2,
                                           net.layer3, net.layer4])
        inputs, widths = (512 + 256, 256 + 128, 128 + 64, 64 + 64, 32), (256, 128, 64, 32, 16)
        self.up = torch.nn.ModuleList(peer_segment.twice(a, b) for a, b in zip(inputs, widths))
        self.head = torch.nn.Conv2d(widths[-1], CLASSES, 3, padding=1)
        for module in self.up.modules():
            if isinstance(module, torch.nn.Conv2d):
                torch.nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
        torch.nn.init.xavier_uniform_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)

    def forward(self, x):
        kept = []
        for stage in self.stages:
            x = stage(x)
            kept.append(x)
        for skip, block in zip(kept[-2::-1] + [None], self.up):
            x = F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(x if skip is None else torch.cat([x, skip], 1))
        return self.head(x)


def network():
    if which == "em":
        return peer_segment.UNet(CLASSES, channels=1)
    if arch:
        return torchvision.models.get_model(arch, weights=None, weights_backbone=None, num_classes=CLASSES,
                                            aux_loss=True)
    return UNetOfResNet34()


def optimizer_of(net):
    decay = ini.getfloat("optimizer", "weight_decay")
    groups = [{"params": [p for p in net.parameters() if (p.dim() > 1) == decays],
               "weight_decay": decays * decay} for decays in (True, False)]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[ini.get("optimizer", "name")]
    return kind(groups, fused=device != "cpu")


def rate(step, steps):
    warm, power = ini.getint("schedule", "warmup") * steps, ini.getfloat("schedule", "power")
    share = (step + 1) / warm if step < warm else (1 - (step - warm) / max(1, epochs * steps - warm)) ** power
    return ini.getfloat("optimizer", "lr") * share


def metric(net, images, masks, crops, autocast):
    """The mean over classes of one confusion matrix of all pixels; borders are reflected."""
    counts = torch.zeros(CLASSES * CLASSES, device=device, dtype=torch.int64)
    h, w = images.shape[2:]
    for image, mask in zip(images.split(1), masks.split(1)):
        padded = F.pad(image.float() / 255, (0, -w % 32, 0, -h % 32), "reflect")
        with torch.no_grad(), autocast():
            logits = net(crops.normalised(padded))
            best = (logits["out"] if isinstance(logits, dict) else logits)[:, :, :h, :w].argmax(1)
        valid = mask != IGNORE
        counts += torch.bincount(mask[valid] * CLASSES + best[valid], minlength=CLASSES * CLASSES)
    counts = counts.view(CLASSES, CLASSES).double()
    hit, truth, found = counts.diag(), counts.sum(1), counts.sum(0)
    occurs = truth + found > 0
    if METRIC == "val_dice":
        return (2 * hit / (truth + found))[occurs].mean().item()
    return (hit / (truth + found - hit))[occurs].mean().item()


def floats_of(net):
    return {name: value for name, value in net.state_dict().items() if value.is_floating_point()}


def theirs(work, run, precision):
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(run + 1)
    numpy.random.seed(run + 1)
    crops, batch = Crops(*loaded(files_of("train", run))), ini.getint("train", "batch")
    net = network().to(device, memory_format=torch.channels_last).train()
    decay, average = ini.getfloat("train", "ema", fallback=0), copy.deepcopy(net)
    pairs = [list(kept.values()) for kept in (floats_of(average), floats_of(net))]
    optimizer, clip = optimizer_of(net), ini.getfloat("train", "clip_norm", fallback=0)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    autocast = lambda: torch.autocast(device, dtype=dtype, enabled=dtype is not None)
    steps = len(crops.images) // batch
    for step in range(epochs * steps):
        if step % steps == 0:
            order = torch.randperm(len(crops.images))
        images, labels = crops.batch(order[step % steps * batch:][:batch])
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = dice_ce(net(images), labels)
        scaler.scale(loss).backward()
        if clip:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        torch._foreach_lerp_(*pairs, 1 - min(decay, (2 + step) / (11 + step)))
    return metric(average.eval(), *loaded(files_of("val", run)), crops, autocast)


# ---- The comparison ----

def recorded():
    found = {}
    if os.path.exists(results):
        with open(results) as lines:
            for one in map(json.loads, lines):
                if (one["set"], one["epochs"]) == (sys.argv[3], epochs):
                    found[one["who"], one["precision"], one["run"]] = one[METRIC]
    return found


def main():
    print(f"{sys.argv[3]}, {epochs} epochs, {METRIC}")
    for precision in precisions:
        for run in [int(alone) - 1] if alone else range(runs):
            for who, make in (("amptrain", ours), ("PyTorch", theirs)):
                if who not in whose or (who, precision, run) in recorded():
                    continue
                start = time.time()
                with tempfile.TemporaryDirectory() as work:
                    value = make(work, run, precision)
                line = {"set": sys.argv[3], "epochs": epochs, "who": who, "precision": precision, "run": run,
                        METRIC: value, "seconds": time.time() - start}
                with open(results, "a") as file:
                    print(json.dumps(line), file=file)
                print(json.dumps(line), flush=True)
        for who in ("amptrain", "PyTorch"):
            some = [value for (by, of, _), value in recorded().items() if (by, of) == (who, precision)]
            if len(some) > 1:
                print(f"{precision}, {who}: {statistics.mean(some):.4f} ± {statistics.stdev(some):.4f} "
                      f"({len(some)})")


main()
