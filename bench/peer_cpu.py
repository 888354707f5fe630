#!/usr/bin/env python3
"""peer_cpu.py MODEL BATCH PRECISION SECONDS [MODE]: images/s of a PyTorch training step on the CPU.

MODEL lenet5, resnet18_cifar, resnet50 or vit_tiny_patch16_224 (timm's; both 224 pixels); PRECISION fp32 or
bf16 (torch.autocast); MODE eager (the default) or compile (torch.compile).
Synthetic data already in memory, SGD with momentum 0.9, zero_grad/forward/loss/backward/step, channels_last
and default layout both tried, the faster one is printed. One JSON line, keys as `amptrain bench --json` has them.
"""
import json, sys, time
import torch, torch.nn as nn


def lenet5():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10)), (1, 28, 28)


def resnet18_cifar():
    import torchvision
    net = torchvision.models.resnet18(num_classes=10)
    net.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    net.maxpool = nn.Identity()
    return net, (3, 32, 32)


def resnet50():
    import torchvision
    return torchvision.models.resnet50(), (3, 224, 224)


def vit_tiny_patch16_224():
    import timm
    return timm.create_model("vit_tiny_patch16_224", num_classes=10), (3, 224, 224)


def measure(make, batch, precision, seconds, layout, mode):
    torch.manual_seed(1)
    net, shape = make()
    net = net.to(memory_format=layout).train()
    if mode == 'compile':
        net = torch.compile(net)
    images = torch.randn(batch, *shape).to(memory_format=layout)
    labels = torch.randint(0, 10, (batch,))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, fused=True)
    loss_function = nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cpu', dtype=torch.bfloat16, enabled=precision == 'bf16'):
            loss = loss_function(net(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    for _ in range(2):
        step()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        loss = step()
        times.append(time.perf_counter() - start)
    times.sort()
    return times[len(times) // 2], len(times), loss.item()


def main():
    name, batch, precision, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
    mode = sys.argv[5] if len(sys.argv) > 5 else 'eager'
    make = {'lenet5': lenet5, 'resnet18_cifar': resnet18_cifar, 'resnet50': resnet50,
            'vit_tiny_patch16_224': vit_tiny_patch16_224}[name]
    layouts = {'channels_last': torch.channels_last, 'contiguous': torch.contiguous_format}
    best = min(measure(make, batch, precision, seconds / 2, layout, mode) + (key,)
               for key, layout in layouts.items())
    median, steps, loss, layout = best
    print(json.dumps({'images_per_s': batch / median, 'step_ms_median': 1e3 * median, 'steps': steps,
                      'batch': batch, 'precision': precision, 'loss': loss, 'layout': layout,
                      'torch': torch.__version__, 'threads': torch.get_num_threads()}))


if __name__ == '__main__':
    main()
