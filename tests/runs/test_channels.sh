#!/bin/sh
# Images of other channels than one and three: planned, trained, resumed, evaluated; how many there may be.
. "$top_srcdir/tests/support/tap.sh"

# model CHANNELS
model() {
    cat >"model$1.ini" <<END
[input]
channels = $1
size = 8
[layers]
conv = conv input filters=4 kernel=3 pad=1
relu = relu conv
pool = globalavgpool relu
fc = linear pool units=\$classes
END
}

cd "$scratch" || exit 1
for channels in 2 6 12 256 257; do model $channels; done
cat >run.ini <<'END'
[run]
device = cpu
threads = 1
[data]
format = synthetic
classes = 3
limit = 96
[augment]
pad = 1
flip = 0.5
random_erasing = 0.5
mean = 0.5
std = 0.25
[train]
epochs = 2
batch = 32
[optimizer]
lr = 0.1
[log]
tensorboard = no
END

# amp COMMAND CHANNELS ARGUMENT...
amp() {
    command=$1 channels=$2; shift 2
    "$AMPTRAIN" "$command" -q -c run.ini -s model.file="model$channels.ini" "$@"
}
results() { amp eval "$1" --json --weights "run$1/checkpoint-last.safetensors"; }
weights() { "$AMPTRAIN" export -q --weights "$1/checkpoint-last.safetensors" -o "$1.safetensors"; }
same_weights() { weights "$1" && weights "$2" && cmp "$1.safetensors" "$2.safetensors"; }

for channels in 2 6 12 256; do
    ok "$channels channels: plan" amp plan $channels
    ok "... train" amp train $channels -o run$channels -s run.max_steps=4
    ok "... to completion" amp train $channels -o run$channels -r -s run.max_steps=0
    ok "... evaluate" results $channels
done
amp train 12 -o whole12
ok "a resumed run gives the same results" same_weights run12 whole12

of_six() { results 6 >one && amp eval 6 --json --weights run6/checkpoint-last.safetensors "$@" >all &&
    cmp one all; }
ok "one number applies to all channels" of_six -s augment.mean=.5,.5,.5,.5,.5,.5 -s \
    augment.std=.25,.25,.25,.25,.25,.25
ok "fewer numbers than channels are refused" says 2 "augment.mean: 3 numbers for images of 6 channels" \
    amp train 6 -s augment.mean=.5,.5,.5 -s augment.std=1,1,1
ok "too many channels" says 2 "model257.ini:2: channels must be between 1 and 256, not 257" amp plan 257
ok "colour augmentation needs RGB images" says 2 "auto_augment: needs images of 1 or 3 channels, not 6" \
    amp train 6 -s augment.auto_augment=trivial
ok "... for each kind" says 2 "augment.jitter" amp train 6 -s augment.jitter=.1,.1,.1

"$top_builddir/tests/support/make_pictures" pictures || exit 1
ok "image files with six channels are refused" says 3 "has 3 channels, not 6" \
    amp predict 6 --weights run6/checkpoint-last.safetensors pictures/apple/1.png
finish
