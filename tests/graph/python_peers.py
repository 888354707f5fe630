"""python_peers.py weights NET FOLDER IMAGES.npy: makes torchvision's (or timm's) NET with random weights and
with statistics that fit IMAGES, and in FOLDER NET.safetensors and its logits, NET.fp32.npy and (autocast)
NET.bf16.npy.
python_peers.py trace NET FOLDER IMAGES.npy DEVICE: the same for 3 classes, and in FOLDER NET.json: losses of the
first steps of training, in fp64 and in fp32 on the CPU, and in tf32 on a DEVICE that has it.
python_peers.py follows NET FOLDER METRICS.jsonl PRECISION: ours beside them.
python_peers.py strict LIBRARY FILE NAME: timm's or transformers' network loads a file strictly.
python_peers.py near LOGITS.npy FOLDER NET [TOLERANCE]: ours beside torchvision's in fp32. Without a TOLERANCE
ours are of bf16, and may be off by twice as much as those of autocast.
python_peers.py metrics CASES: the metrics of cases that tests/train/test_task has made are scikit-learn's.
python_peers.py scores CASES: likewise, those of tests/train/test_scores.
python_peers.py files RUN: reads what a run has left through the packages safetensors and tensorboard."""
import glob
import json
import sys

import numpy


def network(name, side, classes=1000):
    """torchvision's network of this name or, where it has none, timm's, for images of this size."""
    import torchvision

    transformer = name.startswith(("vit_", "deit3_", "deit_"))
    if name in torchvision.models.list_models():
        apart = {"aux_logits": False} if name == "googlenet" else {"image_size": side} if transformer else {}
        return torchvision.models.get_model(name, weights=None, num_classes=classes, **apart)
    import timm

    return timm.create_model(name, num_classes=classes, **({"img_size": side} if transformer else {}))


def normalised(images):
    import torch

    pixels = torch.from_numpy(numpy.load(images).transpose(0, 3, 1, 2)) / 255
    mean, std = (torch.tensor(three).view(1, 3, 1, 1) for three in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
    return (pixels - mean) / std


def randomise(net):
    """What begins as zero or one becomes different."""
    import torch

    for key, value in net.state_dict().items():
        if key.endswith(("layer_scale", "gamma")):
            value.uniform_()
        elif value.dim() == 3 or value.dim() == 1 and value.is_floating_point() and "running" not in key:
            value.add_(0.1 * torch.randn(value.shape))
        elif value.dim() == 2 and not value.any():
            value.normal_(std=0.05)


def weights(name, folder, images):
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    pixels = normalised(images)
    net = network(name, pixels.shape[2])
    with torch.no_grad():
        randomise(net)
        for module in net.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 0.9
        net.train()(pixels)
        net.eval()
        save_file({key: value.contiguous() for key, value in net.state_dict().items()},
                  f"{folder}/{name}.safetensors")
        numpy.save(f"{folder}/{name}.fp32.npy", net(pixels).numpy())
        with torch.autocast("cpu", torch.bfloat16):
            numpy.save(f"{folder}/{name}.bf16.npy", net(pixels).float().numpy())


def losses(net, pixels, steps=4):
    """AdamW as amptrain has it: weight decay for matrices and filters alone."""
    import torch

    kinds = [], []
    for key, value in net.named_parameters():
        kinds[value.dim() in (2, 4) and not key.endswith("bias_table")].append(value)
    groups = [{"params": kinds[0], "weight_decay": 0}, {"params": kinds[1], "weight_decay": 0.05}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)
    labels = torch.arange(len(pixels), device=pixels.device) // 2
    for module in net.modules():
        if type(module).__name__ == "StochasticDepth":
            module.p = 0.0
    net.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(pixels), labels)
        loss.backward()
        optimizer.step()
        yield loss.item()


def trace(name, folder, images, device):
    import copy

    import torch
    from safetensors.torch import save_file

    torch.manual_seed(1)
    pixels = normalised(images)
    net = network(name, pixels.shape[2], 3)
    with torch.no_grad():
        randomise(net)
    save_file({key: value.contiguous() for key, value in net.state_dict().items()},
              f"{folder}/{name}.safetensors")
    found = {"fp64": list(losses(copy.deepcopy(net).double(), pixels.double()))}
    if device != "cpu":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        found["tf32"] = list(losses(copy.deepcopy(net).to(device), pixels.to(device)))
    found["fp32"] = list(losses(net, pixels))
    with open(f"{folder}/{name}.json", "w") as out:
        json.dump(found, out)


def follows(name, folder, metrics, precision):
    """1e-5, in tf32 2^-11, which its inputs are rounded by, and four times torch's own spread so far."""
    lines = [json.loads(line) for line in open(metrics)]
    ours = [line["loss"] for line in lines if line["event"] == "step"]
    with open(f"{folder}/{name}.json") as file:
        found = json.load(file)
    spread, most, least = 0, 0, {"fp32": 1e-5, "tf32": 2**-11}[precision]
    assert len(ours) == len(found["fp64"]), ours
    for step, (loss, exact, rounded) in enumerate(zip(ours, found["fp64"], found[precision]), 1):
        spread, most = max(spread, abs(rounded - exact)), max(most, abs(loss - exact))
        print(f"{name}: step {step}: {loss:.7f}, off by {abs(loss - exact):.2g}; torch's {precision} by "
              f"{abs(rounded - exact):.2g}, so far {spread:.2g}")
        if not abs(loss - exact) <= least + 4 * spread:
            sys.exit("too far")
    print(f"{name}, {precision}: losses are off by at most {most:.2g}, torch's by {spread:.2g}")


def strict(library, path, name):
    import torch
    from safetensors.torch import load_file

    if library == "torchvision":
        import torchvision

        net = torchvision.models.get_model(name, weights=None, num_classes=3)
    elif library == "timm":
        import timm

        net = timm.create_model(name, num_classes=10, in_chans=1)
    else:
        import transformers

        net = transformers.ResNetForImageClassification(transformers.ResNetConfig(
            depths=[2, 2, 2, 2], hidden_sizes=[64, 128, 256, 512], layer_type="basic", num_labels=10,
            num_channels=1))
    tensors = load_file(path)
    net.load_state_dict(tensors, strict=True)
    torch.save(net.state_dict(), path + ".pth")


def near(logits, folder, name, tolerance=None):
    ours, theirs, rounded = (numpy.load(file) for file in
                             (logits, f"{folder}/{name}.fp32.npy", f"{folder}/{name}.bf16.npy"))
    largest = numpy.abs(theirs).max()
    worst, theirs_worst = (numpy.abs(other - theirs).max() / largest for other in (ours, rounded))
    allowed = float(tolerance) if tolerance else 2 * theirs_worst
    print(f"{name}: off by {worst:.2g} of the largest logit, {largest:.3g}; "
          f"torch's bf16 by {theirs_worst:.2g}")
    if not worst <= allowed:
        sys.exit("too large")


def files(run):
    from safetensors import safe_open
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for path in sorted(glob.glob(f"{run}/*.safetensors")):
        with safe_open(path, "numpy") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}
            print(f"{path}: {len(tensors)} tensors, {len(file.metadata())} texts")
            assert len(tensors) > 50 and all(numpy.isfinite(value).all() for value in tensors.values())
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    epochs = [line for line in lines if line["event"] == "epoch"]
    events = EventAccumulator(run, {"tensors": 0, "images": 0, "scalars": 0}).Reload()
    tags = events.Tags()
    print(tags)
    said = [scalar.value for scalar in events.Scalars("epoch/val_top1")]
    assert len(said) == len(epochs)
    assert numpy.allclose(said, [epoch["val_top1"] for epoch in epochs])
    assert tags["images"] and tags["tensors"]
    text = events.Tensors(tags["tensors"][0])[0].tensor_proto.string_val[0].decode()
    assert "arch" in text, text
    assert events.Images(tags["images"][0])[0].encoded_image_string.startswith(b"\x89PNG")


def metrics(path):
    from sklearn.metrics import average_precision_score, f1_score, mean_absolute_error, mean_squared_error
    from sklearn.metrics import precision_recall_curve, r2_score

    near = lambda one, other: abs(one - other) <= 1e-9 * max(1, abs(other)) or sys.exit(f"{one} {other}")
    cases = [json.loads(line) for line in open(path)]
    for case in cases:
        values, targets = (numpy.array(case[key], numpy.float32).reshape(-1, case["outputs"])
                           for key in ("values", "targets"))
        if "mae" in case:
            near(case["mae"], mean_absolute_error(targets.astype(float), values.astype(float)))
            near(case["mse"], mean_squared_error(targets.astype(float), values.astype(float)))
            near(case["rmse"], case["mse"] ** 0.5)
            near(case["r2"], r2_score(targets.astype(float), values.astype(float)))
            continue
        some = [label for label in range(case["outputs"]) if targets[:, label].any()]
        near(case["map"], average_precision_score(targets[:, some], values[:, some], average="macro"))
        for average in ("micro", "macro"):
            score = f1_score(targets, values >= 0.5, average=average, zero_division=0)
            near(case[f"f1_{average}"], score)
        for label in some:
            precision, recall, _ = precision_recall_curve(targets[:, label], values[:, label])
            scores = 2 * precision * recall / numpy.maximum(precision + recall, 1e-30)
            near(case["f1"][label], numpy.max(scores))
    print(f"{len(cases)} cases")


def scores(path):
    """Classes without images or predictions are undefined (null): zero_division=nan of scikit-learn."""
    import warnings
    from sklearn.metrics import average_precision_score, precision_recall_fscore_support, roc_auc_score

    warnings.simplefilter("ignore")

    def near(one, other, what):
        one = numpy.nan if one is None else one
        if not (abs(one - other) <= 1e-8 or numpy.isnan(one) and numpy.isnan(other)):
            sys.exit(f"{what}: {one}, not {other}")

    cases = [json.loads(line) for line in open(path)]
    for case in cases:
        count = case["of"]
        if "logits" in case:
            each, right = case["classes"], numpy.array(case["truth"])
            logits = numpy.array(case["logits"]).reshape(-1, count)[right >= 0]
            values = numpy.exp(logits) / numpy.exp(logits).sum(1, keepdims=True)
            truth = right[right >= 0][:, None] == numpy.arange(count)
            predicted = logits.argmax(1)[:, None] == numpy.arange(count)
            confidence, right = values.max(1), (truth & predicted).any(1)
            values = values.round(12)
        else:
            each = case["labels"]
            values, truth = (numpy.array(case[key], numpy.float32).reshape(-1, count) for key in ("values", "targets"))
            truth, predicted = truth > 0.5, values >= numpy.array([label["threshold"] for label in each])
            confidence, right = values.astype(float).ravel(), truth.ravel()
        means = lambda average: precision_recall_fscore_support(truth, predicted, average=average, zero_division=numpy.nan)
        for key, own, macro, weighted in zip(("precision", "recall", "f1"), means(None), means("macro"), means("weighted")):
            [near(each[i][key], own[i], key) for i in range(count)]
            near(case["macro"][key], macro, "macro " + key)
            near(case["weighted"][key], weighted, "weighted " + key)
        some = [i for i in range(count) if truth[:, i].any()]
        both = [i for i in some if not truth[:, i].all()]
        for key, score, defined in (("average_precision", average_precision_score, some), ("roc_auc", roc_auc_score, both)):
            [near(each[i][key], score(truth[:, i], values[:, i]) if i in defined else numpy.nan, key) for i in range(count)]
            for average in ("macro", "weighted") if defined else ():
                near(case[average][key], score(truth[:, defined], values[:, defined], average=average), average + key)
        if "logits" in case and len(both) == count > 2:
            label = truth.argmax(1)
            near(case["macro"]["roc_auc"], roc_auc_score(label, values / values.sum(1, keepdims=True), multi_class="ovr"), "ovr")
        place = numpy.clip(numpy.ceil(confidence * 15 - 1e-9).astype(int) - 1, 0, 14)
        error = sum(abs(confidence[place == i].sum() - right[place == i].sum()) for i in range(15)) / len(right)
        if abs(case["calibration"]["ece"] - error) > 1e-6:
            sys.exit(f"ece: {case['calibration']['ece']}, not {error}")
    print(f"{len(cases)} cases")


COMMANDS = {"weights": weights, "trace": trace, "follows": follows, "metrics": metrics, "scores": scores, "near": near, "strict": strict, "files": files}
COMMANDS[sys.argv[1]](*sys.argv[2:])
