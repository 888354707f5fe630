#!/bin/sh
# Files that vanish, shrink or no longer answer while a run reads them, and outputs that nobody takes.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

OMP_WAIT_POLICY=passive
export OMP_WAIT_POLICY
faulty=$top_builddir/tests/support/faulty

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures' -e 's/^crop.*/crop = 32\nval_resize = 32/' \
    -e 's/^batch.*/batch = 4/' -e 's/^epochs.*/epochs = 2/' -e 's/^every = 3 steps/every = 0/' \
    -e 's/^precision.*/precision = fp32/' -e 's/tiny.ini/coloured.ini/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 32/' tiny.ini >coloured.ini
pictures() { "$AMPTRAIN" -q -c pictures.ini "$@"; }
"$AMPTRAIN" pack -q -c pictures.ini -o all.pack || exit 1
pictures -o whole || exit 1
pictures -o whole-packed -s data.format=packed -s data.train=all.pack || exit 1

### While a run stands still in the midst of a read

# paused FILE READ COMMAND...: starts it, as $process, which stops itself before that read of files with such
# names; it speaks into `spoken`. How often other files are read depends on the machine.
paused() {
    FAULT_FILE=$1 FAULT=read:$2:pause
    export FAULT_FILE FAULT
    shift 2
    "$faulty" "$@" >printed 2>spoken &
    process=$!
    unset FAULT_FILE FAULT
    until grep -q '^State:.*stopped' /proc/$process/status; do
        kill -0 $process || return 1
        sleep 0.01
    done 2>/dev/null
}

# during FILE READ CHANGE OPTION...: a run, and a command that changes something before that read.
during() {
    file=$1 reads=$2 change=$3; shift 3
    paused "$file" "$reads" -q -c pictures.ini -s loader.cache=none -s data.on_error=stop "$@" ||
        { cat spoken; return 1; }
    $change
    kill -CONT $process
    wait $process
    status=$?
    cat spoken >&2
    return $status
}

lose_pictures() { mv pictures/apple/7.png pictures/pear/3.png .; }
shrink_pictures() {
    cp pictures/apple/7.png pictures/pear/3.png .
    truncate -s 40 pictures/apple/7.png pictures/pear/3.png
}
put_back() { mv 7.png pictures/apple; mv 3.png pictures/pear; }
shrink_pack() { cp all.pack kept.pack; truncate -s $(($(wc -c <all.pack) / 2)) all.pack; }
lose_pack() { mv all.pack kept.pack; }
put_back_pack() { mv kept.pack all.pack; }
packed='-s data.format=packed -s data.train=all.pack'

# Each picture is read once when the data are listed, once for their identity, and once an epoch; the
# packed file's head takes 4 reads.
FAULT=read:1000000:EIO "$faulty" --version >printed 2>spoken || {
    skip "files that change while they are read" "$(cat spoken)"
    finish
    exit
}
ok "images that disappear are named and replaced" \
    says 0 ".png: No such file" during .png 102 lose_pictures -s data.on_error=skip
put_back
ok "... or end the run (on_error=stop)" says 3 ".png: No such file" during .png 102 lose_pictures
put_back
ok "images that become shorter" says 3 .png: during .png 102 shrink_pictures
put_back
ok "a packed file that becomes shorter" says 3 "all.pack: image" during all.pack 20 shrink_pack $packed
put_back_pack
ok "... other images replace the lost ones" \
    says 0 "all.pack: image" during all.pack 20 shrink_pack $packed -s data.on_error=skip
put_back_pack
ok "a packed file that is renamed or removed is still read" during all.pack 20 lose_pack $packed -o nameless
put_back_pack
ok "... to the same bits" same whole-packed nameless

### Where nobody answers

# stalled OPTION...: a run in which reading a picture takes minutes, as $process. What the thread that reads
# may still use is not freed at the end.
stalled() {
    FAULT_FILE=.png FAULT=read:200:stall
    export FAULT_FILE FAULT
    ASAN_OPTIONS=detect_leaks=0 "$faulty" -q -c pictures.ini -s loader.cache=none "$@" >printed 2>spoken &
    process=$!
    unset FAULT_FILE FAULT
}
too_long() {
    stalled -s loader.timeout=1s
    wait $process
    status=$?
    cat spoken >&2
    return $status
}
ok "loader.timeout ends a run whose reads hang" says 3 ".png: reading it has taken" too_long
at_first() { # behind the first bytes of each file, by which they are listed
    FAULT_FILE=.png FAULT=read:$(($(find pictures -name '*.png' | wc -l) + 3)):stall ASAN_OPTIONS=detect_leaks=0 \
        "$faulty" -q -c pictures.ini -s loader.timeout=1s
}
ok "... while headers are looked at, too" \
    says 3 ".png: it is still being read; no image for 1 s, which exceeds loader.timeout" at_first
asked() {
    FAULT_FIRED=$scratch/fired
    export FAULT_FIRED
    rm -f fired
    stalled -o asked
    unset FAULT_FIRED
    until [ -s fired ]; do sleep 0.02; done
    kill -TERM $process
    wait $process
}
exits "SIGTERM during a slow read stops the run" 75 asked
ok "... with a checkpoint" pictures -s loader.cache=none -r -o asked
ok "... and resumes to the same bits and lines" same whole asked

# While data are opened nothing can be saved yet. Both wait for ten seconds at the same time.
opening() { # FOLDER OPTION...
    FAULT_FILE=.png FAULT=read:1:stall FAULT_FIRED=$scratch/fired-$1 ASAN_OPTIONS=detect_leaks=0 \
        "$faulty" -q -c pictures.ini -s loader.cache=none -o "$@" >printed 2>"$1.txt" &
    until [ -s "fired-$1" ]; do sleep 0.05; done
    kill -TERM $!
}
opening unopened
first=$!
opening unopened-ranks -s parallel.gpus=2 -s run.device=cpu
second=$!
exits "SIGTERM while data are opened ends the run" 143 wait $first
ok "... in words" grep "stopped while it started: there is nothing to save" unopened.txt
exits "... and two ranks" 143 wait $second

### Outputs

closed() { pictures -o "$1" >&- 2>&- <&-; }
ok "a run without standard streams" closed closed
ok "... gives the same bits and lines" same whole closed
unread() { { pictures -o unread 2>&1 >/dev/null; echo $? >ended; } | :; [ "$(cat ended)" = 0 ]; }
ok "a run whose output pipe is closed" unread
ok "... gives the same bits and lines" same whole unread
evaluated() { "$AMPTRAIN" eval -q -c pictures.ini --weights whole/checkpoint-last.safetensors -s \
    data.val=pictures; }
to_nowhere() { evaluated >&-; }
ok "results to a closed output" says 1 "standard output" to_nowhere
if [ -c /dev/full ]; then
    to_full() { evaluated >/dev/full; }
    ok "results to a full device" says 1 "standard output" to_full
    run_full() { pictures -o full >/dev/full 2>/dev/full; }
    ok "a run that cannot write messages" run_full
    ok "... gives the same bits and lines" same whole full
    unshown() { "$AMPTRAIN" -c pictures.ini -o unshown >/dev/full 2>said; }
    exits "a run that cannot print its results" 1 unshown
    ok "... says so" grep -q "standard output: No space" said
    ok "... gives the same bits and lines" same whole unshown
fi
finish
