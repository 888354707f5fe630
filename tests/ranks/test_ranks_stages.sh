#!/bin/sh
# Pipelines of CPU ranks: stages end in the bits of one process that has as many micro-batches, whatever their
# schedule, and a run goes on with any number of them.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# stages G S K FOLDER [OPTION...]: G ranks that make pipelines of S stages, with K micro-batches each.
stages() {
    shape="-s parallel.gpus=$1 -s parallel.stages=$2 -s parallel.microbatches=$3"; shift 3
    train "$@" $shape \
        -s train.accumulate=1
}

# equals T G S K [OPTION...]: they are one rank of T micro-batches.
equals() {
    all=$1 gpus=$2 count=$3 each=$4; shift 4
    rm -rf alone several
    stages 1 1 "$all" alone -s run.max_steps=8 "$@" &&
        stages "$gpus" "$count" "$each" several -s run.max_steps=8 "$@" && same alone several
}

# A network with a skip over several cuts, concatenation, and dropout.
cat >skips.ini <<'END'
[input]
channels = 1
size = 8
[layers]
conv1 = conv input filters=8 kernel=3 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=8 kernel=3 pad=1 bias=no
bn2 = batchnorm conv2
add = add bn2 relu1
relu2 = relu add
conv3 = conv relu2 filters=8 kernel=3 pad=1
cat = concat conv3 relu1
drop = dropout cat rate=0.3
flat = flatten drop
fc = linear flat units=$classes
END

skips="-s model.file=skips.ini"
for schedule in gpipe 1f1b zerobubble vshape; do
    ok "2 stages, 4 micro-batches, $schedule" equals 4 2 2 4 -s parallel.schedule=$schedule
    ok "3 stages, 4 micro-batches, $schedule, skipped steps" equals 4 3 3 4 -s parallel.schedule=$schedule \
        $skips \
        -s amp.precision=bf16 -s optimizer.name=adamw -s optimizer.lr=0.001
done
ok "2 stages, 1 micro-batch" equals 1 2 2 1
ok "4 stages, 2 micro-batches" equals 2 4 4 2 $skips -s amp.precision=fp32
ok "2 pipelines of 2 stages" equals 4 4 2 2 $skips
ok "... vshape" equals 4 4 2 2 $skips -s parallel.schedule=vshape
ok "... 8 micro-batches, a memory limit" equals 8 2 2 8 $skips -s memory.strategy=recompute -s parallel.schedule=vshape
ok "... with mixed images" equals 2 4 2 1 -s augment.mixup=0.2 -s augment.cutmix=1 -s amp.precision=bf16

# Each two convolutions have a skip, and all together: what it carries goes to stages far from each other.
{
    printf '[input]\nchannels = 1\nsize = 8\n[layers]\nadd0 = conv input filters=4 kernel=3 pad=1\n'
    for k in 1 2 3 4 5 6; do
        printf 'a%d = conv add%d filters=4 kernel=3 pad=1\nb%d = batchnorm a%d\n' $k $((k - 1)) $k $k
        printf 'c%d = conv b%d filters=4 kernel=3 pad=1\nadd%d = add c%d add%d\n' $k $k $k $k $((k - 1))
    done
    printf 'all = add add6 add0\nflat = flatten all\nfc = linear flat units=$classes\n'
} >far.ini
far="-s model.file=far.ini"
ok "skips across 5 stages, gpipe" equals 4 5 5 4 $far -s parallel.schedule=gpipe
ok "... across 7, vshape" equals 8 7 7 8 $far -s parallel.schedule=vshape -s amp.precision=bf16
ok "... across 4 of two pipelines" equals 8 8 4 4 $far -s parallel.schedule=vshape -s amp.precision=fp32
ok "lamb" equals 2 2 2 2 -s optimizer.name=lamb -s optimizer.lr=0.001 -s amp.precision=fp32
ok "a memory limit" equals 4 2 2 4 $skips -s memory.strategy=recompute

# The second stage takes a fifth more than the first.
takes_most() {
    network="-s model.file=$top_srcdir/conf/models/resnet20.ini -s train.batch=48 -s train.epochs=1"
    rm -rf several
    stages 4 2 2 several $network -s data.limit=200 || return 1
    "$AMPTRAIN" plan -c run.ini $shape -s train.accumulate=1 $network -s data.limit=200 --json >plan.json || return 1
    set -- $(grep -ho '"device_peak_bytes":[0-9]*' several/metrics.jsonl | cut -d : -f 2) \
        $(grep -o '"total_bytes":[0-9]*' plan.json | cut -d : -f 2)
    echo "$1, of the plan $*"
    [ $(($1 * 100)) -ge $(($2 * 99)) ] && [ $(($1 * 99)) -le $(($2 * 100)) ] && [ $1 -gt $(($3 * 11 / 10)) ]
}
ok "the memory of the stage that takes most is reported" takes_most

resumed() {
    rm -rf alone several
    stages 1 1 4 alone -s run.max_steps=12 && stages 2 2 4 several -s run.max_steps=4 &&
        stages 4 2 2 several -r -s run.max_steps=7 && stages 1 1 4 several -r -s run.max_steps=9 &&
        stages 3 3 4 several -r -s run.max_steps=12 && same alone several
}
ok "a run resumes with any number of stages" resumed

# Other sizes in other epochs: of small images most of the work is behind the pooling, where they are cut then.
cat >sized.ini <<'END'
[input]
channels = 1
size = 8
[layers]
conv1 = conv input filters=16 kernel=3 pad=1
bn1 = batchnorm conv1
conv2 = conv bn1 filters=16 kernel=3 pad=1
conv3 = conv conv2 filters=16 kernel=3 pad=1
pool = globalavgpool conv3
fc1 = linear pool units=256
drop = dropout fc1 rate=0.2
fc2 = linear drop units=256
fc = linear fc2 units=$classes
END
sizes="-s model.file=sized.ini -s data.limit=200 -s augment.pad=0 -s augment.scale=0.5,1 -s augment.sizes=2@1,8@2,6@3"
sizes="$sizes -s train.eval_every=0 -s checkpoint.every=0"   # after which all ranks have all parameters
ok "sizes of images by epoch" equals 4 2 2 4 $sizes
sizes_resumed() {
    rm -rf several
    stages 4 4 4 several $sizes -s run.max_steps=2 && stages 3 3 4 several -r $sizes -s run.max_steps=5 &&
        stages 2 2 4 several -r $sizes -s run.max_steps=8 && same alone several
}
ok "... with any number of stages" sizes_resumed

ok "muon, whose matrices two pipelines share" equals 4 4 2 2 -s model.file=sized.ini -s optimizer.name=muon \
    -s optimizer.lr=0.02

# Memory limits on request, of which 11 MiB suit one stage only: all ranks take a limit, or none does.
cat >wide.ini <<'END'
[input]
channels = 1
size = 8
[layers]
conv1 = conv input filters=32 kernel=3 pad=1
conv2 = conv conv1 filters=32 kernel=3 pad=1
bn = batchnorm conv2
pool = globalavgpool bn
fc = linear pool units=$classes
END
asked() {
    cp run.ini kept.ini
    start limits -s model.file=wide.ini -s train.batch=512 -s train.epochs=100000 -s checkpoint.every=0 \
        -s log.every=100000 -s parallel.gpus=2 -s parallel.stages=2 -s parallel.microbatches=1
    wait_for grep -q "epoch 1/" limits.log || return 1
    answers=0
    for limit in 4 11 12; do
        { cat kept.ini; printf '[memory]\nlimit = %sM\n' $limit; } >run.new && mv run.new run.ini
        kill -HUP $process
        answers=$((answers + 1))
        wait_for answered $answers || return 1
    done
    kill -INT $process
    got=0; wait $process || got=$?
    mv kept.ini run.ini
    grep -q "memory.limit is unchanged" limits.log && grep -q "memory.limit is now 12" limits.log && [ $got = 75 ]
}
answered() {
    [ "$(grep -c "amptrain: warning: memory.limit is unchanged\|^memory.limit is now" limits.log)" = "$1" ]
}
hups() { asked || { cat limits.log; return 1; }; }
ok "SIGHUP: a memory limit applies to all ranks or to none" hups

ok "stages that do not divide the ranks" says 2 "parallel.stages: 3 stages do not divide parallel.gpus = 4" \
    stages 4 3 1 wrong
ok "pipelines that do not divide a batch" \
    says 2 "parallel.gpus: 2 pipelines of 5 micro-batches do not divide" stages 4 2 5 wrong -s train.batch=65
ok "train.batch=auto" says 2 "train.batch: auto is not for pipelines" \
    stages 2 2 1 wrong -s train.batch=auto
sed 's/filters=8/filters=16/; s/filters=16 kernel=3 stride=2/filters=64 kernel=3 stride=2/' tiny.ini >large.ini
ok "a message larger than ranks can send" \
    says 2 "is a message of 2.0 GiB, but ranks send at most 1.0 GiB at once; more of parallel.microbatches" \
    "$AMPTRAIN" plan -c run.ini -s model.file=large.ini -s parallel.gpus=2 -s parallel.stages=2 \
    -s parallel.microbatches=1 -s train.accumulate=1 -s train.batch=1048576
ok "more stages than layers" says 2 "a network of 7 layers cannot be cut into 8 stages" stages 8 8 1 wrong
finish
