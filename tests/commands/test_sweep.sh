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
finish
