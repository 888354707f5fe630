"""dense_peers.py list: the networks that label pixels, of the libraries that this Python has.
dense_peers.py make FOLDER SIZE NET...: each library's network with random weights and with statistics that
fit random images, in FOLDER: NET.pth, the images, NET.images, and its logits in fp64, NET.npy.
dense_peers.py near FOLDER SIZE NET: NET.ours, as tests/graph/dense_logits writes them, are those logits.
dense_peers.py trace FOLDER SIDE NET LOSS...: in FOLDER, images and masks, NET.data, NET.pth, and the losses
of the first steps of training in fp64 and in fp32, NET.LOSS.json, for python_peers.py follows.
dense_peers.py strict FOLDER NET FILE: the library loads a file of ours strictly, with NET.pth's numbers.
"""
import copy
import json
import os
import struct
import sys
import zlib

import numpy
import torch
from torch import nn

CLASSES, IGNORED, STEPS = 5, 255, 4
RATE = 0.001                            # at ten times that, rounding grows tenfold in a step of deep networks
WEIGHTS = [1, 0.5, 2, 1.5, 0.25]        # of classes
FALSE = 0.7, 0.3                        # weights of false positives and negatives


class DoubleConv(nn.Module):
    def __init__(self, channels, filters):
        super().__init__()
        parts = []
        for inputs in (channels, filters):
            parts += [nn.Conv2d(inputs, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters)]
            parts.append(nn.ReLU())
        self.double_conv = nn.Sequential(*parts)

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(channels, 2 * channels))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.up = nn.ConvTranspose2d(channels, channels // 2, 2, stride=2)
        self.conv = DoubleConv(channels, channels // 2)

    def forward(self, x, beside):
        x = self.up(x)
        return self.conv(torch.cat([beside, x], 1))


class UNet(nn.Module):
    """The names and shapes of Pytorch-UNet's network, which is in no package."""

    def __init__(self, classes):
        super().__init__()
        self.inc = DoubleConv(3, 64)
        for level in range(1, 5):
            self.add_module(f"down{level}", Down(32 << level))
        for level in range(1, 5):
            self.add_module(f"up{level}", Up(2048 >> level))
        self.outc = nn.Module()
        self.outc.conv = nn.Conv2d(64, classes, 1)

    def forward(self, x):
        found = [self.inc(x)]
        for level in range(1, 5):
            found.append(getattr(self, f"down{level}")(found[-1]))
        x = found.pop()
        for level in range(1, 5):
            x = getattr(self, f"up{level}")(x, found.pop())
        return self.outc.conv(x)


def smp(arch, encoder, classes):
    import segmentation_models_pytorch

    return getattr(segmentation_models_pytorch, arch)(encoder, encoder_weights=None, classes=classes)


def vision(name, classes, **options):
    import torchvision

    get = torchvision.models.get_model
    return get(name, weights=None, weights_backbone=None, num_classes=classes, **options)


def nnunet(classes):
    from dynamic_network_architectures.architectures.unet import PlainConvUNet

    widths = [32, 64, 128, 256, 512, 512, 512, 512]
    net = PlainConvUNet(3, 8, widths, nn.Conv2d, 3, [1] + 7 * [2], 2, classes, 2, True, nn.InstanceNorm2d,
                        {"eps": 1e-5, "affine": True}, None, None, nn.LeakyReLU, {"inplace": True},
                        deep_supervision=True)
    return net.apply(net.initialize)


NETWORKS = {
    "unet": UNet,
    "unet_resnet18": lambda classes: smp("Unet", "resnet18", classes),
    "unet_resnet34": lambda classes: smp("Unet", "resnet34", classes),
    "unet_resnet50": lambda classes: smp("Unet", "resnet50", classes),
    "deeplabv3plus_resnet50": lambda classes: smp("DeepLabV3Plus", "resnet50", classes),
    "deeplabv3_resnet50": lambda classes: vision("deeplabv3_resnet50", classes, aux_loss=True),
    "deeplabv3_resnet101": lambda classes: vision("deeplabv3_resnet101", classes, aux_loss=True),
    "fcn_resnet50": lambda classes: vision("fcn_resnet50", classes, aux_loss=True),
    "lraspp_mobilenet_v3_large": lambda classes: vision("lraspp_mobilenet_v3_large", classes),
    "nnunet_2d": nnunet,
}


def outputs_of(net, pixels):
    """All outputs, the network's own first."""
    found = net(pixels)
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, (list, tuple)) else [found]


def sizes(text):
    height, width = (int(side) for side in (text.split("x") * 2)[:2])
    return height, width


def randomise(net, pixels):
    """Makes biases and norms differ, and statistics fit; dropout does nothing."""
    for key, value in net.state_dict().items():
        if value.dim() == 1 and value.is_floating_point() and "running" not in key:
            value.add_(0.1 * torch.randn(value.shape))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.9
    outputs_of(net.train(), pixels)
    net.eval()


def make(folder, size, *names):
    for name in names:
        torch.manual_seed(1)
        net = NETWORKS[name](CLASSES)
        pixels = torch.randn(3, 3, *sizes(size))
        with torch.no_grad():
            randomise(net, pixels)
            torch.save(net.state_dict(), f"{folder}/{name}.pth")
            logits = outputs_of(net.double(), pixels.double())[0]
        pixels.permute(0, 2, 3, 1).numpy().tofile(f"{folder}/{name}.images")
        numpy.save(f"{folder}/{name}.npy", logits.permute(0, 2, 3, 1).numpy())


def near(folder, size, name):
    theirs = numpy.load(f"{folder}/{name}.npy")
    ours = numpy.fromfile(f"{folder}/{name}.ours", numpy.float32).reshape(theirs.shape)
    largest, off = numpy.abs(theirs).max(), numpy.abs(ours - theirs).max()
    print(f"{name}, {size}: off by {off / largest:.2g} of the largest logit, {largest:.3g}")
    if not off <= 1e-4 * largest:
        sys.exit("too far")


def ratios(kind, p, g):
    """By class, over all pixels: Dice (Milletari et al. 2016) or Tversky (Salehi et al. 2017)."""
    hit, p, g = (values.sum((0, 2, 3)) for values in (p * g, p, g))
    if kind == "tversky":
        return hit / (hit + FALSE[0] * (p - hit) + FALSE[1] * (g - hit)), g > 0
    return (2 * hit + 1e-5) / (p + g + 1e-5), g > 0


def pixel_loss(kind, logits, labels):
    """Labels of an output of 1/k of their size are those at 0, k, 2k."""
    labels = labels[:, ::labels.shape[1] // logits.shape[2], ::labels.shape[2] // logits.shape[3]]
    counted = labels != IGNORED
    weights = torch.tensor(WEIGHTS, dtype=logits.dtype)
    if kind == "dice_ce":
        return pixel_loss("dice", logits, labels) + pixel_loss("ce", logits, labels)
    if kind == "ce":
        return nn.functional.cross_entropy(logits, labels, weights, ignore_index=IGNORED)
    if kind == "focal":
        own = labels[counted]
        log_p = logits.log_softmax(1).movedim(1, 3)[counted].gather(1, own[:, None])[:, 0]
        return (-weights[own] * (1 - log_p.exp())**2 * log_p).sum() / weights[own].sum()
    one_hot = nn.functional.one_hot(torch.where(counted, labels, 0), CLASSES).movedim(3, 1)
    values, some = ratios(kind, logits.softmax(1) * counted[:, None], one_hot * counted[:, None])
    return 1 - values[some].mean()


def losses(name, net, kind, pixels, labels):
    weights = {"nnunet_2d": [2**(6 - i) / 127 for i in range(7)]}.get(name, [1, 0.5])
    optimizer = torch.optim.SGD(net.parameters(), RATE, momentum=0.9)
    net.train()
    for module in net.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = sum(weight * pixel_loss(kind, logits, labels)
                   for weight, logits in zip(weights, outputs_of(net, pixels)))
        loss.backward()
        optimizer.step()
        yield loss.item()


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">2I5B", *pixels.shape[1::-1], 8, 2 if pixels.ndim == 3 else 0, 0, 0, 0)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows, 1)) +
                   chunk(b"IEND", b""))


def furthest(exact, name, net, kind, pixels, labels):
    """Of fp32 in three orders of additions, the one that is furthest off in each step: batch norms over a few
    pixels enlarge whatever rounding there is, and a single order may be lucky."""
    forward, backward = list(range(len(pixels))), list(range(len(pixels)))[::-1]
    orders = ((torch.contiguous_format, forward), (torch.channels_last, forward),
              (torch.contiguous_format, backward))
    runs = [losses(name, copy.deepcopy(net).to(memory_format=layout), kind, pixels[order], labels[order])
            for layout, order in orders]
    return [max(step, key=lambda loss: abs(loss - right)) for right, *step in zip(exact, *runs)]


def trace(folder, side, name, *kinds):
    """The last class occurs nowhere."""
    random, count = numpy.random.default_rng(1), 2 if name == "nnunet_2d" else 4
    images = random.integers(0, 256, (count, int(side), int(side), 3), dtype=numpy.uint8)
    masks = random.integers(0, CLASSES, images.shape[:3], dtype=numpy.uint8)
    masks[masks == CLASSES - 1] = IGNORED
    for i in range(count):
        write_png(f"{folder}/{name}.data/images/{i}.png", images[i])
        write_png(f"{folder}/{name}.data/masks/{i}.png", masks[i])
    torch.manual_seed(1)
    net = NETWORKS[name](CLASSES)
    with torch.no_grad():
        for key, value in net.state_dict().items():
            if value.dim() == 1 and value.is_floating_point() and "running" not in key:
                value.add_(0.1 * torch.randn(value.shape))
    torch.save(net.state_dict(), f"{folder}/{name}.pth")
    mean, std = (torch.tensor(three).view(1, 3, 1, 1) for three in ((0.4, 0.5, 0.6), (0.2, 0.25, 0.3)))
    pixels = (torch.from_numpy(images).movedim(3, 1) / 255 - mean) / std
    labels = torch.from_numpy(masks).long()
    for kind in kinds:
        exact = list(losses(name, copy.deepcopy(net).double(), kind, pixels.double(), labels))
        found = {"fp64": exact, "fp32": furthest(exact, name, net, kind, pixels, labels)}
        with open(f"{folder}/{name}.{kind}.json", "w") as out:
            json.dump(found, out)


def strict(folder, name, path):
    from safetensors.torch import load_file

    net, tensors = NETWORKS[name](CLASSES), load_file(path)
    net.load_state_dict(tensors, strict=True)
    original = torch.load(f"{folder}/{name}.pth", weights_only=True)
    unlike = [key for key, value in original.items() if not torch.equal(tensors[key], value)]
    print(f"{name}: {len(tensors)} tensors")
    if unlike or len(tensors) != len(original):
        sys.exit(f"{len(unlike)} differ: {unlike[:3]}")


def show():
    for name, build in NETWORKS.items():
        try:
            build(CLASSES)
        except ImportError:
            continue
        print(name)


if __name__ == "__main__":
    torch.set_num_threads(2)
    {"list": show, "make": make, "near": near, "trace": trace, "strict": strict}[sys.argv[1]](*sys.argv[2:])
