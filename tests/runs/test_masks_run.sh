#!/bin/sh
# A run on images with masks, as its user meets it: report, pictures, confusion of pixels, compare, folds, average; and
# what has no meaning there.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

cat >net.ini <<'END'
[input]
channels = 3
size = 32
[layers]
conv1 = conv input filters=8 kernel=3 pad=1
norm1 = batchnorm conv1
relu1 = relu norm1
conv = conv relu1 filters=$classes kernel=3 pad=1
END
mkdir -p set/images set/masks && "$top_builddir/tests/support/make_masks" set numbers 15 40 52 || exit 1
"$AMPTRAIN" init -q set -o set.ini || exit 1
sed -i -e 's/^arch.*/file = net.ini/' -e 's/^epochs.*/epochs = 60/' -e 's/^lr.*/lr = 0.02/' -e 's/^batch.*/batch = 4/' \
    -e 's/^seed.*/seed = 1\ndevice = cpu/' -e 's/^classes.*/classes = sky,road,car/' set.ini
train() { rm -rf "$1"; out=$1; shift; "$AMPTRAIN" -q -c set.ini -o "$out" "$@"; }
has() { grep -qF -e "$1" "${2-run/report.html}" || { echo "not there: $1"; return 1; }; }

ok "a run" train run -s train.eval_every=20
learns() { sed -n 's/.*"event":"end".*"best":\([0-9.]*\).*/\1/p' run/metrics.jsonl | awk '{ print; exit !($1 > 0.7) }'; }
ok "... learns by the configuration of init" learns
ok "... which is judged by the IoU" has '</b>best mean IoU, epoch'
ok "... with IoU and Dice of each class" has '<th class="n">Dice, %</th>'
pixels() { awk -F, 'NR > 1 { for (i = 2; i <= NF; i++) n += $i } END { print n; exit !(n > 3000 && n < 3 * 40 * 52) }' \
    run/confusion.csv; }
ok "... and the confusion of all pixels" pixels
strips() { [ "$(grep -c '<figure class="strip"' run/report.html)" = 3 ] &&
    [ "$(grep -o '"width":220,"height":40,"picture":"/9j/' run/mistakes.json | wc -l)" = 3 ]; }
ok "... and each of the worst images beside truth, prediction and difference" strips
ok "... which TensorBoard shows, too" sh -c 'grep -qa "validation/3" run/events.* && ! grep -qa "validation/4" run/events.*'
ok "... and the confusion" grep -qa confusion run/events.*
ok "without a report" train bare -s run.report=no -s train.epochs=1
ok "... there are no pictures" [ ! -e bare/mistakes.json ]
ok "compare" sh -c '"$AMPTRAIN" compare run bare -o both.html >out && grep "mean IoU" out'
ok "... draws the IoU" has '<b>Mean IoU</b>' both.html
folds() {
    "$AMPTRAIN" sweep -c set.ini -s train.epochs=1 -s data.val_fraction=0 -s optimizer.lr=0.01,0.02 --folds 2 -o folds >out || return 1
    cat out; grep -q "mean over folds" out && [ "$(find folds -name metrics.jsonl | wc -l)" = 4 ]
}
ok "folds, by the IoU" folds
ok "the mean of two runs" sh -c 'cp -r run again &&
    "$AMPTRAIN" average run/checkpoint-best.safetensors run/checkpoint-last.safetensors -o mean.safetensors'
ok "... has the classes" sh -c '"$AMPTRAIN" eval --json --weights mean.safetensors --val set | grep "\"class\":\"car\""'

# A request to stop ends evaluations of which each image takes long: the epoch is not finished.
mkdir -p large/images large/masks && "$top_builddir/tests/support/make_masks" large numbers 2 300 300 || exit 1
stopped() { # RANKS
    rm -rf stopped
    "$AMPTRAIN" -q -c set.ini -o stopped -s train.epochs=1 -s log.every=1 -s data.val=large -s data.val_fraction=0 \
        -s augment.val_tile=32 -s augment.val_overlap=0.95 -s parallel.gpus="$1" &
    until grep -qs '"event":"step","step":3' stopped/metrics.jsonl; do
        kill -0 $! || return 1
        sleep 0.05
    done
    sleep 0.5
    kill -TERM $!
    wait $!
    got=$?
    [ $got = 75 ] && ! grep '"event":"epoch"' stopped/metrics.jsonl
}
ok "SIGTERM within an evaluation" stopped 1
ok "... of two ranks" stopped 2

# Memory that the reading thread may still use is not freed at the end. The last read of a file is its; those
# before it look at its beginning.
faulty() {
    FAULT=$1; shift
    FAULT_FILE=images/7.png ASAN_OPTIONS=detect_leaks=0 FAULT_COUNTS=calls
    export FAULT FAULT_FILE ASAN_OPTIONS FAULT_COUNTS
    "$top_builddir/tests/support/faulty" "$@" -q --weights run -s loader.timeout=1s
    got=$?
    unset FAULT FAULT_FILE ASAN_OPTIONS FAULT_COUNTS
    return $got
}
hangs() {
    faulty read:1000000:EIO "$@" || return 1
    rm -rf hung
    faulty "read:$(sed -n 's/^read //p' calls):stall" "$@"
}
late="7.png: it is still being read; no image for 1 s, which exceeds loader.timeout"
if FAULT=read:1000000:EIO "$top_builddir/tests/support/faulty" --version >out 2>&1; then
    ok "loader.timeout ends a prediction whose reads hang" says 3 "$late" hangs predict set/images -o hung
    ok "... an evaluation" says 3 "$late" hangs eval --val set
else
    skip "reads that hang" "$(cat out)"
fi
ok "explain is refused" says 2 "predict --overlay draws it" "$AMPTRAIN" explain --weights run set/images/1.png -o explained
ok "there are no features" says 2 "net gives every pixel a class" "$AMPTRAIN" embed --weights run set/images -o e.npy
ok "classes of images are not balanced" says 2 "augment.foreground draws crops by classes" \
    "$AMPTRAIN" -c set.ini --check -s data.balance=yes
ok "images are not mixed" says 2 "augment.mixup: mixes classes of images" "$AMPTRAIN" -c set.ini --check -s augment.mixup=0.2
ok "what rotation shows beyond an image may be reflected" sh -c '! "$AMPTRAIN" -c set.ini --check -s augment.rotate=9 \
    -s augment.pad_mode=reflect 2>&1 | grep pad_mode'
ok "whole images are evaluated" says 2 "in tiles of augment.val_tile" "$AMPTRAIN" -c set.ini --check -s augment.val_crop=32
ok "logits are not written" says 2 "predict --probabilities" "$AMPTRAIN" eval --weights run --val set --logits l.npy
finish
