#!/bin/sh
# A run that is stopped, killed or cut short anywhere and resumed ends in the same bits as one that never was.
. "$top_srcdir/tests/tap.sh"
. "$top_srcdir/tests/tiny.sh"

kills=$(rounds 8 500)
last=checkpoint-last.safetensors

ok "a run" train whole
train again >/dev/null 2>&1
ok "two runs are equal" same whole again

# A number from 0 to $1 - 1 from the kernel's own randomness.
below() { echo $(($(od -An -t u2 -N 2 /dev/urandom) % $1)); }

# start FOLDER [OPTION...]: a run in the background, as $process, that speaks into FOLDER.log.
start() {
    folder=$1; shift
    "$AMPTRAIN" -c run.ini -o "$folder" "$@" 2>"$folder.log" &
    process=$!
}

# wait_for COMMAND...: until it succeeds, for at most 20 seconds.
wait_for() {
    tries=0
    until "$@" 2>/dev/null; do
        sleep 0.02
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || return 1
    done
}

# signal_at FOLDER SIGNAL: starts or resumes a run and sends a signal after up to 0.2 s; its exit status.
signal_at() {
    start "$1" -r
    sleep 0.$(below 2)$(below 10)
    kill -"$2" $process 2>/dev/null
    wait $process
}

# until_done FOLDER SIGNAL COUNT: that many signals, unless it ends before, then lets it end.
until_done() {
    rounds=0
    while [ $rounds -lt "$3" ]; do
        signal_at "$1" "$2"
        status=$?
        case $status in
        0) return ;;
        75 | 137 | 143) ;;
        *) cat "$1.log"; echo "exit status $status"; return 1 ;;
        esac
        rounds=$((rounds + 1))
    done
    train "$1" -r
}

ok "SIGTERM at random moments" until_done terminated TERM 4
ok "... ends in the same bits and lines" same whole terminated
ok "kill -9 at random moments" until_done killed KILL "$kills"
ok "... ends in the same bits and lines" same whole killed

in_pieces() {
    for steps in 1 2 3 5 8 13 21 34; do
        train pieces -r -s run.max_steps=$steps || return 1
    done
    train pieces -r
}
ok "max_steps, again and again" in_pieces
ok "... ends in the same bits and lines" same whole pieces

# Far too short a time: still every process gets a step further.
timed() {
    rounds=0
    while [ $rounds -lt 100 ]; do
        train timed -r -s run.max_time=0.001
        status=$?
        [ $status = 75 ] || return $status
        rounds=$((rounds + 1))
    done
    return 1
}
ok "max_time, again and again" timed
ok "... ends in the same bits and lines" same whole timed

# Damage to the last checkpoint: the one before is used, and the end is the same all the same.
cut_last() {
    mkdir damaged
    cp whole/metrics.jsonl damaged
    cp whole/checkpoint-previous.safetensors damaged
    head -c 20000 "whole/$last" >"damaged/$last"
    train damaged -r 2>said
    status=$?
    cat said
    grep -q 'resuming from .*checkpoint-previous' said && return $status
}
ok "a cut-off last checkpoint: the previous one is used" cut_last
ok "... ends in the same bits and lines" same whole damaged

no_good() {
    mkdir bad
    head -c 20000 "whole/$last" >"bad/$last"
    head -c 100 "whole/$last" >bad/checkpoint-previous.safetensors
    train bad -r
}
exits "no good checkpoint" 5 no_good

hang_up() {
    start hup -s checkpoint.every=0 -s checkpoint.best=val_loss -s train.epochs=100000
    wait_for grep -q "step 3/" hup.log
    kill -HUP $process
    wait_for grep -q "checkpoint on request" hup.log || return 1
    kill -USR1 $process
    wait $process
}
exits "SIGHUP: a checkpoint, and on; SIGUSR1: the end" 75 hang_up

status_line() {
    start usr2 -s log.every=1000000 -s train.epochs=100000
    wait_for grep -q "epoch 1/" usr2.log
    kill -USR2 $process
    wait_for grep -q "left" usr2.log
    said=$?
    kill -TERM $process
    wait $process
    return $said
}
ok "SIGUSR2: a status line" status_line

two_at_once() {
    start lock -s train.epochs=100000
    wait_for grep -q "epoch 1/" lock.log
    train lock -r
    status=$?
    kill -TERM $process
    wait $process
    return $status
}
exits "a second process on the same folder" 1 two_at_once
finish
