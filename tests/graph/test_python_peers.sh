#!/bin/sh
# Logits with torchvision's weights are torchvision's; the packages safetensors and tensorboard read what a
# run leaves. Under `make torture` every network that torchvision has. Networks run on the CPU, or where
# AMPTRAIN_DEVICE says: on a GPU all traces, in fp32 and in tf32.
. "$top_srcdir/tests/support/tap.sh"

python=${PYTHON:-python3} device=${AMPTRAIN_DEVICE:-cpu}
peers() { "$python" "$top_srcdir/tests/graph/python_peers.py" "$@"; }
cd "$scratch" || exit 1

if ! "$python" -c 'import safetensors, tensorboard' 2>/dev/null; then
    skip "files read by Python packages" "python has no safetensors and tensorboard"
else
    ok "a run" "$AMPTRAIN" -q -s data.format=digits -s model.arch=resnet20 -s data.limit=200 -s \
        train.epochs=2 \
        -s train.ema=0.9 -s run.device=cpu -o run
    ok "... is read by safetensors and tensorboard" peers files run
    ok "exported weights" "$AMPTRAIN" export -q --weights run -o run/exported.safetensors
    ok "... are read, too" peers files run
fi

# near PRECISION [TOLERANCE]: of $net, on images of $side
near() {
    "$AMPTRAIN" eval -q --weights "$net.safetensors" --logits logits.npy -s run.device="$device" \
        -s data.format=folder -s data.val="noise$side" -s augment.crop="$side" -s augment.val_resize="$side" \
        -s augment.mean=0.4,0.5,0.6 -s augment.std=0.2,0.25,0.3 -s model.arch="$net" -s model.classes=1000 \
        -s train.batch=6 -s amp.precision="$1" && peers near logits.npy . "$net" ${2:-}
}
# Weights of ResNet-20 on CIFAR-10 and their logits of the first test images in fp64, as published.
published() {
    "$AMPTRAIN" eval --weights "$AMPTRAIN_DATA/weights/resnet20-12fca82f.safetensors" --logits logits.npy \
        -s run.device="$device" -s data.format=cifar10 -s data.val="$AMPTRAIN_DATA/cifar10" \
        -s model.arch=resnet20 -s augment.mean=0.485,0.456,0.406 -s augment.std=0.229,0.224,0.225 \
        >said 2>err || { cat err; return 1; }
    grep '^10000 images, 827 errors' said
}
published_logits() {
    "$python" -c 'import sys, numpy
ours, theirs = (numpy.load(name) for name in sys.argv[1:])
sys.exit(int(numpy.abs(ours[:len(theirs)] - theirs).max() > 1e-4))' logits.npy \
        "$AMPTRAIN_DATA/weights/logits64_resnet20-12fca82f_test0-255.npy"
}
if [ -d "${AMPTRAIN_DATA-}/weights" ] && "$python" -c 'import numpy' 2>/dev/null; then
    ok "published weights reach the published error rate" published
    ok "... and have the same logits" published_logits
else
    skip "published weights" "there is no AMPTRAIN_DATA, or python has no numpy"
fi

nets='resnet18 shufflenet_v2_x1_0 vit_b_32/64 swin_t/64'
[ -z "${AMPTRAIN_TORTURE-}" ] ||
    nets='alexnet convnext_tiny densenet121 efficientnet_b0 googlenet mobilenet_v2
    mobilenet_v3_large mobilenet_v3_small regnet_y_400mf resnet18 resnet34 resnet50 resnet101 resnet152
    resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 vgg11_bn vgg16 vgg16_bn wide_resnet50_2
    convnext_small convnext_base efficientnet_v2_s efficientnet_v2_m regnet_y_8gf regnet_y_16gf regnet_y_32gf
    vit_b_16 vit_b_32 vit_l_16/64 vit_h_14/56 swin_t swin_s/96 swin_b/64'
[ -z "${AMPTRAIN_TORTURE-}" ] || ! "$python" -c 'import timm' 2>/dev/null ||
    nets="$nets mobilenetv4_conv_small mobilenetv4_conv_medium resnet50d convnextv2_tiny vit_tiny_patch16_224
    vit_small_patch16_224 deit3_small_patch16_224 deit3_base_patch16_224/64 vit_small_patch14_dinov2/112
    vit_base_patch14_dinov2/56 vit_small_patch14_reg4_dinov2/112
    deit_tiny_distilled_patch16_224 deit_small_distilled_patch16_224/64"
# The first steps of training.
traces='deit3_small_patch16_224/48 swin_t/64' precisions=fp32
[ "$device" = cpu ] || precisions='fp32 tf32'
[ -z "${AMPTRAIN_TORTURE-}" ] && [ "$device" = cpu ] ||
    traces='vit_b_16/64 deit3_small_patch16_224/64 vit_small_patch14_dinov2/112 swin_t/64 convnextv2_tiny/64'
steps() { # PRECISION
    "$AMPTRAIN" -q -s run.device="$device" -s data.format=folder -s data.train="noise$side" \
        -s data.shuffle=no -s augment.crop="$side" -s augment.val_resize="$side" \
        -s augment.mean=0.4,0.5,0.6 -s augment.std=0.2,0.25,0.3 -s model.arch="$net" \
        -s model.weights="$net.safetensors" -s model.drop_path=0 -s train.batch=6 -s train.epochs=4 \
        -s optimizer.name=adamw -s optimizer.lr=0.001 -s optimizer.weight_decay=0.05 \
        -s schedule.name=constant -s amp.precision="$1" -s log.every=1 -s log.tensorboard=no \
        -s run.report=no -o "$net.$1" && peers follows "$net" . "$net.$1/metrics.jsonl" "$1"
}
strictly() {
    "$AMPTRAIN" export -q --weights "$2.fp32" --names "$1" -o "$2.exported.safetensors" &&
        peers strict "$1" "$2.exported.safetensors" "$2"
}
if ! "$python" -c 'import safetensors, timm, torchvision' 2>/dev/null; then
    skip "losses of transformers" "python has no timm and torchvision"
else
    for pair in $traces; do
        net=${pair%/*} side=${pair#*/}
        [ -d "noise$side" ] || "$python" "$top_srcdir/tests/graph/onnx_logits.py" pictures "noise$side" "$side" 3
        ok "first steps of $net in PyTorch" peers trace "$net" . "noise$side.npy" "$device"
        for precision in $precisions; do
            ok "... are those here in $precision" steps "$precision"
            figure "$(tail -n 1 "$scratch/words")"
        done
        [ "$net" != swin_t ] || ok "... and torchvision loads the weights strictly" strictly torchvision swin_t
        rm -rf "$net".*
    done
fi

# Trained here, exported under another library's names, loaded there strictly, and saved there as it saves.
train_small() {
    "$AMPTRAIN" -q -s data.format=digits -s data.limit=40 -s augment.crop=32 -s augment.resize=32 \
        -s model.arch="$1" -s train.epochs=1 -s train.batch=20 -s run.device=cpu -o "$1"
}
logits_of() { "$AMPTRAIN" eval -q --weights "$1" --logits "$2" -s run.device=cpu >/dev/null; }
there_and_back() { # LIBRARY ARCH NAME
    "$AMPTRAIN" export -q --weights "$2" --names "$1" -o "$1.safetensors" &&
        peers strict "$1" "$1.safetensors" "$3" && logits_of "$2" here.npy &&
        "$AMPTRAIN" eval --weights "$1.safetensors.pth" -c "$2/config.ini" -s run.device=cpu \
            --logits there.npy >/dev/null 2>err && grep "its names are those of" err &&
        cmp here.npy there.npy
}
if ! "$python" -c 'import safetensors, timm, transformers' 2>/dev/null; then
    skip "names of timm and transformers" "python has no safetensors, timm, transformers"
else
    ok "a MobileNetV2" train_small mobilenet_v2
    ok "... is timm's" there_and_back timm mobilenet_v2 mobilenetv2_100
    ok "a ResNet-18" train_small resnet18
    ok "... is Hugging Face's" there_and_back hf resnet18 resnet18
fi

if ! "$python" -c 'import safetensors, torchvision' 2>/dev/null; then
    skip "logits of torchvision" "python has no torchvision"
else
    "$python" "$top_srcdir/tests/graph/onnx_logits.py" pictures noise 224 3 || exit 1
    converts() { # amptrain.ini(5)'s recipe, with weights that need no network
        sed -n '/^import torchvision/,/^\.EE/p' "$ini_page" | sed -e '$d' -e 's/\\-/-/g' \
            -e 's/weights="DEFAULT"/weights=None/' >convert.py && "$python" convert.py &&
            "$AMPTRAIN" eval -q --weights resnet18.pth -s run.device=cpu -s data.format=folder \
                -s data.val=noise -s augment.crop=224 -s model.arch=resnet18 -s model.classes=1000 \
                -s train.batch=6
    }
    ini_page=$top_builddir/man/amptrain.ini.5
    [ -f "$ini_page" ] || ini_page=$top_srcdir/man/amptrain.ini.5
    ok "weights converted as amptrain.ini(5) says" converts
    for pair in $nets; do
        net=${pair%/*} side=${pair#"$net"}
        side=${side#/} side=${side:-224}
        [ -d "noise$side" ] || "$python" "$top_srcdir/tests/graph/onnx_logits.py" pictures "noise$side" "$side" 3
        ok "torchvision's weights of $net" peers weights "$net" . "noise$side.npy"
        ok "... give its logits" near fp32 1e-4
        ok "... in bf16 as well as torch" near bf16
        rm -f "$net".*
    done
fi
finish
