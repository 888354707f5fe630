#!/bin/sh
# Networks that label pixels, beside those of segmentation_models_pytorch, torchvision and
# dynamic_network_architectures: with their weights the logits are theirs, they load ours, and the first steps
# of training are theirs. Under `make torture` every one of them with every loss. They run on the CPU, or
# where AMPTRAIN_DEVICE says.
. "$top_srcdir/tests/support/tap.sh"

python=${PYTHON:-python3} device=${AMPTRAIN_DEVICE:-cpu}
peers() { "$python" "$top_srcdir/tests/graph/dense_peers.py" "$@"; }
cd "$scratch" || exit 1

if ! "$python" -c 'import safetensors, torch' 2>/dev/null; then
    skip "networks that label pixels beside PyTorch" "python has no torch, or no safetensors"
    finish
    exit 0
fi
have=$(peers list) nets='unet_resnet18 lraspp_mobilenet_v3_large'
[ -z "${AMPTRAIN_TORTURE-}" ] && [ "$device" = cpu ] || nets=$have

# Sizes that strides divide, and where the network takes any, others.
sizes_of() {
    case $1 in
    nnunet_2d) echo 256x384 ;;         # its deepest instance norms have 6 pixels
    unet | deeplabv3plus_*) echo 48x80 ;;
    *) echo 64x96 45x71 ;;
    esac
}
alike() { # NET SIZE
    peers make . "$2" "$1" && "$top_builddir/tests/graph/dense_logits" "$1" 5 "${2%x*}" "${2#*x}" "$1.pth" \
        <"$1.images" >"$1.ours" && peers near . "$2" "$1"
}
export_back() {
    "$AMPTRAIN" export -q --weights "$1.pth" -o "$1.safetensors" && peers strict . "$1" "$1.safetensors"
}

# The first steps of training, by PyTorch's formulas of each loss in fp64.
side_of() {
    case $1 in
    nnunet_2d) echo 256 ;;
    *) echo 64 ;;
    esac
}
losses_of() {
    if [ -n "${AMPTRAIN_TORTURE-}" ] || [ "$1" = lraspp_mobilenet_v3_large ]; then
        echo ce dice dice_ce focal tversky
    elif [ "$device" != cpu ]; then
        echo dice_ce
    fi
}
steps() { # NET LOSS
    side=$(side_of "$1")
    rm -rf "$1.run"
    "$AMPTRAIN" -q -s run.device="$device" -s data.format=folder -s data.task=segment -s data.classes=5 \
        -s data.train="$1.data" -s data.shuffle=no -s data.class_weights=1,0.5,2,1.5,0.25 \
        -s augment.crop="$side" -s augment.mean=0.4,0.5,0.6 -s augment.std=0.2,0.25,0.3 -s model.arch="$1" \
        -s model.weights="$1.pth" -s model.dropout=0 -s train.epochs=4 -s train.loss="$2" \
        -s train.batch="$(find "$1.data/images" -name '*.png' | wc -l)" -s train.tversky=0.7,0.3 \
        -s optimizer.name=sgd -s optimizer.lr=0.001 -s optimizer.momentum=0.9 -s optimizer.weight_decay=0 \
        -s schedule.name=constant -s amp.precision=fp32 -s log.every=1 -s log.tensorboard=no \
        -s run.report=no -o "$1.run" &&
        "$python" "$top_srcdir/tests/graph/python_peers.py" follows "$1.$2" . "$1.run/metrics.jsonl" fp32
}

for net in $nets; do
    if ! echo "$have" | grep -qx "$net"; then
        skip "$net" "python lacks its library"
        continue
    fi
    for size in $(sizes_of "$net"); do
        ok "$net of $size has its library's logits" alike "$net" "$size"
        figure "$(cat words)"
    done
    ok "... which loads what is exported strictly" export_back "$net"
    losses=$(losses_of "$net")
    [ -z "$losses" ] || ok "... trains" peers trace . "$(side_of "$net")" "$net" $losses
    for loss in $losses; do
        ok "... steps of $loss beside PyTorch" steps "$net" "$loss"
        figure "$(tail -n 1 words)"
    done
    rm -rf ./"$net"*
done
finish
