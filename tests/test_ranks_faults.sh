#!/bin/sh
# Faults of one rank of several (faults.c): the run ends with the exit code of the cause, which is said once,
# no rank is left, and the last checkpoint is good.
. "$top_srcdir/tests/tap.sh"
. "$top_srcdir/tests/tiny.sh"

faulty=$top_builddir/tests/faulty
FAULT_RANK=0 FAULT=batch:1:EIO "$faulty" --version >/dev/null 2>err || { skip "faults" "$(cat err)"; finish; exit; }

long="-s run.max_steps=300 -s train.epochs=100"
# struck RANK FAULT N FOLDER [OPTION...]: a run of N ranks, one of which a fault strikes.
struck() {
    rank=$1 fault=$2 number=$3 folder=$4; shift 4
    rm -rf "$folder"
    FAULT_RANK=$rank FAULT=$fault timeout 60 "$faulty" -q -c run.ini -o "$folder" -s "parallel.gpus=$number" \
        -s train.accumulate=1 $long "$@" &
    process=$!
    wait_for [ -s "/proc/$process/task/$process/children" ]
    wait "$process"
}
said_once() { [ "$(grep -cF -e "$1" err)" = 1 ] || { cat err; echo "not said once: $1"; return 1; }; }
goes_on() { # FOLDER N: to the end of the run to which nothing happened
    train "$1" -r -s "parallel.gpus=$2" -s train.accumulate=1 -s "checkpoint.every=20 steps" $long &&
        same undisturbed "$1"
}

ok "a run of 300 steps" train undisturbed -s parallel.gpus=2 -s train.accumulate=1 \
    -s "checkpoint.every=20 steps" $long

# A bit that turns over in the parameters of one rank.
differs() { says 1 "rank $1 differs from rank $2, first in conv1.weight: master" struck "$1" batch:70:flip "$3" flipped; }
without_folder() {
    FAULT_RANK=1 FAULT=batch:70:flip says 1 "after step 100 rank 1 differs from rank 0" \
        "$faulty" -q -c run.ini -s parallel.gpus=2 -s train.accumulate=1 $long
}
ok "one bit of a rank's parameters is found within 100 steps" without_folder
ok "... with 4 ranks, too" differs 2 0 4
ok "... and if it is the first one's" differs 0 1 4
before_checkpoint() {
    says 1 "after step 40 rank 1 differs from rank 0" struck 1 batch:30:flip 2 differing \
        -s "checkpoint.every=20 steps" && said_once differs && said_once "the last checkpoint is of step 22"
}
ok "... and before a checkpoint is written" before_checkpoint
ok "... so that the run goes on from the last good one" goes_on differing 2
finish
