#!/bin/sh
# eval says of masks what numpy and torchmetrics say of the masks that predict writes, of random sets.
. "$top_srcdir/tests/support/tap.sh"

python=${PYTHON:-python3}
cd "$scratch" || exit 1
same() { # SEED
    classes=$("$python" "$top_srcdir/tests/graph/pixel_metrics.py" make "$1" "$1") || return 1
    "$AMPTRAIN" -q -o "$1/run" -s run.device=cpu -s run.seed="$1" -s data.format=folder -s data.task=segment \
        -s data.train="$1" -s data.classes="$classes" -s augment.crop=16 -s model.file="$1/net.ini" \
        -s train.epochs=1 -s train.batch=1 -s optimizer.lr=0 -s run.report=no -s log.tensorboard=no &&
        "$AMPTRAIN" eval -q --weights "$1/run" --val "$1" --json >"$1/eval.json" &&
        "$AMPTRAIN" predict -q --weights "$1/run" "$1/images" -o "$1/predicted" >"$1/out" &&
        "$python" "$top_srcdir/tests/graph/pixel_metrics.py" compare "$1" "$1/eval.json" "$1/predicted"
}
if "$python" -c 'import numpy, PIL' 2>/dev/null; then
    for seed in $(seq "$(rounds 4 20)"); do
        ok "set $seed" same "$seed"
        figure "$(tail -n 1 words)"
    done
else
    skip "metrics of pixels beside numpy" "python has no numpy, or no Pillow"
fi
finish
