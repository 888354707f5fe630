#!/bin/sh
# The run folder belongs to one process at a time; where it is full or may not be written to, the last good
# checkpoint stays, and the run goes on from it when there is room again.
. "$top_srcdir/tests/tap.sh"
. "$top_srcdir/tests/tiny.sh"

faulty=$top_builddir/tests/faulty

ok "a run" train whole
train part -s run.max_steps=20

### One process

refused() {
    start busy -s train.epochs=1000000
    wait_for grep -q "epoch 1/" busy.log || return 1
    for more in "" -r -r=part/checkpoint-last.safetensors; do
        # shellcheck disable=SC2086
        train busy $more 2>said
        status=$?
        cat said
        [ $status = 1 ] && grep -q "busy: another process ($process on .*) is training in this" said || break
        status=refused
    done
    kill -KILL $process
    wait $process
    [ $status = refused ]
}
ok "a second process is refused, and told of the first" refused
ok "a killed process holds nothing" train busy -r -s run.max_steps=3

unlocked() {
    FAULT=lock:1:$1 "$faulty" -q -c run.ini -o "$1" 2>said
    status=$?
    cat said
    [ $status = 0 ] && grep -q "cannot be locked: .*see to it that no other process" said && same whole "$1"
}
for error in ENOLCK ENOSYS; do
    if "$faulty" --version >said 2>&1; then
        ok "where nothing can be locked ($error), that is said, and the run goes on" unlocked $error
    else
        skip "where nothing can be locked ($error)" "$(cat said)"
    fi
done

### A full disk

# struck FOLDER: a run with no room for checkpoints went on to its end, said so, and left the one of step 20.
struck() {
    cat said
    cmp "$1/checkpoint-last.safetensors" part/checkpoint-last.safetensors &&
        grep -q "checkpoint-.*: cannot be written: $2" said &&
        grep -q "the checkpoint was not written; the run goes on, the last good one is kept" said &&
        [ -z "$(find "$1" -name '*.tmp')" ]
}

# The limit is in blocks of 512 or 1024 bytes: more than the lines of a run, less than one of its checkpoints.
limited() {
    cp -a part small
    (ulimit -f 40 && train small -r) 2>said
    status=$?
    struck small "File too large" && return $status
}
exits "files that may not grow" 1 limited
again() { train "$1" -r && same whole "$1"; }
ok "... and the run goes on when they may" again small

# A file system of its own, with room for the lines of a run, but for less than one more checkpoint.
full() {
    mkdir full
    size=$(($(du -sk part | cut -f 1) + 40))
    # shellcheck disable=SC2016 # the inner shell's
    unshare -rm sh -c 'mount -t tmpfs -o size="$1k" none full && cp -a part/. full &&
        { "$AMPTRAIN" -q -c run.ini -o full -r 2>said; echo $? >status; } ; cp -a full kept' sh "$size"
    cat said
    return "$(cat status)"
}
if unshare -rm sh -c 'mount -t tmpfs -o size=1m none /mnt' 2>said; then
    exits "a disk that is full" 1 full
    ok "... keeps the last good checkpoint" struck kept "No space left on device"
    ok "... and the run goes on elsewhere" again kept
else
    skip "a disk that is full" "$(cat said)"
fi

### A folder that may not be written to

# As somebody whom permissions bind.
plain=
[ "$(id -u)" != 0 ] || plain='setpriv --reuid=65534 --regid=65534 --clear-groups'

read_only() {
    cp -r part fixed
    chmod a-w fixed fixed/* fixed/.lock
    $plain "$AMPTRAIN" -q -c run.ini -o fixed -r 2>said
    status=$?
    cat said
    grep -q "fixed/.*Permission denied" said && diff -r part fixed && return $status
}

# unreadable [OPTION...]: a last checkpoint that cannot be opened is left alone, and so is all else.
unreadable() {
    cp -a "$1" hidden
    chmod 000 "hidden/$2"
    $plain "$AMPTRAIN" -q -c run.ini -o hidden -r 2>said
    status=$?
    cat said
    chmod 644 "hidden/$2"
    rm -f hidden/log.txt && cp "$1/log.txt" hidden
    grep -q "hidden/$2 cannot be opened: Permission denied; it may be good" said && diff -r "$1" hidden -x .lock &&
        rm -rf hidden && return $status
}

# Becomes so while a run is under way, and is writable again before it ends.
turned() {
    mkdir turned && chmod a+rwx turned
    $plain "$AMPTRAIN" -c run.ini -o turned -s train.epochs=1000000 2>said &
    process=$!
    wait_for [ -f turned/checkpoint-previous.safetensors ] && chmod a-w turned &&
        wait_for grep -q "the checkpoint was not written; the run goes on" said
    found=$?
    chmod a+w turned
    kill -TERM $process
    wait $process
    status=$?
    tail said
    [ $found = 0 ] && [ $status = 75 ] && [ -z "$(find turned -name '*.tmp')" ] && again_shorter
}
again_shorter() {
    train turned -r -s train.epochs=1 && tail -n 1 turned/metrics.jsonl | grep '"reason":"done"'
}

# The checkout may be in a folder that is nobody else's, as /root is: what is read lies here.
mkdir -p installed/data && cp -r "$top_srcdir/data/digits" installed/data && chmod -R a+rX installed
AMPTRAIN_DATADIR=installed
export AMPTRAIN_DATADIR
chmod a+rx "$scratch" && chmod a+r ./*.ini
if $plain "$AMPTRAIN" --version >said 2>&1; then
    exits "a folder that may not be written to" 1 read_only
    ok "one that turns so is no end" turned
    chmod a+rwx whole && chmod a+rw whole/* whole/.lock
    exits "a last checkpoint that may not be read" 1 unreadable whole checkpoint-last.safetensors
    cp -a whole behind && head -c 20000 whole/checkpoint-last.safetensors >behind/checkpoint-last.safetensors
    exits "a previous one that may not be read" 1 unreadable behind checkpoint-previous.safetensors
else
    skip "a folder that may not be written to" "$(tail -n 1 said)"
fi
finish
