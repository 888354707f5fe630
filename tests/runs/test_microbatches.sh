#!/bin/sh
# parallel.microbatches on one device: the bits of train.accumulate, whatever has streams, and auto's choice.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# equals K ACCUMULATE MICROBATCHES [OPTION...]: the run is that of train.accumulate=K.
equals() {
    all=$1 each=$2 count=$3; shift 3
    rm -rf alone streamed
    train alone -s train.accumulate="$all" -s run.max_steps=6 -s train.batch=48 &&
        train streamed -s train.accumulate="$each" -s parallel.microbatches="$count" -s run.max_steps=6 \
            -s train.batch=48 "$@" && same alone streamed
}
for count in 2 3 4 8; do
    ok "$count micro-batches" equals $count 1 $count
    ok "... with a stream per layer" equals $count 1 $count -s parallel.streams=layers
done
ok "2 micro-batches, accumulated twice" equals 4 2 2

resumed() {
    rm -rf alone streamed
    train alone -s train.accumulate=4 -s run.max_steps=9 &&
        train streamed -s train.accumulate=1 -s parallel.microbatches=4 -s run.max_steps=3 &&
        train streamed -r -s train.accumulate=4 -s run.max_steps=6 &&
        train streamed -r -s train.accumulate=2 -s parallel.microbatches=2 -s parallel.streams=layers \
            -s run.max_steps=9 && same alone streamed
}
ok "a run continues with another split into as many micro-batches" resumed
ok "... with a warning if the number differs" says 0 "had 4 micro-batches and now has 8" \
    "$AMPTRAIN" -q -c run.ini -o streamed -r -s train.accumulate=2 -s parallel.microbatches=4 -s \
        run.max_steps=10

# Prints what auto has become.
chosen() { sed -n 's/^microbatches = auto *; //p' "$1/config.ini"; }
automatic() {
    train automatic -s train.accumulate=1 -s parallel.microbatches=auto -s run.max_steps=3 &&
        count=$(chosen automatic) && case $count in 1 | 2 | 4) ;; *) false ;; esac &&
        train automatic -r -s train.accumulate=1 -s parallel.microbatches=auto -s run.max_steps=6 &&
        train numbered -s train.accumulate=1 -s parallel.microbatches="$count" -s run.max_steps=6 &&
        same automatic numbered
}
ok "auto selects 1, 2 or 4, and a resumed run keeps it" automatic
twice() {
    for run in one two; do
        train $run -s train.accumulate=1 -s parallel.microbatches=auto -s run.max_steps=3 || return 1
    done
    same one two && [ "$(chosen one)" = 1 ]
}
ok "... by no clock on the CPU" twice
# Only four micro-batches make a step need no more than the limit.
limited() {
    set -- -s train.accumulate=1 -s memory.strategy=keep -s train.batch=1024
    limit=$("$AMPTRAIN" plan -q -c run.ini "$@" -s parallel.microbatches=4 --json |
        sed -n 's/.*"total_bytes":\([0-9]*\).*/\1/p')
    set -- "$@" -s memory.limit="$limit"
    train whole "$@" -s parallel.microbatches=auto && [ "$(chosen whole)" = 4 ] || return 1
    exits_with 4 train fixed "$@" -s parallel.microbatches=2 || return 1
    start cut "$@" -s parallel.microbatches=auto -s train.epochs=400
    wait_for [ -e cut/checkpoint-last.safetensors ] && kill -KILL $process && ! wait $process
    train cut -r "$@" -s parallel.microbatches=auto -s train.epochs=1 && [ "$(chosen cut)" = 4 ]
}
ok "... within the limit, and a run that was killed goes on" limited
ok "... 1 in deterministic runs" says 0 "parallel.microbatches: auto is 1" "$AMPTRAIN" -c run.ini \
    -s train.accumulate=1 -s parallel.microbatches=auto -s run.deterministic=yes -s run.max_steps=1
ok "... is only for one GPU" says 2 "parallel.microbatches: auto is for one GPU" "$AMPTRAIN" -c run.ini \
    -s train.accumulate=1 -s parallel.microbatches=auto -s parallel.gpus=2
ok "a number that does not divide the batch" says 2 \
    "parallel.microbatches: 5 does not divide train.batch = 64" \
    "$AMPTRAIN" -c run.ini -s train.accumulate=1 -s parallel.microbatches=5
ok "streams=layers needs micro-batches" says 0 \
    "parallel.streams has no effect without parallel.microbatches" \
    "$AMPTRAIN" -q -c run.ini -s parallel.streams=layers -s run.max_steps=1
ok "plan assumes 1" "$AMPTRAIN" plan -c run.ini -s train.accumulate=1 -s parallel.microbatches=auto
ok "bench" "$AMPTRAIN" bench -c run.ini -s train.accumulate=1 -s parallel.microbatches=auto --steps 2
finish
