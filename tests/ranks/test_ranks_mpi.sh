#!/bin/sh
# Ranks that mpirun starts: by PMIx or MPI on one host, by MPI on several, which have but names of their own
# here.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

has() { grep -q "define $1 1" "$top_builddir/config.h"; }
has HAVE_PMIX || has HAVE_MPI || { skip "ranks under mpirun" "built without PMIx and MPI"; finish; exit; }
command -v mpirun >found || { skip "ranks under mpirun" "there is no mpirun"; finish; exit; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0      # of libraries
export ASAN_OPTIONS

hosts=--oversubscribe
by_mpi() { # RANKS FOLDER [OPTION...]
    number=$1 folder=$2; shift 2
    # shellcheck disable=SC2086 # words
    timeout 100 mpirun $hosts -np "$number" "$AMPTRAIN" -q -c run.ini -o "$folder" -s train.accumulate=1 "$@"
}
equals() { # RANKS
    rm -rf alone several
    train alone -s "train.accumulate=$1" -s run.max_steps=25 && by_mpi "$1" several -s run.max_steps=25 &&
        same alone several
}
long="-s run.max_steps=300 -s train.epochs=100"
# killed N: the run ends when one of its ranks does, and then goes on.
killed() {
    rm -rf killed
    # shellcheck disable=SC2086
    by_mpi "$1" killed $long -s "checkpoint.every=20 steps" &
    process=$!
    wait_for grep -q '"step":2[5-9]' killed/metrics.jsonl || return 1
    rank=$(pgrep -n -f "$AMPTRAIN -q -c run.ini -o killed" -s 0) || return 1
    struck=$(date +%s%N)
    kill -KILL "$rank"
    wait "$process"
    [ $? = 137 ] || return 1
    took=$((($(date +%s%N) - struck) / 1000000))
    [ -z "${AMPTRAIN_TORTURE-}" ] || [ $took -le 5000 ] || { echo "after $took ms"; return 1; }
    # shellcheck disable=SC2086
    train killed -r -s "train.accumulate=$1" $long && same long killed
}

ok "4 ranks equal 4 micro-batches" equals 4
ok "a number of ranks other than mpirun's" says 2 "parallel.gpus: 2 ranks were started" \
    by_mpi 2 wrong -s parallel.gpus=3
# shellcheck disable=SC2016 # for the rank's shell
ok "ranks with different settings" says 2 "run.seed = 1' where rank 0 has 'run.seed = 0" timeout 100 mpirun \
    $hosts -np 2 \
    sh -c '"$0" -q -c run.ini -o wrong -s train.accumulate=1 -s run.seed=$OMPI_COMM_WORLD_RANK' "$AMPTRAIN"
# shellcheck disable=SC2086
train long -s train.accumulate=4 $long
ok "a rank that is killed ends all" killed 4
figure "after $took ms"

if has HAVE_MPI; then
    messages="timeout 60 mpirun $hosts -np 2 $top_builddir/tests/ranks/mpi_messages"
    # shellcheck disable=SC2086 # words
    ok "a message of fewer bytes" says 1 "rank 0 sends 10 bytes where rank 1 is to receive 32" $messages
    # shellcheck disable=SC2086
    ok "an MPI without threads" says 2 "this MPI is for processes of a single thread" \
        env AMPTRAIN_MPI_LEVEL=single $messages
else
    skip "a message of fewer bytes" "built without MPI"
    skip "an MPI without threads" "built without MPI"
fi

# Each host is started by what would reach it over the network.
cat >reach <<'END'
#!/bin/sh
host=$1; shift
exec unshare --uts sh -c 'hostname "$1"; shift; exec sh -c "$*"' sh "$host" "$@"
END
chmod +x reach
if has HAVE_MPI && unshare --uts true 2>/dev/null; then
    hosts="--mca plm_rsh_agent $scratch/reach --host one:2,two:2"
    ok "4 ranks on two hosts" equals 4
    ok "... one of which is killed" killed 4
    figure "after $took ms"
else
    skip "4 ranks on two hosts" "built without MPI, or there are no namespaces"
fi
finish
