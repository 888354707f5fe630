#!/bin/sh
# gpu.sh [PART]...: tests and measures a built tree on this machine's GPU, PyTorch beside it; builds nothing.
#
#   tests [NAME...]     the tests that run on a device, on this one; a NAME: only these, as the last part
#   sanitize            compute-sanitizer: memcheck, racecheck, initcheck over two steps of a small network
#   trace               what the host asks of CUDA during steps, how long the GPU waits between them
#   copies              how much of the copying of batches goes on beside steps, and what it costs them
#   start               seconds to the first step of ResNet-50, without and with remembered choices
#   resnet50-fp16 resnet50-bf16 resnet50-tf32 resnet50-fp32 (resnet50: all four)
#   resnet18 mobilenet vgg16 densenet lenet5 (others: these five)
#   networks [MODEL:BATCH...]  the step of torchvision's newer networks in fp16 (nine of them, 128 images);
#                       not among the parts that run by default: compiling PyTorch's takes minutes
#   tasks               the step with 80 labels an image, and with a teacher; not among those that run by
#                       default
#   limits [MODEL:BATCH...]  the step under less and less device memory, fp16 (resnet50:256)
#   largest [MODEL:GIB...]  the largest batch within so much device memory, fp16, planned and run
#                       (resnet50 and resnet152 within 8, 16 and 24)
#   ranks [MODEL:BATCH...]  on 2 GPUs, or $RANKS of them: the bits of one with as many micro-batches; the
#                       step, BATCH images a GPU, against one GPU's, and with other numbers of thread
#                       blocks for exchanges; not among the parts that run by default
#   streams [MODEL:BATCH...]  1, 2, 4 and 8 micro-batches at the same time, fp32, micro-batches and layers on
#                       streams, convolution by image and as usual; not among those that run by default
#   exact               errors of the supplied ResNet-20 on CIFAR-10's test images      (needs AMPTRAIN_DATA)
#   cifar [PRECISION...]  conf/cifar10.ini: accuracy, seconds; must be the last part    (needs AMPTRAIN_DATA)
#   table               only the table
#
# Without a part: all of them. Every figure is added to the file $RESULTS (gpu-results.txt), and the table of
# what it holds, the newest figure of each kind, is printed at the end and written to $RESULTS.table: so parts
# can be run one by one, each in a minute or two.
#
#   AMPTRAIN_TREE   folder of the built programs; else the current one, that above bench/, or build/ in it
#   AMPTRAIN_DEVICE cuda, or cuda:N (cuda)
#   AMPTRAIN_DATA   folder with cifar10, mnist, weights and traces, as the tests have it
#   PYTHON          interpreter with torch and torchvision (python3); "none": no PyTorch
#   MODES           PyTorch's modes ("eager compile"); max-autotune takes minutes
#   SECONDS_EACH    of a measurement (4);  JOBS: tests side by side (number of processors, at most 8)
set -u
case ${1:-} in -h|--help) sed -n '2,/^set -u/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;; esac
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3} modes=${MODES:-eager compile} seconds=${SECONDS_EACH:-4}
results=${RESULTS:-gpu-results.txt} device=${AMPTRAIN_DEVICE:-cuda}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
failures=0

say() { printf '%s\n' "$*"; }
complain() { say "gpu.sh: $*"; failures=$((failures + 1)); }

### Where things are

find_tree() {
    for folder in ${AMPTRAIN_TREE:+"$AMPTRAIN_TREE"} . "$here/.." "$here/../build"; do
        [ -x "$folder/amptrain" ] && { (cd "$folder" && pwd); return; }
    done
    dirname "$(command -v amptrain || echo ./amptrain)"
}
tree=$(find_tree)
amptrain=$tree/amptrain
if [ ! -x "$amptrain" ]; then
    say "gpu.sh: there is no program amptrain in $tree (AMPTRAIN_TREE names its folder)"
    exit 2
fi
# Libraries that travel with the programs; PyTorch has its own.
libraries=${LD_LIBRARY_PATH-}
[ -d "$tree/lib" ] && export LD_LIBRARY_PATH="$tree/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
[ -d "$here/../conf/models" ] && export AMPTRAIN_DATADIR="${AMPTRAIN_DATADIR:-$(cd "$here/../conf" && pwd)}"
data=${AMPTRAIN_DATA:-}
peer() { LD_LIBRARY_PATH=$libraries "$python" "$@"; }
[ "$python" != none ] && ! peer -c 'import torch, torchvision' 2>/dev/null && {
    say "gpu.sh: $python has no torch with torchvision: no PyTorch beside"
    python=none
}

### Figures: one line each: KIND WHO KEY=VALUE...

record() { say "$@" >>"$results"; }

# The number of a key in a line of JSON.
number() { sed -n 's/.*"'"$1"'": *\([-0-9.e+][-0-9.e+]*\|null\|NaN\|nan\).*/\1/p'; }

# KIND WHO FILE: the figures of one measurement's JSON.
record_json() {
    line="$1 $2"
    for key in images_per_s step_ms_median step_ms_p10 step_ms_p90 first_loss loss device_peak_bytes \
        reserved_bytes start_seconds top1 seconds batch; do
        value=$(number $key <"$3")
        [ -n "$value" ] && line="$line $key=$value"
    done
    record "$line"
    say "$line"
}

# KIND WHO COMMAND...: runs it, records what it says.
figure() {
    kind=$1 who=$2; shift 2
    if "$@" >"$work/out" 2>"$work/err" </dev/null && grep -q '^{' "$work/out"; then
        grep '^{' "$work/out" | tail -n 1 >"$work/json"
        record_json "$kind" "$who" "$work/json"
    else
        complain "$kind $who failed:"
        tail -n 15 "$work/err"
    fi
}

config() { # MODEL BATCH PRECISION SIZE CLASSES LR
    cat <<INI
[run]
device = $device
[data]
format = synthetic
[augment]
crop = $4
[model]
arch = $1
classes = $5
[train]
batch = $2
[optimizer]
name = sgd
lr = $6
momentum = 0.9
[amp]
precision = $3
INI
}

# NAME TASK MODEL BATCH PRECISION SIZE CLASSES LR MILLISECONDS-A-STEP OPTION...: our step and PyTorch's; TASK
# is of peer_gpu.py.
compare_task() {
    step=$1/$4/$5 task=$2 model=$3 batch=$4 precision=$5 lr=$8; shift 2
    config "$@" >"$work/bench.ini"
    steps=$(awk -v s="$seconds" -v ms="$7" \
        'BEGIN { n = int(1000 * s / ms); if (n < 20) n = 20; if (n > 4000) n = 4000; print n }')
    shift 7
    figure "$step" amptrain "$amptrain" bench -c "$work/bench.ini" --json --steps "$steps" --warmup 10 "$@"
    [ "$python" = none ] && return
    for mode in $modes; do
        figure "$step" "$mode" peer "$here/peer_gpu.py" "$model" "$batch" "$precision" "$mode" "$seconds" \
            "$lr" $task
    done
}

# MODEL BATCH PRECISION SIZE CLASSES LR MILLISECONDS-A-STEP
compare() { compare_task "$1" "" "$@"; }

### Parts

# Results of a test program: cmocka's words.
passed() { sed -n 's/^\[  PASSED  \] \([0-9]*\) test.*/\1/p' "$1" | tail -n 1; }

program() {
    for path in "$tree"/tests/*/"$1" "$tree/$1"; do [ -x "$path" ] && { echo "$path"; return 0; }; done
    return 1
}

run_test() { # NAME LOG: no longer than the whole may take
    path=$(program "$1") || { say "$1: not in this tree" >"$2"; return 77; }
    AMPTRAIN_DEVICE=$device AMPTRAIN=$amptrain timeout "${TEST_SECONDS:-600}" "$path" >"$2" 2>&1 </dev/null
}

test_report() { # NAME STATUS LOG...
    name=$1 status=$2; shift 2
    count=0
    for log in "$@"; do count=$((count + $(passed "$log" | grep . || echo 0))); done
    if [ "$status" = 77 ]; then say "$name: not in this tree"; return; fi
    say "$name: $count passed, exit status $status"
    record "tests/$name amptrain passed=$count status=$status"
    [ "$status" = 0 ] && return
    failures=$((failures + 1))
    grep -h -B 3 '^\[  FAILED  \] .' "$@" | grep -E '^ERROR|^amptrain|^\[  FAILED' | awk '!seen[$0]++' |
        head -n 60
}

# The cases of test_ops, dealt to several processes, so that one GPU and many processors are busy.
part_test_ops() {
    jobs=${JOBS:-$(nproc)}; [ "$jobs" -gt 8 ] && jobs=8
    job=1; pids=
    while [ $job -le "$jobs" ]; do
        AMPTRAIN_SHARE=$job/$jobs run_test test_ops "$work/ops.$job" & pids="$pids $!"
        job=$((job + 1))
    done
    status=0
    for pid in $pids; do wait "$pid" || status=$?; done
    test_report test_ops $status "$work"/ops.*
}

part_tests() {
    names=${*:-test_device test_ops test_update test_images test_known_ops test_loss test_moments
        test_autotune test_store test_exec test_ahead test_relu_mask test_fuse_gradient_sums
        test_redundant_execution test_checkpoint test_traces}
    # What timing chooses beside other work is not for later runs.
    cache=${XDG_CACHE_HOME-}
    export XDG_CACHE_HOME="$work/cache"
    for name in $names; do
        if [ "$name" = test_ops ]; then part_test_ops; continue; fi
        status=0
        run_test "$name" "$work/$name" || status=$?
        test_report "$name" $status "$work/$name"
    done
    if [ -n "$cache" ]; then export XDG_CACHE_HOME="$cache"; else unset XDG_CACHE_HOME; fi
}

small_network() {
    cat >"$work/small.model" <<'INI'
[input]
channels = 3
size = 16
[layers]
conv1 = conv input filters=16 kernel=3 stride=2 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=16 kernel=3 pad=1 groups=16 bias=no
bn2 = batchnorm conv2
relu2 = relu6 bn2
conv3 = conv relu2 filters=16 kernel=1 bias=no
bn3 = batchnorm conv3
add = add bn3 relu1
relu3 = relu add
left = conv relu3 filters=5 kernel=1
right = conv relu3 filters=7 kernel=3 pad=1
cat = concat left right
pool = maxpool cat kernel=3 stride=2 pad=1
silu = silu pool
drop = dropout silu rate=0.3
avg = globalavgpool drop
fc = linear avg units=$classes
INI
    config x 8 "$1" 16 10 0.01 | sed "s|^arch = .*|file = $work/small.model|" >"$work/small.ini"
}

part_sanitize() {
    command -v compute-sanitizer >/dev/null || { complain "there is no compute-sanitizer"; return; }
    small_network fp16
    # The first run chooses algorithms; it is not what is looked at.
    "$amptrain" bench -c "$work/small.ini" --steps 1 --warmup 0 >"$work/log" 2>&1 || {
        complain "the small network does not run:"; tail -n 5 "$work/log"; return; }
    for tool in memcheck racecheck initcheck; do
        status=0
        timeout "${TEST_SECONDS:-300}" compute-sanitizer --tool $tool --error-exitcode 9 \
            --print-limit 100000 "$amptrain" bench -c "$work/small.ini" --steps 2 --warmup 0 \
            >"$work/log" 2>&1 || status=$?
        say "$tool: exit status $status; $(grep 'SUMMARY' "$work/log" | tail -n 1 | sed 's/^=* *//')"
        record "sanitize/$tool amptrain status=$status"
        [ $status = 0 ] && continue
        failures=$((failures + 1))
        say "  complaints by kernel:"
        sed -n 's/^=========     at \(.*\)+0x.*/    \1/p' "$work/log" | sort | uniq -c | sort -rn | head -n 20
        grep '^=====' "$work/log" | head -n 24
    done
}

# FILE OPTIONS...: a benchmark of ResNet-50 with the trace of what CUDA did in FILE, and its JSON.
traced() {
    to=$1; shift
    trace=$(program cuda_trace.so) || trace=$tree/bench/cuda_trace.so
    [ -f "$trace" ] || { say "trace: there is no cuda_trace.so in this tree"; return 1; }
    config resnet50 256 fp16 224 1000 0.01 >"$work/bench.ini"
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}/usr/local/cuda/lib64 \
        CUDA_INJECTION64_PATH=$trace CUDA_TRACE=$to "$amptrain" bench -c "$work/bench.ini" --json \
        --steps 60 --warmup 10 "$@" >"$work/json" 2>"$work/err"
    [ -s "$to" ] || { complain "trace failed:"; tail -n 5 "$work/err"; return 1; }
    cat "$to"
}

part_trace() {
    traced "$work/trace" || return
    record "trace/resnet50 amptrain $(sed -n 's/^idle_percent //p' "$work/trace" | sed 's/^/idle_percent=/')"
}

# What the copying of batches costs the step that it goes on beside: every step with a batch of its own
# against one batch for all.
part_copies() {
    traced "$work/trace" --data || return
    "$amptrain" bench -c "$work/bench.ini" --data --json --steps 100 --warmup 10 \
        >"$work/json" 2>"$work/err" || { complain "copies failed:"; tail -n 5 "$work/err"; return; }
    copied=$(sed -n 's/^\(copy_[a-z_]*\) \(.*\)/\1=\2/p' "$work/trace" | tr '\n' ' ')
    compute=$(number compute_images_per_s <"$work/json") all=$(number images_per_s <"$work/json")
    record "copies/resnet50 amptrain ${copied}compute_images_per_s=$compute images_per_s=$all"
    tail -n 1 "$results"
}

part_start() {
    config resnet50 256 fp16 224 1000 0.01 >"$work/bench.ini"
    for turn in first second; do
        figure start/resnet50 $turn env XDG_CACHE_HOME="$work/start" "$amptrain" bench \
            -c "$work/bench.ini" --json --steps 2 --warmup 0
    done
}

# The step with all that memory buys, with nothing made again, and in ever less: of ResNet-50 in what
# PyTorch's users have asked for, of others in shares of what nothing made again takes.
part_limits() {
    for network in ${*:-resnet50:256}; do
        model=${network%:*} batch=${network#*:}
        config "$model" "$batch" fp16 224 1000 0.001 >"$work/bench.ini"
        limited() {
            "$amptrain" plan --check -c "$work/bench.ini" -s "$2" >"$work/out" 2>&1 ||
                { say "limit/$network $1: $(tail -n 1 "$work/out")"; return; }
            figure "limit/$network" "$1" "$amptrain" bench -c "$work/bench.ini" --json --warmup 10 \
                --steps "${LIMIT_STEPS:-60}" -s "$2"
        }
        limited unlimited memory.limit=auto
        limited keep memory.strategy=keep
        whole=$(number device_peak_bytes <"$work/json")
        for share in 0.80 0.65 0.50 0.40; do
            bytes=$(awk -v w="${whole:-0}" -v s=$share 'BEGIN { printf "%d", w * s }')
            case $network$share in
                resnet50:2560.80) bytes=7838315315 ;;   # 7.3 GiB
                resnet50:2560.65) bytes=6227702579 ;;   # 5.8
                resnet50:2560.50) bytes=4724464025 ;;   # 4.4
                resnet50:2560.40) bytes=3865470566 ;;   # 3.6
            esac
            limited "$(awk -v b="$bytes" 'BEGIN { printf "%.2fGiB", b / 1073741824 }')" memory.limit="$bytes"
        done
    done
}

part_largest() {
    for network in ${*:-resnet50:8 resnet50:16 resnet50:24 resnet152:8 resnet152:16 resnet152:24}; do
        model=${network%:*} gib=${network#*:}
        config "$model" auto fp16 224 1000 0.001 >"$work/bench.ini"
        figure "largest/$network" amptrain "$amptrain" bench -c "$work/bench.ini" --json --warmup 5 \
            --steps 20 -s memory.limit="${gib}G"
        [ "$python" = none ] ||
            figure "largest/$network" eager peer "$here/peer_gpu.py" largest "$model" fp16 "$gib"
    done
}

part_networks() {
    for network in ${*:-mobilenet_v3_small:128 mobilenet_v3_large:128 efficientnet_b0:128 convnext_tiny:128 \
        squeezenet1_1:128 shufflenet_v2_x1_0:128 regnet_y_400mf:128 resnext50_32x4d:128 \
        wide_resnet50_2:128}; do
        compare "${network%:*}" "${network#*:}" fp16 224 1000 0.01 12
    done
}

part_tasks() {
    compare_task resnet50-labels labels=80 resnet50 256 fp16 224 80 0.01 25 -s data.task=multilabel
    config resnet50 8 fp16 224 1000 0.001 >"$work/teacher.ini"
    "$amptrain" train -q -c "$work/teacher.ini" -s data.limit=8 -s train.epochs=1 -s run.report=no \
        -s train.eval_every=0 -o "$work/teacher" >"$work/log" 2>&1 ||
        { complain "there is no teacher:"; tail -n 5 "$work/log"; return; }
    taught="-s train.teacher=$work/teacher -s train.temperature=4"
    compare_task resnet18-taught teacher=resnet50 resnet18 256 fp16 224 1000 0.001 25 $taught
    compare_task deit3-taught teacher=resnet50 deit3_small_patch16_224 256 fp16 224 1000 0.001 40 $taught \
        -s optimizer.name=adamw
}

part_streams() {
    for network in ${*:-cifar10_quick:128 lenet5:128}; do
        model=${network%:*} size=32
        [ "$model" = lenet5 ] && size=28
        config "$model" "${network#*:}" fp32 $size 10 0.01 >"$work/bench.ini"
        for algorithm in gemm-per-image auto; do
            for streams in 1,microbatches 2,microbatches 4,microbatches 8,microbatches \
                2,layers 4,layers 8,layers; do
                figure "streams/$network/$algorithm/" "$streams" "$amptrain" bench -c "$work/bench.ini" \
                    --json --steps 20 --warmup 5 -s run.conv_algorithm=$algorithm \
                    -s parallel.microbatches="${streams%,*}" -s parallel.streams="${streams#*,}"
            done
        done
    done
}

# Bits and names of a safetensors file's tensors, without the header's metadata.
tensors() {
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    tail -c +$((length + 9)) "$1"
}

# NAME: of $work/bits.ini, 50 steps of one GPU with as many micro-batches as there are ranks, and of the
# ranks.
ranks_bits() {
    rm -rf "$work/one" "$work/several"
    for run in "one parallel.gpus=1 train.accumulate=$ranks" \
        "several parallel.gpus=$ranks train.accumulate=1"; do
        set -- "$1" $run
        if ! timeout "${TEST_SECONDS:-300}" "$amptrain" train -q -c "$work/bits.ini" -s run.threads=1 \
            -s run.deterministic=yes -s run.max_steps=50 -s "$3" -s "$4" -o "$work/$2" >"$work/log" 2>&1; then
            complain "$1 with $3 failed:"; tail -n 5 "$work/log"; return
        fi
    done
    same=no
    tensors "$work/one/checkpoint-last.safetensors" >"$work/one.bin"
    tensors "$work/several/checkpoint-last.safetensors" >"$work/several.bin"
    cmp -s "$work/one.bin" "$work/several.bin" && same=yes
    [ $same = yes ] || complain "$1: $ranks GPUs do not end in the bits of one with $ranks micro-batches"
    record "bits/$1 ranks=$ranks same=$same"
    tail -n 1 "$results"
}

# KIND WHO BATCH OPTION...: the step of $work/bench.ini.
ranks_step() {
    kind=$1 who=$2 batch=$3; shift 3
    figure "$kind" "$who" "$@" "$amptrain" bench -c "$work/bench.ini" --json --steps "${RANKS_STEPS:-100}" \
        --warmup 10 -s train.batch="$batch" $gpus
}

part_ranks() {
    ranks=${RANKS:-2}
    small_network fp16
    sed 's/^batch = .*/batch = 48/' "$work/small.ini" >"$work/bits.ini"
    ranks_bits small
    config resnet50 $((32 * ranks)) fp16 224 1000 0.01 >"$work/bits.ini"
    ranks_bits resnet50
    for network in ${*:-resnet50:256 resnet18:256 mobilenet_v2:256 vgg16:128 densenet121:128}; do
        model=${network%:*} each=${network#*:} all=$((${network#*:} * ranks))
        config "$model" "$each" fp16 224 1000 0.001 >"$work/bench.ini"
        gpus="-s parallel.gpus=1" ranks_step "ranks/$network" one "$each" env
        alone=$(number step_ms_median <"$work/json") rate=$(number images_per_s <"$work/json")
        gpus="-s parallel.gpus=$ranks" ranks_step "ranks/$network" "$ranks" "$all" env
        awk -v a="$alone" -v b="$(number step_ms_median <"$work/json")" -v one="$rate" -v n="$ranks" \
            -v all="$(number images_per_s <"$work/json")" -v name="$network" 'BEGIN {
            printf "%s: %d GPUs %.0f images/s, %.1f %% of %d times one; a step %.0f us longer\n",
                name, n, all, one ? 100 * all / (n * one) : 0, n, 1000 * (b - a) }'
        [ "$model" = resnet50 ] || continue
        gpus="-s parallel.gpus=$ranks" ranks_step "ranks/$network" strong "$each" env
        for blocks in 1 2 4 16 32; do
            gpus="-s parallel.gpus=$ranks" ranks_step "ranks/$network" "blocks$blocks" "$all" \
                env NCCL_MAX_CTAS=$blocks
        done
        gpus="-s parallel.gpus=$ranks -s run.deterministic=yes" \
            ranks_step "ranks/$network" deterministic "$all" env
        [ "$python" = none ] || for mode in $modes; do
            figure "ranks/$network" "$mode" peer -m torch.distributed.run --standalone \
                --nproc-per-node "$ranks" "$here/peer_gpu.py" "$model" "$each" fp16 "$mode" "$seconds" 0.001
        done
    done
}

part_exact() {
    [ -d "$data/cifar10" ] || { say "exact: needs AMPTRAIN_DATA"; return; }
    for precision in fp32 tf32 fp16 bf16; do
        config resnet20 500 $precision 32 10 0.01 | sed "s|^format = .*|format = cifar10\nval = $data/cifar10|
            s|^crop = .*|mean = 0.485 0.456 0.406\nstd = 0.229 0.224 0.225|" >"$work/eval.ini"
        if "$amptrain" eval -q -c "$work/eval.ini" --json \
            --weights "$data/weights/resnet20-12fca82f.safetensors" >"$work/json" 2>"$work/err"; then
            record "exact/$precision amptrain errors=$(number errors <"$work/json")" \
                "loss=$(number loss <"$work/json")"
            tail -n 1 "$results"
        else
            complain "eval in $precision failed:"; tail -n 5 "$work/err"
        fi
    done
}

# Seconds of training: of the epochs' own, without their validation.
part_cifar() {
    [ -d "$data/cifar10" ] || { say "cifar: needs AMPTRAIN_DATA"; return; }
    for precision in ${*:-fp16 bf16 fp32}; do
        rm -rf "$work/run"
        if "$amptrain" train -q -c "$here/../conf/cifar10.ini" -s run.device="$device" \
            -s data.train="$data/cifar10" -s data.val="$data/cifar10" -s amp.precision=$precision \
            -s train.epochs="${EPOCHS:-16}" -o "$work/run" >"$work/log" 2>&1; then
            grep '"event":"epoch"' "$work/run/metrics.jsonl" >"$work/epochs"
            top1=$(tail -n 1 "$work/epochs" | number val_top1)
            total=$(number seconds <"$work/epochs" | awk '{ s += $1 } END { print s }')
            record "cifar/$precision amptrain top1=$top1 seconds=$total"
            tail -n 1 "$results"
        else
            complain "training in $precision failed:"; tail -n 5 "$work/log"
        fi
        [ "$python" = none ] && continue
        figure "cifar/$precision" eager peer "$here/peer_gpu.py" cifar "$data/cifar10" $precision \
            "${EPOCHS:-16}"
    done
}

### The table

print_table() {
    [ -f "$results" ] || { say "no results yet in $results"; return; }
    awk '
    function value(kind, who, key) { return ((kind, who, key) in v) ? v[kind, who, key] : "" }
    function counted(kind, who,    now, then) {   # images a second, if the loss is finite and fell
        if (value(kind, who, "images_per_s") == "") return "-"
        now = value(kind, who, "loss"); then = value(kind, who, "first_loss")
        if (now !~ /^[0-9]/ || then !~ /^[0-9]/ || now + 0 >= then + 0) return "loss!"
        return sprintf("%.0f", value(kind, who, "images_per_s"))
    }
    function gib(bytes) { return bytes == "" ? "-" : sprintf("%.2f", bytes / 1073741824) }
    function ratio(a, b) { return a + 0 > 0 && b + 0 > 0 ? sprintf("%.2f", a / b) : "-" }
    {
        if (!(($1) in seen)) { seen[$1] = 1; kinds[++count] = $1 }
        if (!(($1, $2) in row)) { row[$1, $2] = 1; rows[$1] = rows[$1] " " $2 }
        for (i = 3; i <= NF; i++) { split($i, pair, "="); v[$1, $2, pair[1]] = pair[2] }
    }
    END {
        head = sprintf("%-16s %5s %-5s %9s  %9s  %9s  %9s  %6s  %6s  %8s  %8s  %8s", "network", "batch",
            "prec", "amptrain", "eager", "compile", "autotune", "/eager", "/best", "GiB", "PyTorch",
            "reserved")
        for (i = 1; i <= count; i++) {
            if (split(kinds[i], part, "/") != 3) continue
            if (head != "") { print "Training step, images/s; peak device memory"; print head; head = "" }
            k = kinds[i]; us = counted(k, "amptrain"); best = ""; peer = ""
            n = split("eager compile max-autotune", modes, " ")
            for (m = 1; m <= n; m++) {
                c[m] = counted(k, modes[m])
                if (c[m] + 0 > best + 0) { best = c[m]; peer = modes[m] }
            }
            printf "%-16s %5d %-5s %9s  %9s  %9s  %9s  %6s  %6s  %8s  %8s  %8s\n", part[1], part[2], part[3],
                us, c[1], c[2], c[3], ratio(us, c[1]), ratio(us, best),
                gib(value(k, "amptrain", "device_peak_bytes")), gib(value(k, peer, "device_peak_bytes")),
                gib(value(k, peer, "reserved_bytes"))
        }
        for (i = 1; i <= count; i++) {
            k = kinds[i]; split(k, part, "/")
            if (part[1] == "start")
                printf "start, %s: first step after %.2f s, with remembered choices after %.2f s\n", part[2],
                    value(k, "first", "start_seconds"), value(k, "second", "start_seconds")
            if (part[1] == "limit") {
                n = split(rows[k], who, " "); best = value(k, "unlimited", "images_per_s")
                for (m = 1; m <= n; m++) {
                    now = value(k, who[m], "images_per_s")
                    printf "%s, fp16, %s: %.0f images/s, %.1f %% less; %s GiB, reserved %s\n", part[2],
                        who[m], now, best ? 100 * (1 - now / best) : 0,
                        gib(value(k, who[m], "device_peak_bytes")),
                        gib(value(k, who[m], "reserved_bytes"))
                }
            }
            if (part[1] == "largest") {
                ours = value(k, "amptrain", "batch"); theirs = value(k, "eager", "batch")
                printf "largest batch, fp16, %s GiB: %s (%.0f images/s); PyTorch eager %s (%.0f); %s times\n",
                    part[2], ours, value(k, "amptrain", "images_per_s"), theirs,
                    value(k, "eager", "images_per_s"), ratio(ours, theirs)
            }
            if (part[1] == "streams") {
                n = split(rows[k], who, " "); ms = value(k, who[1], "step_ms_median")
                for (m = 1; m <= n; m++)
                    printf "%s, %s, %s: %.3f ms, %s times as fast; %.0f MiB\n", part[2], part[3], who[m],
                        value(k, who[m], "step_ms_median"), ratio(ms, value(k, who[m], "step_ms_median")),
                        value(k, who[m], "device_peak_bytes") / 1048576
            }
            if (part[1] == "exact")
                printf "ResNet-20 on CIFAR-10, %s: %s errors\n", part[2], value(k, "amptrain", "errors")
            if (part[1] == "cifar")
                printf "CIFAR-10, ResNet-18, %s: %.2f %% in %.1f s; PyTorch eager %.2f %% in %.1f s\n",
                    part[2], 100 * value(k, "amptrain", "top1"), value(k, "amptrain", "seconds"),
                    100 * value(k, "eager", "top1"), value(k, "eager", "seconds")
            if (part[1] == "trace")
                printf "GPU idle between steps, %s: %s %%\n", part[2], value(k, "amptrain", "idle_percent")
            if (part[1] == "copies")
                printf "copies of batches, %s: %s MiB at %s GB/s, %s %% beside steps; " \
                    "%.0f images/s with them, %.0f without\n", part[2],
                    value(k, "amptrain", "copy_mib"), value(k, "amptrain", "copy_gb_per_s"),
                    value(k, "amptrain", "copy_beside_steps_percent"), value(k, "amptrain", "images_per_s"),
                    value(k, "amptrain", "compute_images_per_s")
            if (part[1] == "tests") printf "%s: %s passed%s\n", part[2], value(k, "amptrain", "passed"),
                value(k, "amptrain", "status") == 0 ? "" : ", some FAILED"
            if (part[1] == "sanitize") printf "compute-sanitizer %s: %s\n", part[2],
                value(k, "amptrain", "status") == 0 ? "no complaint" : "COMPLAINS"
        }
    }' "$results"
}

heading() {
    date '+%Y-%m-%d %H:%M'
    "$amptrain" devices
    "$amptrain" -V | sed -n 1p
    [ "$python" = none ] ||
        peer -c 'import torch as t; print("PyTorch", t.__version__, "cuDNN", t.backends.cudnn.version())'
}

### What was asked for

[ $# -gt 0 ] || set -- tests sanitize trace copies start resnet50 others limits largest exact cifar
while [ $# -gt 0 ]; do
    part=$1; shift
    case $part in
        tests|cifar|networks|limits|largest|ranks|streams)
            case ${1:-} in
                test_*|fp*|bf16|tf32|*:*) "part_$part" "$@"; set -- ;;
                *) "part_$part" ;;
            esac ;;
        sanitize|trace|copies|start|exact|tasks) part_$part ;;
        resnet50) set -- resnet50-fp16 resnet50-bf16 resnet50-tf32 resnet50-fp32 "$@" ;;
        others) set -- resnet18 mobilenet vgg16 densenet lenet5 "$@" ;;
        resnet50-fp16|resnet50-bf16) compare resnet50 256 "${part#*-}" 224 1000 0.001 30 ;;
        resnet50-tf32) compare resnet50 256 tf32 224 1000 0.001 75 ;;
        resnet50-fp32) compare resnet50 256 fp32 224 1000 0.001 240 ;;
        resnet18) compare resnet18 256 fp16 224 1000 0.001 12 ;;
        mobilenet) compare mobilenet_v2 256 fp16 224 1000 0.001 22 ;;
        vgg16) compare vgg16 128 fp16 224 1000 0.001 60 ;;
        densenet) compare densenet121 128 fp16 224 1000 0.001 45 ;;
        lenet5) compare lenet5 64 fp32 28 10 0.01 0.1 ;;
        table) ;;
        *) say "gpu.sh: no part is called '$part' (--help names them)"; exit 2 ;;
    esac
done
{ heading; print_table; } | tee "$results.table"
[ $failures = 0 ] || { say "gpu.sh: $failures of the parts' steps failed"; exit 1; }
