#!/bin/sh
# Weights that torchvision, timm and Hugging Face transformers have written: the network is recognised, its
# logits are theirs, and what is exported under their names they load strictly. One of each; under
# `make torture` every network that they share with us.
. "$top_srcdir/tests/support/tap.sh"

python=${PYTHON:-python3}
peers() { "$python" "$top_srcdir/tests/graph/pretrained_peers.py" "$@"; }
cd "$scratch" || exit 1

if ! "$python" -c 'import safetensors, torchvision, timm, transformers' 2>/dev/null; then
    skip "weights of torchvision, timm and transformers" "python lacks one of them, or safetensors"
    finish
    exit 0
fi
nets='torchvision:shufflenet_v2_x1_0 timm:mobilenetv4_conv_small hf:vit_tiny_patch16_224
    hf:vit_small_patch14_reg4_dinov2'
[ -z "${AMPTRAIN_TORTURE-}" ] || nets=$(peers list)

# Evaluation as users have it: of a file or folder, without a configuration.
evaluate() { # LIBRARY ARCH
    weights=$1-$2.pth
    [ "$1" != hf ] || weights=$1-$2
    "$AMPTRAIN" eval --weights "$weights" --val noise --logits "$1-$2.ours.npy" -s augment.val_resize=224 \
        -s augment.val_crop=224 -s augment.mean=0.4,0.5,0.6 -s augment.std=0.2,0.25,0.3 -s train.batch=6 \
        -s run.device=cpu >/dev/null 2>err || { cat err; return 1; }
    cat err
    grep -q "is of the network $2, 1000 classes" err || grep -q "could also be of .*$2" err
}
# Trained for a step, and what needs no training.
every_command() { # LIBRARY ARCH
    "$AMPTRAIN" -q init pictures --weights "$weights" -o "$1-$2.ini" &&
        "$AMPTRAIN" -q -c "$1-$2.ini" -o "$1-$2.run" -s train.epochs=1 -s train.batch=4 -s run.max_steps=1 \
            -s run.device=cpu -s run.report=no || return 1
    for from in "$weights" "$1-$2.run"; do
        "$AMPTRAIN" -q predict --weights "$from" pictures/apple/1.png --json >predicted &&
            "$AMPTRAIN" -q embed --weights "$from" pictures/apple/1.png pictures/pear/2.png -o used.npy &&
            "$AMPTRAIN" -q explain --weights "$from" pictures/apple/1.png -o maps &&
            [ -s used.npy ] && [ "$(ls maps)" ] && grep -q probability predicted || return 1
        rm -r maps used.npy used.txt
    done
    "$AMPTRAIN" -q eval --weights "$1-$2.run" --json >evaluated && grep -q '"top1":' evaluated
}
export_back() { # LIBRARY ARCH
    "$AMPTRAIN" export -q --weights "$weights" --names "$1" -o "$1-$2.safetensors"
}

# Nothing in a wrong file is run, and nothing is written.
"$top_builddir/tests/support/make_pictures" pictures || exit 1
mkdir evil && peers evil evil || exit 1
refused() {
    says 5 "evil/$1: " "$AMPTRAIN" init pictures --weights "evil/$1" -o evil.ini &&
        says 5 "evil/$1: " "$AMPTRAIN" predict --weights "evil/$1" pictures/apple/1.png &&
        [ ! -e evil.ini ] && [ ! -e evil/ran ] && [ -z "$(cat out)" ]
}
for file in $(ls evil); do ok "a wrong file, $file" refused "$file"; done

"$python" "$top_srcdir/tests/graph/onnx_logits.py" pictures noise 224 3 || exit 1
while [ -n "$nets" ]; do
    some=$(echo $nets | cut -d ' ' -f 1-6)          # as many at a time as the disk holds easily
    nets=$(echo $nets | cut -s -d ' ' -f 7-)
    ok "networks with random weights" peers make . noise.npy $some
    for net in $some; do
        ok "$net is recognised" evaluate "${net%:*}" "${net#*:}"
        ok "... trained, and used by every command" every_command "${net%:*}" "${net#*:}"
        ok "... exported under its library's names" export_back "${net%:*}" "${net#*:}"
    done
    ok "their logits are alike, and the exports are loaded strictly" peers check . $some
    sed 's/^/# /' words
    rm -rf ./*-*
done
finish
