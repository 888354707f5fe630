#!/bin/sh
# Runs of several ranks, each a process on the CPU: they end in the bits of one process that has as many
# micro-batches, whatever happens to one of them all end, and a run goes on with any number of ranks.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# ranks N M FOLDER [OPTION...]: a run of N ranks with M micro-batches each.
ranks() {
    number=$1 each=$2; shift 2
    train "$@" -s "parallel.gpus=$number" -s "train.accumulate=$each"
}

# equals STEPS N M [OPTION...]: N ranks of M micro-batches are one rank of N * M.
equals() {
    steps=$1 n=$2 m=$3; shift 3
    rm -rf alone several
    ranks 1 $((n * m)) alone -s "run.max_steps=$steps" "$@" &&
        ranks "$n" "$m" several -s "run.max_steps=$steps" "$@" && same alone several
}

# differs [OPTION...]: the last several ranks, from a run of four micro-batches.
differs() {
    rm -rf alone
    ranks 1 4 alone -s "run.max_steps=$steps" "$@" && ! same alone several
}

# Where nothing is mounted on /proc, ranks are started all the same.
bare() { unshare -rm sh -c 'mount -t tmpfs none /proc && exec "$@"' sh "$@"; }
if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    skip "ranks without /proc" "sanitizers read /proc"
elif bare true 2>/dev/null; then
    ok "ranks without /proc" bare "$AMPTRAIN" -q -c run.ini -s train.epochs=1 -s run.max_steps=2 \
        -s parallel.gpus=2 -s train.accumulate=1 -o bare
else
    skip "ranks without /proc" "mounts are not allowed here"
fi

steps=$(rounds 25 88)
ok "2 ranks equal 2 micro-batches" equals "$steps" 2 1
ok "4 ranks equal 4 micro-batches" equals "$steps" 4 1 -s amp.precision=fp32
ok "3 ranks equal 3 micro-batches" equals 25 3 1 -s train.batch=66
ok "2 ranks with 2 micro-batches equal 4" equals "$steps" 2 2 -s amp.precision=bf16 -s optimizer.name=adamw \
    -s optimizer.lr=0.001
ok "gradients in bf16: 2 ranks of 2 equal 4" equals "$steps" 2 2 -s amp.precision=bf16 \
    -s parallel.wire=storage
ok "... which rounds" differs -s amp.precision=bf16
ok "gradients in fp16: 4 ranks equal 4" equals "$steps" 4 1 -s parallel.wire=storage
# Two hidden matrices of two shapes, of which each of three ranks orthogonalises one at most.
sed -e 's/^flat = .*/conv3 = conv drop filters=16 kernel=3 pad=1\nflat = flatten conv3/' tiny.ini >hidden.ini
muon="-s model.file=hidden.ini -s optimizer.name=muon -s optimizer.lr=0.02"
ok "muon: 2 ranks share matrices" equals 10 2 2 $muon
ok "... and 3" equals 10 3 1 $muon -s train.batch=66 -s train.ema=0.9 -s amp.precision=bf16
ok "with mixed images" equals 5 2 1 -s augment.mixup=0.2 -s augment.cutmix=1
ok "a last batch with fewer images than ranks" equals 25 4 1 -s train.batch=256 -s amp.precision=fp32

# Batch norm over all ranks: micro-batches as large as theirs together, but for the order of sums.
synced() { # N [OPTION...]
    number=$1; shift
    rm -rf synced
    ranks "$number" 1 synced -s train.sync_bn=yes -s amp.precision=fp32 -s run.max_steps=20 "$@"
}
losses() { sed -n 's/.*"event":"step".*"loss":\([0-9.]*\).*/\1/p' synced/metrics.jsonl; }
close_to() { # FILE: the losses in it
    losses | paste - "$1" | awk '{ if (($1 - $2) ^ 2 > 1e-8) far++ } END { exit far > 0 || NR != 20 }'
}
synced_alike() {
    sed -i -e 's/^drop = .*/drop = flatten relu2/' -e '/^flat/d' -e 's/linear flat/linear drop/' tiny.ini
    synced 1 && losses >one.txt && synced 2 && close_to one.txt && synced 4 && close_to one.txt
}
cp tiny.ini kept.ini
ok "train.sync_bn" synced_alike
limited() {
    synced 2 && cp -r synced kept && synced 2 -s memory.strategy=recompute -s memory.limit=1M &&
        same kept synced
}
ok "... with the same bits under a memory limit" limited
cp kept.ini tiny.ini

# Runs that something happens to. Undisturbed, they make 300 steps; they have a checkpoint every 20.
long="-s run.max_steps=300 -s train.epochs=100"
disturbed() {
    folder=$1; shift
    start "$folder" -s "checkpoint.every=20 steps" -s parallel.gpus=2 -s train.accumulate=1 $long "$@"
    wait_for grep -q '"step":2[5-9]' "$folder/metrics.jsonl" || return 1
    ranks=$(cat "/proc/$process/task/$process/children")
    second=$(echo "$ranks" | cut -d ' ' -f 2)
}
# ends STATUS: the process ends so, within some seconds, and no rank is left.
ends() {
    wait "$process"
    got=$?
    cat "$folder.log"
    [ "$got" = "$1" ] || { echo "exit status $got, not $1"; return 1; }
    for rank in $ranks; do
        wait_for gone "$rank" || { echo "$rank is left"; return 1; }
    done
}
gone() { ! kill -0 "$1"; }
tells() { grep -qF -e "$1" "$folder.log"; }
# goes_on FOLDER N M: with N ranks of M micro-batches, to the end of the undisturbed run.
goes_on() {
    ranks "$2" "$3" "$1" -r -s "checkpoint.every=20 steps" $long && same undisturbed "$1"
}

ok "a run of 300 steps" ranks 1 2 undisturbed -s "checkpoint.every=20 steps" $long

killed() {
    disturbed killed && kill -KILL "$second" && ends 137 && tells "rank 1 was killed by signal 9" &&
        tells "the same command with -r resumes" && [ "$(grep -c amptrain: killed.log)" = 1 ]
}
ok "a rank that is killed ends the run" killed
ok "... which resumes to the same bits" goes_on killed 2 1

stands_still() {
    disturbed still -s parallel.timeout=4 && kill -STOP "$second" && ends 1 &&
        tells "rank 1 has made no progress"
}
ok "a rank that hangs ends the run" stands_still
ok "... which resumes with one rank" goes_on still 1 2

asked() { disturbed asked && kill -INT "$process" && ends 75 &&
    tells "stopped with a checkpoint after step"; }
ok "SIGINT writes a checkpoint" asked
ok "... from which the run resumes" goes_on asked 2 1
one_asked() { disturbed one && kill -TERM "$second" && ends 75 &&
    tells "stopped with a checkpoint after step"; }
ok "a signal to one rank stops all" one_asked
all_asked() { disturbed all && kill -USR1 "$process" $ranks && ends 75 &&
    tells "stopped with a checkpoint after step"; }
ok "so does a signal to all" all_asked
without_launcher() { disturbed orphans && kill -KILL "$process" && ends 137; }
ok "ranks end with their launcher" without_launcher
saved() {
    disturbed saved && kill -HUP "$process" && wait_for tells "checkpoint on request" &&
        kill -INT "$process" && ends 75
}
ok "a checkpoint on request" saved

more_of_them() {
    ranks 4 1 asked -r "-scheckpoint.every=20 steps" -s run.max_steps=310 -s train.epochs=100 2>err
}
ok "a different number of micro-batches is reported" more_of_them
ok "... once" [ "$(grep -c "a step had 2 micro-batches and now has 4" err)" = 1 ]

# Three ranks of two have no subtrees of the sums of six.
another_order() {
    says 0 "3 GPUs add the gradients of 6 micro-batches in a different order than one" \
        ranks 3 2 three -s train.batch=48 -s run.max_steps=4 &&
        ranks 6 1 three -r -s train.batch=48 -s run.max_steps=6 2>err
}
ok "a different order of sums is reported" another_order
ok "... once" [ "$(grep -c "6 GPUs add the gradients of 6 micro-batches in a different order than 3" err)" = \
    1 ]

once() { says "$@" && [ "$(grep -c "$2" err)" = 1 ]; }
ok "messages of all ranks are printed once" once 2 "there is no 'nope'" ranks 2 1 wrong -s optimizer.name=nope
ok "... and so are those of the first one" once 2 "already contains a run" ranks 2 1 undisturbed
# Workspaces depend on the threads of OpenMP, of which the launcher has as many as its ranks here.
largest() {
    export OMP_NUM_THREADS=1
    "$AMPTRAIN" -c run.ini -o auto -s parallel.gpus=2 "$@" -s train.batch=auto 2>err || { cat err; return 1; }
    batch=$(sed -n 's/^train.batch: auto is \([0-9]*\), .* on each GPU$/\1/p' err)
    once 4 "the largest train.batch that fits is $batch" \
        "$AMPTRAIN" -c run.ini -s parallel.gpus=2 "$@" -s train.batch=$((batch * 5 / 8 * 2))
}
ok "train.batch=auto fits on every rank" largest -s train.accumulate=1 -s memory.limit=1M \
    -s run.max_steps=2
ok "ranks that do not divide a batch" says 2 \
    "parallel.gpus: 3 ranks of 1 micro-batch do not divide train.batch = 64" \
    ranks 3 1 wrong
# Where each of them would take itself for the only one.
ok "mpirun's processes in a build without MPI" says 2 "OMPI_COMM_WORLD_SIZE is 2" \
    env OMPI_COMM_WORLD_SIZE=2 "$AMPTRAIN" -q -c run.ini -o wrong
ok "srun's" says 2 "SLURM_STEP_NUM_TASKS is 4" env SLURM_STEP_NUM_TASKS=4 "$AMPTRAIN" -q -c run.ini -o wrong

measured() {
    "$AMPTRAIN" bench -c run.ini -s parallel.gpus=2 --steps 2 --layers >bench.txt &&
        [ "$(grep -c 'images/s: batch 64' bench.txt)" = 1 ] && grep -q 'bucket 0 all-to-all' bench.txt
}
ok "bench of several ranks prints once" measured
ok "one GPU for several ranks" says 2 "run.device: 'cuda:1' is one GPU" ranks 2 1 wrong -s run.device=cuda:1
finish
