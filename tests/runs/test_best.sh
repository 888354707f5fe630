#!/bin/sh
# The best evaluation: one that is not finite never is, and everything that is shown in the end
# (checkpoint, summary, records, results, compare) is that of the same epoch.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

last=checkpoint-last.safetensors best=checkpoint-best.safetensors
"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' tiny.ini >coloured.ini
sed -e 's/^format.*/format = csv/' -e '/^format/a train = classes.csv\nval = val.csv' \
    -e 's/^crop.*/crop = 16/' -e 's/^batch.*/batch = 4/' -e 's/^epochs.*/epochs = 2/' -e '/^ema/d' \
    -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' -e 's/tiny.ini/coloured.ini/' \
    -e 's/^pad.*/resize = 20/' -e 's/^every = 3 steps/every = 1/' -e 's/^keep.*/keep = 9/' \
    -e 's/^accumulate.*/accumulate = 1/' run.ini >best.ini

each() { find pictures -name '*.png' | LC_ALL=C sort; }
table() { # HEADER EXPRESSION...
    echo "$1"; shift
    each | sed -E "$@"
}
table path,label -e 's/.*apple.*/&,a/' -e 's/.*pear.*/&,b/' >classes.csv
table path,red,third -e 's/.*apple.*/&,1/' -e 's/.*pear.*/&,0/' -e 's/.*[0369][.]png.*/&,1/' \
    -e 's/.*[124578][.]png.*/&,0/' >labels.csv
table path,value -e 's,.*apple/(.*).png,&\,1.\1,' -e 's,.*pear/(.*).png,&\,-1.\1,' >values.csv
{ grep -m 9 ',a$' classes.csv | sed '1i path,label'; grep -m 1 ',b$' classes.csv; } >val.csv

run() { folder=$1; shift; "$AMPTRAIN" -c best.ini -o "$folder" "$@" >"$folder.out" 2>"$folder.err"; }
steep='-s schedule.name=step -s schedule.warmup=0 -s schedule.milestones=1 -s schedule.gamma=1e28'

# Nine of ten validation images are of the first class, which outputs that are NaN seem to be.
rises() {
    # shellcheck disable=SC2086 # words
    run rises $steep -s optimizer.lr=1e-9 || { cat rises.err; return 1; }
    grep '^epoch 2/2 .* val not finite 0.00 %' rises.err && ! grep 'epoch 2/2.*best' rises.err &&
        same_tensors rises/$best rises/checkpoint-1.safetensors
}
ok "an evaluation that is not finite is not the best one" rises
ok "... and the summary is of the best one" sh -c 'grep "best accuracy .* in epoch 1$" rises.out &&
    grep "balanced accuracy .* in epoch 1$" rises.out && ! grep "in epoch 2" rises.out'
ok "... whose checkpoint predicts" "$AMPTRAIN" predict --weights rises "$(each | head -n 1)"
ok "no image is right in it" sh -c '"$AMPTRAIN" eval -q --weights rises/checkpoint-2.safetensors --json >lost &&
    grep "\"errors\":10,\"top1\":0,\"top5\":0,\"loss\":null" lost && grep "\"balanced_accuracy\":0" lost'

lost() { exits_with 1 run none -s optimizer.lr=1e19 -s train.epochs=1 "$@" &&
    cat none.err && grep 'no evaluation was finite: 10 of 10 images' none.err; }
ok "a run without a finite evaluation fails" lost
ok "... without a best checkpoint" sh -c '[ ! -e none/checkpoint-best.safetensors ] &&
    grep "\"event\":\"end\",\"reason\":\"not_finite\"" none/metrics.jsonl'
ok "... each time" lost -r
ok "early stopping counts it" sh -c '"$AMPTRAIN" -c best.ini -o early -s optimizer.lr=1e-9 -s schedule.name=step \
    -s schedule.warmup=0 -s schedule.milestones=1 -s schedule.gamma=1e28 -s train.epochs=9 -s train.early_stop=1 &&
    [ "$(grep -c "\"event\":\"epoch\"" early/metrics.jsonl)" = 2 ]'
rate() { exits_with 1 run rate -s optimizer.lr=1e-3 -s schedule.name=step -s schedule.warmup=0 \
    -s schedule.milestones=1 -s schedule.gamma=1e35 -s train.epochs=3 && cat rate.err &&
    grep -F "optimizer.lr (0.001, in this step 1e+32) is the usual cause" rate.err; }
ok "the rate of the step is named" rate
skipped() {
    run skipped -s amp.precision=fp16 -s amp.init_scale=16777216 -s amp.max_scale=16777216 -s data.limit=8 \
        -s train.epochs=1 -s model.norm_eps=1e-5 || { cat skipped.err; return 1; }
    grep 'all [0-9]* steps were skipped' skipped.err
}
ok "a run whose steps were all skipped says so" skipped
run averaged -s train.ema=0.9999 -s train.epochs=8
warm() { awk '/"event":"epoch"/ { match($0, /"train_top1":[^,]*/); t = substr($0, RSTART + 13, RLENGTH - 13)
    match($0, /"val_top1":[^,]*/); v = substr($0, RSTART + 11, RLENGTH - 11) } END { print t, v; exit !(v >= 0.8 * t) }' \
    averaged/metrics.jsonl; }
ok "the average of a short run has followed it" warm

### At random

next() { state=$(((state * 1103515245 + 12345) % 2147483648)); [ "$1" = 0 ] || drawn=$((state / 65536 % $1)); }
pick() { next $#; shift "$drawn"; picked=$1; }
key_of() { sed -n 's/.*"checkpoint_best":"\([^"]*\)".*/\1/p' "$1/metrics.jsonl" | tail -n 1; }

# The first of the best epochs whose loss is finite; 0: there is none.
expected() { # FOLDER
    awk -v key="\"$(key_of "$1")\":" '
        function number(name) {
            return match($0, name "[^,}]*") ? substr($0, RSTART + length(name), RLENGTH - length(name)) : "null" }
        /"event":"epoch"/ {
            value = number(key); loss = number("\"val_loss\":"); lower = key ~ /loss|mae|mse/
            if (value == "null" || loss == "null") next
            if (!best || (lower ? value + 0 < most : value + 0 > most)) { best = number("\"epoch\":"); most = value + 0 }
        }
        END { print best + 0 }' "$1/metrics.jsonl"
}

drawing() {
    pick 'classes label top1 top5 loss' 'labels labels map f1_macro loss' 'values value mae r2 loss'
    # shellcheck disable=SC2086 # words
    set -- $picked
    data=$1
    shift 2; pick "$@"; criterion=$picked
    pick 0 0.9; ema=$picked
    pick 0 1 2 3 9; bad=$picked
    pick 1e3 1e12 1e28; gamma=$picked
    pick no yes; flip=$picked
    next 20; stop=$drawn
    pick '' '' '' '-s parallel.gpus=2' '-s parallel.gpus=2 -s parallel.stages=2 -s parallel.microbatches=2'; ranks=$picked
    next 100; seed=$drawn
    options="-s data.train=$data.csv -s data.val= -s data.val_fraction=0.3 -s checkpoint.best=val_$criterion
        -s train.ema=$ema -s schedule.milestones=$bad -s schedule.gamma=$gamma -s augment.val_flip=$flip
        $ranks -s run.seed=$seed -s train.epochs=4 -s schedule.name=step -s schedule.warmup=0 -s optimizer.lr=0.01"
    [ "$data" != labels ] || options="$options -s data.task=multilabel"
    [ "$data" != values ] || options="$options -s data.task=regress"
}

# A run says its images as its configuration does, eval by whole paths.
results_of() {
    for file in confusion.csv labels.csv values.csv; do
        [ ! -e "$1/$file" ] || sed "s,^\"$PWD/,\"," "$1/$file"
    done
}

judged() {
    drawing
    echo "$options; stopped after $stop"
    rm -rf drawn other
    status=0
    # shellcheck disable=SC2086 # words
    if [ "$stop" -gt 0 ]; then run drawn $options -s run.max_steps="$stop" || :; fi
    # shellcheck disable=SC2086 # words
    run drawn $options -r || status=$?
    epoch=$(expected drawn)
    cat drawn.err drawn.out; echo "expected: epoch $epoch, exit status $status"
    if grep -q 'ends without an update' drawn.err; then return 0; fi
    if [ "$epoch" = 0 ]; then
        [ $status = 1 ] && [ ! -e drawn/$best ]
        return
    fi
    [ $status = 0 ] && same_tensors drawn/$best "drawn/checkpoint-$epoch.safetensors" || return 1
    grep -E "best .* in epoch $epoch\$" drawn.out || return 1
    ! grep -E " in epoch [0-9]+\$" drawn.out | grep -v " in epoch $epoch\$" || return 1
    "$AMPTRAIN" compare drawn drawn >table && grep -E "^best .* in epoch $epoch +.* in epoch $epoch" table || return 1
    "$AMPTRAIN" eval -q --weights "drawn/checkpoint-$epoch.safetensors" -o other >unread || return 1
    results_of drawn >one; results_of other >two
    [ -s one ] && cmp one two
}

state=1
many() { i=0; while [ $i -lt "$1" ]; do judged >words.txt 2>&1 || { cat words.txt; return 1; }; i=$((i + 1)); done; }
ok "of runs drawn at random, the best one is shown" many "$(rounds 4 200)"
finish
