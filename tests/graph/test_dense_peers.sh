#!/bin/sh
# Networks that label pixels, beside those of segmentation_models_pytorch, torchvision and
# dynamic_network_architectures: with their weights the logits are theirs, and they load ours. Under `make torture`
# every one of them; they run on the CPU, or where AMPTRAIN_DEVICE says.
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
    rm -f ./"$net"*
done
finish
