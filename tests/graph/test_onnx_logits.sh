#!/bin/sh
# onnxruntime computes from an exported network what evaluation does. Under `make torture` of every network
# that comes with the program.
. "$top_srcdir/tests/support/tap.sh"

python=${PYTHON:-python3}
logits() { "$python" "$top_srcdir/tests/graph/onnx_logits.py" "$@"; }
cd "$scratch" || exit 1

# trained SIZE -s ...: a network after two steps, in `run`, and its logits.
trained() {
    side=$1; shift
    rm -rf run
    [ -d "noise$side" ] || logits pictures "noise$side" "$side" 3 || return 1
    "$AMPTRAIN" -q -s run.device=cpu -s data.format=folder -s data.train="noise$side" -s \
        data.val="noise$side" \
        -s train.batch=6 -s augment.crop="$side" -s augment.val_resize="$side" -s augment.mean=0.4,0.5,0.6 \
        -s augment.std=0.2,0.25,0.3 -s optimizer.lr=0.01 -s run.max_steps=2 -s log.tensorboard=no "$@" -o \
            run &&
        "$AMPTRAIN" eval -q --weights run --logits run.npy
}

# agrees TOLERANCE OPTION...: exported with these options, onnxruntime gets the same but for TOLERANCE of the
# largest.
agrees() {
    tolerance=$1; shift
    "$AMPTRAIN" export -q --weights run "$@" -o net.onnx &&
        logits compare net.onnx run.npy "noise$side.npy" "$tolerance"
}

if ! "$python" -c 'import numpy, onnx, onnxruntime' 2>/dev/null; then
    skip "logits of exported networks" "python has no onnxruntime"
    echo "1..$cases"
    exit 0
fi
ok "a network with every op" trained 35 -s model.file="$top_srcdir/tests/graph/onnx_every.ini"
ok "... has the same logits" agrees 1e-4
ok "... with unfolded batch norm" agrees 1e-4 --keep-batchnorm
ok "... and with softmax the same probabilities" agrees 1e-4 --softmax
ok "... approximately in fp16" agrees 1e-2 --dtype fp16
ok "... of bytes" agrees 1e-4 --preprocess
ok "... also in fp16" agrees 1e-2 --preprocess --dtype fp16
# any_size OPTION...: exported with preprocessing, onnxruntime gets predict's probabilities of images of any size.
any_size() {
    "$AMPTRAIN" predict -q --weights run "$@" --json --top 3 odd > odd.json &&
        "$AMPTRAIN" export -q --weights run "$@" --preprocess --softmax -o net.onnx &&
        logits images net.onnx odd.npz odd.json 1e-4
}
ok "... approximately in int8" agrees 0.2 --dtype int8
ok "images of odd sizes" logits sizes odd 60
for how in val_resize=40 val_resize=50x44 val_resize=0; do
    ok "... $how" any_size -s augment.$how
done
for fit in letterbox stretch; do
    ok "... fit=$fit" any_size -s augment.fit=$fit -s augment.val_resize=auto
done
for fit in crop letterbox; do
    ok "... bicubically, fit=$fit" any_size -s augment.fit=$fit -s augment.val_resize=auto \
        -s augment.interpolation=bicubic
done
gray=28
ok "a network for gray images" logits pictures noise$gray $gray 1
ok "... trained" trained $gray -s model.arch=lenet5 -s augment.mean=0.4 -s augment.std=0.2
ok "... has the same logits" agrees 1e-4

models='resnet20/32 mobilenet_v2/48x80 deit3_small_patch16_224/16x48 swin_t/48x80'
[ -z "${AMPTRAIN_TORTURE-}" ] ||
    models=$("$AMPTRAIN" models | sed -n -e '/^lenet5\|^vit_h_14\|^unet\|^nnunet\|^deeplab\|^fcn_\|^lraspp/d' -e 's/^\([a-z][a-z0-9_]*\) .*/\1/p' |
        sed -e 's,.*_cifar$\|^resnet\(20\|32\|44\|56\)$,&/32,' -e '/\//!s,$,/224,')
for model in $models; do
    ok "${model%/*}" trained "${model#*/}" -s model.arch="${model%/*}"
    ok "... has the same logits" agrees 1e-4
done
echo "1..$cases"
