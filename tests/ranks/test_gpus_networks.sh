#!/bin/sh
# Whole networks on two GPUs, as two stages and as two ranks: the bits of one GPU with two micro-batches.
. "$top_srcdir/tests/support/two.sh"

cat >whole.ini <<INI
[run]
device = $device
deterministic = yes
threads = 1
[data]
format = synthetic
limit = 640
[optimizer]
lr = 0.01
[log]
every = 1
tensorboard = no
INI
whole() { # FOLDER [OPTION...]: of $arch
    folder=$1; shift
    # shellcheck disable=SC2086 # words
    "$AMPTRAIN" -q -c whole.ini -o "$folder" -s model.arch="$arch" $sets -s run.max_steps=3 "$@"
}
# network ARCH SIZE BATCH CPU_SIZE CPU_BATCH OPTION...
network() {
    arch=$1 sets="-s augment.crop=$2 -s train.batch=$3 -s amp.precision=fp16"
    [ "$device" != cpu ] || sets="-s augment.crop=$4 -s train.batch=$5 -s amp.precision=fp32"
    shift 5
    sets="$sets $*"
    ok "$arch, one GPU" whole "$arch.alone" -s train.accumulate=2
    ok "... two stages" whole "$arch.stages" -s parallel.gpus=2 -s parallel.stages=2 \
        -s parallel.microbatches=2
    ok "... end in the same bits" same "$arch.alone" "$arch.stages"
    ok "... two ranks" whole "$arch.ranks" -s parallel.gpus=2 -s train.accumulate=1
    ok "... do, too" same "$arch.alone" "$arch.ranks"
}
# ResNet-50 has folded convolutions, DeiT-III factors in its weights, nnU-Net seven outputs.
pixels="-s data.task=segment -s data.limit=48 -s data.val_fraction=0.1"
network resnet50 224 64 64 8 -s model.classes=10
network deit3_small_patch16_224 224 64 64 8 -s model.classes=10
network unet 256 8 32 2 -s model.classes=5 "$pixels"
network nnunet_2d 256 8 128 2 -s model.classes=5 -s train.loss=dice_ce "$pixels"
finish
