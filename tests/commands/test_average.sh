#!/bin/sh
# average --recompute-bn: batch norm statistics of the mean of weights (tests/graph/test_torch_traces.sh has them beside
# PyTorch's).
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

averages() { "$AMPTRAIN" average -q "$@"; }
plain="-s augment.flip=0 -s augment.pad=0 -s model.dropout=0 -s amp.precision=fp32 -s data.limit=300"
train run $plain -s optimizer.lr=0.5 -s train.ema=0 -s checkpoint.every=1 -s checkpoint.keep=3 || exit 1
ok "the mean of three epochs" averages run/checkpoint-[234].safetensors -o stale.safetensors
ok "... with batch norm statistics of its own" says 0 "batch norm statistics of 4 batches of 64 training images" \
    "$AMPTRAIN" average run/checkpoint-[234].safetensors --recompute-bn -s run.threads=1 -o mean.safetensors
differ() { tensors "$1" >one.bin && tensors "$2" >two.bin && ! cmp -s one.bin two.bin; }
ok "... which are others" differ stale.safetensors mean.safetensors
ok "... the same every time" averages run/checkpoint-[234].safetensors --recompute-bn -s loader.workers=3 \
    -s run.threads=2 -o again.safetensors
ok "... whatever the number of threads" same_tensors mean.safetensors again.safetensors
# loss WEIGHTS: of an evaluation of the training images.
loss() {
    "$AMPTRAIN" eval -q -c run.ini $plain --weights "$1" --split train --json | sed 's/.*"loss":\([0-9.e-]*\).*/\1/'
}
# A step of training with all images in a batch has their own statistics.
alike() {
    averages run/checkpoint-[234].safetensors --recompute-bn -s train.batch=300 -s train.accumulate=1 -o whole.safetensors &&
        train still $plain -s model.weights=whole.safetensors -s train.batch=300 -s train.accumulate=1 -s optimizer.lr=0 \
            -s train.epochs=1 -s train.ema=0 || return 1
    own=$(loss whole.safetensors) old=$(loss stale.safetensors)
    batch=$(sed -n 's/.*"event":"step".*"loss":\([0-9.e-]*\).*/\1/p' still/metrics.jsonl)
    figure "loss with statistics of the batch $batch, recomputed ones $own, averaged ones $old"
    awk -v batch="$batch" -v own="$own" -v old="$old" 'BEGIN {
        own -= batch; old -= batch; exit !(own * own < 1e-6 * batch * batch && old * old > 100 * own * own) }'
}
ok "evaluation of training images loses as training on them does" alike
ok "a run folder is one of them" averages run --recompute-bn -o best.safetensors
ok "... on the images that -s names" averages run --recompute-bn -s data.limit=200 -s train.batch=50 -o some.safetensors
ok "too few images for a batch" says 2 "a batch of 64 is more than the 20 training images" averages run --recompute-bn -s data.limit=20 -o few.safetensors
sed -e '/^bn1/d' -e 's/^relu1 = relu bn1/relu1 = relu conv1/' tiny.ini >bare.ini
train bare $plain -s model.file=bare.ini -s train.epochs=1 || exit 1
ok "a network without batch norms" says 2 "the network has no batch norms" averages bare --recompute-bn -o b.safetensors
ok "a configuration that nothing would use" says 2 "a configuration is for --recompute-bn" averages run -s \
    run.threads=1 -o b.safetensors
ok "nothing is written after a failure" sh -c '! ls b.safetensors few.safetensors'
finish
