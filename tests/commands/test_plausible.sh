#!/bin/sh
# All mistakes of a configuration at once; warnings of what has no effect or cannot be meant; paths after -s.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

cat >wrong.ini <<'END'
[train]
epochs = many
batchh = 3
[optimizr]
lr = 1
[data]
format = digts
[model]
arch = resnt20
[optimizer]
name = sdg
[schedule]
name = cosin
[amp]
precision = fp17
END
all_wrong() {
    "$AMPTRAIN" -c wrong.ini --check 2>said && return 1
    cat said
    for line in 2 3 4 7 9 11 13 15; do grep -q "wrong.ini:$line: " said || return 1; done
}
ok "all errors are reported, each with its line" all_wrong

cat >odd.ini <<'END'
[data]
format = digits
[augment]
ratio = 0.5 2
mean = 123
val_resize = 8
val_crop = 12
[model]
arch = resnet20
dropout = 0.3
[train]
epochs = 5
early_stop = 5
freeze = *
[optimizer]
name = adamw
lr = 0.1
momentum = 0.9
[schedule]
name = cosine
warmup = 6
milestones = 3
[amp]
growth = 3
END
odd() {
    "$AMPTRAIN" -c odd.ini --check 2>said >/dev/null || return 1
    cat said
    for line in 4 5 7 10 13 14 17 18 21 22 24; do grep -q "warning: odd.ini:$line: " said || return 1; done
}
ok "settings without effect and implausible ones are reported" odd
ok "... that all is frozen, and until when" says 0 "nothing is learnt until train.freeze_epochs have passed" \
    "$AMPTRAIN" -c "$top_srcdir/conf/digits.ini" -s 'train.freeze=*' -s train.freeze_epochs=1 \
    -s train.epochs=2
ok "... that onecycle varies momentum" says 0 "optimizer.momentum has no effect with schedule.name = onecy" \
    "$AMPTRAIN" -c "$top_srcdir/conf/digits.ini" -s optimizer.momentum=0.8 --check
plateau() { "$AMPTRAIN" -c "$top_srcdir/conf/digits.ini" -s schedule.name=plateau -s schedule.min_lr=1e-5 \
    -s schedule.factor=0.5 --check 2>&1 >/dev/null | grep "schedule\.[mf].* no effect" && return 1; true; }
ok "keys of plateau are used by it" plateau
ok "... and by no other schedule" says 0 "schedule.patience has no effect with schedule.name = " \
    "$AMPTRAIN" -c "$top_srcdir/conf/digits.ini" -s schedule.patience=3 --check
ok "swa_lr without train.swa" says 0 "schedule.swa_lr has no effect without train.swa" \
    "$AMPTRAIN" -c "$top_srcdir/conf/digits.ini" -s schedule.swa_lr=0.1 --check
cat >end.ini <<'END'
[input]
channels = 1
size = 8
[layers]
flat = flatten input
fc = linear flat units=$classes
relu = relu fc
END
ok "ReLU on the logits is reported" says 0 "end.ini:7: layer 'relu' (relu) is applied to the logits" \
    "$AMPTRAIN" \
    -s data.format=digits -s model.file=end.ini --check
quiet() { "$AMPTRAIN" -c "$1" --check 2>&1 >/dev/null | grep warning && return 1; true; }
ok "no warnings for conf/digits.ini" quiet "$top_srcdir/conf/digits.ini"
"$AMPTRAIN" -q -c "$top_srcdir/conf/digits.ini" -s train.epochs=1 -o run || exit 1
sed 's/^output.*//' run/config.ini >again.ini
ok "no warnings for a run's own config.ini" quiet again.ini

cat >single.ini <<'END'
[input]
channels = 1
size = 8
[layers]
pool1 = globalavgpool input
conv1 = conv pool1 filters=8 kernel=1 bias=no
bn1 = batchnorm conv1
conv2 = conv input filters=8 kernel=2 stride=2 bias=no
bn2 = batchnorm conv2
pool2 = globalavgpool bn2
concat = concat bn1 pool2
fc = linear concat units=$classes
END
single() { "$AMPTRAIN" "$@" -s data.format=digits -s model.file=single.ini; }
one="so its output is its bias for any image: layer"
ok "batch norm of one value is reported" says 0 "$one 'bn1'. Let each step have 2 images: train.batch = 2" \
    single --check -s train.batch=1
ok "... by plan" says 0 "$one 'bn1'. Let each step" single plan -s train.batch=1
ok "... before step 1" says 0 "$one 'bn1'. Let each micro-batch have 2 images: train.batch = 18, or a small" \
    single train -s train.batch=9 -s train.accumulate=9 -s run.max_steps=1
ok "... of all layers and sizes" says 0 "$one""s 'bn1', 'bn2'. Let" single --check -s train.batch=9 \
    -s train.accumulate=9 -s augment.crop=8 -s augment.scale=1,1 \
    -s augment.sizes=2@1,8@2
several() {
    single --check "$@" >out 2>err && cat err && ! grep "one value" err
}
ok "not with 2 images" several -s train.batch=18 -s train.accumulate=9
ok "... or 2 ranks that normalise together" several -s train.batch=2 -s parallel.gpus=2 -s train.sync_bn=yes
ok "... which is a remedy" says 0 "train.batch = 4, or train.sync_bn = yes" single --check -s train.batch=2 \
    -s parallel.gpus=2

mkdir -p elsewhere && mv end.ini elsewhere
cat >elsewhere/run.ini <<'END'
[data]
format = digits
[model]
file = end.ini
END
ok "paths in a file are relative to its folder" "$AMPTRAIN" -q -c elsewhere/run.ini --check
ok "paths after -s are relative to the working folder" "$AMPTRAIN" -q -c elsewhere/run.ini \
    -s model.file=elsewhere/end.ini --check
ok "... as in messages" says 2 "there/end.ini" "$AMPTRAIN" -q -c elsewhere/run.ini \
    -s model.file=there/end.ini --check
finish
