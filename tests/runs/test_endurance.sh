#!/bin/sh
# A run of very many steps, epochs, evaluations, checkpoints, resumes and plans takes no more of anything in
# the end than in the beginning: memory, open files, threads, mappings, files in its folder. The program that
# runs is tests/support/held, which tells how many bytes it holds at the end of every epoch.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    echo "1..0 # SKIP sanitizers keep what is freed, and tell themselves what is lost"
    exit
fi

epochs=$(rounds 40 3000)
resumes=$(rounds 2 40)
plans=$(rounds 12 300)
# The last epoch alone explains its mistakes, for the report.
sed -i -e "s/^epochs.*/epochs = $epochs/" -e 's/^every = 3 steps/every = 50 steps/' \
    -e 's/^threads.*/&\nreport = no/' -e 's/^workers.*/workers = 3/' -e 's/^tensorboard.*/tensorboard = yes/' run.ini

# Freed memory goes back to the kernel at once, not after as long as malloc likes: samples at any two times
# compare.
MALLOC_CONF=tcache:false,dirty_decay_ms:0,muzzy_decay_ms:0
export MALLOC_CONF
held=$top_builddir/tests/support/held

# watch PROCESS: its open files, threads and mappings, a line every so often while it lives.
watch() {
    while grep -q '^State:.*[^Z] (' "/proc/$1/status"; do
        echo "$(ls "/proc/$1/fd" | wc -l) $(ls "/proc/$1/task" | wc -l) $(wc -l <"/proc/$1/maps")"
        sleep 0.01
    done 2>/dev/null | awk 'NF == 3 && $1 > 0'
}

in_one() {
    HELD=$scratch/held "$held" -q -c run.ini -o one 2>words &
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

# check MORE WHAT FILE COLUMN
check() {
    ok "$2" flat "$@"
    figure "$(cat said)"
}
check 2 "open files" samples 1
check 3 "threads" samples 2
check 8 "mappings" samples 3
# Measured by the run itself, at the ends of its epochs: whatever else the machine does, samples compare.
if [ -e held ]; then
    check 256 "anonymous memory in KiB" held 4
else
    skip "anonymous memory in KiB" "the allocator does not tell"
fi
device() {
    [ "$(grep -o '"device_peak_bytes":[0-9]*' one/metrics.jsonl | sort -u | tee said | wc -l)" = 1 ]
}
ok "device memory is the same in every epoch" device
figure "$(cat said) in every epoch"

# to_the_byte FILE SKIPPED: whether what is held on the host is the same at the ends of all epochs at which as
# much is held on the device, but for some at the beginning.
to_the_byte() {
    tail -n +$(($2 + 1)) "$1" | cut -d ' ' -f 2,3 | sort | uniq -c >said
    cat said
    [ -s said ] && [ -z "$(awk '{ print $3 }' said | sort | uniq -d)" ]
}

# weigh NAME FILE SKIPPED
weigh() {
    if [ -e "$2" ]; then
        ok "$1" to_the_byte "$2" "$3"
        while read -r count host device; do
            figure "$host bytes on the host and $device on the device after $count epochs"
        done <said
    else
        skip "$1" "the allocator does not tell"
    fi
}
# A worker takes what it needs when it has its first batch.
weigh "what is held is the same after every epoch, to the byte" held $((epochs / 4))

in_many() {
    for part in $(seq "$resumes"); do
        train many -r -s run.max_steps=$((part * steps / (resumes + 1))) || return 1
    done
    train many -r
}
ok "the same run in $((resumes + 1)) processes" in_many
ok "... gives the same bits and lines" same one many
files() { ls "$1" | grep -v tfevents; }
ok "... and the same files" [ "$(files one)" = "$(files many)" ]

### Planned again in every epoch, by turns for less memory than it would like and for all of it

sed -e 's/^batch.*/batch = 512/' -e 's/^accumulate.*/accumulate = 1/' -e "s/^epochs.*/epochs = $plans/" \
    -e 's/^every = 50 steps/every = 0/' -e 's/^workers.*/workers = 1/' run.ini >free.ini
total=$("$AMPTRAIN" plan -c free.ini --json | tr , '\n' | sed -n 's/^{*"total_bytes"://p')
{ cat free.ini; printf '[memory]\nlimit = %s\n' $((total * 85 / 100)); } >tight.ini
in_plans() {
    HELD=$scratch/held-plans HELD_OTHER=tight.ini "$held" -c free.ini -o plans 2>plans.log &&
        [ "$(grep -c 'memory.limit is now' plans.log)" = $((plans - 1)) ]
}
ok "planned again $((plans - 1)) times" in_plans
weigh "what is held is the same for the same plan, to the byte" held-plans 3
finish
