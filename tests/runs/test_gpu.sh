#!/bin/sh
# Whole runs on a GPU, as a user has them: precisions, repetition and resuming to the bit, traffic with the
# CPU, overflows, and what is said when there is no GPU or not enough of it. AMPTRAIN_DEVICE: cuda, or cuda:N.
if ! "$AMPTRAIN" devices | grep -q '^cuda.*capability'; then
    echo "1..0 # SKIP there is no GPU"
    exit 0
fi
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

gpu=${AMPTRAIN_DEVICE:-cuda}
last=checkpoint-last.safetensors
export XDG_CACHE_HOME="$scratch/cache"
sed -i "s/^device = .*/device = $gpu\ndeterministic = yes/; s/^epochs = .*/epochs = 12/
    s/^every = 3 steps/every = 10 steps/" run.ini

# A network with what the small one lacks, for images in colour.
cat >wide.ini <<'END'
[input]
channels = 3
size = 32
[layers]
conv1 = conv input filters=16 kernel=3 stride=2 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
pool = maxpool relu1 kernel=3 stride=2 pad=1
conv2 = conv pool filters=16 kernel=3 pad=1 bias=no
bn2 = batchnorm conv2
relu2 = relu bn2
conv3 = conv relu2 filters=16 kernel=3 pad=1 groups=16 bias=no
bn3 = batchnorm conv3
add = add bn3 pool
relu3 = relu add
left = conv relu3 filters=24 kernel=1
right = conv relu3 filters=8 kernel=3 pad=1
cat = concat left right
drop = dropout cat rate=0.1
avg = globalavgpool drop
fc = linear avg units=$classes
END
wide="-s model.file=wide.ini -s data.format=synthetic -s augment.crop=32 -s data.limit=1000 -s train.epochs=5
    -s train.batch=50 -s amp.init_scale=65536"

# number KEY: what the last line that has it says.
number() { sed -n 's/.*"'"$1"'":\([^,}]*\).*/\1/p' | tail -n 1; }

# Learning, in every precision.
learns() {
    train "$1" $wide -s amp.precision="$1" || return 1
    first=$(head -n 2 "$1/metrics.jsonl" | number loss)
    end=$(number train_loss <"$1/metrics.jsonl") right=$(number val_top1 <"$1/metrics.jsonl")
    echo "loss $first to $end, top1 $right"
    awk "BEGIN { exit !($end < 0.6 * $first && $right > 0.5) }"
}
for precision in fp32 tf32 fp16 bf16; do ok "learns in $precision" learns $precision; done
ok "learns with mixed labels" train mixed $wide -s augment.mixup=0.2 -s augment.cutmix=1 \
    -s train.ema=0 -s train.clip_norm=0 -s train.accumulate=1 -s run.max_steps=3 -s optimizer.name=adamw \
    -s optimizer.lr=0.001

# The CPU has the same dropout, order and initial values, so losses are nearly the same.
near() { # NAME OPTION...
    name=$1; shift
    train "$name"-gpu -s amp.precision=fp32 -s run.max_steps=12 "$@" || return 1
    train "$name"-cpu -s amp.precision=fp32 -s run.max_steps=12 "$@" -s run.device=cpu || return 1
    for run in "$name"-gpu "$name"-cpu; do
        grep '"event":"step"' $run/metrics.jsonl |
            sed 's/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/' >$run.txt
    done
    paste "$name"-gpu.txt "$name"-cpu.txt | tee both.txt | awk '
        function far(a, b) { return (a > b ? a - b : b - a) > 0.001 * b }
        far($1, $3) || far($2, $4) { bad = 1 } END { exit bad || NR != 12 }' || { cat both.txt; return 1; }
}
ok "twelve steps agree with the CPU" near near

# Distillation; the teacher has batch norms, which become parts of its convolutions, and dropout.
taught="$wide -s train.teacher=fp32 -s train.temperature=4"
ok "... with a teacher, too" near soft $taught
ok "... of classes, for mixed images" near hard $taught -s train.distill=hard -s augment.mixup=0.2
ok "a teacher in fp16" train led $taught -s amp.precision=fp16
train led-again $taught -s amp.precision=fp16 >/dev/null 2>&1
ok "... gives the same bits again" same led led-again

# A class for every pixel, by a network with two outputs.
cat >pixels.ini <<'END'
[input]
channels = 3
size = 32
[layers]
conv1 = conv input filters=16 kernel=3 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
pool = maxpool relu1 kernel=2 stride=2
conv2 = conv pool filters=24 kernel=3 pad=1 bias=no
norm2 = groupnorm conv2 groups=4
relu2 = relu norm2
small = conv relu2 filters=$classes kernel=1
up = upsample relu2 scale=2 mode=bilinear
cat = concat relu1 up
head = conv cat filters=$classes kernel=1
[outputs]
main = head
aux = small weight=0.4
END
pixels="-s model.file=pixels.ini -s data.format=synthetic -s data.task=segment -s data.classes=5
    -s augment.crop=32 -s data.limit=640 -s data.val_fraction=0.05 -s amp.init_scale=65536
    -s data.class_weights=1,2,1,0.5,1"
ok "... with a class for every pixel" near pixels $pixels
ok "... by dice_ce" near dice $pixels -s train.loss=dice_ce
ok "pixels in fp16" train labelled $pixels -s amp.precision=fp16 -s run.max_steps=12
train labelled-again $pixels -s amp.precision=fp16 -s run.max_steps=12 >/dev/null 2>&1
ok "... give the same bits again" same labelled labelled-again

# Repeated, and stopped and resumed, to the bit.
ok "a run" train whole
train again >/dev/null 2>&1
ok "two runs give the same bits" same whole again

in_pieces() {
    for steps in 1 2 35; do train pieces -r -s run.max_steps=$steps || return 1; done
    train pieces -r
}
ok "stopped by max_steps repeatedly" in_pieces
ok "... gives the same bits and lines" same whole pieces

reached() { grep -q "\"event\":\"step\",\"step\":$2," "$1/metrics.jsonl"; }

# stop_at FOLDER SIGNAL STEP: goes on until there is a line of that step; its exit status.
stop_at() {
    "$AMPTRAIN" -q -c run.ini -o "$1" -r 2>>"$1.log" &
    process=$!
    tries=0
    until reached "$1" "$3" 2>/dev/null || [ $tries -ge 3000 ]; do
        sleep 0.01
        tries=$((tries + 1))
    done
    kill -"$2" $process 2>/dev/null
    wait $process
}
stopped() {
    folder=$1 signal=$2; shift 2
    for step; do
        stop_at "$folder" "$signal" "$step" 2>/dev/null
        case $? in
        0 | 75 | 137) ;;
        *) cat "$folder.log"; return 1 ;;
        esac
    done
    train "$folder" -r
}
ok "SIGTERM" stopped terminated TERM 20
ok "... gives the same bits and lines" same whole terminated
ok "kill -9" stopped killed KILL 15 120
ok "... gives the same bits and lines" same whole killed

# Digits are kept on the device unless that is told otherwise.
ok "images copied in every step" train sent -s loader.cache=none
ok "... give the same bits and lines" same whole sent

# Choices by timing are in the checkpoint, and win over what is remembered, or not, when the run goes on.
elsewhere() {
    train elsewhere -s run.max_steps=30 || return 1
    XDG_CACHE_HOME="$scratch/other" train elsewhere -r
}
ok "resumed without the autotuner's cache" elsewhere
ok "... gives the same bits and lines" same whole elsewhere

# Layers large enough for the engines that libraries have for such; and memory does not change bits.
large="-s model.arch=resnet18 -s model.file= -s data.format=synthetic -s augment.crop=64 -s data.limit=640
    -s train.batch=64 -s train.accumulate=1 -s amp.init_scale=65536 -s run.max_steps=6"
planned() { "$AMPTRAIN" plan -c run.ini $large --json "$@" | tr , '\n' | sed -n 's/^{*"'$field'"://p'; }
for precision in fp16 tf32; do
    ok "large layers in $precision" train large-$precision $large -s amp.precision=$precision
    train large-again $large -s amp.precision=$precision >/dev/null 2>&1
    ok "... are bitwise reproducible" same large-$precision large-again
    field=total_bytes total=$(planned -s amp.precision=$precision)
    field=arena_bytes arena=$(planned -s amp.precision=$precision)
    ok "a sixth less memory for the step" train large-limit $large -s amp.precision=$precision \
        -s memory.limit=$((total - arena / 6))
    ok "... gives the same bits" same large-$precision large-limit
    ok "... with offloading" train large-away $large -s amp.precision=$precision \
        -s memory.limit=$((total - arena / 6)) -s memory.strategy=offload
    ok "... gives the same bits" same large-$precision large-away
    rm -rf large-again large-limit large-away
done
taught="$large -s amp.precision=fp16 -s train.teacher=large-tf32"
with_less() {
    field=total_bytes total=$(planned $taught)
    field=arena_bytes arena=$(planned $taught)
    train large-taught $taught && train large-limit $taught -s memory.limit=$((total - arena / 6)) &&
        same large-taught large-limit
}
ok "large layers with a teacher: a sixth less memory gives the same bits" with_less

# Between devices.
evaluate() { "$AMPTRAIN" eval -q -c run.ini -s amp.precision=fp32 --json "$@"; }
errors() { number errors <"$1"; }
agree() {
    evaluate --weights "$1" -s run.device="$gpu" --logits gpu.npy >gpu.json || return 1
    evaluate --weights "$1" -s run.device=cpu --logits cpu.npy >cpu.json || return 1
    cat gpu.json cpu.json
    [ "$(errors gpu.json)" = "$(errors cpu.json)" ] || return 1
    for at in gpu cpu; do tail -c $((359 * 10 * 4)) $at.npy | od -An -v -t f4 -w4 >$at.txt; done
    paste gpu.txt cpu.txt | awk '
        { far = $1 > $2 ? $1 - $2 : $2 - $1; size = $2 < 0 ? -$2 : $2; if (size < 1) size = 1
          if (far > worst * size) worst = far / size }
        END { print "logits differ by", worst; exit worst > 1e-4 || NR != 3590 }'
}
ok "trained on the GPU: the CPU makes the same predictions" agree near-gpu/$last
ok "trained on the CPU: so does the GPU" agree near-cpu/$last
# Loaders one after another, whose buffers are the same pinned memory.
neighbours() {
    evaluate --weights near-cpu/$last -s run.device="$gpu" --knn 3 >gpu.json || return 1
    evaluate --weights near-cpu/$last -s run.device=cpu --knn 3 >cpu.json || return 1
    cat gpu.json cpu.json
    [ "$(errors gpu.json)" = "$(errors cpu.json)" ]
}
ok "nearest neighbours are the same on both" neighbours
exported() {
    "$AMPTRAIN" export --weights whole/$last -o weights.safetensors || return 1
    agree weights.safetensors
}
ok "weights exported on one load on the other" exported
ok "... and can start a run" train begun -s model.weights="$scratch/weights.safetensors" -s run.max_steps=1
goes_on_on_the_cpu() {
    sed -i "s/^device = .*/device = auto/" run.ini
    train first -s amp.precision=fp32 -s run.max_steps=5 || return 1
    CUDA_VISIBLE_DEVICES= train first -r -s amp.precision=fp32 -s run.max_steps=8
    status=$?
    sed -i "s/^device = .*/device = $gpu/" run.ini
    return $status
}
ok "a checkpoint resumes on the CPU without a GPU" goes_on_on_the_cpu

# Overflows. Of a run whose every step is skipped nothing is left but its counters.
backs_off() {
    grep '"event":"step"' whole/metrics.jsonl | head -n 30 |
        sed 's/.*"loss_scale":\([^,]*\),"skipped":\([^,]*\),.*/\1 \2/' | tee scales.txt | awk '
        NR > 1 && skipped == "1" && $1 != scale / 2 { exit bad = 1 }
        { skipped = $2; scale = $1; all += skipped } END { exit bad || !all }' ||
        { cat scales.txt; return 1; }
}
ok "a loss scale that is too high is halved until nothing overflows" backs_off
skips() {
    exits_with 1 train skip-gpu -s amp.loss_scale=1e30 -s train.epochs=1 || return 1
    exits_with 1 train skip-cpu -s amp.loss_scale=1e30 -s train.epochs=1 -s run.device=cpu || return 1
    [ "$(grep -c '"skipped":1' skip-gpu/metrics.jsonl)" = 22 ] || return 1
    tensors skip-gpu/$last >one.bin
    tensors skip-cpu/$last >two.bin
    cmp one.bin two.bin
}
ok "skipped steps change nothing" skips

# Numbers that leave the finite ones: what is said names step and layer, as on the CPU. Which of the layer's
# numbers overflows first depends on how sums are rounded.
blow() { train "$@" -s amp.precision=fp32 -s optimizer.lr=1e30 -s train.epochs=1 2>said; }
stops() {
    for at in "$gpu" cpu; do
        blow stop -s train.on_nan=stop -s run.device="$at"
        status=$?
        cat said
        rm -rf stop
        [ $status = 1 ] && grep -q 'train.on_nan=stop ends the run' said || return 1
        grep -Eq 'contains (Inf|NaN)' said || return 1
        sed -n 's/.*\(step [0-9]* .*\) forward: .*/\1/p' said >"said.${at%%:*}"
    done
    [ -s said.cpu ] && cmp "said.${gpu%%:*}" said.cpu
}
ok "on_nan=stop ends the run and names the layer" stops
goes_on() {
    blow skip -s train.on_nan=skip
    status=$?
    cat said
    [ $status = 1 ] && grep -q 'such steps are skipped' said && grep -q 'no evaluation was finite' said
}
ok "on_nan=skip warns and continues" goes_on

# Devices that are not there, or too small.
says() {
    wanted=$1 words=$2; shift 2
    got=0
    "$@" 2>err || got=$?
    cat err
    [ "$got" = "$wanted" ] && grep -q "$words" err
}
once() { train once -s run.max_steps=1 "$@"; status=$?; rm -rf once; return $status; }
loud() { "$AMPTRAIN" -c run.ini -s run.max_steps=1 "$@"; }
unseen() { CUDA_VISIBLE_DEVICES= "$@"; }
ok "a missing GPU" says 4 "there are only" once -s run.device=cuda:99
ok "no GPU at all" says 4 "CUDA_VISIBLE_DEVICES" unseen once -s run.device=cuda
ok "device=auto then uses the CPU, with a message" says 0 "device=auto: not cuda" unseen loud -s \
    run.device=auto
ok "device=auto uses the GPU" says 0 "NVIDIA" loud -s run.device=auto
sed 's/filters=24/filters=4096/; s/stride=2/stride=1/; s/^size = .*/size = 256/' wide.ini >huge.ini
ok "more memory than the GPU has" says 4 "a smaller batch" once $wide -s model.file=huge.ini \
    -s augment.crop=256 -s train.batch=1000 -s train.accumulate=1 -s train.epochs=1
finish
