#!/bin/sh
# The run folder belongs to one process at a time; where it is full or may not be written to, the last good
# checkpoint stays, and the run goes on from it when there is room again.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

faulty=$top_builddir/tests/support/faulty

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
ok "a second process is refused, with the PID of the first" refused
ok "a killed process holds no lock" train busy -r -s run.max_steps=3

unlocked() {
    FAULT=lock:1:$1 "$faulty" -q -c run.ini -o "$1" 2>said
    status=$?
    cat said
    [ $status = 0 ] && grep -q "cannot be locked: .*make sure that no other process" said && same whole "$1"
}
for error in ENOLCK ENOSYS; do
    if "$faulty" --version >said 2>&1; then
        ok "a file system without locks ($error): a warning, and the run continues" unlocked $error
    else
        skip "a file system without locks ($error)" "$(cat said)"
    fi
done

### Folders that move

# A run whose folder gets another name writes on into it, and not into the one that has the name now.
moved() {
    start race -s train.epochs=1000000
    first=$process first_log=race.log
    wait_for [ -f race/checkpoint-previous.safetensors ] || return 1
    mv race race.old && mv race.log first.log
    train race || return 1
    cp -a race race.before
    before=$(wc -l <race.old/metrics.jsonl)
    rm -f race.old/checkpoint-previous.safetensors
    wait_for [ -f race.old/checkpoint-previous.safetensors ]
    found=$?
    kill -TERM $first
    wait $first
    status=$?
    cat first.log | tail -n 2
    [ $found = 0 ] && [ $status = 75 ] && diff -r race race.before && same whole race &&
        [ "$(wc -l <race.old/metrics.jsonl)" -gt "$before" ] &&
        tail -n 1 race.old/metrics.jsonl | grep '"reason":"stopped"' && grep -q stopped race.old/log.txt &&
        train race.old -r -s train.epochs=1000000 -s run.max_steps=1
}
ok "a run whose folder is moved continues in it, and leaves a new one of that name alone" moved

stopped_in_between() {
    kill -STOP $process
    wait_for grep -q '^State:.T' /proc/$process/status
    [ -z "$(find again -name '*.tmp')" ] || { kill -CONT $process; return 1; }
}

# made_again WHAT WORDS: it is removed while a run is under way, and another run begins there.
made_again() {
    start again -s train.epochs=1000000 -s checkpoint.every='300 steps' -s checkpoint.keep=0
    wait_for [ -f again/checkpoint-previous.safetensors ] || return 1
    # Not in the midst of writing one, when it has found the folder to be its own.
    wait_for stopped_in_between || return 1
    # shellcheck disable=SC2086 # names
    rm -rf $1
    "$AMPTRAIN" -q -c run.ini -o again -r -s train.epochs=1000000 -s run.max_steps=40 -s checkpoint.keep=0 \
        || return 1
    cp -a again again.before
    kill -CONT $process
    wait $process
    status=$?
    grep amptrain: again.log
    [ $status = 1 ] && grep -q "again: $2.*; the run ends and leaves it unchanged" again.log &&
        diff -r again again.before && rm -rf again again.before
}
ok "a run whose folder is replaced ends, and leaves the new one alone" made_again again \
    "the run folder was removed"
ok "likewise if everything in it was replaced" made_again "again/* again/.lock" \
    "another process has taken the run folder"

# Where only the lock was removed, and nobody came, it is made again.
unlocked_on() {
    start lockless -s train.epochs=1000000
    wait_for [ -f lockless/checkpoint-previous.safetensors ] && rm lockless/.lock &&
        wait_for [ -f lockless/.lock ] || return 1
    train lockless -r 2>said
    refused=$?
    kill -TERM $process
    wait $process
    [ $? = 75 ] && [ $refused = 1 ] && grep "another process ($process on .*) is training" said
}
ok "a removed lock is created again" unlocked_on

### A run that has ended

finished() {
    cp -a whole ended
    "$AMPTRAIN" -c run.ini -o ended -r >said 2>&1 || return 1
    cat said
    grep -q "ended: the run is finished, after 4 epochs" said && diff -r -x .lock whole ended
}
ok "-r on a finished run changes nothing" finished

# The run's end is taken away, as if it had been killed after its last save.
no_end() {
    cp -a whole endless
    grep -v '"event":"end"' whole/metrics.jsonl >endless/metrics.jsonl
    train endless -r && cmp whole/checkpoint-last.safetensors endless/checkpoint-last.safetensors &&
        cmp whole/checkpoint-previous.safetensors endless/checkpoint-previous.safetensors &&
        tail -n 1 endless/metrics.jsonl | grep '"reason":"done"'
}
ok "-r after the last epoch adds the end line, and no checkpoint" no_end

### Records of evaluations

evaluate() { "$AMPTRAIN" eval -q -c run.ini --weights whole/checkpoint-last.safetensors -o "$1"; }

recorded() {
    cp -a part noted
    printf '{"event":"step","st' >>noted/metrics.jsonl
    evaluate noted && evaluate noted || return 1
    [ "$(grep -c '^{"event":"eval".*}$' noted/metrics.jsonl)" = 2 ] && [ -s noted/confusion.csv ] || return 1
    ! grep -q '"st$\|"st{' noted/metrics.jsonl && train noted -r && same whole noted &&
        [ "$(grep -c '"event":"eval"' noted/metrics.jsonl)" = 2 ]
}
ok "eval -o removes an incomplete line, and a resumed run keeps the line of eval" recorded

kept() {
    cp -a whole rewound
    evaluate rewound && train rewound -r=rewound/checkpoint-3.safetensors && same whole rewound &&
        grep -q '"event":"eval"' rewound/metrics.jsonl
}
ok "likewise a run that resumes from an older checkpoint" kept

during() {
    start busy2 -s train.epochs=1000000
    wait_for [ -f busy2/checkpoint-last.safetensors ] || return 1
    evaluate busy2 2>said
    status=$?
    cat said
    kill -KILL $process
    wait $process
    [ ! -e busy2/confusion.csv ] && ! grep '"event":"eval"' busy2/metrics.jsonl &&
        grep -q "another process ($process on .*) is training in this folder" said && return $status
}
exits "eval -o into the folder of a running run" 1 during

### What is no file

pipe() {
    rm -rf piped && mkdir piped && mkfifo "piped/$1" || return 1
    timeout 20 "$AMPTRAIN" -q -c run.ini -o piped 2>said
    status=$?
    cat said
    grep -q "piped/$1: cannot be .*: not a regular file" said && return $status
}
for name in metrics.jsonl log.txt .lock; do
    exits "$name that is a pipe" 1 pipe $name
done

### Links

# linked COMMAND NAME: a link in a run folder, to a file that nobody asked to be written.
linked() {
    how=$1 name=$2
    rm -rf linked && mkdir linked && echo mine >victim && $how "$PWD/victim" "linked/$name" || return 1
    "$AMPTRAIN" -q -c run.ini -o linked 2>said
    status=$?
    cat said
    [ "$(cat victim)" = mine ] && [ $status = 2 ] && grep "linked/$name: $3" said &&
        [ "$(ls -A linked)" = "$name" ]
}
for name in .lock metrics.jsonl log.txt; do
    ok "nothing is written through $name that is a symbolic link" linked "ln -s" $name \
        "is a symbolic link"
    ok "... a hard link" linked ln $name "was not written by amptrain"
done

# A run's own files, which another folder shares.
shared_with() {
    cp -a part shared && cp -al shared copy && cp -a part alone || return 1
    train shared -r 2>said
    status=$?
    cat said
    [ $status = 1 ] && grep "shared/.*: cannot be written: it has other names (hard links)" said &&
        diff -r copy part
}
ok "... nor through a hard link to another run's" shared_with

# Files that are replaced as a whole, when the run is under way already.
replaced_links() {
    cp -a part linked.part && echo mine >victim || return 1
    for name in confusion.csv memory.json memory.svg report.html config.ini; do
        ln -sf ../victim "linked.part/$name"
    done
    train linked.part -r && [ "$(cat victim)" = mine ] && [ ! -L linked.part/config.ini ]
}
ok "... nor through the others" replaced_links

linked_records() {
    rm -rf linked && mkdir linked && echo '{}' >victim && ln -s ../victim linked/metrics.jsonl &&
        says 2 "linked/metrics.jsonl: is a symbolic link" "$AMPTRAIN" eval -q -c run.ini \
            --weights whole -o linked && [ "$(cat victim)" = '{}' ]
}
ok "... nor by eval -o" linked_records

# The cache: its folder may be a link, as a user makes it to save space, but not its files.
cached() { XDG_CACHE_HOME=$PWD/cache "$AMPTRAIN" profile -q -c run.ini >/dev/null; }
linked_cache() {
    mkdir -p cache real && ln -s ../real cache/amptrain && cached && [ -s real/peaks ] || return 1
    echo mine >victim && ln -sf ../victim real/peaks && cached && [ "$(cat victim)" = mine ]
}
ok "... nor through the cache's, whose folder may be one" linked_cache

### Whose folder

# foreign NAME CONTENT [COMMAND...]: refused, and the folder stays as it is.
foreign() {
    rm -rf theirs before && mkdir theirs && cp run.ini tiny.ini theirs || return 1
    # shellcheck disable=SC2059 # with escapes
    printf "$2" >"theirs/$1" && cp -a theirs before
    name=$1; shift 2
    [ $# -gt 0 ] || set -- train theirs
    says 2 "theirs/$name: was not written by amptrain" "$@"
    status=$?
    diff -r theirs before && return $status
}
mine='[run]\nseed = 1 ; a comment\n'
own_config() { foreign config.ini "$(sed 's/%/%%/g' run.ini)" "$AMPTRAIN" -c theirs/config.ini -o theirs; }
ok "a user's config.ini is not replaced by that of the run which it configures" own_config
ok "... nor the second time" says 2 "theirs/config.ini: was not written by amptrain" \
    "$AMPTRAIN" -c theirs/config.ini -o theirs
ok "... nor with -r" foreign config.ini "$mine" train theirs -r
ok "... nor when a run resumes from elsewhere" foreign config.ini "$mine" train theirs \
    -r=part/checkpoint-last.safetensors
for name in .lock log.txt metrics.jsonl bad-images.txt confusion.csv mistakes.json memory.json memory.svg \
        report.html checkpoint-3.safetensors; do
    ok "a run refuses a folder with another's $name" foreign $name 'mine\n'
done
for name in .lock metrics.jsonl confusion.csv mistakes.json; do
    ok "so does eval, $name" foreign $name '{"mine":1}\n' "$AMPTRAIN" eval -q -c run.ini --weights whole \
        -o theirs
done
ok "so does plan" foreign memory.svg '<svg/>' "$AMPTRAIN" plan -q -c run.ini -o theirs
ok "so does report" foreign report.html '<html/>' "$AMPTRAIN" report theirs
ok "so does profile" foreign profile.json '{}' "$AMPTRAIN" profile -q -c run.ini -o theirs

# amptrain recognises what it writes: every file of a run, and of all commands that add to a folder.
recognised() {
    train ours -s memory.report=yes && rm -f ours/checkpoint-[!0-9]* &&
        "$AMPTRAIN" plan -q -c run.ini -o ours && "$AMPTRAIN" profile -q -c run.ini -o ours >/dev/null &&
        evaluate ours && "$AMPTRAIN" report ours && ls -A ours &&
        "$AMPTRAIN" plan -q -c run.ini -o ours && "$AMPTRAIN" profile -q -c run.ini -o ours >/dev/null &&
        evaluate ours && "$AMPTRAIN" report ours || return 1
    for name in .lock config.ini log.txt metrics.jsonl confusion.csv mistakes.json memory.json memory.svg \
            report.html profile.json checkpoint-4.safetensors; do
        [ -s "ours/$name" ] || { echo "no $name"; return 1; }
    done
    train ours && same whole ours
}
ok "files of every command are recognised, and a run without a checkpoint begins anew" recognised

# Interrupted before the first checkpoint.
begun() {
    start begun -s train.epochs=1000000 -s checkpoint.every=100000
    wait_for grep -q '"event":"step"' begun/metrics.jsonl
    kill -KILL $process
    wait $process
    [ -s begun/config.ini ] && [ ! -f begun/checkpoint-last.safetensors ] && train begun && same whole begun
}
ok "the same command restarts a run that was killed before its first checkpoint" begun

unowned() { mkdir mixed && cp run.ini mixed && echo notes >mixed/notes.txt && train mixed && same whole mixed; }
ok "files of other names are nobody's business" unowned

### Several writers of one file

several() {
    rm -f logits*.npy said.*
    processes='' failed=0
    for i in 1 2 3 4 5 6; do
        "$AMPTRAIN" eval -q -c run.ini --weights whole --logits logits.npy >/dev/null 2>said.$i &
        processes="$processes $!"
    done
    for process in $processes; do wait "$process" || failed=1; done
    cat said.*
    [ $failed = 0 ] && "$AMPTRAIN" eval -q -c run.ini --weights whole --logits alone.npy &&
        cmp logits.npy alone.npy && [ -z "$(find . -name 'logits*.tmp')" ]
}
ok "six evaluations write the same file at once" several

# One that is killed leaves its part to the next, which removes it.
half_written() {
    rm -f half.npy*
    : >half.npy.00beef.tmp
    "$AMPTRAIN" eval -q -c run.ini --weights whole --logits half.npy && [ "$(echo half.npy*)" = half.npy ]
}
ok "what a killed writer left is removed" half_written

### A full disk

# struck FOLDER: a run with no room for checkpoints went on to its end, said so, and left the one of step 20.
struck() {
    cat said
    cmp "$1/checkpoint-last.safetensors" part/checkpoint-last.safetensors &&
        grep -q "checkpoint-.*: cannot be written: $2" said &&
        grep -q "the checkpoint was not written; the run continues, and the last one is kept" said &&
        [ -z "$(find "$1" -name '*.tmp')" ]
}

# The limit is in blocks of 512 or 1024 bytes: more than the lines of a run, less than one of its checkpoints.
limited() {
    cp -a part small
    (ulimit -f 40 && train small -r) 2>said
    status=$?
    struck small "File too large" && return $status
}
exits "a limit on file size" 1 limited
again() { train "$1" -r && same whole "$1"; }
ok "... the run continues when it is raised" again small

# Nor may the lines of a run: they wait, and come at last, or the run ends with an error.
lineless() {
    cp -a part lineless
    (ulimit -f 12 && train lineless -r) 2>said
    status=$?
    cat said
    grep -q "lineless/metrics.jsonl: cannot be written: File too large; lines are buffered" said &&
        [ "$(grep -vc '}$' lineless/metrics.jsonl)" = 0 ] && return $status
}
exits "metrics that cannot be written" 1 lineless
ok "... the run continues when there is space" again lineless

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
    exits "a full disk" 1 full
    ok "... leaves the last good checkpoint" struck kept "No space left on device"
    ok "... the run can be resumed elsewhere" again kept
else
    skip "a full disk" "$(cat said)"
fi

### A folder that may not be written to

# closed ARGUMENT...: refused before any work.
closed() {
    $plain "$AMPTRAIN" "$@" >printed 2>said
    status=$?
    cat said printed
    grep -q "closed.*: Permission denied" said && [ ! -s printed ] && return $status
}

# The program runs as somebody whom permissions bind.
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
    grep -q "hidden/$2 cannot be opened: Permission denied; it may be valid" said &&
        diff -r "$1" hidden -x .lock &&
        rm -rf hidden && return $status
}

# Becomes so while a run is under way, and is writable again before it ends.
turned() {
    mkdir turned && chmod a+rwx turned
    $plain "$AMPTRAIN" -c run.ini -o turned -s train.epochs=1000000 2>said &
    process=$!
    wait_for [ -f turned/checkpoint-previous.safetensors ] && chmod a-w turned &&
        wait_for grep -q "the checkpoint was not written; the run continues" said
    found=$?
    chmod a+w turned
    kill -TERM $process
    wait $process
    status=$?
    tail said
    [ $found = 0 ] && [ $status = 75 ] && [ -z "$(find turned -name '*.tmp')" ] && again_shorter
}
# A run that is past its last epoch and has told its end is finished, and that end stays; otherwise it tells
# one.
again_shorter() {
    "$AMPTRAIN" -c run.ini -o turned -r -s train.epochs=1 2>said || return 1
    cat said
    reason=done
    ! grep -q "the run is finished" said || reason=stopped
    tail -n 1 turned/metrics.jsonl | grep "\"reason\":\"$reason\""
}

# The checkout may be in a folder that is nobody else's, as /root is: what is read lies here.
mkdir -p installed/data && cp -r "$top_srcdir/data/digits" installed/data && chmod -R a+rX installed
AMPTRAIN_DATADIR=installed
export AMPTRAIN_DATADIR
chmod a+rx "$scratch" && chmod a+r ./*.ini
if $plain "$AMPTRAIN" --version >said 2>&1; then
    exits "a read-only folder" 1 read_only
    mkdir closed && chmod a-w closed
    exits "... a new folder in it" 1 closed -c run.ini -o closed/a/b
    for command in "lr -o closed/lr.svg" "profile -o closed" "profile -o closed/a/b" "pack -o closed/a.pack"; do
        exits "... $command" 1 closed $command -c run.ini
    done
    ok "a folder that becomes read-only does not end the run" turned
    chmod a+rwx whole && chmod a+rw whole/* whole/.lock
    exits "an unreadable last checkpoint" 1 unreadable whole checkpoint-last.safetensors
    cp -a whole behind && head -c 20000 whole/checkpoint-last.safetensors >behind/checkpoint-last.safetensors
    exits "an unreadable previous checkpoint" 1 unreadable behind checkpoint-previous.safetensors
else
    skip "a read-only folder" "$(tail -n 1 said)"
fi
finish
