#!/bin/sh
# Whatever the system refuses, and whenever: a command ends as if nothing had been, or with an error that says
# what was wrong and with nothing lost. The k-th call of a kind fails (faults.c), for every k.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

OMP_WAIT_POLICY=passive
ASAN_OPTIONS=${ASAN_OPTIONS-}:exitcode=99
LSAN_OPTIONS=${LSAN_OPTIONS-}:exitcode=99
export OMP_WAIT_POLICY ASAN_OPTIONS LSAN_OPTIONS
faulty=$top_builddir/tests/support/faulty
FAULT_COUNTS=$scratch/counts "$faulty" --version >/dev/null 2>err ||
    { skip "faults" "$(cat err)"; finish; exit; }

seconds=60              # a command that takes longer hangs

### What is tried

"$top_builddir/tests/support/make_pictures" pictures || exit 1
rm -f pictures/*/[!0-4].png pictures/*/??.png
cp -r pictures held
sed -e 's/^epochs.*/epochs = 1/' -e 's/^tensorboard.*/tensorboard = yes/' \
    -e 's/^every = 3 steps/every = 4 steps/' run.ini >train.ini
cat >held.ini <<'END'
format = folder
train = pictures
val = held
on_error = stop
END
sed -e '/^format/d' -e '/^\[data\]/r held.ini' -e 's/^crop.*/crop = 32/' -e 's/^batch.*/batch = 4/' \
    -e 's/^workers.*/workers = 2/' -e 's/^every = 4 steps/every = 1 epochs/' \
    -e 's/^precision.*/precision = fp32/' -e 's/tiny.ini/coloured.ini/' train.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 32/' tiny.ini >coloured.ini

# Each command is four functions: what it begins with; the command itself, after what runs it; whether it came
# to the same as when nothing failed; and whether, where it ended with an error, nothing else came of it.

calm() { "$AMPTRAIN" -q "$@"; }

train_begin() { rm -rf "$work"; }
train_run() { "$@" -q -c train.ini -o "$work"; }
train_same() { same whole "$work"; }
train_after() { calm -c train.ini -o "$work" -r && same whole "$work"; }

resume_begin() { rm -rf "$work"; cp -a part "$work"; }
resume_run() { "$@" -q -c train.ini -o "$work" -r; }
resume_same() { same whole "$work"; }
resume_after() { train_after; }

pictures_begin() { rm -rf "$work"; }
pictures_run() { "$@" -q -c pictures.ini -o "$work"; }
pictures_same() { same whole-pictures "$work"; }
pictures_after() { calm -c pictures.ini -o "$work" -r && same whole-pictures "$work"; }

packed_begin() { rm -rf "$work"; }
packed_run() { pictures_run "$@" -s data.format=packed -s data.train=whole.pack -s data.val=whole.pack; }
packed_same() { same whole-packed "$work"; }
packed_after() { packed_run "$AMPTRAIN" -r && same whole-packed "$work"; }

eval_begin() { rm -rf "$work"; }
eval_run() { "$@" eval -q -c train.ini --weights whole/checkpoint-last.safetensors -o "$work"; }
eval_untimed() { sed -i 's/,"time":[^,}]*//' "$1/metrics.jsonl"; }
eval_same() { cmp whole.eval out && eval_untimed "$work" && diff -r whole-eval "$work"; }
eval_after() { :; }

predict_begin() { :; }
predict_run() {
    "$@" predict -q -c pictures.ini --weights whole-pictures/checkpoint-last.safetensors pictures/apple/*.png
}
predict_same() { cmp whole.predict out; }
predict_after() { :; }

pack_begin() { rm -f "$work".pack*; }
pack_run() { "$@" pack -q -c pictures.ini -o "$work".pack; }
pack_same() { cmp whole.pack "$work".pack; }
pack_after() { [ ! -e "$work".pack ] || cmp whole.pack "$work".pack; }

export_begin() { rm -f "$work".safetensors*; }
export_run() { "$@" export -q --weights whole/checkpoint-last.safetensors -o "$work".safetensors; }
export_same() { cmp whole.safetensors "$work".safetensors; }
export_after() { [ ! -e "$work".safetensors ] || export_same; }

plan_begin() { :; }
plan_run() { "$@" plan -q -c train.ini; }
plan_same() { cmp whole.plan out || grep -q '^amptrain: .*digits' err; }    # data need not be there
plan_after() { :; }

### How it is tried

work=$scratch/work
export work

# undisturbed NAME: the numbers of calls of a command, into counts-NAME.
undisturbed() {
    "$1"_begin
    FAULT_COUNTS=$scratch/counts-$1 "$1"_run "$faulty" >out 2>err && "$1"_same
}

# The errors that a kind of call meets in the world.
ways() {
    case $1 in
    memory | map | device-memory) echo ENOMEM ENOMEM:on ;;
    open) echo EMFILE EIO:on ;;
    read) echo EIO EINTR short EIO:on ;;
    write) echo ENOSPC EINTR short ENOSPC:on ;;
    sync | close) echo EIO ENOSPC:on ;;
    rename) echo EIO EACCES:on ;;
    thread) echo EAGAIN EAGAIN:on ;;
    *) echo EIO EIO:on ;;
    esac
}

# Words of which the message must have one.
words_of() {
    case $1 in
    stat:*) echo 'Input/output error\|No such file\|already contains a run\|no checkpoint' ;;
    *EMFILE*) echo 'Too many open files' ;;
    *EIO*) echo 'Input/output error' ;;
    *EINTR*) echo 'Interrupted' ;;
    *ENOSPC*) echo 'No space left' ;;
    *EACCES*) echo 'Permission denied' ;;
    *EAGAIN*) echo 'temporarily unavailable' ;;
    *ENOMEM*) echo 'memory\|device does not have\|device has only\|start a loader thread' ;;
    esac
}

# Words of what a sanitizer found: a crash in a library is that library's.
sanitized() {
    if grep -q 'LeakSanitizer' err; then echo leaks
    elif grep -m 1 '#0 ' err | grep -q '(/[^ ]*\.so[^ ]*)$'; then echo library
    else echo crashes
    fi
}

# judge NAME FAULT STATUS: one word. "same" and "refused" are right; "library" is what no command can help:
# one that crashes where it is refused something, or ends the process with a word of its own.
judge() {
    case $3 in
    0) if "$1"_same >judged 2>&1; then echo same; else echo different; fi; return ;;
    124) echo hangs; return ;;
    1 | 2 | 3 | 4 | 5) ;;
    99) sanitized; return ;;
    *) if grep -q '^crash lib' fired; then echo library; else echo crashes; fi; return ;;
    esac
    if grep -q '^libgomp: ' err; then echo library; return; fi
    if ! grep -v '^amptrain: warning' err | grep -q '^amptrain: '; then echo silent
    elif ! grep -qie "$(words_of "$2")" -e device: err; then echo unclear
    elif [ -n "$(find . -name '*.tmp')" ] && ! grep -q 'out of host memory' err; then echo litters
    elif ! "$1"_after >judged 2>&1; then echo loses
    else echo refused
    fi
}

# strike NAME FAULT: tries it, and adds a line to the results.
strike() {
    "$1"_begin
    rm -f fired
    FAULT=$2 FAULT_FIRED=$scratch/fired "$1"_run timeout $seconds "$faulty" >out 2>err
    status=$?
    [ -s fired ] || { echo "$1 $2 unreached" >>results; return; }
    verdict=$(judge "$1" "$2" $status)
    echo "$1 $2 $verdict $status" $(cat fired) "$(grep -m 1 '^amptrain: ' err)" >>results
}

# strikes NAME KIND COUNT WAYS: COUNT of the calls of a kind, all over the command, each in so many ways.
strikes() {
    calls=$(sed -n "s/^$2 //p" counts-"$1")
    [ "$calls" -gt 0 ] || return
    tries=$3
    [ "$tries" -lt "$calls" ] || tries=$calls
    for way in $4; do
        i=0
        while [ $i -lt $tries ]; do
            how=${way%:on} on=
            [ "$how" = "$way" ] || on=:on
            strike "$1" "$2:$((1 + (2 * i + 1) * calls / (2 * tries))):$how$on"
            i=$((i + 1))
        done
    done
}

# one_of NUMBER WORD...
one_of() {
    shift $((1 + $1 % ($# - 1)))
    echo "$1"
}

kinds='memory map open read write sync rename remove length stat folder close seek lock thread
    device-memory device-copy'
commands='train resume pictures packed eval predict pack export plan'
full=${AMPTRAIN_TORTURE-}${AMPTRAIN_ROUNDS-}
[ -n "$full" ] || commands='train resume pictures eval pack'

train_run "$AMPTRAIN" && mv "$work" whole
train_run "$AMPTRAIN" -s run.max_steps=5 && mv "$work" part
pictures_run "$AMPTRAIN" && mv "$work" whole-pictures
pack_run "$AMPTRAIN" && mv "$work.pack" whole.pack
packed_run "$AMPTRAIN" && mv "$work" whole-packed
eval_run "$AMPTRAIN" >whole.eval && mv "$work" whole-eval && eval_untimed whole-eval
predict_run "$AMPTRAIN" >whole.predict
export_run "$AMPTRAIN" && mv "$work.safetensors" whole.safetensors
plan_run "$AMPTRAIN" >whole.plan

# sound NAME: no command that was struck ended in any other way than it should.
sound() {
    ! grep "^$1 " results | grep -v -e ' unreached$' -e ' same ' -e ' refused ' -e ' library '
}

# count NAME WORD
count() { grep -c "^$1 .* $2\( \|\$\)" results; }

: >results
number=0
for command in ${FAULT_COMMANDS-$commands}; do
    ok "$command: nothing fails, and calls are counted" undisturbed $command
    for kind in ${FAULT_KINDS-$kinds}; do
        number=$((number + 1))
        if [ -n "$full" ]; then ways=$(ways $kind); else ways=$(one_of $number $(ways $kind)); fi
        # Memory is asked for tens of thousands of times.
        if [ $kind = memory ]; then long=2000; else long=1000000; fi
        strikes $command $kind "$(rounds 1 $long)" "$ways"
    done
    ok "$command: recovers or refuses" sound $command
    figure "$command: $(count $command '[a-z]*') faults: $(count $command same) as if nothing had been," \
        "$(count $command refused) refused, $(count $command library) ended by a library," \
        "$(count $command unreached) not reached"
    grep "^$command .* library " results |
        sed -e 's/.* crash \([^ ]*\) .*/# crash in \1/' \
            -e 's/.* library [0-9]* fault \([^ ]*\) .*/# ended by \1/' |
        sort | uniq -c | sed 's/^ *\([0-9]*\) # /# \1 times: /'
done
[ -z "${FAULT_RESULTS-}" ] || cp results "$FAULT_RESULTS"
finish
