#!/bin/sh
# Faults of a run on two GPUs: a rank that is killed or hangs, and a full disk, end all ranks in time; the
# resumed run has the bits of an undisturbed one.
. "$top_srcdir/tests/support/two.sh"

printf '[parallel]\ngpus = 2\n' >>run.ini

ranks="-s train.accumulate=2"
stages="-s train.accumulate=1 -s parallel.stages=2 -s parallel.microbatches=4"
endless="-s run.max_steps=10000000 -s train.epochs=1000000 -s train.eval_every=0"

# Orphans that have ended may wait for whoever adopted them.
gone() {
    for rank in $children; do
        ! grep -q '^State:.[^ZX]' "/proc/$rank/status" || return 1
    done
}
# begin FOLDER [OPTION...]: a run in training, and its ranks in order as $children.
begin() {
    rm -rf "$1"
    start "$@"
    wait_for grep -q '"step":20,' "$1/metrics.jsonl" || return 1
    children=$(cat "/proc/$process/task/$process/children")
}
# ended FOLDER STATUS SECONDS WORDS: it has ended with STATUS by then, all ranks with it, and said WORDS once.
ended() {
    began=$(date +%s)
    wait "$process"
    got=$? took=$(($(date +%s) - began))
    cat "$1.log"
    [ "$got" = "$2" ] && [ $took -le "$3" ] && [ "$(grep -c "$4" "$1.log")" = 1 ] && wait_for gone ||
        { echo "exit status $got after $took s"; return 1; }
}

# shellcheck disable=SC2086 # words
killed() {
    begin killed $endless "$@" && kill -KILL "$(echo $children | cut -d ' ' -f 1)" &&
        ended killed 137 5 "rank 0 was killed by signal 9"
}
ok "a rank that is killed ends the run" killed $ranks
ok "... and a stage, too" killed $stages

# shellcheck disable=SC2086
stopped() {
    begin stopped $endless -s "checkpoint.every=1000000 steps" -s parallel.timeout=3 "$@" &&
        kill -STOP "$(echo $children | cut -d ' ' -f 2)" &&
        ended stopped 1 10 "rank 1 has made no progress for [3-6] s while others wait for it"
}
ok "a rank that stands still is named after parallel.timeout, and all end" stopped $ranks
ok "... and a stage, too" stopped $stages

# A file system of its own, with room for the lines of a run, but for less than one more checkpoint.
full() {
    rm -rf full kept
    mkdir full
    size=$(($(du -sk part | cut -f 1) + 40))
    # shellcheck disable=SC2016 # the inner shell's
    unshare -rm sh -c 'mount -t tmpfs -o size="$1k" none full && cp -a part/. full && shift &&
        { timeout 60 "$AMPTRAIN" -q -c run.ini -o full -r "$@" 2>said; echo $? >status; }
        cp -a full kept' sh "$size" "$@"
    cat said
    [ "$(cat status)" = 1 ] && [ "$(grep -c "No space left on device" said)" -ge 1 ]
}
again() { train kept -r "$@" && same whole kept; }
if unshare -rm sh -c 'mount -t tmpfs -o size=1m none /mnt' 2>said; then
    for how in "$ranks" "$stages"; do
        rm -rf whole part
        # shellcheck disable=SC2086
        ok "a run" train whole -s run.max_steps=24 $how
        # shellcheck disable=SC2086
        ok "... that is stopped" train part -s run.max_steps=11 $how
        # shellcheck disable=SC2086
        ok "... ends with an error where the disk is full" full -s run.max_steps=24 $how
        # shellcheck disable=SC2086
        ok "... and goes on elsewhere, to the same bits" again -s run.max_steps=24 $how
    done
else
    skip "a disk that is full" "$(cat said)"
fi
finish
