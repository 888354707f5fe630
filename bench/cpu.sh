#!/bin/sh
# cpu.sh AMPTRAIN [PYTHON]: training throughput on this machine's CPU, amptrain and PyTorch by turns
# in one run; PYTHON is an interpreter that has torch, torchvision and timm (default python3). Prints a table.
# ROUNDS (3) turns of SECONDS (8) each; the median of the turns counts. MODE: eager, or compile for torch.compile.
# MODELS: only these (lenet5 resnet18_cifar resnet50 vit_tiny_patch16_224).
set -eu
amptrain=${1:?usage: cpu.sh AMPTRAIN [PYTHON]}
python=${2:-python3}
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-8}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

number() { sed -n 's/.*"images_per_s": *\([0-9.e+]*\).*/\1/p'; }
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

compare() { # MODEL BATCH PRECISION SIZE STEPS
    case " ${MODELS:-$1} " in *" $1 "*) ;; *) return ;; esac
    cat > "$work/bench.ini" <<INI
[data]
format = synthetic
[augment]
crop = $4
[model]
arch = $1
classes = 10
[train]
batch = $2
[optimizer]
name = sgd
lr = 0.01
momentum = 0.9
[amp]
precision = $3
INI
    : > "$work/ours"; : > "$work/peer"
    round=0
    while [ $round -lt "$rounds" ]; do
        "$amptrain" bench -c "$work/bench.ini" --json --steps "$5" 2>/dev/null | number >> "$work/ours"
        "$python" "$here/peer_cpu.py" "$1" "$2" "$3" "$seconds" "${MODE:-eager}" | number >> "$work/peer"
        round=$((round + 1))
    done
    ours=$(median "$work/ours") peer=$(median "$work/peer")
    awk -v m="$1" -v b="$2" -v p="$3" -v o="$ours" -v t="$peer" \
        'BEGIN { printf "%-20s %5d  %-5s %10.1f %10.1f %8.2f\n", m, b, p, o, t, o / t }'
}

grep -m1 'model name' /proc/cpuinfo || true
echo "cores: $(nproc); $("$amptrain" -V |
    head -n 1); torch $("$python" -c 'import torch; print(torch.__version__)')"
echo "model                batch  prec     amptrain    PyTorch    ratio   (images/s, training step)"
for precision in fp32 bf16; do
    compare lenet5 64 $precision 28 1000
    compare resnet18_cifar 128 $precision 32 8
    compare resnet50 16 $precision 224 5
    compare vit_tiny_patch16_224 16 $precision 224 5
done
