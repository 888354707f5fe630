#!/bin/sh
# What the library and predict give on a device is what the CPU gives in fp32, but for rounding, in whatever
# order the device holds weights. AMPTRAIN_DEVICE: cuda, or cuda:N; else the CPU's precisions are compared.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1
device=${AMPTRAIN_DEVICE:-cpu}
export OMP_NUM_THREADS=2
tile=32
[ "$device" = cpu ] || tile=256

"$top_builddir/tests/support/make_pictures" pictures || exit 1
# A U-Net of one step down, as wide as code that only a GPU has asks for.
cat >unet.ini <<'END'
[input]
channels = 3
size = 32
[layers]
conv1 = conv input filters=64 kernel=3 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=64 kernel=3 pad=1 bias=no
bn2 = batchnorm conv2
relu2 = relu bn2
pool = maxpool relu2 kernel=2
conv3 = conv pool filters=128 kernel=3 pad=1 bias=no
bn3 = batchnorm conv3
relu3 = relu bn3
up = conv_transpose relu3 filters=64 kernel=2 stride=2
cat = concat relu2 up
conv4 = conv cat filters=64 kernel=3 pad=1 bias=no
bn4 = batchnorm conv4
relu4 = relu bn4
head = conv relu4 filters=$classes kernel=1
END
train() { # a run of a few steps
    folder=$1; shift
    "$AMPTRAIN" -q -s run.device=cpu -s run.report=no -s log.tensorboard=no -s amp.precision=fp32 \
        -s augment.crop=32 -s train.batch=8 -s optimizer.name=adamw -s optimizer.lr=0.001 \
        -s schedule.warmup=0 "$@" -o "$folder"
}
pictures="-s data.format=folder -s data.train=pictures -s data.val_fraction=0.25"
train resnet $pictures -s model.arch=resnet20 -s run.max_steps=6 || exit 1
train vit $pictures -s model.arch=vit_patch4_cifar -s run.max_steps=12 || exit 1
train unet -s data.format=synthetic -s data.task=segment -s data.classes=3 -s data.limit=4 -s train.batch=2 \
    -s model.file=unet.ini -s optimizer.lr=0.01 -s run.max_steps=2 || exit 1

# client RUN SETTING IMAGE...: the library's cases count as cases of this test.
client() {
    folder=$1; shift
    "$top_builddir/tests/api/client_devices" "$folder" "$device" "$@" >client.out 2>"$folder.library"
    ended=$?
    grep -v '^1\.\.' client.out | sed -E 's/^(not )?ok [0-9]+/\1ok/'
    cases=$((cases + $(grep -c -E '^(not )?ok ' client.out)))
    ok "$folder: the client ends" test $ended = 0
}
classes() { # the command's classes are the library's, and the probabilities as they are printed
    "$AMPTRAIN" predict -q --weights "$1" -s run.device="$device" -s amp.precision=fp32 $images \
        >"$1.command" && paste -d ' ' "$1.library" "$1.command" | awk '
            { class = $2 ? "pear" : "apple"; off = $3 - $6; if ($5 != class || off * off > 1e-6) bad++ }
            END { exit !(NR == 8 && !bad) }'
}
images=$(for i in 0 1 2 3; do echo "pictures/apple/$i.png pictures/pear/$i.png"; done)
for folder in resnet vit; do
    client $folder augment.val_flip=no $images
    ok "$folder: predict says the same" classes $folder
done
client unet augment.val_tile=$tile pictures/pear/3.png
pixels() { # of a hundred one may have another class
    "$AMPTRAIN" predict -q --weights unet -o masks --json --tile $tile -s run.device="$device" \
        -s amp.precision=fp32 pictures/pear/3.png | sed 's/.*"pixels":{//; s/}.*//' | tr , '\n' | sed 's/.*://' >unet.command &&
        paste -d ' ' unet.library unet.command | awk '
            { off += ($2 - $3) ^ 2 ^ 0.5; all += $2 } END { exit !(NR == 3 && all > 0 && off <= 0.02 * all) }'
}
ok "unet: predict counts the same pixels" pixels
finish
