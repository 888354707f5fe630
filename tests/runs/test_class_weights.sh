#!/bin/sh
# data.class_weights: the loss is divided by the sum of the whole batch's weights, however it is divided.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

weights="-s data.class_weights=1,9,0.3,4,1,0.1,2,25,1,3"
sed -e '/^bn1/d; /^drop/d; s/relu bn1/relu conv1/; s/flatten drop/flatten relu2/' tiny.ini >plain.ini

# weighed FOLDER [OPTION...]: ten steps of a network in which an image does not see the others.
weighed() {
    folder=$1; shift
    train "$folder" -s model.file=plain.ini -s amp.precision=fp32 -s run.max_steps=10 -s train.batch=24 \
        $weights "$@"
}

# steps FOLDER: the loss and the gradient's norm of each step.
steps() {
    sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}

# as_one FOLDER: but for rounding, they are those of the folder `one`.
as_one() {
    steps one >one.txt && steps "$1" | paste one.txt - | awk '
        { for (i = 1; i < 3; i++) if (($i - $(i + 2)) ^ 2 > (2e-5 * $i) ^ 2) { far++; print } }
        END { exit far > 0 || NR != 10 }'
}

# divided OPTION...: the run divides its batches so.
divided() { rm -rf divided && weighed divided "$@" && as_one divided; }

# equals K OPTION...: the same bits as K micro-batches one after another.
equals() {
    k=$1; shift
    rm -rf alone several
    weighed alone "$@" -s train.accumulate="$k" -s parallel.gpus=1 -s parallel.stages=1 \
        -s parallel.microbatches=1 && weighed several "$@" && same alone several
}

# differs: without weights they are other steps.
differs() { rm -rf divided && weighed divided -s data.class_weights=none && ! as_one divided >/dev/null; }

weighed one -s train.accumulate=1
ok "a step takes one batch" test -s one/metrics.jsonl
for each in 2 3 8 24; do
    ok "... or $each micro-batches" divided -s train.accumulate=$each
done
ok "... which weights change" differs
ok "mixed images are divided by their number" equals 4 -s augment.mixup=0.5 -s parallel.gpus=2 \
    -s train.accumulate=2
ok "2 ranks: the bits of 2 micro-batches" equals 2 -s train.accumulate=1 -s parallel.gpus=2
ok "... of 3 micro-batches each: of 6" equals 6 -s train.accumulate=3 -s parallel.gpus=2
ok "micro-batches on streams: of 4" equals 4 -s train.accumulate=2 -s parallel.microbatches=2
ok "2 stages: of 4" equals 4 -s train.accumulate=1 -s parallel.microbatches=4 -s parallel.gpus=2 \
    -s parallel.stages=2
ok "2 pipelines of 2 stages: of 4" equals 4 -s train.accumulate=1 -s parallel.microbatches=2 \
    -s parallel.gpus=4 -s parallel.stages=2
finish
