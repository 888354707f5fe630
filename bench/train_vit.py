#!/usr/bin/env python3
"""train_vit.py AMPTRAIN DATA [DEVICE [EPOCHS [SEEDS [PRECISIONS [DATASET [RESULTS]]]]]]: vision transformers
from scratch beside PyTorch, by the same recipe, to the end: accuracies after the last epoch, and their means.

DATASET: imagenette (vit_small_patch16_224 on crops of 128 pixels from its images, resized to 144) or cifar10
(vit_patch4_cifar); DATA is the folder that has it. PyTorch trains timm's network with the same initial
distributions, augmentation, batches, AdamW, schedule and clipping, in the same precision: by autocast, with
GradScaler for fp16, or by the switches of tf32. DEVICE: cuda or cpu (cuda). EPOCHS: 20. SEEDS: how many (3).
PRECISIONS: "fp32 tf32 bf16 fp16". Every result is added to RESULTS (train_vit.jsonl); those that it has are
not computed again: runs may come in parts, and seeds be added. Needs torch and timm."""
import concurrent.futures
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
from PIL import Image
from timm.models.vision_transformer import VisionTransformer

CONF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conf")
DEFAULTS = ["cuda", "20", "3", "fp32 tf32 bf16 fp16", "imagenette", "train_vit.jsonl"]
if len(sys.argv) < 3:
    sys.exit(__doc__)
amptrain, data = (os.path.abspath(path) for path in sys.argv[1:3])
device, epochs, seeds, precisions, dataset, results = sys.argv[3:] + DEFAULTS[len(sys.argv) - 3:]
epochs, seeds, precisions = int(epochs), int(seeds), precisions.split()
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
RECIPES = {     # border: on every side of a crop
    "imagenette": {"arch": "vit_small_patch16_224", "crop": 128, "border": 8, "batch": 128, "lr": 5e-4,
                   "net": {"patch_size": 16, "embed_dim": 384, "depth": 12, "num_heads": 6}},
    "cifar10": {"arch": "vit_patch4_cifar", "crop": 32, "border": 4, "batch": 256, "lr": 1e-3,
                "net": {"patch_size": 4, "embed_dim": 256, "depth": 6, "num_heads": 4}},
}
recipe = RECIPES[dataset]
WARMUP, DECAY, SMOOTHING, CLIP = 2, 0.05, 0.1, 1.0


# ---- Images ----

def resized(path):
    side = recipe["crop"] + 2 * recipe["border"]
    with Image.open(path) as image:
        return image.convert("RGB").resize((side, side), Image.BICUBIC)


def imagenette(part, work):
    """Images of one size, as PNG for amptrain and as they are."""
    pixels, labels, saved = [], [], []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for label, name in enumerate(sorted(os.listdir(f"{data}/imagenette/{part}"))):
            folder = f"{data}/imagenette/{part}/{name}"
            os.makedirs(f"{work}/{part}/{name}")
            paths = (f"{folder}/{file}" for file in sorted(os.listdir(folder)))
            for i, image in enumerate(pool.map(resized, paths)):
                saved.append(pool.submit(image.save, f"{work}/{part}/{name}/{i}.png", compress_level=1))
                pixels.append(numpy.asarray(image))
                labels.append(label)
        for one in saved:
            one.result()
    return numpy.stack(pixels).transpose(0, 3, 1, 2), labels


def cifar10(part, work):
    """With a black border, which amptrain adds to training images itself."""
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if part == "train" else ["test_batch.bin"]
    rows = numpy.concatenate([numpy.fromfile(f"{data}/cifar10/{name}", numpy.uint8).reshape(-1, 3073)
                              for name in names])
    sides = (recipe["border"], recipe["border"])
    return numpy.pad(rows[:, 1:].reshape(-1, 3, 32, 32), ((0, 0), (0, 0), sides, sides)), rows[:, 0].tolist()


def on_device(pixels, labels):
    return torch.from_numpy(numpy.ascontiguousarray(pixels)).to(device), torch.tensor(labels, device=device)


# ---- amptrain ----

def ours(work, precision, seed):
    where, pad = {"format": "folder", "train": f"{work}/train", "val": f"{work}/val"}, 0
    if dataset == "cifar10":
        where = {"format": "cifar10", "train": f"{data}/cifar10", "val": f"{data}/cifar10"}
        pad = recipe["border"]
    sections = {
        "run": {"device": device, "seed": seed, "report": "no"}, "data": where,
        "augment": {"crop": recipe["crop"], "pad": pad, "flip": 0.5, "val_resize": 0,
                    "val_crop": recipe["crop"], "mean": "{} {} {}".format(*MEAN),
                    "std": "{} {} {}".format(*STD), "label_smoothing": SMOOTHING},
        "model": {"arch": recipe["arch"]},
        "train": {"epochs": epochs, "batch": recipe["batch"], "clip_norm": CLIP, "eval_every": 0},
        "optimizer": {"name": "adamw", "lr": recipe["lr"], "weight_decay": DECAY, "decay_norm_bias": "no"},
        "schedule": {"name": "cosine", "warmup": WARMUP}, "amp": {"precision": precision},
        "checkpoint": {"every": 0}, "log": {"tensorboard": "no"},
    }
    run = f"{work}/{precision}-{seed}"
    with open(run + ".ini", "w") as ini:
        for section, keys in sections.items():
            ini.write(f"[{section}]\n" + "".join(f"{key} = {value}\n" for key, value in keys.items()))
    libraries = f"{os.path.dirname(amptrain)}/lib:{os.environ.get('LD_LIBRARY_PATH', '')}"
    environment = {"AMPTRAIN_DATADIR": CONF, **os.environ, "LD_LIBRARY_PATH": libraries}
    done = subprocess.run([amptrain, "train", "-q", "-c", run + ".ini", "-o", run], capture_output=True,
                          text=True, env=environment)
    if done.returncode:
        raise RuntimeError(done.stderr)
    with open(run + "/metrics.jsonl") as lines:
        last = [json.loads(line) for line in lines if '"val_top1"' in line][-1]
    return last["val_top1"], last["train_loss"]


# ---- PyTorch ----

def normalised(pixels):
    mean, std = (torch.tensor(three, device=device).view(1, 3, 1, 1) for three in (MEAN, STD))
    return (pixels.float() / 255 - mean) / std


def augmented(images, rows):
    """Crops at random places, half of them mirrored."""
    crop, count = recipe["crop"], len(rows)
    at = torch.randint(0, 2 * recipe["border"] + 1, (2, count, 1), device=device)
    at = at + torch.arange(crop, device=device)
    mirrored = torch.rand(count, 1, device=device) < 0.5
    across = torch.where(mirrored, at[1].flip(1), at[1])
    pixels = images[rows.view(-1, 1, 1), :, at[0].unsqueeze(2), across.unsqueeze(1)]
    return normalised(pixels.permute(0, 3, 1, 2))


def optimizer_of(net):
    kinds = [], []
    for name, parameter in net.named_parameters():
        kinds[parameter.dim() > 1 and name not in net.no_weight_decay()].append(parameter)
    groups = [{"params": kinds[0], "weight_decay": 0}, {"params": kinds[1], "weight_decay": DECAY}]
    return torch.optim.AdamW(groups, lr=recipe["lr"], fused=device != "cpu")


def rate(step, steps):
    warm = WARMUP * steps
    if step < warm:
        return recipe["lr"] * (step + 1) / warm
    return recipe["lr"] * (1 + math.cos(math.pi * (step - warm) / max(1, epochs * steps - warm))) / 2


def theirs(train, val, precision, seed):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.manual_seed(seed)
    net = VisionTransformer(img_size=recipe["crop"], num_classes=10, **recipe["net"]).to(device).train()
    optimizer, (images, labels), batch = optimizer_of(net), train, recipe["batch"]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    scaler = torch.amp.GradScaler(device, enabled=precision == "fp16")
    autocast = lambda: torch.autocast(device, dtype=dtype, enabled=dtype is not None)
    steps, loss_of = len(images) // batch, torch.nn.CrossEntropyLoss(label_smoothing=SMOOTHING)
    for epoch in range(epochs):
        order, total = torch.randperm(len(images), device=device), 0
        for step in range(steps):
            rows = order[step * batch:(step + 1) * batch]
            for group in optimizer.param_groups:
                group["lr"] = rate(epoch * steps + step, steps)
            optimizer.zero_grad(set_to_none=True)
            with autocast():
                loss = loss_of(net(augmented(images, rows)), labels[rows])
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
    net.eval()
    middle = slice(recipe["border"], recipe["border"] + recipe["crop"])
    right = 0
    with torch.no_grad(), autocast():
        for some, answers in zip(val[0].split(250), val[1].split(250)):
            right += (net(normalised(some[:, :, middle, middle])).argmax(1) == answers).sum().item()
    return right / len(val[0]), (total / steps).item()


# ---- The comparison ----

def recorded():
    found = {}
    if os.path.exists(results):
        with open(results) as lines:
            for one in map(json.loads, lines):
                if (one["dataset"], one["epochs"]) == (dataset, epochs):
                    found[one["who"], one["precision"], one["seed"]] = one["top1"]
    return found


def timed(who, precision, seed, make, *words):
    start = time.time()
    top1, loss = make(*words, precision, seed)
    with open(results, "a") as file:
        print(json.dumps({"dataset": dataset, "epochs": epochs, "who": who, "precision": precision,
                          "seed": seed, "top1": top1, "train_loss": loss}), file=file)
    print(f"{precision}, seed {seed}, {who}: {100 * top1:.1f} %, training loss {loss:.3f}, "
          f"{time.time() - start:.1f} s", flush=True)


def shown(name, some):
    return f"{name} {statistics.mean(some):.2f} ± {statistics.stdev(some):.2f} % ({len(some)})"


def summary(found):
    """Means beside each other; the standard deviation is that of one run, pooled."""
    apart, squares, freedom = [], 0, 0
    for precision in precisions:
        pair = [[100 * top1 for (by, of, _), top1 in sorted(found.items()) if (by, of) == (who, precision)]
                for who in ("amptrain", "PyTorch")]
        if min(map(len, pair)) < 2:
            continue
        square = sum((x - statistics.mean(some)) ** 2 for some in pair for x in some)
        count = sum(map(len, pair)) - 2
        squares, freedom = squares + square, freedom + count
        apart.append(statistics.mean(pair[0]) - statistics.mean(pair[1]))
        sigmas = abs(apart[-1]) / max(math.sqrt(square / count), 1e-9)
        print(f"{precision}: {shown('amptrain', pair[0])}, {shown('PyTorch', pair[1])}: apart by "
              f"{apart[-1]:+.2f}, {sigmas:.2f} standard deviations")
    if apart:
        mean, deviation = statistics.mean(apart), math.sqrt(squares / freedom)
        print(f"all: apart by {mean:+.2f}, {abs(mean) / max(deviation, 1e-9):.2f} standard deviations of "
              f"{deviation:.2f}")


def main():
    wanted = [(precision, seed) for seed in range(1, seeds + 1) for precision in precisions]
    done = recorded()
    left = [(who, *run) for run in wanted for who in ("amptrain", "PyTorch") if (who, *run) not in done]
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(1) as beside:
        if left:
            start, load = time.time(), {"imagenette": imagenette, "cifar10": cifar10}[dataset]
            train, val = (on_device(*load(part, work)) for part in ("train", "val"))
            print(f"{len(train[0])} and {len(val[0])} images: {time.time() - start:.1f} s", flush=True)
        first = [beside.submit(timed, *run, ours, work) for run in left if run[0] == "amptrain"]
        for run in left:
            if run[0] == "PyTorch":
                timed(*run, theirs, train, val)
        for one in first:
            one.result()
    summary(recorded())


main()
