#!/bin/sh
# A run that is stopped, killed or cut short anywhere and resumed ends in the same bits as one that never was.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

last=checkpoint-last.safetensors

# Whatever draws random numbers or keeps something from step to step is on.
sed -i -e '/^flip/a jitter = 0.3, 0.3, 0.3\nauto_augment = trivial\nrandom_erasing = 0.3\
mixup = 0.2\ncutmix = 1\nlabel_smoothing = 0.1' -e 's/^workers.*/workers = 3/' run.ini

ok "a run" train whole
eventful() {
    cat run.ini
    grep -q '"skipped":1' whole/metrics.jsonl && [ -f whole/checkpoint-3.safetensors ] &&
        grep -aq average/ whole/checkpoint-best.safetensors
}
ok "... with skipped steps, averages and kept checkpoints" eventful
began=$(date +%s%N)
train again >/dev/null 2>&1
life=$((($(date +%s%N) - began) / 1000))
ok "two runs give the same bits" same whole again

moved() { train elsewhere -s run.max_steps=7 && train elsewhere -r -s run.device=cpu:0 &&
    same whole elsewhere; }
ok "a run may be resumed with another device name" moved

# A number from 0 to $1 - 1 from the kernel's own randomness.
below() { echo $(($(od -An -t u4 -N 4 /dev/urandom) % $1)); }

# Files are the same, also the best and the epochs' own; only previous ones depend on where a run stopped.
same_folders() {
    same "$1" "$2" || return 1
    for file in "$1"/checkpoint-*; do
        file=${file##*/}
        [ "$file" = checkpoint-previous.safetensors ] && continue
        same_tensors "$1/$file" "$2/$file" || { echo "$file differs"; return 1; }
    done
    [ "$(ls "$1")" = "$(ls "$2")" ] || { ls "$2"; return 1; }
}

# Prints what a process was doing when it was killed, by what it left behind since the file `began` was made.
doing() {
    left=$(find "$1" -newer began -name '*.tmp' 2>/dev/null)
    case $left in
    *checkpoint*) echo checkpoint ;;
    *?) echo cutting ;;
    *) if grep -q "training images" "$1.log"; then echo training; else echo starting; fi ;;
    esac
}

# torment SIGNAL COUNT: runs get SIGNAL until it has met COUNT of them alive, each time at another moment of
# up to a run's whole length after the process began. Those that it ended are resumed; every run must end
# like `whole`.
torment() {
    signal=$1 wanted=$2 met=0
    starting=0 training=0 checkpoint=0 cutting=0 runs=0
    while [ $met -lt "$wanted" ]; do
        touch began
        start torment -r
        delay=$(below "$life")
        sleep "$(printf '%d.%06d' $((delay / 1000000)) $((delay % 1000000)))"
        kill -"$signal" $process 2>/dev/null
        wait $process
        status=$?
        case $status in
        0) what='' ;;
        75 | 129 | 137 | 138 | 143) what=$(doing torment) ;;
        *) cat torment.log; echo "exit status $status"; return 1 ;;
        esac
        grep -q "checkpoint on request" torment.log && what=training
        [ -z "$what" ] || eval "met=\$((met + 1)) $what=\$(($what + 1))"
        [ $status != 0 ] || finished || return 1
    done
    [ $status = 0 ] || { train torment -r && finished; } || return 1
    echo "$met times SIG$signal, while starting $starting, training or evaluating $training," \
        "writing a checkpoint $checkpoint, cutting metrics $cutting: $runs runs ended in the same bits" >said
}

finished() {
    same_folders whole torment || return 1
    rm -rf torment
    runs=$((runs + 1))
}

ok "kill -9 at random moments, resumed, gives the same bits, files and lines" torment KILL "$(rounds 6 500)"
figure "$(cat said)"
for signal in TERM USR1 HUP; do
    ok "SIG$signal likewise" torment $signal "$(rounds 2 100)"
    figure "$(cat said)"
done

# Not at random, but before every single call that changes a file; in the short form, one of each kind.
faulty=$top_builddir/tests/support/faulty
brief='-s train.epochs=2 -s checkpoint.keep=1'

# killed_before CALL NUMBER: a run is killed before its call of that number, the next process before one of
# its first calls of the kind, and the third goes on to the end.
killed_before() {
    rm -rf torment
    at=$2
    for process in first second; do
        # shellcheck disable=SC2086 # words
        FAULT=$1:$at:kill "$faulty" -q -c run.ini -o torment $brief -r
        case $? in
        0) ;;
        137) met=$((met + 1)) ;;
        *) return 1 ;;
        esac
        at=$((1 + $(below 8)))
    done
    # shellcheck disable=SC2086
    train torment $brief -r && same_folders short torment && return
    echo "killed before $1 $2"
    return 1
}

killed_before_each() {
    sed -i 's/^every = 3 steps/every = 10 steps/' run.ini
    # shellcheck disable=SC2086
    FAULT_COUNTS=$scratch/counts "$faulty" -q -c run.ini -o short $brief || return 1
    echo >said
    met=0 all=0
    for call in open write sync rename remove; do
        calls=$(sed -n "s/^$call //p" counts)
        tries=$(rounds 1 "$calls")
        [ "$tries" -lt "$calls" ] || tries=$calls
        for number in $(seq "$tries"); do
            [ "$tries" = "$calls" ] || number=$((1 + $(below "$calls")))
            killed_before $call "$number" || return 1
            all=$((all + 2))
        done
        echo "$tries of $calls calls to $call," >>said
    done
    echo "the next process again: $met kills, all ended in the same bits" >>said
    [ $((2 * met)) -ge "$all" ] || { echo "only $met of $all were killed"; return 1; }
    sed -i 's/^every = 10 steps/every = 3 steps/' run.ini
}
if "$faulty" --version >said 2>&1; then
    ok "kill -9 before any call that changes a file" killed_before_each
    # shellcheck disable=SC2046 # lines become words
    figure "kill -9 before" $(cat said)
else
    skip "kill -9 before any call that changes a file" "$(cat said)"
fi

in_pieces() {
    for steps in 1 2 3 5 8 13 21 34; do
        train pieces -r -s run.max_steps=$steps || return 1
    done
    train pieces -r
}
ok "stopped by max_steps repeatedly" in_pieces
ok "... gives the same bits and lines" same whole pieces

# Far too short a time: still every process gets a step further.
timed() {
    train timed -s run.max_steps=70 || return 1
    rounds=0
    while [ $rounds -lt 100 ]; do
        train timed -r -s run.max_time=0.001
        status=$?
        [ $status = 75 ] || return $status
        rounds=$((rounds + 1))
    done
    return 1
}
ok "stopped by max_time repeatedly" timed
ok "... gives the same bits and lines" same whole timed

# How images are read and memory is saved may change from one process to the next.
otherwise() {
    train otherwise -s run.max_steps=20 &&
        train otherwise -r -s run.max_steps=40 -s loader.workers=1 -s loader.prefetch=5 -s loader.cache=none \
            -s memory.strategy=recompute &&
        mv otherwise elsewhere &&
        train elsewhere -r -s run.name=x -s run.output=elsewhere -s loader.cache=host -s \
            loader.cache_limit=1M \
            -s memory.limit=1G
}
ok "with other threads, caches and memory limits" otherwise
ok "... gives the same bits and lines" same whole elsewhere
differently() { train elsewhere -r -s train.batch=32 -s optimizer.lr=1 -s train.epochs=5 2>said; }
exits "not with another batch and learning rate" 2 differently
ok "... which are named, each in a line" [ "$(grep -c -e '^  train.batch: 64, now 32$' \
    -e '^  optimizer.lr: 0.05, now 1$' said)-$(wc -l <said)" = 2-3 ]

# Sums of weight gradients depend on how many threads there are: a run keeps them. Sanitized runs, which are
# otherwise held to one thread, have as many.
limit=${OMP_THREAD_LIMIT-}
unset OMP_THREAD_LIMIT
on() { threads=$1; shift; (export OMP_NUM_THREADS="$threads"; train "$@" -s run.threads=auto); }
threads_kept() { on 3 three && on 3 kept -s run.max_steps=30 && on 1 kept -r && same three kept; }
ok "with the original number of threads" threads_kept
ok "... with a message" sh -c '[ "$(grep -c "\"start\".*\"threads\":3" kept/metrics.jsonl)" = 2 ]'
other_threads() { on 3 changed -s run.max_steps=30 && says 0 "$1" train changed -r -s run.max_steps=31 "$2"; }
ok "with another number of threads if requested" other_threads "the run used 3 threads and resumes with 2: " \
    -srun.threads=2
[ -z "$limit" ] || export OMP_THREAD_LIMIT="$limit"

# Every optimizer has a state of its own, every schedule and precision another course.
combine() {
    tried=0
    for optimizer in lamb sgd adam adamw adagrad rmsprop lars lion muon; do
        for way in onecycle:fp16 constant:fp32 step:bf16 cosine:fp16 poly:fp32; do
            [ $tried -lt "$(rounds 1 45)" ] || return 0
            rm -rf combined pieced
            set -- -s optimizer.name=$optimizer -s optimizer.momentum=auto -s optimizer.weight_decay=auto \
                -s schedule.name=${way%:*} -s schedule.warmup=0 -s schedule.milestones=1 \
                -s amp.precision=${way#*:} -s checkpoint.every=0 -s train.epochs=2
            train combined "$@" && train pieced "$@" -s run.max_steps=17 &&
                train pieced "$@" -r -s run.max_steps=30 && train pieced "$@" -r &&
                same combined pieced || { echo "$optimizer, $way"; return 1; }
            tried=$((tried + 1))
        done
    done
}
ok "optimizers, schedules and precisions" combine
figure "$tried combinations of optimizer, schedule and precision"

# Damage to the last checkpoint: the one before is used, and the end is the same all the same.
cut_last() {
    mkdir damaged
    cp whole/metrics.jsonl damaged
    cp whole/checkpoint-previous.safetensors damaged
    head -c 20000 "whole/$last" >"damaged/$last"
    train damaged -r 2>said
    status=$?
    cat said
    grep -q 'resuming from .*checkpoint-previous' said && return $status
}
ok "a truncated last checkpoint: the previous one is used" cut_last
ok "... gives the same bits and lines" same whole damaged

# A run that goes on from a named checkpoint is the folder's from then on, though it be killed at once.
from_named() {
    cp -r whole named
    start named -r="$scratch/whole/checkpoint-3.safetensors" -s checkpoint.every=0
    wait_for grep -q "training images" named.log
    kill -KILL $process 2>/dev/null
    wait $process
    train named -r
}
ok "from a given checkpoint" from_named
ok "... gives the same bits and lines" same whole named

no_good() {
    mkdir bad
    head -c 20000 "whole/$last" >"bad/$last"
    head -c 100 "whole/$last" >bad/checkpoint-previous.safetensors
    train bad -r
}
exits "no valid checkpoint" 5 no_good

# Other data than the run began with.
other_data() {
    packed='-s data.format=packed -s data.train=some.pack'
    # shellcheck disable=SC2086
    {
        "$AMPTRAIN" pack -q -c run.ini -s data.limit=1000 -o some.pack &&
            train other $packed -s run.max_steps=3 &&
            "$AMPTRAIN" pack -q -c run.ini -s data.limit=999 -o some.pack || return 1
        train other $packed -r 2>said
    }
    status=$?
    cat said
    grep -q "and many more (1000 images, now 999); resuming needs the same data" said && return $status
}
exits "with other data" 3 other_data

# Images in another place, and as many others.
moved_data() {
    packed='-s data.format=packed -s run.max_steps=3'
    # shellcheck disable=SC2086
    "$AMPTRAIN" pack -q -c run.ini --split val -o val.pack &&
        "$AMPTRAIN" pack -q -c run.ini -s data.limit=359 -o few.pack &&
        train moved $packed -s data.train=few.pack -s data.val=val.pack && mkdir there &&
            mv few.pack there/set &&
        train moved $packed -r -s data.train=there/set -s data.val=val.pack -s run.max_steps=6 || return 1
    # shellcheck disable=SC2086
    train moved $packed -r -s data.train=val.pack -s data.val=val.pack 2>said
    status=$?
    cat said
    grep -q "the images of data.train differ from those of the run" said && return $status
}
exits "with as many other images in the place of its data" 3 moved_data

# The weights that a run started from are not read again.
fine_tuned() {
    cp "whole/$last" start.weights && train tuned -s model.weights=start.weights -s run.max_steps=3 &&
        rm start.weights && train tuned -r -s model.weights=start.weights -s run.max_steps=6
}
ok "without the weights that it started from" fine_tuned

other_best() {
    train best -s run.max_steps=30 &&
        "$AMPTRAIN" -c run.ini -o best -r -s checkpoint.best=val_loss >said 2>&1 || return 1
    cat said
    grep -q "the best epoch so far, 1, no longer counts" said &&
        grep -q "best validation loss .* in epoch" said
}
ok "with another checkpoint.best" other_best

# A run that an older version began; what it had said stays.
goes_on() {
    cp -r "$top_srcdir/tests/golden" golden
    chmod -R u+w golden
    cd golden || return 1
    for version in version-*; do
        grep event $version/metrics.jsonl >said
        "$AMPTRAIN" -c run.ini -o $version -r || return 1
        head -n "$(wc -l <said)" $version/metrics.jsonl | cmp - said || return 1
        tail -n 1 $version/metrics.jsonl | grep '"reason":"done","epochs":3,"steps":15' || return 1
    done
}
ok "runs of every older version can be resumed" goes_on
cd "$scratch" || exit 1

hang_up() {
    start hup -s checkpoint.every=0 -s checkpoint.best=val_loss -s train.epochs=100000
    wait_for grep -q "step 3/" hup.log
    kill -HUP $process
    wait_for grep -q "checkpoint on request" hup.log || return 1
    kill -USR1 $process
    wait $process
}
exits "SIGHUP writes a checkpoint, SIGUSR1 ends the run" 75 hang_up

status_line() {
    start usr2 -s log.every=1000000 -s train.epochs=100000
    wait_for grep -q "epoch 1/" usr2.log
    kill -USR2 $process
    wait_for grep -q "left" usr2.log
    said=$?
    kill -TERM $process
    wait $process
    return $said
}
ok "SIGUSR2: a status line" status_line

# early SIGNAL STATUS WORDS: what comes before the program has so much as opened a file is held.
early() {
    FAULT=open:1:pause "$faulty" -c run.ini -o "early-$1" -s train.epochs=1 2>said &
    process=$!
    wait_for grep -q '^State:.T' /proc/$process/status
    kill -"$1" $process
    kill -CONT $process
    wait $process
    status=$?
    cat said
    [ $status = "$2" ] && grep -q "$3" said && [ -f "early-$1/checkpoint-last.safetensors" ]
}
for signal in "HUP 0 checkpoint.on.request" "USR2 0 left" "USR1 75 stopped" "INT 75 stopped" \
    "TERM 75 stopped"; do
    if "$faulty" --version >said 2>&1; then
        # shellcheck disable=SC2086 # words
        ok "SIG${signal%% *} before the first step" early $signal
    else
        skip "SIG${signal%% *} before the first step" "$(cat said)"
    fi
done
interrupted() {
    FAULT=read:1:pause "$faulty" plan -c run.ini >said 2>&1 &
    process=$!
    wait_for grep -q '^State:.T' /proc/$process/status
    kill -TERM $process
    kill -CONT $process
    wait $process
}
if "$faulty" --version >said 2>&1; then
    exits "a signal ends a command that does not train" 143 interrupted
else
    skip "a signal ends a command that does not train" "$(cat said)"
fi
finish
