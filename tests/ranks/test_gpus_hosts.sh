#!/bin/sh
# Ranks that others start on two GPUs, with the environment that torchrun sets, on one host and, since
# GROUP_RANK makes two of one, on two: their bits, what is said of the network, and hosts that are lost. The
# only GPU of a machine is that of both hosts.
least=1
. "$top_srcdir/tests/support/two.sh"
command -v pgrep >found || { skip "all cases" "there is no pgrep"; finish; exit; }

export MASTER_ADDR=127.0.0.1 WORLD_SIZE=2
port=$((20000 + $$ % 10000))
hosts=

# rank NUMBER FOLDER [OPTION...]: in the background, as $rank0 or $rank1; its words are in FOLDER.NUMBER.err.
# NCCL takes ranks of two hosts for such, too, exchanges through sockets, and does not mind one GPU for both.
rank() {
    number=$1 folder=$2; shift 2
    env RANK="$number" LOCAL_RANK=$((number % gpus)) MASTER_PORT=$port \
        ${hosts:+GROUP_RANK="$number" NCCL_HOSTID="$number"} \
        timeout 100 "$AMPTRAIN" -c run.ini -o "$folder" "$@" >/dev/null 2>"$folder.$number.err" &
    eval "rank$number=\$!"
}
# shellcheck disable=SC2154 # assigned by eval
ranks() { # FOLDER [OPTION...]
    port=$((port + 1))
    rank 1 "$@"
    rank 0 "$@"
    wait "$rank0" && wait "$rank1" || { cat "$1".*.err; return 1; }
}
has() { grep -qE -e "$1" "$2" || { cat "$2"; return 1; }; }

sets="-s run.max_steps=12"
# shellcheck disable=SC2086 # words
equals() { # FOLDER OPTION...
    folder=$1; shift
    ranks "$folder" $sets "$@" && same alone "$folder"
}
# shellcheck disable=SC2086
ok "one GPU" train alone $sets -s train.accumulate=4
if [ "$gpus" -ge 2 ]; then ok "two of one host" equals one -s train.accumulate=2
else skip "two of one host" "there is one GPU"; fi
hosts=yes
ok "two of two hosts" equals two -s train.accumulate=2
ok "... which is said, with the rate of their network" \
    has "2 ranks on 2 hosts, by TCP from 127.0.0.1 \(lo\): [0-9.]+ GB/s from each rank" two.0.err
ok "... and what that costs" \
    has "a step is expected to take [0-9.e+-]+ ms there, of these [0-9.e+-]+ for exchanges" two.0.err
figure "$(grep -h -e 'on 2 hosts' -e 'expected to take' two.0.err | tr '\n' ' ')"
ok "two stages on two hosts" equals staged -s train.accumulate=1 -s parallel.stages=2 \
    -s parallel.microbatches=4

long="-s train.epochs=100000 -s train.accumulate=2 -s checkpoint.every=1000 -s train.eval_every=0"
# struck NUMBER: the process that computes for that rank, or the rank itself.
struck() {
    eval "above=\$rank$1"
    # shellcheck disable=SC2154
    below=$(pgrep -P "$above")
    echo "$(pgrep -P "${below:-$above}") $below $above" | awk '{ print $1 }'
}
# shellcheck disable=SC2086,SC2154
killed() { # NUMBER [OPTION...]
    struck=$1 other=$((1 - $1)); shift
    rm -rf killed killed.*.err
    port=$((port + 1))
    rank 1 killed $long "$@"
    rank 0 killed $long "$@"
    wait_for grep -q '"step":20,' killed/metrics.jsonl || { cat killed.*.err; return 1; }
    kill -KILL "$(struck "$struck")"
    began=$(date +%s)
    eval "wait \$rank$struck; wait \$rank$other"
    status=$? took=$(($(date +%s) - began))
    [ $took -le 10 ] && [ $status = 1 ] ||
        { cat killed.$other.err; echo "exit status $status after $took s"; return 1; }
    has "but rank $struck on .* has ended" killed.$other.err
}
ok "a rank that is killed is named within ten seconds" killed 1
ok "... and so is the first one" killed 0
ok "... and a stage" killed 1 -s train.accumulate=1 -s parallel.stages=2 -s parallel.microbatches=4

# shellcheck disable=SC2086,SC2154
stopped() { # a rank that stands still, as one whose host does
    rm -rf stopped stopped.*.err
    port=$((port + 1))
    rank 1 stopped $long -s parallel.timeout=8
    rank 0 stopped $long -s parallel.timeout=8
    wait_for grep -q '"step":20,' stopped/metrics.jsonl || { cat stopped.*.err; return 1; }
    kill -STOP "$(struck 1)"
    wait $rank0
    status=$?
    kill -KILL "$(struck 1)"
    wait $rank1
    [ $status = 1 ] || { cat stopped.0.err; echo "exit status $status"; return 1; }
    has "rank 0 has waited for [0-9.]+ s for rank 1 on " stopped.0.err
}
ok "a rank that stands still is named after parallel.timeout" stopped

# A run that is long enough for something to happen after its first checkpoint.
# GPUs are fast, unless two ranks take turns on one.
if [ "$device" = cpu ]; then steps=80; elif [ "$gpus" = 1 ]; then steps=300; else steps=3000; fi
whole="-s train.epochs=1000 -s run.max_steps=$steps -s train.eval_every=0"
# shellcheck disable=SC2086
ok "one GPU" train whole $whole -s train.accumulate=4
# shellcheck disable=SC2086,SC2154
restarted() { # FOLDER
    port=$((port + 1))
    for number in 1 0; do
        rank $number "$1" $whole -s train.accumulate=2 -s parallel.timeout=40 --restarts 3
    done
    wait_for test -s "$1/checkpoint-last.safetensors" || { cat "$1".*.err; return 1; }
}
# shellcheck disable=SC2154
again() {
    restarted again || return 1
    kill -KILL "$(struck 1)"
    wait "$rank0" && wait "$rank1" || { cat again.*.err; return 1; }
    has "it is started again from its last checkpoint" again.0.err && same whole again
}
ok "a rank that is killed is started again, and meets the other one" again
# shellcheck disable=SC2154,SC2046,SC2086
fewer() {
    restarted fewer || return 1
    kill -KILL $(pgrep -P $(pgrep -P $rank1)) $(pgrep -P $rank1) $rank1
    wait $rank0 || { cat fewer.0.err; return 1; }
    has "these ranks have not come back: 1; the run goes on with 1 of 2" fewer.0.err && same whole fewer
}
ok "a host that is lost: the other one goes on, to the same bits" fewer

# seek ADDRESS PORT WORDS: a rank that cannot reach the first one says so within ten seconds.
seek() {
    began=$(date +%s)
    says 1 "rank 1 cannot reach rank 0 at $1, port $2: $3" \
        env RANK=1 LOCAL_RANK=1 MASTER_ADDR="$1" MASTER_PORT="$2" "$AMPTRAIN" -q -c run.ini -o none \
        -s train.accumulate=2 -s parallel.timeout=6 || return 1
    [ $(($(date +%s) - began)) -le 10 ] || { echo "after $(($(date +%s) - began)) s"; return 1; }
}
ok "a port at which nobody listens" seek 127.0.0.1 $((port + 1)) "Connection refused"
ok "an interface by which nobody is reached" seek 192.0.2.1 $((port + 1)) ""
finish
