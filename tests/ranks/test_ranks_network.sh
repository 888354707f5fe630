#!/bin/sh
# Ranks of two hosts with a network between them that is slow, loses packets, and breaks (proxy.py): the same
# bits, and a rank that cannot be reached any more is named. `make torture` has it break again and again.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"
python3 -c 'import asyncio; asyncio.run' 2>found || { skip "all cases" "there is no python3"; finish; exit; }

export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2
port=$((40000 + 2 * ($$ % 5000)))
proxy=
trap 'kill $proxy 2>/dev/null; rm -rf "$scratch"' EXIT
# network DELAY RATE LOSS CUT: rank 0 listens at $port, and is reached at the next one.
network() {
    [ -z "$proxy" ] || kill "$proxy"
    port=$((port + 2))
    python3 "$top_srcdir/tests/ranks/proxy.py" $((port + 1)) $port "$@" >cut 2>proxy.log &
    proxy=$!
}
# ranks FOLDER OPTION...: ends as rank 0 does; words are in FOLDER.NUMBER.err.
ranks() {
    folder=$1; shift
    for number in 1 0; do
        RANK=$number MASTER_PORT=$((port + number)) GROUP_RANK=$number timeout 300 "$AMPTRAIN" -c run.ini \
            -o "$folder" -s train.accumulate=1 "$@" >/dev/null 2>"$folder.$number.err" &
        eval "rank$number=\$!"
    done
    # shellcheck disable=SC2154 # assigned by eval
    wait "$rank0"
    ended=$?
    # shellcheck disable=SC2154
    wait "$rank1" && [ $ended = 0 ]
}
has() { grep -qE -e "$1" "$2" || { cat "$2"; return 1; }; }

steps=$(rounds 3 100)
slow() {
    train near -s train.accumulate=2 -s run.max_steps="$steps" -s train.epochs=100 || return 1
    network 0.05 40000000 "$(rounds 0 0.002)" 0
    ranks far -s run.max_steps="$steps" -s train.epochs=100 || { cat far.*.err proxy.log; return 1; }
    same near far
}
ok "a network with a delay of 50 ms: $steps steps" slow
rate() { has "0\.0[0-9] GB/s .*, [1-9][0-9]+\.[0-9]+ ms a barrier" far.0.err; }
ok "... whose delay and rate are said" rate
figure "$(grep -h "by TCP" far.0.err)"
delayed() {
    grep "expected to take" far.0.err | tee line | awk '{ exit !($7 > 50 && $12 > 50) }' ||
        { cat far.0.err; return 1; }
}
ok "... and is a part of what a step is expected to take" delayed
figure "$(cat line)"

broken() {
    network 0.01 1e9 0 3
    ranks broken -s run.max_steps=100000 -s train.epochs=100000 && return 1
    took=$(($(date +%s) - $(tail -n 1 cut)))
    [ $took -le 10 ] || { echo "after $took s"; return 1; }
    has "but rank 1 on .* has ended, or cannot be reached any more" broken.0.err &&
        has "but rank 0 on .* has ended, or cannot be reached any more" broken.1.err
}
ok "a connection that breaks is noticed by both ends within ten seconds" broken

again() {
    train whole -s train.accumulate=2 -s run.max_steps="$steps" -s train.epochs=100 || return 1
    network 0.01 1e9 0 6
    ranks parts -s run.max_steps="$steps" -s train.epochs=100 --restarts 50 || { cat parts.*.err; return 1; }
    same whole parts
}
if [ -n "${AMPTRAIN_TORTURE-}" ]; then
    steps=250
    ok "a network that breaks every six seconds" again
    figure "$(grep -c "is started again" parts.0.err) restarts"
fi
finish
