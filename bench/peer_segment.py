#!/usr/bin/env python3
"""peer_segment.py: PyTorch's networks that label pixels, measured as amptrain measures its own.

  peer_segment.py step NETWORK BATCH SIZE PRECISION MODE SECONDS [LAYOUT]   a training step
  peer_segment.py predict NETWORK IMAGE TILE BATCH PRECISION MODE [IMAGES]  a whole image of IMAGE x IMAGE pixels
                                                 in tiles that overlap by half, blended by a Gaussian window
  peer_segment.py largest NETWORK SIZE PRECISION GIB [MODE [BATCH...]]   the largest batch that trains in so much
                                                 memory (of these alone, from the first one on)
  peer_segment.py cpu NETWORK BATCH SIZE PRECISION MODE SECONDS   a training step on the CPU

NETWORK is unet (transposed convolutions, 64 to 1,024 channels, batch norm), nnunet_2d (PlainConvUNet of
dynamic_network_architectures, deep supervision, Dice and cross-entropy), unet_resnet18|34|50,
deeplabv3plus_resnet50 (segmentation_models_pytorch), deeplabv3_resnet50|101, fcn_resnet50 (with the auxiliary
output) or lraspp_mobilenet_v3_large (torchvision); 21 classes, 3 channels. PRECISION fp32, tf32, fp16 (with
GradScaler) or bf16; MODE eager or compile; LAYOUT channels_last, contiguous or both, the faster one (both).
One line of JSON, with the keys of `amptrain bench --json`.
"""
import contextlib
import json
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import peer_gpu

CLASSES = 21
LAYOUTS = {'channels_last': torch.channels_last, 'contiguous': torch.contiguous_format}


def twice(inputs, outputs):
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
                   nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    def __init__(self, classes, widths=(64, 128, 256, 512, 1024), channels=3):
        super().__init__()
        self.down = nn.ModuleList(twice(a, b) for a, b in zip((channels,) + widths, widths))
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList(twice(2 * b, b) for b in widths[-2::-1])
        self.last = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        kept = []
        for i, stage in enumerate(self.down):
            x = stage(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for enlarge, stage, skip in zip(self.enlarge, self.up, kept[-2::-1]):
            x = stage(torch.cat([skip, enlarge(x)], 1))
        return self.last(x)


def nnunet_2d():
    from dynamic_network_architectures.architectures.unet import PlainConvUNet
    widths = [32, 64, 128, 256, 512, 512, 512, 512]
    return PlainConvUNet(3, 8, widths, nn.Conv2d, 3, [1] + 7 * [2], 2, CLASSES, 2, conv_bias=True,
                         norm_op=nn.InstanceNorm2d, norm_op_kwargs={'eps': 1e-5, 'affine': True},
                         nonlin=nn.LeakyReLU, nonlin_kwargs={'inplace': True}, deep_supervision=True)


def make(name):
    if name == 'unet':
        return UNet(CLASSES)
    if name == 'nnunet_2d':
        return nnunet_2d()
    if name.startswith(('deeplabv3_', 'fcn_', 'lraspp_')):
        import torchvision
        more = {} if name.startswith('lraspp_') else {'aux_loss': True}
        return torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=CLASSES, **more)
    import segmentation_models_pytorch as smp
    kind, encoder = name.split('_')
    kinds = {'unet': smp.Unet, 'deeplabv3plus': smp.DeepLabV3Plus}
    return kinds[kind](encoder, encoder_weights=None, classes=CLASSES)


def dice_and_cross_entropy(logits, labels):
    truth = F.one_hot(labels, logits.shape[1]).permute(0, 3, 1, 2)
    p = logits.float().softmax(1)
    both, sums = (p * truth).sum((0, 2, 3)), p.sum((0, 2, 3)) + truth.sum((0, 2, 3))
    return F.cross_entropy(logits, labels) + 1 - ((2 * both + 1e-5) / (sums + 1e-5)).mean()


def loss_of(images, outputs, labels):
    if isinstance(outputs, dict):                          # torchvision's
        loss = F.cross_entropy(outputs['out'], labels)
        return loss + 0.5 * F.cross_entropy(outputs['aux'], labels) if 'aux' in outputs else loss
    if isinstance(outputs, (list, tuple)):                 # deep supervision
        weights = [2.0**-i for i in range(len(outputs))]
        losses = [dice_and_cross_entropy(one, labels[:, ::labels.shape[1] // one.shape[2],
                                                     ::labels.shape[2] // one.shape[3]]) for one in outputs]
        return sum(w * loss for w, loss in zip(weights, losses)) / sum(weights)
    return F.cross_entropy(outputs, labels)


def batch_of(batch, size, device, layout):
    images = (2 * torch.rand(batch, 3, size, size, device=device) - 1).to(memory_format=layout)
    return images, torch.randint(0, CLASSES, (batch, size, size), device=device)


def step(name, batch, size, precision, mode, seconds, layout):
    torch.cuda.reset_peak_memory_stats()
    trainer = peer_gpu.Trainer(make(name), precision, mode, LAYOUTS[layout], loss_of, lr=0.01, momentum=0.9)
    images, labels = batch_of(batch, size, 'cuda', LAYOUTS[layout])
    first = trainer.step(images, labels).item()
    start = peer_gpu.since_start()
    for _ in range(8):
        trainer.step(images, labels)
    torch.cuda.synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 10:
        marks[0].record()
        for _ in range(5):
            loss = trainer.step(images, labels)
        marks[1].record()
        torch.cuda.synchronize()
        times.append(marks[0].elapsed_time(marks[1]) / 5)
    median = sorted(times)[len(times) // 2]
    return {'images_per_s': 1e3 * batch / median, 'step_ms_median': median, 'batch': batch,
            'precision': precision, 'device': torch.cuda.get_device_name(), 'layout': layout, 'mode': mode,
            'device_peak_bytes': torch.cuda.max_memory_allocated(),
            'reserved_bytes': torch.cuda.max_memory_reserved(), 'first_loss': first, 'loss': loss.item(),
            'start_seconds': start, 'torch': torch.__version__}


def faster(measure, layouts):
    found = []
    for layout in layouts:
        found.append(measure(layout))
        torch._dynamo.reset()
        torch.cuda.empty_cache()
    return max(found, key=lambda one: one['images_per_s'])


def window(tile, device):
    at = torch.arange(tile, device=device) - (tile - 1) / 2
    line = torch.exp(-0.5 * (at / (tile / 8))**2)
    both = line[:, None] * line
    return (both / both.max()).clamp(min=1e-3)


def starts(size, tile):
    count = 1 + max(0, -(-(size - tile) // (tile // 2)))
    return [round(i * (size - tile) / max(1, count - 1)) for i in range(count)]


def whole(net, image, tile, batch, weight, precision):
    """The classes of an image [1, 3, h, w], as bytes on the host."""
    _, _, h, w = image.shape
    sums = torch.zeros(CLASSES, h, w, device='cuda')
    places = [(y, x) for y in starts(h, tile) for x in starts(w, tile)]
    for first in range(0, len(places), batch):
        part = places[first:first + batch]
        more = part + [part[0]] * (batch - len(part))
        tiles = torch.cat([image[:, :, y:y + tile, x:x + tile] for y, x in more])
        tiles = tiles.contiguous(memory_format=torch.channels_last)
        with torch.autocast('cuda', dtype=peer_gpu.DTYPES.get(precision), enabled=precision in peer_gpu.DTYPES):
            outputs = net(tiles)
        outputs = outputs['out'] if isinstance(outputs, dict) else outputs
        p = outputs.float().softmax(1) * weight
        for i, (y, x) in enumerate(part):
            sums[:, y:y + tile, x:x + tile] += p[i]
    return sums.argmax(0).byte().cpu()


def predict(name, size, tile, batch, precision, mode, images):
    net = make(name).cuda().to(memory_format=torch.channels_last).eval()
    if name == 'nnunet_2d':
        net.decoder.deep_supervision = False
    net = peer_gpu.compiled(net, mode)
    image, weight = torch.rand(1, 3, size, size).pin_memory(), window(tile, 'cuda')
    with torch.no_grad():
        whole(net, image.cuda(), tile, batch, weight, precision)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(images):
            whole(net, image.cuda(), tile, batch, weight, precision)
        seconds = (time.perf_counter() - begin) / images
    return {'images_per_s': 1 / seconds, 'batch': batch, 'precision': precision, 'mode': mode,
            'device_peak_bytes': torch.cuda.max_memory_allocated(),
            'reserved_bytes': torch.cuda.max_memory_reserved(), 'torch': torch.__version__}


def largest(name, size, precision, gib, mode='eager', batches=()):
    """The first of the given batches that trains; else the largest, by halving the distance to one that fails."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(gib * 2**30 / total)
    reserved = {}

    def trains(batch):
        try:
            torch._dynamo.reset()
            torch.cuda.reset_peak_memory_stats()
            trainer = peer_gpu.Trainer(make(name), precision, mode, torch.channels_last, loss_of, lr=0.01,
                                       momentum=0.9)
            for _ in range(2):
                trainer.step(*batch_of(batch, size, 'cuda', torch.channels_last))
            torch.cuda.synchronize()
            reserved[batch] = torch.cuda.max_memory_reserved()
            return True
        except torch.OutOfMemoryError:
            return False
        finally:
            trainer = None
            torch.cuda.empty_cache()

    good, bad = 0, 1
    if batches:
        good = next((batch for batch in batches if trains(batch)), 0)
    else:
        while trains(bad):
            good, bad = bad, 2 * bad
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if trains(middle) else (good, middle)
    return {'batch': good, 'reserved_bytes': reserved.get(good), 'precision': precision, 'mode': mode,
            'torch': torch.__version__}


def cpu(name, batch, size, precision, mode, seconds, layout):
    torch.manual_seed(1)
    net = make(name).to(memory_format=LAYOUTS[layout]).train()
    forward = peer_gpu.compiled(net, mode)
    images, labels = batch_of(batch, size, 'cpu', LAYOUTS[layout])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    low = torch.autocast('cpu', dtype=torch.bfloat16) if precision == 'bf16' else contextlib.nullcontext()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 5:
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with low:
            loss = loss_of(images, forward(images), labels)
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
        if len(times) == 2:
            end = time.perf_counter() + seconds
    median = sorted(times[2:])[(len(times) - 2) // 2]
    return {'images_per_s': batch / median, 'step_ms_median': 1e3 * median, 'batch': batch, 'layout': layout,
            'precision': precision, 'mode': mode, 'loss': loss.item(), 'torch': torch.__version__,
            'threads': torch.get_num_threads()}


def main():
    kind, arguments = sys.argv[1] if len(sys.argv) > 1 else '', sys.argv[2:]
    if kind == 'step' and len(arguments) in (6, 7):
        name, batch, size, precision, mode, seconds = arguments[:6]
        peer_gpu.settle(precision)
        layouts = list(LAYOUTS) if arguments[6:] in ([], ['both']) else arguments[6:]
        found = faster(lambda layout: step(name, int(batch), int(size), precision, mode, float(seconds), layout),
                       layouts)
    elif kind == 'predict' and len(arguments) in (6, 7):
        name, size, tile, batch, precision, mode = arguments[:6]
        peer_gpu.settle(precision)
        found = predict(name, int(size), int(tile), int(batch), precision, mode, int((arguments[6:] or [5])[0]))
    elif kind == 'largest' and len(arguments) >= 4:
        name, size, precision, gib = arguments[:4]
        peer_gpu.settle(precision)
        found = largest(name, int(size), precision, float(gib), (arguments[4:] or ['eager'])[0],
                        [int(n) for n in arguments[5:]])
    elif kind == 'cpu' and len(arguments) == 6:
        name, batch, size, precision, mode, seconds = arguments
        found = faster(lambda layout: cpu(name, int(batch), int(size), precision, mode, float(seconds), layout),
                       LAYOUTS)
    else:
        sys.exit(__doc__)
    print(json.dumps(found))


if __name__ == '__main__':
    main()
