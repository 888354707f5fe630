#!/bin/sh
# Faults of one rank of several (faults.c): the run ends with the exit code of the cause, which is said once,
# no rank is left, and the last checkpoint is good.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

faulty=$top_builddir/tests/support/faulty
"$faulty" --version >/dev/null 2>err || { skip "faults" "$(cat err)"; finish; exit; }

ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0      # what a process holds that ends in the midst
export ASAN_OPTIONS

long="-s run.max_steps=300 -s train.epochs=100"
# counted RANK KIND FOLDER [OPTION...]: how many such calls a rank of two makes, in a run that nothing happens to,
# as $calls.
counted() {
    rank=$1 kind=$2 folder=$3; shift 3
    rm -rf "$folder"
    FAULT_RANK=$rank FAULT_COUNTS=counts "$faulty" -q -c run.ini -o "$folder" -s parallel.gpus=2 \
        -s train.accumulate=1 $long "$@" || return 1
    calls=$(sed -n "s/^$kind //p" counts)
}
# struck RANK FAULT N FOLDER [OPTION...]: a run of N ranks, one of which a fault strikes.
struck() {
    rank=$1 fault=$2 number=$3 folder=$4; shift 4
    rm -rf "$folder" fired
    struck_status=0
    FAULT_RANK=$rank FAULT=$fault FAULT_FIRED=$scratch/fired timeout 60 "$faulty" -q -c run.ini -o "$folder" \
        -s "parallel.gpus=$number" -s train.accumulate=1 $long "$@" || struck_status=$?
    [ -s fired ] || { echo "$fault did not strike rank $rank, which ended with $struck_status" >&2; return 99; }
    return $struck_status
}
said_once() { [ "$(grep -cF -e "$1" err)" = 1 ] || { cat err; echo "not said once: $1"; return 1; }; }
goes_on() { # FOLDER N: to the end of the run to which nothing happened
    train "$1" -r -s "parallel.gpus=$2" -s train.accumulate=1 -s "checkpoint.every=20 steps" $long &&
        same undisturbed "$1"
}

ok "a run of 300 steps" train undisturbed -s parallel.gpus=2 -s train.accumulate=1 \
    -s "checkpoint.every=20 steps" $long

# A bit that turns over in the parameters of one rank.
differs() {
    says 1 "rank $1 differs from rank $2, first in conv1.weight: master" \
        struck "$1" batch:70:flip "$3" flipped
}
without_folder() {
    FAULT_RANK=1 FAULT=batch:70:flip says 1 "after step 100 rank 1 differs from rank 0" \
        "$faulty" -q -c run.ini -s parallel.gpus=2 -s train.accumulate=1 $long
}
ok "a flipped bit in a rank's parameters is found within 100 steps" without_folder
ok "... also with 4 ranks" differs 2 0 4
ok "... also in the first rank" differs 0 1 4
before_checkpoint() {
    says 1 "after step 40 rank 1 differs from rank 0" struck 1 batch:30:flip 2 differing \
        -s "checkpoint.every=20 steps" && said_once differs && said_once "the last checkpoint is of step 22"
}
ok "... before a checkpoint is written" before_checkpoint
ok "... so that the run resumes from the last good one" goes_on differing 2

# The first rank's disk is full: a checkpoint on the way may fail, the last one may not.
full() {
    FAULT_FILE=checkpoint says 1 "full/checkpoint-last.safetensors.tmp: cannot be written: No space left" \
        struck 0 write:50:ENOSPC:on 2 full -s "checkpoint.every=20 steps" -s run.max_steps=50
}
ok "a full disk" full
ok "... leaves existing checkpoints" [ -s full/checkpoint-last.safetensors ]
ok "... from which the run resumes" goes_on full 2
records() {
    FAULT_FILE=metrics.jsonl says 1 "full/metrics.jsonl: cannot be written: No space left on device" \
        struck 0 write:3:ENOSPC:on 2 full -s run.max_steps=9
}
ok "a full disk for metrics" records
full_anywhere() {
    counted 0 write full -s "checkpoint.every=20 steps" || return 1
    most=$((calls * 2 / 3))     # how many there are differs from run to run
    for round in $(seq "$1"); do
        struck 0 "write:$(($(od -An -t u2 -N 2 /dev/urandom) % most + 1)):ENOSPC:on" 2 full \
            -s "checkpoint.every=20 steps" 2>err
        got=$?
        [ $got = 1 ] && [ "$(grep -c "cannot be written: No space left" err)" -ge 1 ] &&
            [ "$(grep -c " ended with exit code" err)" -le 1 ] && goes_on full 2 2>>err ||
            { cat err; echo "exit status $got"; return 1; }
    done
}
ok "a disk that becomes full at any moment" full_anywhere "$(rounds 1 50)"

# In the last eighth, after all that the beginning asks for: libraries that make code ask for half.
no_memory() {
    counted 1 memory starved || return 1
    says 1 "rank 1: amptrain: out of host memory" struck 1 memory:$((calls * 7 / 8)):ENOMEM:on 2 starved \
        -s "checkpoint.every=20 steps" &&
        said_once "out of host memory" && said_once "rank 1 ended with exit code 1 in " &&
        [ "$(wc -l <err)" = 2 ] && tail -n 2 starved/log.txt >last &&
        grep -q " error: rank 1: out of host memory" last &&
        grep -q " error: rank 1 ended with exit code 1" last
}
# Under a sanitizer, oneDNN's operator new does not say that there is none.
if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    skip "a rank without memory ends the run, with a line in log.txt" "built with sanitizers"
else
    ok "a rank without memory ends the run, with a line in log.txt" no_memory
    ok "... which can be resumed" goes_on starved 2
fi
no_device_memory() {
    says 4 "rank 1: amptrain: parameters and optimizer state need" \
        struck 1 device-memory:1:ENOMEM:on 2 small &&
        [ "$(wc -l <err)" = 1 ] && grep -q " error: rank 1: parameters and optimizer state need" small/log.txt
}
ok "a device without memory gives exit code 4" no_device_memory

# A rank that is stopped while it starts; it opens fewer files where there is no /sys.
paused() {
    says 1 "rank 1 has made no progress for" struck 1 "$1:pause" 2 paused -s parallel.timeout=2 &&
        grep -q "while others wait for it, while it started$" err && said_once "others wait"
}
ok "a rank that is stopped before it opens its data is named" paused open:1
paused_later() { counted 1 open paused -s run.max_steps=1 && paused "open:$((calls / 2 + 1))"; }
ok "... or when it has opened some files" paused_later

# Images that cannot be used.
"$top_builddir/tests/support/make_pictures" pictures || exit 1
for name in apple/1 apple/2 apple/9 pear/4 pear/7 pear/13; do
    head -c 60 pictures/$name.png >cut && mv cut pictures/$name.png
done
cat >broken.ini <<'END'
format = folder
train = pictures
val_fraction = 0.2
END
sed -e '/^format/d' -e '/^\[data\]/r broken.ini' -e 's/^crop.*/crop = 32/' -e 's/^batch.*/batch = 8/' \
    -e 's/^workers.*/workers = 2/' -e 's/tiny.ini/coloured.ini/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 32/' tiny.ini >coloured.ini
pictures() { # FOLDER RANKS [OPTION...]
    folder=$1 number=$2; shift 2
    "$AMPTRAIN" -q -c pictures.ini -o "$folder" -s "parallel.gpus=$number" \
        -s "train.accumulate=$((4 / number))" "$@" 2>err
}
listed() { sort "$1/bad-images.txt" >one.txt; cut -f 1,3 one.txt | uniq -d; [ "$(wc -l <one.txt)" = 6 ]; }
alike() { listed alone && listed several && sort alone/bad-images.txt | diff - one.txt; }
ok "unusable images, on one rank" pictures alone 1
ok "... and on four" pictures several 4
ok "... are listed identically" alike
ok "... each reported once" [ "$(grep -c "amptrain: warning: .*png: " err)" = 6 ]
cached() {
    pictures cached 4 -s loader.cache=host && grep -q "training images are cached .* for 4 ranks together" \
        cached/log.txt && pictures uncached 4 -s loader.cache=none && same cached uncached
}
ok "decoded images are cached once for all ranks" cached
resumed() {
    pictures resumed 4 -s run.max_steps=6 && cp resumed/bad-images.txt before &&
        pictures resumed 2 -r && listed resumed && cut -f 3 before | while read -r name; do
            ! grep -F "$name" err || return 1
        done
}
ok "... and not again when the run is resumed" resumed
stops() {
    pictures stopped 2 -s data.on_error=stop
    [ $? = 3 ] || { cat err; return 1; }
    [ "$(grep -c "png: " err)" -le 2 ] && grep -q " error: .*pictures/.*png: " stopped/log.txt
}
ok "a bad image ends the run with exit code 3 (on_error=stop)" stops

left() {
    for process in /proc/[0-9]*; do
        [ "$(readlink "$process/cwd")" != "$scratch" ] || readlink "$process/exe"
    done 2>/dev/null | grep -e amptrain -e faulty
}
none_left() { ! left; }
ok "no rank is left running" none_left
finish
