#!/usr/bin/env python3
"""peer_stages.py: PyTorch's ways to train one network on several GPUs, measured as `amptrain bench` does.

  peer_stages.py MODEL[@SIZE[/BATCH]][,MODEL...] BATCH PRECISION HOW[,HOW...] SECONDS \
      [MICROBATCHES[,MICROBATCHES...]]

HOW is one (the first GPU alone), naive (model parallel: the layers cut into as many parts as there are
GPUs, which work one after another) or dataparallel (nn.DataParallel); under
`torchrun --standalone --nproc-per-node N` it is ddp (DistributedDataParallel), gpipe or 1f1b
(torch.distributed.pipelining, a stage a GPU). BATCH is that of all GPUs together, but for a MODEL with its
own. MODEL and PRECISION are those of peer_gpu.py and the step is its eager one, but that fp16 has a fixed
loss scale; with a SIZE, images have so many pixels a side and 10 classes. Cuts are where the measured time
of a step comes nearest to equal parts. Prints a line of JSON for each way. Without a GPU it runs on the
processor, to be tried.
"""
import json
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

from peer_gpu import make, settle

SCALE = 1024.0
KIND = 'cuda' if torch.cuda.is_available() else 'cpu'
RANK, WORLD = int(os.environ.get('RANK', '0')), int(os.environ.get('WORLD_SIZE', '1'))
GPUS = torch.cuda.device_count() if KIND == 'cuda' else 2


def device(index):
    return torch.device('cuda', index) if KIND == 'cuda' else torch.device('cpu')


OWN = device(RANK)


def wait():
    for index in range(GPUS if KIND == 'cuda' else 0):
        torch.cuda.synchronize(index)


def share(number):
    """The first rank's number, on every rank."""
    if WORLD > 1:
        shared = torch.tensor([number], device=OWN)
        torch.distributed.broadcast(shared, 0)
        number = shared.item()
    return number


def blocks_of(net):
    """The network as a sequence: torchvision's residual networks and VGGs are one, but for a flatten. What a
    part begins with must not overwrite what it was given."""
    found = []
    for name, part in net.named_children():
        if name in ('fc', 'classifier'):
            found.append(nn.Flatten())
        found.extend(part if isinstance(part, nn.Sequential) else [part])
    for part in found:
        if hasattr(part, 'inplace'):
            part.inplace = False
    return found


def seconds_of(block, x):
    """Of forward and backward, the least of three, and the result."""
    least = float('inf')
    for _ in range(3):
        given = x.detach().requires_grad_(x.is_floating_point())
        wait()
        begin = time.perf_counter()
        y = block(given)
        y.backward(torch.ones_like(y))
        wait()
        least = min(least, time.perf_counter() - begin)
    block.zero_grad(set_to_none=True)
    return least, y.detach()


def parts_of(blocks, images, cast, count):
    """The blocks in `count` parts of about equal time, as measured on the first GPU."""
    times, x = [], images
    with cast():
        for block in blocks:
            block.requires_grad_(True)
            seconds, x = seconds_of(block.to(OWN), x)
            times.append(share(seconds))
    parts, spent = [[] for _ in range(count)], 0.0
    for block, seconds in zip(blocks, times):
        middle = spent + seconds / 2
        parts[min(count - 1, int(count * middle / sum(times)))].append(block)
        spent += seconds
    return [nn.Sequential(*part) for part in parts]


class Stage(nn.Module):
    """What passes between stages lies in memory as the convolutions have it, channels last."""

    def __init__(self, part, first, last):
        super().__init__()
        self.part, self.first, self.last = part, first, last

    def forward(self, x):
        y = self.part(x if self.first or x.dim() < 4 else x.permute(0, 3, 1, 2))
        return y if self.last or y.dim() < 4 else y.permute(0, 2, 3, 1).contiguous()


class Naive(nn.Module):
    def __init__(self, parts):
        super().__init__()
        self.parts = nn.ModuleList(part.to(device(i)) for i, part in enumerate(parts))

    def forward(self, x):
        for i, part in enumerate(self.parts):
            x = part(x.to(device(i), non_blocking=True))
        return x


def loss_of(logits, labels):
    return SCALE * F.cross_entropy(logits, labels.to(logits.device, non_blocking=True))


def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.001 / SCALE, momentum=0.9, fused=KIND == 'cuda')


def pipeline_step(how, net, images, labels, cast, microbatches):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    parts = parts_of(blocks_of(net), images[:images.shape[0] // microbatches], cast, WORLD)
    first, last = RANK == 0, RANK == WORLD - 1
    own = Stage(parts[RANK].to(OWN), first, last)
    stage = PipelineStage(own, RANK, WORLD, OWN)
    kind = ScheduleGPipe if how == 'gpipe' else Schedule1F1B
    schedule, optimizer = kind(stage, microbatches, loss_fn=loss_of), sgd(own)
    arguments = (images,) if first else ()
    targets = {'target': labels, 'losses': []} if last else {}

    def step():
        optimizer.zero_grad(set_to_none=True)
        with cast():
            schedule.step(*arguments, **targets)
        optimizer.step()
    return step


def step_of(how, net, images, labels, cast, microbatches):
    """A function that trains on the batch once."""
    if how in ('gpipe', '1f1b'):
        return pipeline_step(how, net, images, labels, cast, microbatches)
    if how == 'naive':
        net = Naive(parts_of(blocks_of(net), images, cast, GPUS))
    elif how == 'dataparallel':
        # Its threads are new in each step, and what they measure is lost.
        torch.backends.cudnn.benchmark = False
        net = nn.DataParallel(net)
    elif how == 'ddp':
        net = nn.parallel.DistributedDataParallel(net, device_ids=[RANK] if KIND == 'cuda' else None,
                                                  gradient_as_bucket_view=True)
    optimizer = sgd(net)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with cast():
            loss = loss_of(net(images), labels)
        loss.backward()
        optimizer.step()
    return step


def measure(how, name, batch, precision, seconds, microbatches):
    dtype = {'fp16': torch.float16, 'bf16': torch.bfloat16}.get(precision)
    cast = lambda: torch.autocast(KIND, dtype=dtype, enabled=dtype is not None)
    whole, (name, _, size) = name, name.partition('@')
    size, _, own = size.partition('/')
    batch = int(own or batch)
    net, shape, classes = make(name)
    if size:
        import torchvision
        shape, classes = (3, int(size), int(size)), 10
        net = torchvision.models.get_model(name, num_classes=classes)
    net = net.to(OWN).to(memory_format=torch.channels_last).train()
    count = batch // WORLD if how == 'ddp' else batch
    images = (2 * torch.rand(count, *shape, device=OWN) - 1).to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (count,), device=OWN)
    step = step_of(how, net, images, labels, cast, microbatches)
    steps = 8
    for trial in range(2):           # to warm up; then as many steps as the time has room for
        wait()
        if WORLD > 1:
            torch.distributed.barrier()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        each = (time.perf_counter() - begin) / steps
        steps = int(share(max(8, min(400, int(seconds / each))))) if trial == 0 else steps
        if trial == 0:
            for _ in range(4):
                step()
    return {'model': whole, 'how': how, 'images_per_s': batch / each, 'step_ms': 1e3 * each, 'steps': steps,
            'batch': batch, 'precision': precision,
            'microbatches': microbatches if how in ('gpipe', '1f1b') else 1,
            'gpus': WORLD if WORLD > 1 else 1 if how == 'one' else GPUS, 'torch': torch.__version__}


def main():
    if len(sys.argv) not in (6, 7):
        sys.exit(__doc__)
    names, batch, precision, ways, seconds = sys.argv[1:6]
    microbatches = [int(m) for m in sys.argv[6].split(',')] if len(sys.argv) == 7 else [4]
    settle(precision)
    if KIND == 'cuda':
        torch.cuda.set_device(OWN)
    if WORLD > 1:
        torch.distributed.init_process_group('nccl' if KIND == 'cuda' else 'gloo',
                                             device_id=OWN if KIND == 'cuda' else None)
    for name in names.split(','):
        for how in ways.split(','):
            for count in microbatches if how in ('gpipe', '1f1b') else [1]:
                found = measure(how, name, int(batch), precision, float(seconds), count)
                if RANK == 0:
                    print(json.dumps(found), flush=True)
    if WORLD > 1:
        torch.distributed.destroy_process_group()


if __name__ == '__main__':
    main()
