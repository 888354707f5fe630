#!/bin/sh
# A run of very many steps, epochs, evaluations, checkpoints and resumes takes no more of anything in the end
# than in the beginning: memory, open files, threads, mappings, files in its folder.
. "$top_srcdir/tests/tap.sh"
. "$top_srcdir/tests/tiny.sh"

if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    echo "1..0 # SKIP sanitizers keep what is freed, and tell themselves what is lost"
    exit
fi

epochs=$(rounds 40 3000)
resumes=$(rounds 2 40)
sed -i -e "s/^epochs.*/epochs = $epochs/" -e 's/^every = 3 steps/every = 50 steps/' \
    -e 's/^workers.*/workers = 3/' -e 's/^tensorboard.*/tensorboard = yes/' run.ini

# jemalloc tells what is allocated, after every so many bytes that it was asked for.
MALLOC_CONF=stats_interval:$((epochs * 10000)),stats_interval_opts:gmdablxeh
export MALLOC_CONF

# watch PROCESS: its open files, threads, mappings and anonymous KiB, a line every so often while it lives.
watch() {
    while grep -q '^State:.*[^Z] (' "/proc/$1/status"; do
        echo "$(ls "/proc/$1/fd" | wc -l) $(ls "/proc/$1/task" | wc -l) $(wc -l <"/proc/$1/maps")" \
            "$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\).*/\1/p' "/proc/$1/status")"
        sleep 0.01
    done 2>/dev/null | awk 'NF == 4 && $1 > 0'
}

in_one() {
    "$AMPTRAIN" -q -c run.ini -o one 2>words &
    process=$!
    watch $process >samples
    wait $process && return
    status=$?
    tail words
    return $status
}

# flat MORE WHAT FILE COLUMN: whether the lowest number in the last quarter of a file (but for its end, when
# all is given back) is at most MORE above the lowest in the second: what is lost for good adds to both.
flat() {
    awk -v more="$1" -v what="$2" -v column="$4" '
        { values[NR] = $column + 0 }
        function low(from, to,    least, i) {
            least = values[from]
            for (i = from; i <= to; i++) if (values[i] < least) least = values[i]
            return least
        }
        END {
            before = low(int(NR / 4) + 1, int(NR / 2)); after = low(int(3 * NR / 4) + 1, int(7 * NR / 8))
            printf "%s: %d after a quarter, %d in the end (%d samples)\n", what, before, after, NR
            exit NR < 8 || after > before + more
        }' "$3" >said
    status=$?
    cat said
    return $status
}

ok "$epochs epochs in one process" in_one
steps=$(grep -c '"event":"step"' one/metrics.jsonl)
figure "$steps steps, $epochs evaluations, $((epochs + steps / 50)) checkpoints in one process"
sed -n 's/^Allocated: \([0-9]*\).*/\1/p' words >allocated

# check MORE WHAT FILE COLUMN
check() {
    ok "$2" flat "$@"
    figure "$(cat said)"
}
check 2 "open files" samples 1
check 3 "threads" samples 2
check 8 "mappings" samples 3
check 256 "anonymous memory in KiB" samples 4
if [ -s allocated ]; then
    check 4096 "allocated bytes" allocated 1
else
    skip "allocated bytes" "the allocator does not tell"
fi
device() {
    [ "$(grep -o '"device_peak_bytes":[0-9]*' one/metrics.jsonl | sort -u | tee said | wc -l)" = 1 ]
}
ok "device memory is the same in every epoch" device
figure "$(cat said) in every epoch"

in_many() {
    for part in $(seq "$resumes"); do
        train many -r -s run.max_steps=$((part * steps / (resumes + 1))) || return 1
    done
    train many -r
}
ok "the same in $((resumes + 1)) processes" in_many
ok "... ends in the same bits and lines" same one many
files() { ls "$1" | grep -v tfevents; }
ok "... and the same files" [ "$(files one)" = "$(files many)" ]
finish
