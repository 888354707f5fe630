"""torch_traces.py make FOLDER: images as MNIST's files, a small network, and its weights, for traces.
torch_traces.py compare RUN FOLDER RECIPE: the steps of RUN, trained in fp32 by RECIPE, beside PyTorch's, with the
optimizers by their authors' published formulas. Losses and gradient norms may differ by 1e-5 of their size and
four times what PyTorch's fp32 differs from its fp64.
torch_traces.py average FILE FOLDER CHECKPOINT...: FILE, which `average --recompute-bn` made of these, beside
PyTorch's AveragedModel and update_bn: 1e-5 of each tensor's largest number."""
import json
import os
import struct
import sys
import zlib

import numpy
import torch

SIDE, CLASSES, IMAGES, BATCH, EPOCHS = 8, 10, 48, 16, 4
MODEL = """[input]
channels = 1
size = 8
[layers]
conv1 = conv input filters=8 kernel=3 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=16 kernel=3 stride=2 pad=1 bias=no
bn2 = batchnorm conv2
relu2 = relu bn2
conv3 = conv relu2 filters=24 kernel=1
relu3 = relu conv3
pool = globalavgpool relu3
hidden = linear pool units=12
relu4 = relu hidden
fc = linear relu4 units=$classes
"""

# A distillation token beside the class token.
TOKENS = """[input]
channels = 1
size = 8
[layers]
patch_embed.proj = conv input filters=12 kernel=4 stride=4
dist_token = prepend patch_embed.proj
cls_token = prepend dist_token
pos_embed = position cls_token prefix=2
norm1 = layernorm pos_embed
qkv = linear norm1 units=36 per_pixel=yes
attn = attention qkv heads=3
tokens = token_slice attn count=2
proj = linear tokens units=12 per_pixel=yes
skip = token_slice pos_embed count=2
add = add proj skip
norm = layernorm add
class = token_slice norm
distilled = token_slice norm first=1
head = linear class units=$classes
head_dist = linear distilled units=$classes
logits = mean head head_dist
"""


class Tokens(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = torch.nn.ModuleDict({"proj": torch.nn.Conv2d(1, 12, 4, 4)})
        self.cls_token = torch.nn.Parameter(0.3 * torch.randn(1, 1, 12))
        self.dist_token = torch.nn.Parameter(0.3 * torch.randn(1, 1, 12))
        self.pos_embed = torch.nn.Parameter(0.3 * torch.randn(1, 6, 12))
        self.norm1, self.norm = torch.nn.LayerNorm(12, eps=1e-6), torch.nn.LayerNorm(12, eps=1e-6)
        self.qkv, self.proj = torch.nn.Linear(12, 36), torch.nn.Linear(12, 12)
        self.head, self.head_dist = torch.nn.Linear(12, CLASSES), torch.nn.Linear(12, CLASSES)

    def forward(self, x):
        patches = self.patch_embed["proj"](x).flatten(2).transpose(1, 2)
        learned = [token.expand(len(x), -1, -1) for token in (self.cls_token, self.dist_token)]
        x = torch.cat([*learned, patches], 1) + self.pos_embed
        q, k, v = self.qkv(self.norm1(x)).view(len(x), 6, 3, 3, 4).permute(2, 0, 3, 1, 4)
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.norm((x + self.proj(mixed))[:, :2])
        return self.head(x[:, 0]), self.head_dist(x[:, 1])


class Net(torch.nn.Module):
    def __init__(self, outputs=CLASSES):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = torch.nn.BatchNorm2d(8)
        self.conv2 = torch.nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False)
        self.bn2 = torch.nn.BatchNorm2d(16)
        self.conv3 = torch.nn.Conv2d(16, 24, 1)
        self.hidden = torch.nn.Linear(24, 12)
        self.fc = torch.nn.Linear(12, outputs)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = torch.relu(self.conv3(x)).mean((2, 3))
        return self.fc(torch.relu(self.hidden(x)))


def write_images(folder, name, pixels, labels):
    with open(f"{folder}/{name}-images-idx3-ubyte", "wb") as file:
        file.write(struct.pack(">4i", 0x803, *pixels.shape) + pixels.tobytes())
    with open(f"{folder}/{name}-labels-idx1-ubyte", "wb") as file:
        file.write(struct.pack(">2i", 0x801, len(labels)) + labels.tobytes())


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">2I5B", *pixels.shape[::-1], 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) +
                   chunk(b"IEND", b""))


def write_tables(folder, pixels, random):
    """The same images with sets of labels, and with numbers."""
    sets = random.random((IMAGES, CLASSES)) < 0.3
    sets[:, 0] |= ~sets.any(1)
    values = (pixels.mean((1, 2)) * 3 + random.normal(0, 20, IMAGES)).astype(numpy.float32)
    with open(f"{folder}/labels.csv", "w") as labels, open(f"{folder}/values.csv", "w") as numbers:
        print("path,labels", file=labels)
        print("path,value", file=numbers)
        for i in range(IMAGES):
            write_png(f"{folder}/{i}.png", pixels[i])
            print(f"{i}.png,{';'.join(str(k) for k in numpy.flatnonzero(sets[i]))}", file=labels)
            print(f"{i}.png,{values[i]:.9g}", file=numbers)
    return sets.astype(numpy.float32), values


def make(folder):
    from safetensors.torch import save_file

    os.makedirs(folder, exist_ok=True)
    random = numpy.random.default_rng(1)
    labels = (numpy.arange(IMAGES) % CLASSES).astype(numpy.uint8)
    patterns = random.integers(0, 160, (CLASSES, SIDE, SIDE))
    pixels = (patterns[labels] + random.integers(0, 96, (IMAGES, SIDE, SIDE))).astype(numpy.uint8)
    write_images(folder, "train", pixels, labels)
    write_images(folder, "t10k", pixels, labels)
    with open(f"{folder}/model.ini", "w") as file:
        file.write(MODEL)
    for name in ("student", "teacher"):
        torch.manual_seed(1 + (name == "teacher"))
        net = Net()
        with torch.no_grad():
            net.bn1.running_mean.uniform_(-0.1, 0.1)
            net.bn2.running_var.uniform_(0.5, 1.5)
            net.fc.weight.mul_(4)
        save_file(net.state_dict(), f"{folder}/{name}.safetensors")
    torch.manual_seed(3)
    save_file(Net(1).state_dict(), f"{folder}/single.safetensors")
    torch.manual_seed(4)
    save_file(Tokens().state_dict(), f"{folder}/tokens.safetensors")
    with open(f"{folder}/tokens.ini", "w") as file:
        file.write(TOKENS)
    sets, values = write_tables(folder, pixels, random)
    numpy.savez(f"{folder}/data.npz", pixels=pixels, labels=labels, sets=sets, values=values)


def decayed(name, param):
    return param.dim() > 1


class Lion:
    """Chen et al. 2023, algorithm 2."""

    def __init__(self, net, lr, decay):
        self.net, self.lr, self.decay = net, lr, decay
        self.mean = {name: torch.zeros_like(param) for name, param in net.named_parameters()}

    def step(self):
        for name, param in self.net.named_parameters():
            mean = self.mean[name]
            step = (0.9 * mean + 0.1 * param.grad).sign()
            param.mul_(1 - self.lr * (self.decay if decayed(name, param) else 0)).sub_(self.lr * step)
            mean.mul_(0.99).add_(0.01 * param.grad)


def orthogonalized(matrix):
    x = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


class Muon:
    """Jordan et al. 2024: matrices of hidden layers; AdamW for the rest."""

    def __init__(self, net, lr, decay):
        self.net, self.lr, self.decay, self.steps = net, lr, decay, 0
        self.mean = {name: torch.zeros_like(param) for name, param in net.named_parameters()}
        self.square = {name: torch.zeros_like(param) for name, param in net.named_parameters()}

    def matrix(self, name, param):
        mean = self.mean[name]
        mean.lerp_(param.grad, 0.05)
        update = param.grad.lerp(mean, 0.95).flatten(1)
        scale = max(1, update.shape[0] / update.shape[1]) ** 0.5
        param.mul_(1 - self.lr * self.decay).sub_(self.lr * scale * orthogonalized(update).view_as(param))

    def adamw(self, name, param):
        mean, square, lr = self.mean[name], self.square[name], 0.015 * self.lr
        mean.lerp_(param.grad, 0.1)
        square.lerp_(param.grad.square(), 0.05)
        update = mean / (1 - 0.9**self.steps) / ((square / (1 - 0.95**self.steps)).sqrt() + 1e-10)
        param.mul_(1 - lr * (self.decay if decayed(name, param) else 0)).sub_(lr * update)

    def step(self):
        self.steps += 1
        for name, param in self.net.named_parameters():
            hidden = param.dim() > 1 and name not in ("conv1.weight", "fc.weight")
            (self.matrix if hidden else self.adamw)(name, param)


class Sgd:
    def __init__(self, net, lr, decay):
        self.inner = torch.optim.SGD(net.parameters(), lr, momentum=0.9)

    def step(self):
        self.inner.step()


def cross_entropy(logits, labels, teacher):
    return torch.nn.functional.cross_entropy(logits, labels)


def multilabel(logits, sets, teacher):
    weights = torch.arange(1, CLASSES + 1).to(logits.dtype) / 2
    return torch.nn.functional.binary_cross_entropy_with_logits(logits, 0.9 * sets + 0.05, pos_weight=weights)


def huber(logits, values, teacher):
    return torch.nn.functional.huber_loss(logits[:, 0], values)


def softened(temperature, alpha):
    """Hinton, Vinyals, Dean 2015."""
    def loss(logits, labels, teacher):
        own, guide = (torch.log_softmax(values / temperature, 1) for values in (logits, teacher))
        apart = torch.nn.functional.kl_div(own, guide, reduction="batchmean", log_target=True)
        return (1 - alpha) * cross_entropy(logits, labels, teacher) + alpha * temperature**2 * apart
    return loss


def hard(logits, labels, teacher):
    """Touvron et al. 2021, of one head."""
    by_teacher = torch.nn.functional.cross_entropy(logits, teacher.argmax(1))
    return 0.5 * cross_entropy(logits, labels, teacher) + 0.5 * by_teacher


def token_hard(heads, labels, teacher):
    """Touvron et al. 2021, of a distillation token."""
    by_teacher = torch.nn.functional.cross_entropy(heads[1], teacher.argmax(1))
    return 0.4 * cross_entropy(heads[0], labels, teacher) + 0.6 * by_teacher


def token_soft(heads, labels, teacher):
    alone = softened(3, 1)(heads[1], labels, teacher)
    return 0.3 * cross_entropy(heads[0], labels, teacher) + 0.7 * alone


def token_alone(heads, labels, teacher):
    """Without a teacher the heads' mean learns the labels."""
    return cross_entropy((heads[0] + heads[1]) / 2, labels, teacher)


RECIPES = {
    "multilabel": (Sgd, 0.1, 0, multilabel),
    "huber": (Sgd, 0.1, 0, huber),
    "soft": (Sgd, 0.05, 0, softened(3, 0.7)),
    "hard": (Sgd, 0.05, 0, hard),
    "token-hard": (Sgd, 0.05, 0, token_hard),
    "token-soft": (Sgd, 0.05, 0, token_soft),
    "token-alone": (Sgd, 0.05, 0, token_alone),
    "lion": (Lion, 0.0003, 0.1, cross_entropy),
    "muon": (Muon, 0.02, 0.1, cross_entropy),
    "swa": (Sgd, 0.05, 0, cross_entropy),
}


def trace(folder, recipe, dtype):
    from safetensors.torch import load_file

    optimizer, lr, decay, loss_of = RECIPES[recipe]
    data = numpy.load(f"{folder}/data.npz")
    images = torch.from_numpy(data["pixels"]).to(dtype)[:, None] / 255
    labels = torch.from_numpy(data["labels"]).long()
    values = data["values"].astype(numpy.float64)
    if recipe == "multilabel":
        labels = torch.from_numpy(data["sets"]).to(dtype)
    if recipe == "huber":
        labels = torch.from_numpy((values - values.mean()) / values.std()).to(dtype)
    nets = {}
    for name in ("student", "teacher"):
        nets[name] = Net()
        nets[name].load_state_dict(load_file(f"{folder}/{name}.safetensors"))
        nets[name].to(dtype)
    if recipe == "huber":
        nets["student"] = Net(1)
        nets["student"].load_state_dict(load_file(f"{folder}/single.safetensors"))
        nets["student"].to(dtype)
    if recipe.startswith("token"):
        nets["student"] = Tokens()
        nets["student"].load_state_dict(load_file(f"{folder}/tokens.safetensors"))
        nets["student"].to(dtype)
    student, teacher = nets["student"].train(), nets["teacher"].eval()
    stepper = optimizer(student, lr, decay)
    losses, norms = [], []
    for first in list(range(0, IMAGES, BATCH)) * EPOCHS:
        batch, wanted = images[first:first + BATCH], labels[first:first + BATCH]
        student.zero_grad()
        with torch.no_grad():
            guide = teacher(batch)
        loss = loss_of(student(batch), wanted, guide)
        loss.backward()
        norms.append(sum(param.grad.square().sum() for param in student.parameters()).sqrt().item())
        losses.append(loss.item())
        with torch.no_grad():
            stepper.step()
    return numpy.array([losses, norms])


def compare(run, folder, recipe):
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    steps = [line for line in lines if line["event"] == "step"]
    ours = numpy.array([[step["loss"] for step in steps], [step["grad_norm"] for step in steps]])
    theirs, rounded = trace(folder, recipe, torch.float64), trace(folder, recipe, torch.float32)
    if ours.shape != theirs.shape:
        sys.exit(f"{ours.shape[1]} steps, not {theirs.shape[1]}")
    spread = numpy.maximum.accumulate(numpy.abs(rounded - theirs), axis=1)
    allowed = 1e-5 * numpy.maximum(1, numpy.abs(theirs)) + 4 * spread
    off = numpy.abs(ours - theirs)
    print(f"# {recipe}: loss {theirs[0, 0]:.4g} to {theirs[0, -1]:.4g}; off by {off.max():.2g}, "
          f"torch's fp32 by {spread.max():.2g}")
    if not (off <= allowed).all():
        sys.exit(f"too far: {ours} {theirs}")


def average(path, folder, *checkpoints):
    from safetensors.torch import load_file
    from torch.optim.swa_utils import AveragedModel, update_bn

    images = torch.from_numpy(numpy.load(f"{folder}/data.npz")["pixels"]).float()[:, None] / 255
    net = Net()
    mean = AveragedModel(net)
    for checkpoint in checkpoints:
        tensors = load_file(checkpoint)
        net.load_state_dict({name: tensors[name] for name in net.state_dict()})
        mean.update_parameters(net)
    update_bn(images.split(BATCH), mean)
    ours, stale = load_file(path), load_file(checkpoints[-1])
    for name, theirs in mean.module.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        off = (ours[name] - theirs).abs().max() / theirs.abs().max()
        print(f"# {name}: off by {off:.2g}, the last checkpoint by "
              f"{(stale[name] - theirs).abs().max() / theirs.abs().max():.2g}")
        if not off <= 1e-5:
            sys.exit(f"too far: {ours[name]} {theirs}")


{"make": make, "compare": compare, "average": average}[sys.argv[1]](*sys.argv[2:])
