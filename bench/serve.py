#!/usr/bin/env python3
"""serve.py: a trained network that is given images, in the library and in other runtimes, by turns.

  serve.py NETWORK DEVICE PRECISION BATCH SECONDS RUNNER...

NETWORK is resnet50, vit_small_patch16_224 or unet (512 x 512, 21 classes); DEVICE cpu or cuda; PRECISION fp32, tf32,
bf16 or fp16; RUNNER amptrain, onnxruntime, eager or compile (torch.compile; on GPUs mode reduce-overhead, which
captures CUDA graphs). Each is a process of its own, on OMP_NUM_THREADS threads; SECONDS are divided into ten turns.
Several serve.py may be started together: only one at a time measures, and with SERVE_TOGETHER=N none before the
workers of N are ready.

One call does the same for all: it takes a list of BATCH images in the host's memory, H x W x 3 bytes each, of the
network's size, and gives the most probable class of each, or of each of its pixels, there. So it includes putting
them together, the copy to the device as bytes, normalisation (on the device), the network, softmax, and the copy
back. amptrain does more for each: it looks whether the image is to be resized, gives the class its name and
probability, and blends tiles. All have the same random weights, which the program `amptrain` (AMPTRAIN) makes in
SERVE_FOLDER, and say first how many results differ from the first runner's. A line of JSON a runner: milliseconds a
call, the median and the least, images per second by the median, and milliseconds of processor time an image.
"""
import fcntl
import glob
import json
import os
import subprocess
import sys
import time

import numpy as np

FOLDER = os.environ.get('SERVE_FOLDER', 'serve')
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SIZES = {'resnet50': 224, 'vit_small_patch16_224': 224, 'unet': 512}


def program(*words):
    subprocess.run([os.environ.get('AMPTRAIN', 'amptrain'), *words], check=True, stdout=sys.stderr)


def weights(network, kind):
    """A run's folder, or its export, with random weights and ImageNet's normalisation."""
    run = os.path.join(FOLDER, network)
    if not os.path.exists(run):
        task = ['data.task=segment', 'model.classes=21'] if network == 'unet' else ['model.classes=1000']
        keys = ['data.format=synthetic', 'data.limit=4', 'train.batch=2', 'run.max_steps=1', 'run.device=cpu',
                'run.report=no', f'augment.crop={SIZES[network]}', f'model.arch={network}', 'optimizer.lr=1e-9',
                'augment.mean=' + ','.join(map(str, MEAN)), 'augment.std=' + ','.join(map(str, STD))] + task
        program('-q', *(word for key in keys for word in ('-s', key)), '-o', run)
    if kind == 'run':
        return run
    path = f'{run}.{kind}'
    if not os.path.exists(path):
        program('export', '-q', '--weights', run, '-o', path)
    return path


def state(path):
    """The tensors of a safetensors file, but for counters."""
    with open(path, 'rb') as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
        data = file.read()
    header.pop('__metadata__', None)
    return {name: np.frombuffer(data[slice(*one['data_offsets'])], np.float32).reshape(one['shape'])
            for name, one in header.items() if one['dtype'] == 'F32'}


# ---- Runners: a function of a list of images that returns the classes, uint8 or int64 ----

def amptrain(network, device, precision, batch, threads):
    import amptrain as library
    net = library.load(weights(network, 'run'), device, batch=batch, threads=threads,
                       settings={'amp.precision': precision})
    if network == 'unet':
        return lambda images: np.stack(net.segment(images))
    return lambda images: np.array([one.index for one in net.predict(images)])


def onnxruntime(network, device, precision, batch, threads):
    import onnxruntime as runtime
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(weights(network, 'onnx'), options, ['CPUExecutionProvider'])
    name = session.get_inputs()[0].name
    scale = (1 / (255 * np.array(STD))).astype(np.float32)
    shift = (-np.array(MEAN) / np.array(STD)).astype(np.float32)

    def call(images):
        x = np.ascontiguousarray((np.stack(images) * scale + shift).transpose(0, 3, 1, 2))
        return session.run(None, {name: x})[0].argmax(1)

    return call


def torch_network(network):
    import torch
    tensors = {name: torch.tensor(one) for name, one in state(weights(network, 'safetensors')).items()}
    if network != 'unet':
        import peer_gpu
        net = peer_gpu.make(network)[0]
    else:                       # peer_segment's modules have other names than Pytorch-UNet's, and another order
        import peer_segment
        net = peer_segment.make('unet')
        order = {'inc': 0, 'down': 0, 'up.up': 1, 'up.conv': 2, 'outc': 3}

        def place(name):
            first, second = name.split('.')[:2]
            kind = first.rstrip('0123456789')
            return order[f'up.{second}' if kind == 'up' else kind], '' if first == 'inc' else first

        names = sorted(tensors, key=place)
        own = [name for name in net.state_dict() if not name.endswith('num_batches_tracked')]
        kinds = {kind: iter([name for name in names if name.endswith(kind)])
                 for kind in ('weight', 'bias', 'running_mean', 'running_var')}
        tensors = {name: tensors[next(kinds[name.rsplit('.', 1)[1]])] for name in own}
    missing = net.load_state_dict(tensors, strict=False)
    wrong = [name for name in missing.missing_keys if not name.endswith('num_batches_tracked')]
    if wrong or missing.unexpected_keys:
        sys.exit(f'serve.py: {network}: {wrong}, {missing.unexpected_keys}')
    return net.eval()


def eager(network, device, precision, batch, threads, compiled=False):
    import torch
    torch.set_num_threads(threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == 'tf32'
    torch.backends.cudnn.benchmark = True
    dtype = {'fp16': torch.float16, 'bf16': torch.bfloat16}.get(precision, torch.float32)
    net = torch_network(network).to(device, dtype, memory_format=torch.channels_last)
    mean = torch.tensor(MEAN, device=device).view(3, 1, 1) * 255
    std = torch.tensor(STD, device=device).view(3, 1, 1) * 255

    def classes(x):
        x = ((x.permute(0, 3, 1, 2).float() - mean) / std).to(dtype, memory_format=torch.channels_last)
        return net(x).softmax(1).max(1)

    if compiled:
        classes = torch.compile(classes, mode='reduce-overhead' if device == 'cuda' else None)

    def call(images):
        with torch.inference_mode():
            found = classes(torch.from_numpy(np.stack(images)).to(device)).indices
            return (found.to(torch.uint8) if network == 'unet' else found).cpu().numpy()

    return call


def compiled(*arguments):
    return eager(*arguments, compiled=True)


RUNNERS = {'amptrain': amptrain, 'onnxruntime': onnxruntime, 'eager': eager, 'compile': compiled}


# ---- Turns ----

def images_of(network, batch):
    size, random = SIZES[network], np.random.default_rng(1)
    coarse = random.integers(0, 256, (batch, size // 16, size // 16, 3), np.uint8)
    return list(coarse.repeat(16, 1).repeat(16, 2))


def work(runner, network, device, precision, batch):
    """Answers each line of seconds with the times of calls; the first line of all with the results."""
    threads = int(os.environ.get('OMP_NUM_THREADS', os.cpu_count()))
    images = images_of(network, batch)
    began = time.perf_counter()
    call = RUNNERS[runner](network, device, precision, batch, threads)
    for _ in range(4):
        result = call(images)
    np.save(os.path.join(FOLDER, f'{network}.{batch}.{runner}.npy'), result)
    print(json.dumps(time.perf_counter() - began), flush=True)
    for line in sys.stdin:
        end, times, processor = time.perf_counter() + float(line), [], time.process_time()
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            call(images)
            times.append(1e3 * (time.perf_counter() - start))
        print(json.dumps([times, 1e3 * (time.process_time() - processor)]), flush=True)


def main():
    network, device, precision, batch, seconds, *runners = sys.argv[1:]
    os.makedirs(FOLDER, exist_ok=True)
    for kind in ('run', 'safetensors') + (('onnx',) if 'onnxruntime' in runners else ()):
        weights(network, kind)
    workers, times, processor, start = {}, {}, {}, {}
    for runner in runners:
        command = [sys.executable, __file__, 'work', runner, network, device, precision, batch]
        workers[runner] = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for runner in runners:
        line = workers[runner].stdout.readline()
        if line:
            times[runner], processor[runner], start[runner] = [], 0, json.loads(line)
        else:
            del workers[runner]
    open(os.path.join(FOLDER, f'ready.{os.getpid()}'), 'w').close()
    while len(glob.glob(os.path.join(FOLDER, 'ready.*'))) < int(os.environ.get('SERVE_TOGETHER', 1)):
        time.sleep(0.2)
    with open(os.path.join(FOLDER, 'lock'), 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for _ in range(10):
            for runner, worker in workers.items():
                worker.stdin.write(f'{float(seconds) / 10}\n')
                worker.stdin.flush()
                more, milliseconds = json.loads(worker.stdout.readline())
                times[runner] += more
                processor[runner] += milliseconds
    results = {runner: np.load(os.path.join(FOLDER, f'{network}.{batch}.{runner}.npy')) for runner in workers}
    for runner, worker in workers.items():
        worker.stdin.close()
        worker.wait()
        median, count = sorted(times[runner])[len(times[runner]) // 2], len(times[runner]) * int(batch)
        others = (results[runner] != next(iter(results.values()))).mean()
        print(json.dumps({
            'runner': runner, 'network': network, 'device': device, 'precision': precision, 'batch': int(batch),
            'median_ms': round(median, 3), 'least_ms': round(min(times[runner]), 3),
            'images_per_s': round(1e3 * int(batch) / median, 1), 'calls': len(times[runner]),
            'processor_ms_an_image': round(processor[runner] / count, 3), 'start_s': round(start[runner], 2),
            'others': round(float(others), 4)}), flush=True)


if __name__ == '__main__':
    if sys.argv[1] == 'work':
        work(*sys.argv[2:6], int(sys.argv[6]))
    else:
        main()
