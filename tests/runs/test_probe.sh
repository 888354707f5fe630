#!/bin/sh
# A linear probe: what the last layer reads is computed once if nothing changes it from epoch to epoch, and
# every bit of the run is as if it were computed in each.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# Dropout in front of the classifier is drawn in each step; nothing else depends on one.
cat >head.ini <<'END'
[input]
channels = 1
size = 8
[layers]
conv1 = conv input filters=8 kernel=3 pad=1
relu1 = relu conv1
conv2 = conv relu1 filters=16 kernel=3 stride=2 pad=1
flat = flatten conv2
drop = dropout flat rate=0.2
fc = linear drop units=$classes
END
sed -i -e '/^pad/d' -e '/^flip/d' -e 's/tiny.ini/head.ini/' -e 's/^crop.*/label_smoothing = 0.1/' \
    -e '/^seed/a report = no' -e 's/^epochs.*/&\nfreeze = conv*/' run.ini

once() { # FOLDER OPTION...
    folder=$1; shift
    "$AMPTRAIN" -c run.ini -o "$folder" "$@" 2>"$folder.log" || { cat "$folder.log"; return 1; }
    [ "$(grep -c "only what follows 'flat' is trained" "$folder.log")" = 1 ] &&
        grep -q "its output for [0-9]* images, [0-9]* numbers each (.*), was computed once" "$folder.log" ||
        { cat "$folder.log"; return 1; }
}
# The frozen part is computed in every epoch, as before, and it is said why.
each() { # WHY FOLDER OPTION...
    why=$1 folder=$2; shift 2
    "$AMPTRAIN" -c run.ini -o "$folder" "$@" 2>"$folder.log" || { cat "$folder.log"; return 1; }
    grep -q "is computed in every epoch: $why" "$folder.log" || { cat "$folder.log"; return 1; }
}
alike() { # FOLDER OPTION...
    both=$1; shift
    once "$both" "$@" && each "loader.cache = none" "$both.each" -s loader.cache=none "$@" &&
        same "$both" "$both.each"
}
ok "micro-batches, averages, clipping, fp16" alike whole
ok "... the output in front of the dropout" grep -q " 256 numbers each" whole.log
ok "... takes less memory" sh -c '
    bytes() { grep -o "\"device_peak_bytes\":[0-9]*" "$1/metrics.jsonl" | tail -n 1 | cut -d : -f 2; }
    [ "$(bytes whole)" -lt "$(bytes whole.each)" ]'
resumed() {
    once parts -s run.max_steps=7 && once parts -r -s run.max_steps=19 && once parts -r && same whole parts
}
ok "a run that is resumed in an epoch and between" resumed
ok "repeats, fp32" alike repeats -s augment.repeats=2 -s amp.precision=fp32 -s train.epochs=2
ok "class weights, no validation" alike weighted -s data.class_weights=balanced -s data.val= \
    -s data.val_fraction=0 -s train.epochs=2

"$top_builddir/tests/support/make_pictures" pictures || exit 1
head -c 400 pictures/apple/1.png >pictures/apple/2.png
sed 's/channels = 1/channels = 3/' head.ini >coloured.ini
images="-s data.format=folder -s data.train=pictures -s data.val_fraction=0.25 -s model.file=coloured.ini
    -s train.batch=8 -s train.epochs=3 -s augment.fit=stretch -s augment.crop=12 -s augment.val_crop=12"
ok "image files, one of them broken, a part of them for validation" alike files $images -s data.balance=yes
ok "... which is counted in each epoch" sh -c '
    [ "$(grep "\"event\":\"epoch\"" files/metrics.jsonl | grep -c "\"bad_images\":0,")" -lt 3 ]'
stops() { says 3 "apple/2.png" "$AMPTRAIN" -c run.ini -o stopped $images -s data.on_error=stop; }
ok "... or ends the run" stops

ok "mirrored images" each "augment.flip changes them" flipped -s augment.flip=0.5 -s train.epochs=1
ok "random crops" each "augment.crop" cropped -s augment.crop=6 -s augment.val_crop=6 -s train.epochs=1
ok "mixed images" each "augment.mixup" mixed -s augment.mixup=0.2 -s train.epochs=1
ok "views in validation" each "augment.val_flip" views -s augment.val_flip=yes -s train.epochs=1
ok "more features than memory for them" each "they take .*, more than loader.cache_limit" large \
    -s loader.cache_limit=1000 -s train.epochs=1
ok "batch norm" each "'bn1', batchnorm, depends on the step" normed -s model.file=tiny.ini \
    -s "train.freeze=conv* bn*" -s train.epochs=1
tuned() { train "$@" 2>tuned.log && ! grep -q "only what follows" tuned.log; }
ok "nothing is said where a layer in front is trained" tuned tuned -s train.freeze=conv1.* -s train.epochs=1
ok "... or will be" tuned first -s train.freeze_epochs=1 -s train.epochs=1
finish
