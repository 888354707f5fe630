#!/bin/sh
# summary: the networks' figures as they are known, without data and without a device.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

summary() { "$AMPTRAIN" summary "$@" >out 2>err; }

# totals PARAMETERS MACS OPTION...: as the last lines have them.
totals() {
    params=$1 macs=$2; shift 2
    summary "$@"
    cat err; tail -n 4 out
    grep -qx "parameters   $params" out && grep -qx "MACs         $macs" out
}
# torchvision's figures.
ok "resnet50" totals 25557032 "4089184256 (4.09 G)" -s model.arch=resnet50
ok "... prints only the result" [ ! -s err ]
ok "... a convolution" grep -qxE "conv1 +conv +1x112x112x64 +9408 +118013952 +3.1 MiB" out
ok "... a layer without parameters" grep -qxE "maxpool +maxpool +1x56x56x64 +0 +0 +784.0 KiB" out
ok "... statistics are not parameters" grep -qxE "bn1 +batchnorm +1x112x112x64 +128 +0 +3.1 MiB" out
ok "depthwise convolutions" totals 3504872 "300774272 (300.77 M)" -s model.arch=mobilenet_v2
ok "lenet5" totals 61706 "416520 (0.42 M)" -s model.arch=lenet5

cat >windows.ini <<\END
[input]
channels = 1
size = 8
[layers]
patches = conv input filters=12 kernel=2 stride=2 bias=no
qkv = linear patches units=36 bias=no per_pixel=yes
windows = attention qkv heads=2 window=2
every = attention qkv heads=2
both = add windows every
pool = globalavgpool both
fc = linear pool units=$classes bias=no
END
ok "attention" totals 522 "15384 (0.02 M)" -s model.file=windows.ini -s model.classes=2
ok "... in windows" grep -qxE "windows +attention +1x4x4x12 +18 +1536 +768 B" out
ok "... of all tokens" grep -qxE "every +attention +1x4x4x12 +0 +6144 +768 B" out

cat >enlarged.ini <<\END
[input]
channels = 4
size = 3
[layers]
up = conv_transpose input filters=6 kernel=2 stride=2 groups=2
pool = globalavgpool up
fc = linear pool units=$classes bias=no
END
ok "a transposed convolution" totals 66 "444 (0.00 M)" -s model.file=enlarged.ini -s model.classes=2
ok "... counts the products of input pixels" grep -qxE "up +conv_transpose +1x6x6x6 +54 +432 +864 B" out

# columns: the layers' parameters and MACs add up to the totals.
columns() {
    summary -s model.arch=vgg16_bn && awk '
        /^layer / { layers = 1; next }
        /^parameters/ { params = $2; layers = 0 }
        /^MACs/ { macs = $2 }
        layers { params_sum += $4; macs_sum += $5 }
        END { print params_sum, params, macs_sum, macs
              exit !(params > 0 && params_sum == params && macs_sum == macs) }' out
}
ok "layers add up to totals" columns

ok "a Swin, as torchvision has it" totals 28288354 "4490566656 (4.49 G)" -s model.arch=swin_t
# The formula holds, but the last block computes the class token alone behind its attention: torchvision's
# 17563828224 less 196 x 9 x 768 x 768.
ok "a ViT" totals 86567656 "16523378688 (16.52 G)" -s model.arch=vit_b_16
sized() {
    summary -s data.format=digits -s model.arch=vit_b_32 "$@" && head -n 1 out
}
ok "model.image_size" sh -c '[ "$1" = "vit_b_32, one image of 1x64x64x1" ]' sh \
    "$(sized -s model.image_size=64)"
ok "... yields to augment.resize" sh -c '[ "$1" = "vit_b_32, one image of 1x96x96x1" ]' sh \
    "$(sized -s model.image_size=64 -s augment.resize=96 -s augment.val_resize=96)"
ok "the configuration's size and classes" totals 11227812 "148097024 (148.10 M)" -s model.arch=resnet18 \
    -s model.classes=100 -s augment.crop=64
ok "existing images define size and classes" totals 3826 "25600 (0.03 M)" -c run.ini -s augment.crop=0
ok "missing images do not matter" totals 25557032 "4089184256 (4.09 G)" -c "$top_srcdir/conf/imagenet.ini" \
    -s data.train="$scratch/none" -s data.val="$scratch/none"
ok "neither does a missing GPU" totals 3826 "25600 (0.03 M)" -c run.ini -s run.device=cuda -s \
    loader.decode=gpu -s train.batch=auto
ok "frozen parameters are not counted as trained" sh -c '
    "$AMPTRAIN" summary -c run.ini -s "train.freeze=conv1.*" >out; cat out; grep -qx "  trained    3754" out'
# 300 convolutions of 2^55 multiply-adds each.
awk 'BEGIN {
    print "[input]\nchannels = 1\nsize = 46340\n[layers]"
    for (i = 1; i <= 300; i++)
        print "c" i " = conv " (i > 1 ? "c" i - 1 : "input") " filters=1 kernel=4095 pad=2047"
    print "pool = globalavgpool c300\nfc = linear pool units=2"
}' >huge.ini
ok "more multiply-adds than 2^63" totals 5030707804 "10802919150386997248 (10802919150.39 G)" \
    -s model.file=huge.ini -s model.classes=2
wrong() { says 2 "wrong.ini:5" "$AMPTRAIN" summary -s model.file=wrong.ini; }
sed "s/= conv input/= conf input/" tiny.ini >wrong.ini
ok "a wrong layer, with its line" wrong
ok "no network" says 2 "model.arch is not set" "$AMPTRAIN" summary

json() {
    "$AMPTRAIN" summary -c run.ini --json >out.json && cat out.json && grep -q \
        '^{"params":3826,"trained_params":3826,"macs":25600,"activation_bytes":10280,"layers":\[{"name":"conv1","op":"conv","output":\[1,8,8,8\],"params":72,"trained_params":72,"macs":4608,"activation_bytes":2048},.*}\]}$' out.json
}
ok "--json" json
finish
