#!/bin/sh
# Runs of several ranks to which anything happens at any moment: they end in time, leave nothing behind, and
# go on, with any number of ranks and stages, to the bits of a run to which nothing happened.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0      # what a process holds that ends in the midst
export ASAN_OPTIONS

below() { echo $(($(od -An -t u4 -N 4 /dev/urandom) % $1)); }      # a number from 0 to $1 - 1
pick() { shift "$(below $#)"; echo "$1"; }
now() { echo $(($(date +%s%N) / 1000000)); }                       # in milliseconds

# begin RANKS[xSTAGES] [OPTION...]: a run of four micro-batches a step, or what is left of one.
begin() {
    number=${1%x*} stages=1 divided=train.accumulate
    case $1 in *x*) stages=${1#*x} divided=parallel.microbatches ;; esac
    shift
    if [ -e run ]; then set -- "$@" -r; fi
    start run -s "checkpoint.every=20 steps" -s run.max_steps=300 -s train.epochs=100 -s train.accumulate=1 \
        -s "parallel.gpus=$number" -s "parallel.stages=$stages" -s $divided=$((4 * stages / number)) "$@"
}
began=$(now)
begin 4
ok "a run of 300 steps" wait "$process"
life=$(($(now) - began))
mv run whole

# Orphans that have ended may wait for whoever adopted them.
gone() {
    for rank in $ranks; do
        ! grep -q '^State:.[^ZX]' "/proc/$rank/status" || return 1
    done
}
any_moment() { delay=$(below "$life"); sleep "$((delay / 1000)).$(printf %03d $((delay % 1000)))"; }
lines_of() { cat run/metrics.jsonl 2>/dev/null | wc -l; }
longer() { [ "$(lines_of)" -gt "$had" ] || ! kill -0 "$process"; }
in_training() { wait_for longer; any_moment; }

# strike EVENT STATUS: what is done to $ranks or $process at some $moment ends them with STATUS and $words,
# unless the run is over by then.
strike() {
    had=$(lines_of)
    # shellcheck disable=SC2086 # words
    begin "$(pick $numbers)" $options
    $moment
    ranks=$(cat "/proc/$process/task/$process/children" 2>/dev/null)
    struck=$(now)
    $1 2>/dev/null
    wait "$process"
    got=$?
    wait_for gone || { echo "of ranks $ranks some are left"; return 1; }
    took=$(($(now) - struck))
    case $got in
    0) same whole run && rm -rf run && runs=$((runs + 1)) ;;
    143) [ "$1" = ask ] ;;      # before the program was there to be asked
    "$2") met=$((met + 1)) && echo $took >>times && [ "$(grep -c "$words" run.log)" = "$once" ] ;;
    *) false ;;
    esac || { tail -n 9 run.log; echo "exit status $got"; return 1; }
}
# torment EVENT STATUS COUNT MILLISECONDS: until so many have ended so, each in time, which others may need
# for themselves in the short form. What is left then goes on.
torment() {
    met=0 runs=0
    : >times
    while [ $met -lt "$3" ]; do
        strike "$1" "$2" || return 1
    done
    most=$(sort -n times | tail -n 1)
    said="$met times, all processes gone after $(sort -n times |
        sed -n "$(((met + 1) / 2))p") ms, at most $most ms"
    [ -z "${AMPTRAIN_TORTURE-}" ] || [ "$most" -le "$4" ] || { echo "$said"; return 1; }
    [ -e run ] || return 0
    begin 2 && wait "$process" && same whole run && rm -rf run && runs=$((runs + 1))
}
# shellcheck disable=SC2086
kill_rank() { [ -z "$ranks" ] || kill -KILL "$(pick $ranks)"; }
kill_launcher() { kill -KILL "$process"; }
# shellcheck disable=SC2086
stop_rank() { [ -z "$ranks" ] || kill -STOP "$(pick $ranks)"; }
ask() { kill -TERM "$process"; }

numbers="2 4 2x2 4x2" moment=any_moment options= words="was killed by signal 9" once=1
ok "kill -9 of any rank at any moment" torment kill_rank 137 "$(rounds 4 200)" 1000
figure "$said; $runs runs ended in the same bits"
once=0
ok "... of the launcher" torment kill_launcher 137 "$(rounds 2 200)" 1000
figure "$said; $runs runs ended in the same bits"

# An evaluation has ten times as long as a step.
moment=in_training options="-s parallel.timeout=2" words="progress for" once=1
if [ -n "${AMPTRAIN_TORTURE-}" ]; then
    ok "kill -STOP of any rank" torment stop_rank 1 20 21000
    figure "$said; $runs runs ended in the same bits"
fi

ls /dev/shm >before
numbers="1 2 4 2x2 3x3 4x2" moment=any_moment options= words="stopped with a checkpoint"
ok "stops, each resumed by any number of ranks and stages" torment ask 75 "$(rounds 8 1000)" 2000
figure "$said; $runs runs ended in the same bits"
[ -z "${AMPTRAIN_TORTURE-}" ] || ok "... leave nothing behind" sh -c 'ls /dev/shm | diff before -'
finish
