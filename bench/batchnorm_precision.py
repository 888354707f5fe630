#!/usr/bin/env python3
"""batchnorm_precision.py: how far PyTorch's batch norm statistics are off where the mean is many deviations.

  batchnorm_precision.py [cpu]      on the GPU (cuDNN, then PyTorch's own kernels), or the CPU

The data are those of tests/kernels/test_moments, drawn anew, and so are the columns: run that with
AMPTRAIN_DEVICE=cuda CMOCKA_MESSAGE_OUTPUT=TAP to lay them side by side.
"""
import sys

import torch

VALUES = [(0, 1), (4, 1), (12, 1), (100, 1), (1000, 1), (100, 0)]
SHAPES = [(16, 24, 40, 40), (16, 5, 83, 83)]
EPS = 1e-5


def draw(shape, mean, deviation, dtype, device):
    channels = torch.arange(shape[1], dtype=torch.float64)
    sign = torch.where(channels % 2 == 1, -1.0, 1.0)
    scale = 1 + 0.01 * channels
    noise = torch.randn(shape, dtype=torch.float64)
    x = scale[:, None, None] * ((sign * mean)[:, None, None] + deviation * noise)
    return x.to(dtype).to(device).contiguous(memory_format=torch.channels_last)


def errors(x):
    """The greatest of the variance relative to variance + eps, of the mean to mean + deviation, of y."""
    count = x.numel() // x.shape[1]
    mean, variance = torch.zeros_like(x[0, :, 0, 0]).float(), torch.ones_like(x[0, :, 0, 0]).float()
    y = torch.nn.functional.batch_norm(x, mean, variance, training=True, momentum=1, eps=EPS).double()
    exact = x.double()
    exact_mean = exact.mean((0, 2, 3))
    deviations = exact - exact_mean[:, None, None]
    squares = deviations.square().sum((0, 2, 3))
    exact_variance, spread = squares / (count - 1), (squares / count + EPS).sqrt()
    z = deviations / spread[:, None, None]
    return ((variance.double() - exact_variance).abs() / (exact_variance + EPS)).max().item(), \
        ((mean.double() - exact_mean).abs() / (exact_mean.abs() + spread)).max().item(), \
        ((y - z).abs() / (1 + z.abs())).max().item()


def main():
    device = 'cpu' if 'cpu' in sys.argv[1:] else 'cuda'
    torch.manual_seed(11)
    print(f'PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}')
    for cudnn in ((False,) if device == 'cpu' else (True, False)):
        name = device if device == 'cpu' else 'cudnn' if cudnn else 'cuda'
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            for shape in SHAPES:
                for mean, deviation in VALUES:
                    if dtype == torch.bfloat16 and mean >= 1000:
                        continue
                    with torch.backends.cudnn.flags(enabled=cudnn):
                        off = errors(draw(shape, mean, deviation, dtype, device))
                    print(f'{name:5} {str(dtype)[6:]:8}, {shape[1]:2} channels, mean {mean:4}, '
                          f'deviation {deviation}: ' 'variance off by %.1e, mean %.1e, y %.1e' % off)


if __name__ == '__main__':
    main()
