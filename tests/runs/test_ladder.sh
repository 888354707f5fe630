#!/bin/sh
# When the device has less memory than was planned for, at any moment: the run is planned again for what there
# is, and goes on to the same bits; or it ends with exit status 4 and a table of what needs how much. What it
# may take changes on request, too. The device is the CPU with as much memory as faults.c lets it have.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

OMP_WAIT_POLICY=passive
export OMP_WAIT_POLICY
faulty=$top_builddir/tests/support/faulty
"$faulty" --version >/dev/null 2>err || { skip "memory failures" "$(cat err)"; finish; exit; }

# short FOLDER: a run of 4 steps and evaluations, in a larger network on larger images than training's.
sed -e 's/^crop.*/crop = 8\nval_resize = 12\nval_crop = 12/' -e 's/^accumulate.*/accumulate = 1/' \
    -e 's/^batch.*/batch = 64/' -e 's/^epochs.*/epochs = 2/' -e 's/^format.*/format = digits\nlimit = 128/' \
    -e 's/^file.*/arch = resnet20/' run.ini >large.ini
sed -e '/^val_/d' -e 's/^arch = .*/file = tiny.ini/' large.ini >small.ini
short() {
    rm -rf "$1"
    "$faulty" -c "$config" -s memory.strategy="${strategy-auto}" -o "$1" 2>"$1.log"
}
value() { "$AMPTRAIN" plan -c large.ini --json | tr , '\n' | sed -n "s/^{*\"$1\"://p"; }

FAULT_COUNTS=$scratch/counts FAULT_FIRED=$scratch/fired
export FAULT_COUNTS FAULT_FIRED
config=large.ini
ok "without failures" short whole-large
total=$(value total_bytes)
config=small.ini
ok "... in a tiny network" short whole-small
calls=$(sed -n 's/^device-memory //p' counts)

# ends FOLDER STATUS: as it should, with nothing left behind.
ends() {
    grep -qx "held 0" counts || { echo "memory is not given back"; return 1; }
    case $2 in
    0) same "whole-${config%.ini}" "$1" ;;
    4) grep -q "the device has only\|host memory for" "$1.log" ;;
    *) echo "exit status $2"; return 1 ;;
    esac || { cat "$1.log"; return 1; }
}

# Every call for memory fails once, and what is asked for again is there.
each_once() {
    k=0 went_on=0
    while [ $((k += 1)) -le "$calls" ]; do
        status=0
        FAULT=device-memory:$k:ENOMEM short once || status=$?
        [ -s fired ] || { echo "call $k of $calls was not made"; return 1; }
        ends once $status || { echo "call $k of $calls"; return 1; }
        [ $status != 0 ] || went_on=$((went_on + 1))
    done
    echo "went on $went_on of $calls times"
    [ $went_on -ge 4 ]
}
ok "one allocation fails, at any call" each_once

# From some call on there is none.
stride=1
[ -z "${AMPTRAIN_SANITIZED-}" ] || stride=3
for_good() {
    k=$((1 - stride))
    while [ $((k += stride)) -le "$calls" ]; do
        status=0
        FAULT=device-memory:$k:ENOMEM:on short good || status=$?
        [ -s fired ] || { echo "call $k of $calls was not made"; return 1; }
        ends good $status || { echo "call $k of $calls"; return 1; }
    done
}
ok "... or all from there on" for_good

# Some of what is asked for is for what waits on the host, and need not be pinned. It is more
# than what a few small blocks share.
strategy=offload
sed -e '/^val_/d' large.ini >deep.ini
config=deep.ini
unpinned() {
    k=1 unpinned=0
    while [ $((k += 1)) -le "$calls" ]; do
        FAULT=device-memory:$k:ENOMEM short once && ends once 0 || { echo "call $k of $calls"; return 1; }
        ! grep -q "no pinned host memory" once.log || unpinned=$((unpinned + 1))
    done
    [ $unpinned = 1 ]
}
ok "activations are offloaded" short whole-deep
calls=$(sed -n 's/^device-memory //p' counts)
kept() {
    strategy=keep
    short once && ends once 0
    status=$?
    strategy=offload
    return $status
}
ok "... with the same bits" kept
if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    skip "... in pageable memory if no pinned memory is left" "takes long with sanitizers"
else
    ok "... in pageable memory if no pinned memory is left" unpinned
fi
strategy=auto
config=large.ini

table() {
    FAULT_ROOM=$((total * 6 / 10)) says 4 "the smallest plan found takes" \
        "$faulty" -q -c large.ini -o none
    grep -q "B  parameters and optimizer state" err && grep -q "B  available" err
}
ok "far too little memory: a table of owners" table

# taken SHARE [K]: another process leaves so many hundredths of what is planned for, before call K.
taken() {
    FAULT_ROOM=$((total * $1 / 100))${2:+@$2} short taken && ends taken 0 &&
        grep -q "replanned for .*(strategy recompute), with the same results" taken.log ||
        { cat taken.log; return 1; }
}
ok "less memory than planned" taken 85
ok "... after planning" taken 85 3
ok "... when most of it is already used" taken 85 5

### On request

sed -e 's/^epochs.*/epochs = 12/' -e '/^val_/d' large.ini >long.ini
unset FAULT_COUNTS
steady() {
    rm -rf "$1"
    "$AMPTRAIN" -c long.ini -o "$1" 2>"$1.log" &
    process=$!
}
# wish LIMIT WORDS: what the file says from now on, and what the run says to it.
wish() {
    sed -e "/^\[memory\]/,\$d" long.ini >long.new
    printf '[memory]\nlimit = %s\n' "$1" >>long.new
    mv long.new long.ini
    kill -HUP $process
    wait_for grep -q "$2" steady.log
}
ok "a long run" sh -c '"$AMPTRAIN" -q -c long.ini -o steady-whole'
shrinks() {
    steady steady
    wait_for grep -q "epoch 1/" steady.log && wish $((total * 85 / 100)) "is now .*(strategy recompute)" &&
        wish 1M "memory.limit is unchanged" && grep "long.ini:[0-9]*: memory.limit: 1.0 MiB is" steady.log &&
        wish auto "is now auto: .*(strategy keep)" && wait $process &&
        same steady-whole steady || { cat steady.log; return 1; }
}
ok "SIGHUP: memory.limit is lowered, refused, and raised, with the same bits" shrinks
finish
