#!/bin/sh
# sweep: runs of all combinations of some values, stopped and resumed, several at once, and their table.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

sweep() { "$AMPTRAIN" sweep -c run.ini -s amp.precision=fp32 -s run.report=no "$@" >out 2>err; }
short() { sweep -s train.epochs=1 "$@"; }
lists() { short --check "$@" && sort out; }

ok "a grid" short -s optimizer.lr=0.05,0.1 -s train.batch=32,64 -o grid
ok "... has a folder for each run" sh -c 'cd grid && [ "$(ls -d */ | tr "\n" " ")" = \
    "lr=0.05,batch=32/ lr=0.05,batch=64/ lr=0.1,batch=32/ lr=0.1,batch=64/ " ]'
ok "... each with its values" grep -qx 'lr = 0.1' grid/lr=0.1,batch=32/config.ini
ok "... and a table, the best run first" sh -c '[ "$(sed 1d out | wc -l)" = 4 ] &&
    sed 1d out | awk "{ print \$2 }" | sort -gr >sorted && sed 1d out | awk "{ print \$2 }" | cmp - sorted'
ok "... and a page" grep -q '<th class="c3">' grid/compare.html
train alone -s amp.precision=fp32 -s run.report=no -s train.epochs=1 -s optimizer.lr=0.1 -s train.batch=32
ok "... of runs as they are alone" same alone grid/lr=0.1,batch=32
cp -r grid again
ok "again, all of them have ended" short -s optimizer.lr=0.05,0.1 -s train.batch=32,64 -o again
ok "... and none is repeated" sh -c 'for run in grid/*/; do
    cmp "$run/checkpoint-last.safetensors" "again/${run#grid/}/checkpoint-last.safetensors" || exit 1; done'
ok "two at once give the same" short -s optimizer.lr=0.05,0.1 -s train.batch=32,64 -s run.threads=1 -j 2 -o both
ok "... bits" same alone both/lr=0.1,batch=32

both() { [ -e halves/seed=1/metrics.jsonl ] && [ -e halves/seed=2/metrics.jsonl ]; }
stopped() {
    "$AMPTRAIN" sweep -c run.ini -s amp.precision=fp32 -s run.report=no -s run.seed=1,2 -s train.epochs=30 -j 2 \
        -s run.threads=1 -o halves >out 2>err &
    process=$!
    wait_for both && kill -TERM $process && exits_with 75 wait $process && cat err out &&
        [ -e halves/seed=1/checkpoint-last.safetensors ] && [ -e halves/seed=2/checkpoint-last.safetensors ]
}
resumed() {
    sweep -s run.seed=1,2 -s train.epochs=30 -j 2 -s run.threads=1 -o halves &&
        train whole -s amp.precision=fp32 -s run.report=no -s run.seed=2 -s train.epochs=30 -s run.threads=1 &&
        same whole halves/seed=2
}
ok "a signal stops all runs with their checkpoints" stopped
ok "... and the same command goes on exactly" resumed
ok "... with a mean over seeds" grep -qE '^all +2 +[0-9.]+ +[0-9.e-]+$' out

ok "folds" short --folds 3 -s optimizer.lr=0.05,0.1 -o folds
ok "... of each value" sh -c '[ "$(ls -d folds/*/ | wc -l)" = 6 ] && grep -qx "fold = 2/3" folds/lr=0.1,fold=2-3/config.ini'
ok "... with their means" sh -c '[ "$(grep -cE "^lr=0.(05|1) +3 " out)" = 2 ]'

five() { lists --random 5 -s optimizer.lr=1e-3..1 -s train.batch=32,64 -o random >five && [ "$(wc -l <five)" = 5 ]; }
seven() { lists --random 7 -s optimizer.lr=1e-3..1 -s train.batch=32,64 -o random >seven &&
    [ "$(comm -12 five seven | wc -l)" = 5 ]; }
within() { sed 's/lr=//; s/,.*//' seven | awk '$1 < 1e-3 || $1 > 1 { exit 1 }'; }
ok "runs drawn at random" five
ok "... more of them begin with the same" seven
ok "... within the range" within
ok "... but no more than there are" sh -c '[ "$("$AMPTRAIN" sweep -c run.ini --check --random 9 \
    -s run.seed=1,2,3 -o random | wc -l)" = 3 ]'
ok "lists are divided at semicolons" sh -c '"$AMPTRAIN" sweep -c run.ini --check -o lists \
    -s "optimizer.betas=0.9,0.99;0.8,0.9" | grep -qx "betas=0.8-0.9"'

failing() {
    exits_with 3 short -s data.train=,nothing -s data.format=digits,folder -o failing && cat err && grep -q 'exit status 3: ' err
}
ok "a run that fails is told, others go on" failing
linked() {
    mkdir linked && echo mine >victim && ln -s ../victim linked/seed=1.txt &&
        says 1 "linked/seed=1.txt: cannot be written: a symbolic link" short -s run.seed=1,2 -o linked
    cat err && [ "$(cat victim)" = mine ] && [ -L linked/seed=1.txt ]
}
ok "what a run says is not written through a link" linked
printf 'my notes\n' >notes
mine() { mkdir -p mine && cp notes mine/seed=1.txt &&
    says 2 "mine/seed=1.txt: was not written by amptrain" short -s run.seed=1,2 -o mine && cmp notes mine/seed=1.txt; }
ok "... nor over a file of the user's" mine

# ranged KEY=RANGE LEAST MOST: eight whole numbers or fractions between the two.
ranged() {
    key=${1%%=*}
    lists --random 8 -s "$1" -o random >drawn && [ "$(wc -l <drawn)" -ge 2 ] && cat drawn &&
        sed "s/${key#*.}=//" drawn | awk -v least="$2" -v most="$3" '$1 < least || $1 > most { exit 1 }'
}
ok "a range of whole numbers" ranged train.batch=8..16 8 16
ok "... from 0" ranged augment.flip=0..1 0 1
ok "a range that ends before it begins is none" says 2 "must be a whole number" "$AMPTRAIN" sweep -c run.ini --check \
    --random 2 -s train.epochs=16..8 -s run.seed=1,2 -o random
ok "a key given twice" says 2 "optimizer.lr is given twice" "$AMPTRAIN" sweep -c run.ini --check \
    -s optimizer.lr=0.1,0.2 -s optimizer.lr=0.3 -o twice
ok "... by --folds" says 2 "data.fold is given twice" "$AMPTRAIN" sweep -c run.ini --check \
    -s data.fold=1/2 --folds 2 -o twice
ok "lists with commas are one value" sh -c '"$AMPTRAIN" sweep -c run.ini --check -s "train.freeze=conv1.*,fc.*" \
    -s run.seed=1,2 -o random >out && [ "$(wc -l <out)" = 2 ] && grep -qx "seed=1" out'
ok "too many folds" says 2 "there may be 100000 runs" "$AMPTRAIN" sweep -c run.ini --check --folds 1000000000 -o many
ok "too many runs" says 2 "are too many" "$AMPTRAIN" sweep -c run.ini --check --folds 90000 -s run.seed=1,2 -o many

alone() { short --folds 2 -s optimizer.lr=0.1 -s run.max_steps=1 -s train.eval_every=0 -o alone &&
    rm -rf alone/fold=1-2 && mkdir alone/fold=1-2 && ! grep -i nan out; }
ok "the deviation of one run" alone

# Another epoch may be the best one by val_loss than by accuracy; a run without a finite one has none.
judged() {
    short -s checkpoint.best=val_loss -s optimizer.lr=0.05,1e19 -s train.ema=0 -o judged
    cat out err
    grep -E "^lr=0.05 +[0-9.]+ +1 *$" out && grep -E "^lr=1e.?19 +- " out &&
        "$AMPTRAIN" compare judged/lr=0.05 judged/lr=0.05 | grep "^best validation loss +[0-9.]* in epoch 1" -E
}
ok "by checkpoint.best" judged

# Runs of a sweep that was killed are still ending when the next one begins.
killed() {
    rm -rf killed
    "$AMPTRAIN" sweep -c run.ini -s run.report=no -s run.seed=1,2 -s train.epochs=3 -o killed >out 2>err &
    process=$!
    wait_for [ -e killed/seed=1/metrics.jsonl ] && kill -KILL $process && ! wait $process
    (exec 9>>killed/seed=1/.lock && flock 9 && sleep 1) &
    "$AMPTRAIN" sweep -c run.ini -s run.report=no -s run.seed=1,2 -s train.epochs=3 -o killed >out 2>err
}
ok "again, right behind a kill" killed

ok "a wrong value ends it before the first run" says 2 "-s optimizer.lr=high: must be a number" "$AMPTRAIN" sweep -c run.ini \
    -s optimizer.lr=0.1,high -o wrong
ok "... without a folder" [ ! -e wrong ]
ok "one value each is no sweep" says 2 "no key has several values" "$AMPTRAIN" sweep -c run.ini \
    -s optimizer.lr=0.1 -o wrong
ok "ranges are for random runs" says 2 "a range is for --random" "$AMPTRAIN" sweep -c run.ini \
    -s optimizer.lr=0.1..1 -o wrong
ok "runs of one name" says 2 "two runs would have the folder train=a-b" "$AMPTRAIN" sweep -c run.ini \
    -s data.train=a/b,a-b -o wrong
ok "-j is a number" says 2 "sweep: -j must be a whole number" "$AMPTRAIN" sweep -c run.ini -j many \
    -s run.seed=1,2 -o wrong
ok "a folder is needed" says 2 "name a folder" "$AMPTRAIN" sweep -c run.ini -s run.seed=1,2

# The program's file may not be run any more when the second run begins.
lost() {
    cp "$AMPTRAIN" program && cp "$top_builddir/source-folder" .
    ./program sweep -c run.ini -s amp.precision=fp32 -s run.report=no -s run.seed=1,2 -s train.epochs=30 -j 1 -o lost \
        >out 2>err &
    process=$!
    wait_for [ -e lost/seed=1/metrics.jsonl ] && chmod a-x program
    status=0
    wait $process || status=$?
    cat err
    [ $status = 1 ] && grep -q "this program's file cannot be run again: Permission denied" err &&
        [ -e lost/seed=1/checkpoint-last.safetensors ]
}
ok "a program that cannot be run again says so" lost
finish
