#!/bin/sh
# --restarts: a run that fails is started again from its last checkpoint, and ends as if nothing had happened.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"
command -v pgrep >found || { skip "all cases" "there is no pgrep"; finish; exit; }

has() { grep -qF -e "$1" "$2" || { cat "$2"; return 1; }; }
# kill_once PROCESS FOLDER: its run, or a process of that, when it has a checkpoint.
kill_once() {
    wait_for test -s "$2/checkpoint-last.safetensors" || return 1
    struck=$(pgrep -P "$1" | tail -n 1)
    deeper=$(pgrep -P "$struck" | tail -n 1)
    kill -KILL "${deeper:-$struck}"
}
# A run that is long enough to be killed in.
long="-s train.epochs=8"
# shellcheck disable=SC2086 # words
killed() { # RANKS
    rm -rf whole killed
    train whole -s parallel.gpus="$1" -s train.accumulate=1 $long || return 1
    start killed -s parallel.gpus="$1" -s train.accumulate=1 $long --restarts 3
    kill_once $process killed
    wait $process || { cat killed.log; return 1; }
    has "it is started again from its last checkpoint (1 of 3 times)" killed.log && same whole killed
}
ok "a run that is killed" killed 1
ok "... and one of its two ranks" killed 2

# Ranks that others start (test_ranks_tcp.sh): each is started again, and they meet once more.
port=$((30000 + $$ % 10000))
apart() {
    rm -rf apart
    for number in 1 0; do
        RANK=$number WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port GROUP_RANK=$number \
            "$AMPTRAIN" -c run.ini -o apart -s train.accumulate=1 -s train.epochs=8 --restarts 3 \
            >/dev/null 2>apart.$number.err &
        eval "rank$number=\$!"
    done
    # shellcheck disable=SC2154 # assigned by eval
    kill_once "$rank1" apart
    # shellcheck disable=SC2154
    wait "$rank0" && wait "$rank1" || { cat apart.*.err; return 1; }
    has "killed by signal 9; it is started again" apart.1.err && has "it is started again" apart.0.err &&
        same whole apart
}
ok "ranks of two hosts meet again" apart

# A host that is lost with all that ran on it: the others go on without it, to the same bits.
# gone COUNT TIMEOUT LOST...: ranks that are started, and those of hosts that are lost. The first one waits for half
# of the timeout: for others, which begin slowly on a busy machine, that must do.
gone() {
    rm -rf whole gone gone.*.err
    count=$1 patience=$2 port=$((port + 1)); shift 2
    train whole -s train.accumulate="$count" $long || return 1
    number=$count
    while [ $number -gt 0 ]; do
        number=$((number - 1))
        RANK=$number WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$port GROUP_RANK=$number \
            "$AMPTRAIN" -c run.ini -o gone -s train.accumulate=1 $long -s parallel.timeout="$patience" --restarts 3 \
            >/dev/null 2>gone.$number.err &
        eval "rank$number=\$!"
    done
    wait_for test -s gone/checkpoint-last.safetensors || return 1
    for number in "$@"; do
        eval "struck=\$rank$number"
        below=$(pgrep -P "$struck")
        # shellcheck disable=SC2086 # numbers
        kill -KILL "$struck" $below
    done
    # shellcheck disable=SC2154 # assigned by eval
    wait "$rank0" || { cat gone.*.err; return 1; }
    same whole gone
}
ok "a run whose second host is lost goes on with one" gone 2 12 1
ok "... which is said" has "these ranks have not come back: 1; the run goes on with 1 of 2" gone.0.err
ok "a run of four, of which one is lost, goes on with two" gone 4 30 2
ok "... since three could not divide it" has "these ranks have not come back: 2; the run goes on with 2 of 4" \
    gone.0.err
# shellcheck disable=SC2154
left() { wait "$rank3"; [ $? = 75 ] && has "rank 3 is not needed: others go on without it" gone.3.err; }
ok "... which ends with a checkpoint there" left

early() {
    start early -s checkpoint.every=100000 -s run.max_steps=60 -s train.epochs=100 --restarts 1
    wait_for grep -q '"step":2' early/metrics.jsonl || return 1
    kill -KILL "$(pgrep -P $process)"
    wait $process || { cat early.log; return 1; }
    grep -c '"step":1,' early/metrics.jsonl | grep -qx 1
}
ok "without a checkpoint it begins at the beginning" early
stopped() {
    start stopped -s train.epochs=100000 --restarts 3
    wait_for grep -q '"step":2' stopped/metrics.jsonl || return 1
    kill -TERM $process
    wait $process
    [ $? = 75 ] && ! grep -q "started again" stopped.log
}
ok "a run that is asked to stop is not started again" stopped
usage() { says 2 "train.lr" "$AMPTRAIN" -c run.ini -o usage -s train.lr=1 --restarts 2 && ! grep -q again err; }
ok "a wrong configuration is refused once" usage
ok "a run without a folder" says 2 "--restarts needs a run folder" "$AMPTRAIN" -q -c run.ini --restarts 2
finish
