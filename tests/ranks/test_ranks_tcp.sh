#!/bin/sh
# Ranks that others start, with the environment that torchrun sets: they meet by TCP; those of one host share
# memory, those of several (which GROUP_RANK makes of one) exchange by TCP.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# A port that nobody has now.
free_port() {
    port=$((20000 + $$ % 10000))
    while grep -qi ":$(printf %04X $port) " /proc/net/tcp /proc/net/tcp6 2>/dev/null; do port=$((port + 1)); done
}
export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2
hosts=

# rank NUMBER FOLDER [OPTION...]: a rank in the background, as $process, whose words are in FOLDER.NUMBER.err.
rank() {
    number=$1 folder=$2; shift 2
    env RANK="$number" MASTER_PORT="$port" ${hosts:+GROUP_RANK="$number"} timeout 100 "$AMPTRAIN" -c run.ini \
        -o "$folder" -s train.accumulate=1 "$@" >/dev/null 2>"$folder.$number.err" &
    process=$!
}
# ranks COUNT FOLDER [OPTION...]: ends as rank 0 does.
ranks() {
    WORLD_SIZE=$1 folder=$2 last=$(($1 - 1)); shift 2
    free_port
    processes=
    while [ $last -gt 0 ]; do
        rank $last "$folder" "$@"
        processes="$processes $process"
        last=$((last - 1))
    done
    rank 0 "$folder" "$@"
    wait $process
    ended=$?
    # shellcheck disable=SC2086 # numbers
    wait $processes
    [ $ended = 0 ] || cat "$folder".*.err
    return $ended
}
has() { grep -qF -e "$1" "$2" || { cat "$2"; return 1; }; }
equals() { # RANKS [OPTION...]
    number=$1; shift
    rm -rf alone several
    train alone -s "train.accumulate=$number" -s run.max_steps=25 "$@" &&
        ranks "$number" several -s run.max_steps=25 "$@" && same alone several
}

ok "2 ranks of one host equal 2 micro-batches" equals 2
quiet() { ! grep -q TCP several.0.err; }
ok "... through shared memory" quiet
hosts=yes
ok "2 ranks of two hosts do" equals 2
ok "... by TCP, which is said" has "2 ranks on 2 hosts, by TCP from 127.0.0.1 (lo): " several.0.err
expected() { grep -qE 'a step is expected to take [0-9.e+-]+ ms there, of these [0-9.e+-]+ for exchanges' several.0.err; }
ok "... with what it is expected to cost" expected
wide() {
    sed -e 's/^fc = .*/wide = linear flat units=8192\nfc = linear wide units=$classes/' tiny.ini >wide.ini
    ranks 2 wide -s model.file=wide.ini -s run.max_steps=1 -s train.ema=0 -s checkpoint.every=100 &&
        has "parallel.wire=storage would halve what is exchanged" wide.0.err
}
ok "... and a setting that helps if that is much" wide
ok "4 ranks of four hosts do" equals 4
staged() {
    rm -rf one two
    hosts= ranks 2 one -s parallel.stages=2 -s parallel.microbatches=2 -s run.max_steps=8 &&
        ranks 2 two -s parallel.stages=2 -s parallel.microbatches=2 -s run.max_steps=8 && same one two
}
ok "the stages of a pipeline on two hosts equal those on one" staged

long="-s run.max_steps=100000 -s train.epochs=100000 -s train.batch=48"
WORLD_SIZE=3
# killed NUMBER: the others say within ten seconds who has ended, and where.
killed() {
    rm -rf killed
    free_port
    processes=
    for number in 0 1 2; do
        # shellcheck disable=SC2086
        rank $number killed $long
        processes="$processes $process"
        [ $number = "$1" ] && struck=$process
    done
    wait_for grep -q '"step":1[0-9]' killed/metrics.jsonl || { cat killed.*.err; return 1; }
    pkill -KILL -P "$struck" || kill -KILL "$struck"
    began=$(date +%s)
    # shellcheck disable=SC2086
    wait $processes
    [ $(($(date +%s) - began)) -le 10 ] || { echo "after $(($(date +%s) - began)) s"; return 1; }
    for number in 0 1 2; do
        [ $number = "$1" ] || has "but rank $1 on $(uname -n) has ended" killed.$number.err || return 1
    done
}
if command -v pkill >/dev/null; then
    ok "a rank that is killed is named by all" killed 1
    ok "... and so is the first one" killed 0
fi

WORLD_SIZE=2
free_port
alone() { # STATUS WORDS [VARIABLE=VALUE...]
    wanted=$1 words=$2; shift 2
    says "$wanted" "$words" env MASTER_PORT=$port "$@" "$AMPTRAIN" -q -c run.ini -o none \
        -s train.accumulate=1 -s parallel.timeout=1
}
ok "rank 0 says who has not come" alone 1 "at port $port, but these ranks have not come: 1" RANK=0
ok "others say whom they cannot reach" alone 1 \
    "rank 1 cannot reach rank 0 at 127.0.0.1, port $port: Connection refused (MASTER_ADDR, MASTER_PORT)" RANK=1
ok "an address that is none" alone 1 "cannot reach rank 0 at nowhere.invalid, port $port: " \
    RANK=1 MASTER_ADDR=nowhere.invalid
ok "a variable that is not set" alone 2 "RANK and WORLD_SIZE are set, but MASTER_ADDR is not" RANK=1 MASTER_ADDR=
ok "a number that is none" alone 2 "RANK is 'two': must be a number from 0 to 1" RANK=two
single() { env RANK=0 WORLD_SIZE=1 "$AMPTRAIN" -q -c run.ini -o single -s run.max_steps=1; }
ok "WORLD_SIZE=1 is a run as any other" single
disagree() {
    WORLD_SIZE=3 rank 1 disagree
    says 2 "rank 1 on $(uname -n) has WORLD_SIZE=3, rank 0 has 2" env RANK=0 MASTER_PORT=$port "$AMPTRAIN" -q \
        -c run.ini -o disagree -s train.accumulate=1
    got=$?
    wait $process
    return $got
}
ok "ranks of different jobs" disagree
twice() {
    WORLD_SIZE=3 rank 1 twice
    one=$process
    WORLD_SIZE=3 rank 1 twice
    says 2 "there are two processes with RANK=1" env RANK=0 WORLD_SIZE=3 MASTER_PORT=$port "$AMPTRAIN" -q \
        -c run.ini -o twice -s train.accumulate=1
    got=$?
    wait $process $one
    return $got
}
ok "two processes of one rank" twice

# Two networks with a cable between them, where that is permitted; slow, and then losing packets.
hosts=
cable() {
    unshare -n sleep 300 & one=$!
    unshare -n sleep 300 & two=$!
    tries=0
    until [ "$(readlink /proc/$one/ns/net)" != "$(readlink /proc/self/ns/net)" ] &&
          [ "$(readlink /proc/$two/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do
        sleep 0.05
        tries=$((tries + 1))
        [ $tries -lt 100 ] || return 1
    done
    in_one="nsenter -t $one -n" in_two="nsenter -t $two -n"
    $in_one ip link add cable0 type veth peer name cable1 && $in_one ip link set cable1 netns $two &&
        $in_one ip address add 10.77.0.1/24 dev cable0 && $in_two ip address add 10.77.0.2/24 dev cable1 &&
        $in_one ip link set cable0 up && $in_two ip link set cable1 up && $in_one ip link set lo up
}
across() { # FOLDER [OPTION...]
    folder=$1; shift
    RANK=1 MASTER_PORT=29500 MASTER_ADDR=10.77.0.1 $in_two timeout 100 "$AMPTRAIN" -c run.ini -o "$folder" \
        -s train.accumulate=1 "$@" >/dev/null 2>"$folder.1.err" &
    process=$!
    RANK=0 MASTER_PORT=29500 MASTER_ADDR=10.77.0.1 $in_one timeout 100 "$AMPTRAIN" -c run.ini -o "$folder" \
        -s train.accumulate=1 "$@" >/dev/null 2>"$folder.0.err"
    ended=$?
    wait $process && [ $ended = 0 ] || { cat "$folder".*.err; return 1; }
}
slow() {
    train near -s train.accumulate=2 -s run.max_steps=6 && across far -s run.max_steps=6 && same near far &&
        has "by TCP from 10.77.0.1 (cable0): " far.0.err
}
# An interface that leads nowhere, and a port that nobody listens at: both are named within ten seconds.
lost="10.77.0.99 10.78.0.1 10.77.0.1"
seek() { # ADDRESS: seconds, in $1.seconds
    began=$(date +%s)
    RANK=1 MASTER_PORT=29501 MASTER_ADDR=$1 $in_two timeout 60 "$AMPTRAIN" -q -c run.ini -o "$1" \
        -s train.accumulate=1 -s parallel.timeout=6 >/dev/null 2>"$1.err"
    echo $(($(date +%s) - began)) >"$1.seconds"
}
nowhere() { # ADDRESS WORDS
    [ "$(cat "$1.seconds")" -le 10 ] || { echo "after $(cat "$1.seconds") s"; return 1; }
    has "rank 1 cannot reach rank 0 at $1, port 29501: $2" "$1.err"
}
limited() {
    across limited -s run.max_steps=2 || return 1
    $in_one tc qdisc del dev cable0 root
    grep -q "would" limited.0.err && grep "expected to take" limited.0.err >limited.line || { cat limited.0.err; return 1; }
    figure "$(cat limited.line)"
}
unplugged() {
    # shellcheck disable=SC2086
    across cut $long >cut.out 2>&1 &
    waiting=$!
    wait_for grep -q '"step":1[0-9]' cut/metrics.jsonl || { cat cut.*.err; return 1; }
    $in_two ip link set cable1 down
    began=$(date +%s)
    wait $waiting
    [ $(($(date +%s) - began)) -le 15 ] || { echo "after $(($(date +%s) - began)) s"; return 1; }
    has "but rank 1 on $(uname -n) has ended, or cannot be reached any more" cut.0.err &&
        has "but rank 0 on $(uname -n) has ended, or cannot be reached any more" cut.1.err
}
one= two=
trap 'kill $one $two 2>/dev/null; rm -rf "$scratch"' EXIT
if command -v ip >/dev/null && command -v nsenter >/dev/null && cable >cable.out 2>&1; then
    $in_one tc qdisc add dev cable0 root netem delay 5ms loss 1% 2>/dev/null || figure "no delay: no netem"
    ok "ranks of two networks, with delays and losses" slow
    $in_one tc qdisc del dev cable0 root 2>/dev/null
    seekers=
    for address in $lost; do
        seek "$address" &
        seekers="$seekers $!"
    done
    # shellcheck disable=SC2086 # numbers
    wait $seekers
    ok "an interface by which there is nobody" nowhere 10.77.0.99 ""
    ok "a network that is not reached" nowhere 10.78.0.1 "Network is unreachable"
    ok "a port at which nobody listens" nowhere 10.77.0.1 "Connection refused"
    if $in_one tc qdisc add dev cable0 root tbf rate 80mbit burst 64kb latency 100ms 2>/dev/null
    then ok "a link that is too slow: with a setting that helps" limited
    else skip "a link that is too slow" "no tc"
    fi
    ok "a cable that is pulled is noticed by both ends within ten seconds" unplugged
else
    skip "ranks of two networks" "no permission for them"
fi
kill $one $two 2>/dev/null
finish
