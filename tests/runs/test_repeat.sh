#!/bin/sh
# Two runs of one configuration end in the same bits and tell the same, for the same number of threads: with
# every optimizer and precision, with mixed images, however many workers load them.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

runs=0
# repeats OPTIMIZER PRECISION THREADS
repeats() {
    set -- "-soptimizer.name=$1" "-samp.precision=$2" "-srun.threads=$3" "-srun.max_steps=$steps" \
        -s run.deterministic=yes -s augment.mixup=0.2 -s augment.cutmix=1
    train one -s loader.workers=1 "$@" && train two -s loader.workers=3 "$@" && same one two && rm -rf one two
}
try() {
    runs=$((runs + 1))
    ok "$1, $2, on $3 threads" repeats "$@"
}

steps=$(rounds 5 88)
for optimizer in sgd adam adamw adagrad rmsprop lars lamb lion muon; do
    if [ -n "${AMPTRAIN_TORTURE-}" ]; then
        for precision in fp32 fp16 bf16; do
            for threads in 1 2 3 4; do try $optimizer $precision $threads; done
        done
    else
        case $optimizer in
        sgd | lars) precision=fp32 ;;
        adam | rmsprop) precision=fp16 ;;
        *) precision=bf16 ;;
        esac
        try $optimizer $precision 2
    fi
done
ok "no more threads than OMP_THREAD_LIMIT" env OMP_THREAD_LIMIT=1 timeout 300 "$AMPTRAIN" -q -c run.ini \
    -s run.threads=2 -s run.max_steps=1 -s amp.precision=fp32
ok "too many threads in OMP_NUM_THREADS are reported" says 0 \
    "OMP_NUM_THREADS: 99999 threads are too many; 1024 are used" \
    env -u OMP_THREAD_LIMIT OMP_NUM_THREADS=99999 "$AMPTRAIN" devices
ok "... and the maximum is used" grep -q ", 1024 threads," out
figure "$runs pairs of runs of $steps steps, equal to the bit"
finish
