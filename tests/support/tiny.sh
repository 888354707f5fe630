# tiny.sh: a network of a few thousand numbers and a configuration with every feature on, for the
# tests of whole runs; after tap.sh. Makes tiny.ini (the model) and run.ini in $scratch and goes there.

cat >"$scratch/tiny.ini" <<'END'
[input]
channels = 1
size = 8
[layers]
conv1 = conv input filters=8 kernel=3 stride=1 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=16 kernel=3 stride=2 pad=1
relu2 = relu conv2
drop = dropout relu2 rate=0.2
flat = flatten drop
fc = linear flat units=$classes
END

cat >"$scratch/run.ini" <<'END'
[run]
device = cpu
seed = 3
threads = 1
[data]
format = digits
[loader]
workers = 1
prefetch = 2
[augment]
crop = 8
pad = 1
flip = 0.5
[model]
file = tiny.ini
[train]
epochs = 4
batch = 64
accumulate = 2
ema = 0.9
clip_norm = 1
[optimizer]
name = sgd
lr = 0.05
momentum = 0.9
weight_decay = 1e-4
[schedule]
name = cosine
warmup = 0.5
[amp]
precision = fp16
init_scale = 16777216
growth_interval = 5
[checkpoint]
every = 3 steps
keep = 2
[log]
every = 1
tensorboard = no
END

cd "$scratch" || exit 1

# train FOLDER [OPTION...]
train() {
    folder=$1; shift
    "$AMPTRAIN" -q -c run.ini -o "$folder" "$@"
}

# start FOLDER [OPTION...]: a run in the background, as $process, that speaks into FOLDER.log.
start() {
    folder=$1; shift
    "$AMPTRAIN" -c run.ini -o "$folder" "$@" 2>"$folder.log" &
    process=$!
}

# wait_for COMMAND...: until it succeeds, for at most 20 seconds.
wait_for() {
    tries=0
    until "$@" 2>/dev/null; do
        sleep 0.02
        tries=$((tries + 1))
        [ $tries -lt 1000 ] || return 1
    done
}

# tensors FILE: the data of a safetensors file, after its header.
tensors() {
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    [ -n "$length" ] || return 1
    tail -c +$((length + 9)) "$1"
}

# lines FOLDER: step and epoch lines of its metrics without what may differ: times, throughputs, peaks.
lines() {
    grep -E '"event":"(step|epoch)"' "$1/metrics.jsonl" |
        sed -E 's/,"(time|images_per_s|seconds|joules)":[^,}]*//g
            s/,"(data_wait_fraction|device_peak_bytes|host_peak_bytes)":[^,}]*//g'
}

same_tensors() { tensors "$1" >one.bin && tensors "$2" >two.bin && cmp one.bin two.bin; }

# same FOLDER FOLDER: both runs ended in the same bits and told the same.
same() {
    same_tensors "$1/checkpoint-last.safetensors" "$2/checkpoint-last.safetensors" || return 1
    lines "$1" >one.txt && lines "$2" >two.txt && [ -s one.txt ] &&
        diff one.txt two.txt
}
