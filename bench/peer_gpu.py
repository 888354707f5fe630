#!/usr/bin/env python3
"""peer_gpu.py: a PyTorch training step on one GPU, measured as `amptrain bench` measures its own.

  peer_gpu.py MODEL BATCH PRECISION MODE SECONDS [LR] [labels=N | teacher=MODEL]
                                                         a made-up batch on the device, again and again;
                                                         with N labels an image, by binary cross
                                                         entropy; with a teacher, soft, temperature 4,
                                                         for half of the loss
  peer_gpu.py cifar FOLDER PRECISION EPOCHS              ResNet-18 on CIFAR-10, conf/cifar10.ini's recipe
  peer_gpu.py largest MODEL PRECISION GIB                the largest batch, in eights, that trains in so much
  torchrun --standalone --nproc-per-node N peer_gpu.py MODEL ...   the same step on N GPUs by
                                                         DistributedDataParallel, BATCH images on each

MODEL is lenet5, resnet18_cifar, or torchvision's or timm's name; PRECISION fp32, tf32, fp16 (with GradScaler) or bf16;
MODE eager, compile or max-autotune. channels_last, but fp32 in the faster of both layouts; fused SGD with
momentum, for transformers fused AdamW and cuDNN's attention, if it takes their shapes; zero_grad, forward, loss, backward, step. One line of JSON with the keys of `amptrain bench --json`.
"""
import ctypes
import gc
import json
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

WORLD = int(os.environ.get('WORLD_SIZE', '1'))
DTYPES = {'fp16': torch.float16, 'bf16': torch.bfloat16}


def since_start():
    """Seconds since the process began, importing torch included."""
    with open('/proc/self/stat') as stat, open('/proc/uptime') as uptime:
        began = int(stat.read().rsplit(')', 1)[1].split()[19]) / os.sysconf('SC_CLK_TCK')
        return float(uptime.read().split()[0]) - began


def energy_counter():
    """A function that returns the joules that this process's GPU has taken since some moment; None where the
    driver does not say."""
    try:
        nvml, gpu = ctypes.CDLL('libnvidia-ml.so.1'), ctypes.c_void_p()
        uuid = 'GPU-%s' % torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(gpu)):
            return lambda: None
    except (OSError, AttributeError):
        return lambda: None

    def joules():
        count = ctypes.c_ulonglong()
        failed = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu, ctypes.byref(count))
        return None if failed else count.value / 1e3

    return joules


def summed(number):
    """The sum of all ranks' numbers, on every rank."""
    if WORLD > 1:
        shared = torch.tensor([number], device='cuda', dtype=torch.float64)
        torch.distributed.all_reduce(shared)
        number = shared.item()
    return number


def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10)), (1, 28, 28), 10


def resnet18_cifar():
    import torchvision
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net, (3, 32, 32), 10


def make(name, outputs=None):
    own = {'lenet5': lenet5, 'resnet18_cifar': resnet18_cifar}
    if name in own:
        return own[name]()
    import torchvision
    if name in torchvision.models.list_models():
        outputs = outputs or 1000
        return torchvision.models.get_model(name, num_classes=outputs), (3, 224, 224), outputs
    import timm
    net = timm.create_model(name, **({'num_classes': outputs} if outputs else {}))
    return net, tuple(net.default_cfg['input_size']), net.num_classes


def is_transformer(net):
    return any('attention' in type(module).__name__.lower() for module in net.modules())


def choose_optimizer(net, lr, momentum, **more):
    if is_transformer(net):
        return torch.optim.AdamW(net.parameters(), fused=True, lr=lr)
    return torch.optim.SGD(net.parameters(), fused=True, lr=lr, momentum=momentum, **more)


def prefer_cudnn_attention():
    """As sdpa_kernel does within a block: cuDNN's attention first, then flash attention, and so on."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION,
                 SDPBackend.MATH], set_priority=True).__enter__()


def cross_entropy(images, outputs, labels):
    return F.cross_entropy(outputs, labels)


def several_labels(images, outputs, labels):
    return F.binary_cross_entropy_with_logits(outputs, labels)


def compiled(net, mode):
    modes = {'compile': None, 'max-autotune': 'max-autotune'}
    return net if mode == 'eager' else torch.compile(net, mode=modes[mode])


class Distilled:
    """The loss with a teacher, whose weights are kept in the type in which they are used."""

    def __init__(self, name, precision, mode, layout, alpha=0.5, temperature=4):
        net = make(name)[0].cuda().to(memory_format=layout, dtype=DTYPES.get(precision)).eval()
        self.teacher = compiled(net.requires_grad_(False), mode)
        self.dtype, self.alpha, self.temperature = DTYPES.get(precision), alpha, temperature

    def __call__(self, images, outputs, labels):
        with torch.no_grad():
            guide = self.teacher(images if self.dtype is None else images.to(self.dtype))
        own = F.log_softmax(outputs.float() / self.temperature, 1)
        guide = F.log_softmax(guide.float() / self.temperature, 1)
        apart = F.kl_div(own, guide, reduction='batchmean', log_target=True) * self.temperature**2
        return (1 - self.alpha) * F.cross_entropy(outputs, labels) + self.alpha * apart


class Trainer:
    """A network with its optimizer; step(images, labels) trains on a batch and returns the loss, on the
    device."""

    def __init__(self, net, precision, mode, layout, loss=cross_entropy, **optimizer):
        self.loss = loss
        self.net = net.cuda().to(memory_format=layout).train()
        if WORLD > 1:
            self.net = nn.parallel.DistributedDataParallel(self.net, device_ids=[torch.cuda.current_device()],
                                                           gradient_as_bucket_view=True)
        self.optimizer = choose_optimizer(self.net, **optimizer)
        # A first step that overflows leaves the fused optimizer's momentum unset, and the run is lost.
        self.scaler = torch.amp.GradScaler(enabled=precision == 'fp16', init_scale=2.0**10)
        self.dtype = DTYPES.get(precision)
        self.forward = compiled(self.net, mode)

    def step(self, images, labels):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', dtype=self.dtype, enabled=self.dtype is not None):
            loss = self.loss(images, self.forward(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.detach()


def settle(precision):
    prefer_cudnn_attention()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = precision != 'fp32'
    torch.backends.cuda.matmul.allow_tf32 = precision != 'fp32'
    torch.manual_seed(1)


def agreed(number):
    """Rank 0's number, on every rank."""
    if WORLD > 1:
        shared = torch.tensor([number], device='cuda')
        torch.distributed.broadcast(shared, 0)
        number = int(shared.item())
    return number


def measure(name, batch, precision, mode, layout, seconds, lr, several=0, teacher=None):
    torch.cuda.reset_peak_memory_stats()
    net, shape, classes = make(name, several)
    loss = several_labels if several else cross_entropy
    if teacher:
        loss = Distilled(teacher, precision, mode, layout)
    trainer = Trainer(net, precision, mode, layout, loss, lr=lr, momentum=0.9)
    images = (2 * torch.rand(batch, *shape, device='cuda') - 1).to(memory_format=layout)
    labels = torch.randint(0, classes, (batch,), device='cuda')
    if several:
        labels = F.one_hot(labels, classes).float()
    first = trainer.step(images, labels).item()
    start = since_start()
    for _ in range(10):
        trainer.step(images, labels)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    trainer.step(images, labels)
    torch.cuda.synchronize()
    steps = agreed(min(2000, max(10, int(seconds / (time.perf_counter() - begin)))))
    joules = energy_counter()
    began = joules()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    marks[0].record()
    for i in range(steps):
        loss = trainer.step(images, labels)
        marks[i + 1].record()
    torch.cuda.synchronize()
    taken = None if began is None else summed(joules() - began) / (steps * batch * WORLD)
    times = sorted(a.elapsed_time(b) for a, b in zip(marks, marks[1:]))
    median = times[steps // 2]
    return {'images_per_s': 1e3 * batch * WORLD / median, 'gpus': WORLD, 'step_ms_median': median,
            'step_ms_p10': times[steps // 10], 'step_ms_p90': times[steps * 9 // 10],
            'steps': steps, 'batch': batch, 'precision': precision, 'joules_per_image': taken,
            'device': torch.cuda.get_device_name(), 'device_peak_bytes': torch.cuda.max_memory_allocated(),
            'reserved_bytes': torch.cuda.max_memory_reserved(), 'first_loss': first, 'loss': loss.item(),
            'start_seconds': start, 'mode': mode, 'torch': torch.__version__}


def bench(name, batch, precision, mode, seconds, lr=0.01, **task):
    settle(precision)
    layouts = [torch.channels_last]
    if precision == 'fp32':
        layouts.append(torch.contiguous_format)
    found = []
    for layout in layouts:
        found.append(measure(name, batch, precision, mode, layout, seconds / len(layouts), lr, **task))
        torch.cuda.empty_cache()
    return max(found, key=lambda one: one['images_per_s'])


def try_batch(name, batch, precision, steps):
    """Bytes that the allocator took and seconds a step; None where memory ran out."""
    try:
        torch.cuda.reset_peak_memory_stats()
        net, shape, classes = make(name)
        trainer = Trainer(net, precision, 'eager', torch.channels_last, lr=0.001, momentum=0.9)
        images = torch.rand(batch, *shape, device='cuda').to(memory_format=torch.channels_last)
        labels = torch.randint(0, classes, (batch,), device='cuda')
        for _ in range(3):
            trainer.step(images, labels)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            trainer.step(images, labels)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_reserved(), (time.perf_counter() - begin) / max(steps, 1)
    except torch.OutOfMemoryError:
        return None
    finally:
        net = trainer = images = labels = None
        gc.collect()
        torch.cuda.empty_cache()


def largest(name, precision, gib):
    """Memory grows in proportion to the batch: two small ones say where to begin, then by trying."""
    settle(precision)
    cap = gib * 2**30
    torch.cuda.set_per_process_memory_fraction(cap / torch.cuda.get_device_properties(0).total_memory)
    small, more = try_batch(name, 32, precision, 0)[0], try_batch(name, 64, precision, 0)[0]
    batch = max(8, int((32 + 32 * (cap - small) / max(more - small, 1)) // 8 * 8))
    while batch > 8 and not try_batch(name, batch, precision, 0):
        batch -= 8
    while try_batch(name, batch + 8, precision, 0):
        batch += 8
    reserved, seconds = try_batch(name, batch, precision, 10)
    return {'batch': batch, 'reserved_bytes': reserved, 'images_per_s': batch / seconds,
            'precision': precision, 'torch': torch.__version__}


def cifar_read(folder, names):
    raw = b''.join(open(os.path.join(folder, name), 'rb').read() for name in names)
    rows = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, 3073).cuda()
    mean = torch.tensor([0.4914, 0.4822, 0.4465], device='cuda').view(1, 3, 1, 1)
    deviation = torch.tensor([0.2470, 0.2435, 0.2616], device='cuda').view(1, 3, 1, 1)
    images = (rows[:, 1:].view(-1, 3, 32, 32).float() / 255 - mean) / deviation
    return images.to(memory_format=torch.channels_last), rows[:, 0].long()


def cifar_augment(padded, rows):
    """Crops of 32 out of 40 and mirrored halves, one choice an image, on the device."""
    count = rows.numel()
    offset = torch.randint(0, 9, (2, count, 1), device='cuda') + torch.arange(32, device='cuda')
    mirrored = torch.rand(count, 1, device='cuda') < 0.5
    across = torch.where(mirrored, offset[1].flip(1), offset[1])
    images = padded[rows.view(-1, 1, 1), :, offset[0].unsqueeze(2), across.unsqueeze(1)]
    return images.permute(0, 3, 1, 2)


def cifar(folder, precision, epochs, batch=512):
    settle(precision)
    images, labels = cifar_read(folder, ['data_batch_%d.bin' % i for i in range(1, 6)])
    tests, answers = cifar_read(folder, ['test_batch.bin'])
    padded = F.pad(images, (4, 4, 4, 4))
    net = resnet18_cifar()[0]
    trainer = Trainer(net, precision, 'eager', torch.channels_last, lr=0.4, momentum=0.9, nesterov=True,
                      weight_decay=5e-4)
    steps = len(images) // batch
    schedule = torch.optim.lr_scheduler.OneCycleLR(trainer.optimizer, 0.4, epochs * steps, pct_start=0.2)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(epochs):
        order = torch.randperm(len(images), device='cuda')
        for i in range(steps):
            rows = order[i * batch:(i + 1) * batch]
            loss = trainer.step(cifar_augment(padded, rows), labels[rows])
            schedule.step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    net.eval()
    right = 0
    with torch.no_grad(), torch.autocast('cuda', dtype=trainer.dtype, enabled=trainer.dtype is not None):
        for at in range(0, len(tests), 1000):
            right += (net(tests[at:at + 1000]).argmax(1) == answers[at:at + 1000]).sum().item()
    return {'top1': right / len(tests), 'seconds': seconds, 'images_per_s': epochs * steps * batch / seconds,
            'precision': precision, 'loss': loss.item(), 'torch': torch.__version__}


def main():
    if WORLD > 1:
        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        torch.distributed.init_process_group('nccl')
    if len(sys.argv) == 5 and sys.argv[1] == 'cifar':
        found = cifar(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif len(sys.argv) == 5 and sys.argv[1] == 'largest':
        found = largest(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    elif 6 <= len(sys.argv) <= 8:
        name, batch, precision, mode, seconds = sys.argv[1:6]
        task, more = {}, []
        for word in sys.argv[6:]:
            if word.startswith('labels='):
                task['several'] = int(word[7:])
            elif word.startswith('teacher='):
                task['teacher'] = word[8:]
            else:
                more.append(float(word))
        found = bench(name, int(batch), precision, mode, float(seconds), *more, **task)
    else:
        sys.exit(__doc__)
    if int(os.environ.get('RANK', '0')) == 0:
        print(json.dumps(found))
    if WORLD > 1:
        torch.distributed.destroy_process_group()


if __name__ == '__main__':
    main()
