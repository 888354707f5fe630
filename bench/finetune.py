#!/usr/bin/env python3
"""finetune.py AMPTRAIN DATA [DEVICE [SIZE [EPOCHS [PAIRS [SEEDS]]]]]: what pretrained weights are worth for
two classes of Imagenette with 50 images each.

ResNet-18 learns the eight other classes (conf/imagenette.ini, SIZE pixels, 128; EPOCHS, 40) and is saved as a
.pth with timm's names and a config.json. From that, `amptrain init --weights` and a training follow; PyTorch
trains the same weights by the same recipe on the same images; and `amptrain init` trains without weights.
Classes 2P and 2P+1 of each pair P (PAIRS, 01234) are learnt from other 50 images for each of SEEDS (1) seeds,
and all 900 others are classified after the last epoch. DEVICE: cuda or cpu (cuda). DATA: a folder imagenette
with train and val. Needs torch and torchvision."""
import concurrent.futures
import configparser
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torchvision
from PIL import Image
from torchvision.transforms import v2

CONF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "conf")
os.environ.setdefault("AMPTRAIN_DATADIR", CONF)
amptrain, data = (os.path.abspath(path) for path in sys.argv[1:3])
device, size, epochs, pairs, seeds = (sys.argv[3:] + ["cuda", "128", "40", "01234", "1"][len(sys.argv) - 3:])
size, seeds = int(size), int(seeds)


def call(*words):
    """What it printed."""
    done = subprocess.run([amptrain, *words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def accuracy_of(run):
    """Of its last epoch."""
    with open(run + "/metrics.jsonl") as lines:
        return [json.loads(line)["val_top1"] for line in lines if '"val_top1"' in line][-1]


def train(ini, seed, run, *settings):
    words = ["-c", ini, "-o", run, "-s", f"run.device={device}", "-s", f"run.seed={seed}", "-s",
             "train.eval_every=0"]
    call("train", *words, *(word for setting in settings for word in ("-s", setting)))
    return accuracy_of(run)


def images_of(label):
    return [os.path.join(data, "imagenette", part, label, name) for part in ("train", "val")
            for name in sorted(os.listdir(os.path.join(data, "imagenette", part, label)))]


def link(folder, paths):
    os.makedirs(folder)
    for i, path in enumerate(paths):
        os.symlink(path, f"{folder}/{i}.jpg")


# ---- Weights of eight classes ----

def read_safetensors(path):
    with open(path, "rb") as file:
        content = bytearray(file.read())
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    header.pop("__metadata__", None)
    kinds = {"F32": torch.float32, "I64": torch.int64}
    return {name: torch.frombuffer(content, dtype=kinds[is_["dtype"]], count=math.prod(is_["shape"]),
                                   offset=start + is_["data_offsets"][0]).reshape(is_["shape"]).clone()
            for name, is_ in header.items()}


def pretrain(work, labels):
    for label in labels:
        link(f"{work}/eight/train/{label}", images_of(label)[:400])
        link(f"{work}/eight/val/{label}", images_of(label)[400:])
    precision = "fp32" if device == "cpu" else "fp16"
    accuracy = train(CONF + "/imagenette.ini", 1, work + "/pretrained", f"data.train={work}/eight/train",
                     f"data.val={work}/eight/val", f"augment.crop={size}",
                     f"augment.val_crop={size * 6 // 5}", f"augment.val_resize={size * 27 // 20}",
                     f"train.epochs={epochs}", f"amp.precision={precision}")
    call("export", "--weights", work + "/pretrained", "--names", "timm", "-o", work + "/resnet18.safetensors")
    state = read_safetensors(work + "/resnet18.safetensors")
    torchvision.models.resnet18(num_classes=len(labels)).load_state_dict(state, strict=True)
    torch.save({"state_dict": state}, work + "/resnet18.pth")
    images = {"input_size": [3, size, size], "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
              "crop_pct": 0.875}
    with open(work + "/config.json", "w") as card:
        json.dump({"architecture": "resnet18", "pretrained_cfg": images}, card)
    return accuracy


# ---- The same by PyTorch ----

def recipe_of(ini):
    parser = configparser.ConfigParser(inline_comment_prefixes=";")
    parser.read(ini)
    return {key: value for section in parser.sections() for key, value in parser[section].items()}


def load_images(folder):
    found = torchvision.datasets.ImageFolder(folder)
    return [(Image.open(path).convert("RGB"), label) for path, label in found.samples]


def groups_of(net, lr, decay):
    """Rates of 1 % of the classifier's in the first layer, as `init` has for few images, and even steps."""
    depths = ["conv1 bn1"] + [f"layer{i}.{j}" for i in (1, 2, 3, 4) for j in (0, 1)] + ["fc"]
    for name, parameter in net.named_parameters():
        depth = next(i for i, words in enumerate(depths) if name.startswith(tuple(words.split())))
        rate = lr * 0.01 ** (1 - depth / (len(depths) - 1))
        yield {"params": [parameter], "lr": rate, "weight_decay": decay if parameter.dim() > 1 else 0}


def pytorch(ini, weights, few, seed):
    recipe = recipe_of(ini)
    crop, batch, last = int(recipe["crop"]), int(recipe["batch"]), int(recipe["epochs"])
    low, high = map(float, recipe["scale"].split())
    to_tensor = [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(
        [float(x) for x in recipe["mean"].split()], [float(x) for x in recipe["std"].split()])]
    augment = v2.Compose([v2.RandomResizedCrop(crop, scale=(low, high)), v2.RandomHorizontalFlip(),
                          v2.TrivialAugmentWide(), *to_tensor])
    plain = v2.Compose([v2.Resize(int(recipe["val_resize"])), v2.CenterCrop(int(recipe["val_crop"])),
                        *to_tensor])
    torch.manual_seed(seed)
    net = torchvision.models.resnet18(num_classes=2)
    state = torch.load(weights)["state_dict"]
    net.load_state_dict({key: state[key] for key in state if not key.startswith("fc.")}, strict=False)
    net = net.to(device).train()
    images = load_images(few + "/train")
    steps = len(images) // batch
    optimizer = torch.optim.AdamW(groups_of(net, float(recipe["lr"]), float(recipe["weight_decay"])))
    warmup = int(recipe["warmup"]) * steps

    def rate(step):
        if step < warmup:
            return (step + 1) / warmup
        return (1 + math.cos(math.pi * (step - warmup) / (last * steps - warmup))) / 2

    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
    loss_of = torch.nn.CrossEntropyLoss(label_smoothing=float(recipe["label_smoothing"]))
    for epoch in range(last):
        for name, parameter in net.named_parameters():
            parameter.requires_grad = name.startswith("fc.") or epoch >= int(recipe["freeze_epochs"])
        order = torch.randperm(len(images)).tolist()
        for step in range(steps):
            some = [images[i] for i in order[step * batch:(step + 1) * batch]]
            pixels = torch.stack([augment(image) for image, _ in some]).to(device)
            optimizer.zero_grad(set_to_none=True)
            loss_of(net(pixels), torch.tensor([label for _, label in some], device=device)).backward()
            optimizer.step()
            rates.step()
    net.eval()
    tested, right = load_images(few + "/val"), 0
    with torch.no_grad():
        for image, label in tested:
            right += net(plain(image)[None].to(device)).argmax().item() == label
    return right / len(tested)


# ---- The comparison ----

def compare(work, labels, seed):
    few = f"{work}/few{seed}"
    for label in labels:
        images = images_of(label)
        chosen = random.Random(seed).sample(images[:400], 50)
        link(f"{few}/train/{label}", chosen)
        link(f"{few}/val/{label}", [path for path in images if path not in chosen])
    times = [time.time()]
    call("init", few, "--weights", work + "/resnet18.pth", "-o", f"{few}/tuned.ini")
    times.append(time.time())
    tuned = train(f"{few}/tuned.ini", seed, f"{few}/tuned")
    times.append(time.time())
    call("report", f"{few}/tuned")
    times.append(time.time())
    print("  init {:.1f} s, train {:.1f}, report {:.1f}".format(*(b - a for a, b in zip(times, times[1:]))))
    call("init", few, "-o", f"{few}/scratch.ini")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        scratch = pool.submit(train, f"{few}/scratch.ini", seed, f"{few}/scratch", f"augment.crop={size}",
                              f"augment.val_crop={size * 6 // 5}")
        peer = pytorch(f"{few}/tuned.ini", work + "/resnet18.pth", few, seed)
        return {"amptrain": tuned, "PyTorch": peer, "without weights": scratch.result()}


def main():
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count())))
    every, found = sorted(os.listdir(data + "/imagenette/train")), []
    for pair in map(int, pairs):
        two = every[2 * pair:2 * pair + 2]
        with tempfile.TemporaryDirectory() as work:
            start = time.time()
            accuracy = pretrain(work, [label for label in every if label not in two])
            print(f"{' '.join(two)}: the eight others {100 * accuracy:.1f} %, {time.time() - start:.0f} s",
                  flush=True)
            for seed in range(1, seeds + 1):
                start = time.time()
                found.append(compare(work, two, seed))
                words = ", ".join(f"{who} {100 * share:.1f}" for who, share in found[-1].items())
                print(f"  seed {seed}: {words} %; {time.time() - start:.0f} s", flush=True)
    for who in found[0]:
        print(f"{who}: {100 * statistics.mean(one[who] for one in found):.2f} % in mean")


main()
