#!/bin/sh
# Numbers that go wrong in a run are named, each in one line: what is not finite, dead layers, norms that
# explode.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# weights FILE TENSOR FLOAT: what one epoch of training left, but FLOAT (four octal bytes) all over TENSOR.
weights() {
    header=$(head -c "$((8 + $(od -An -t u8 -N 8 trained.safetensors)))" trained.safetensors | tail -c +9)
    header=$(printf "%s\n" "$header" | sed 's/"__metadata__":{[^}]*},//')
    count=$(printf "%s" "$header" | wc -c)
    place=$(printf "%s\n" "$header" |
        sed "s/.*\"$2\":{[^}]*\"data_offsets\":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/")
    tensors trained.safetensors >data
    for at in $(seq "${place% *}" 4 $((${place#* } - 4))); do printf "$3"; done |
        dd of=data bs=1 seek="${place% *}" conv=notrunc 2>/dev/null
    printf "\\$(printf %o $((count % 256)))\\$(printf %o $((count / 256)))\0\0\0\0\0\0%s" "$header" >"$1"
    cat data >>"$1"
}
nan='\0\0\300\177' far_below_zero='\0\0\26\304'    # NaN, -600

# once WORDS: the line was said once, to a person and in log.txt.
once() {
    cat err
    [ "$(grep -cF -e "$1" err)" = 1 ] && [ "$(grep -cF -e "$1" run/log.txt)" = 1 ]
}
begin() { rm -rf run; "$AMPTRAIN" -q -c run.ini -o run -s model.weights="$@"; }

train run -s train.epochs=1
"$AMPTRAIN" export -q --weights run/checkpoint-last.safetensors -o trained.safetensors
weights dead.safetensors conv2.bias "$far_below_zero"
weights lost.safetensors conv1.weight "$nan"
weights statistics.safetensors bn1.running_var "$nan"

dead="the gradients of conv1.weight and of 5 more parameters have been zero since step 22"
ok "a dead layer" says 0 "dead layer: relu2: output is zero for all images; $dead" begin dead.safetensors
ok "... is reported once" once "dead layer"
ok "a healthy run reports nothing" sh -c '
    "$AMPTRAIN" -q -c run.ini -s amp.init_scale=1024 -s train.epochs=6 -o healthy 2>err
    cat err; ! test -s err'

lost="step 1 (epoch 1): the loss is NaN: parameter conv1.weight contains NaN, in 64 images of the batch, from"
dead="ends without an update: all of its 22 steps were skipped (22 of 22 in the run), the last because"
ended() { tail -n 1 run/metrics.jsonl | grep '"reason":"not_finite","epochs":'"$1"',"steps":'"$2"; }
ok "a parameter that becomes NaN is reported at once" says 1 "$lost" begin lost.safetensors
ok "... is reported once" once "step 1 (epoch 1): the loss is NaN: "
ok "... and ends the run after an epoch" once \
    "epoch 1 $dead the loss is NaN: parameter conv1.weight contains NaN"
ok "... with the usual cause" once "; optimizer.lr (0.05, in this step 0.00454545) is the usual cause"
ok "... with an end line" ended 0 22
ok "... after one for each step" sh -c '[ $(grep -c "\"event\":\"step\"" run/metrics.jsonl) = 22 ]'
ok "... also if the loss scale is stuck" says 1 "gradients are not finite at the minimum loss scale, 1" \
    begin lost.safetensors -s amp.init_scale=1024
ok "... and evaluation" says 0 "evaluation: the loss is not finite: parameter conv1.weight contains NaN" \
    "$AMPTRAIN" eval -q -c run.ini --weights lost.safetensors
ok "... and average" says 5 "tensor 'conv1.weight' of lost.safetensors contains NaN or Inf" \
    "$AMPTRAIN" average trained.safetensors lost.safetensors -o mean.safetensors
ok "... or the run ends" says 1 "$lost" begin lost.safetensors -s train.on_nan=stop
ok "... with an end line" ended 0 1
ok "a NaN in a statistic does not end training" says 1 "step 22: parameter bn1.running_var contains NaN" \
    begin statistics.safetensors
ok "... whose end is a failure" once "no evaluation was finite: 359 of 359 images"
ok "... after all epochs" ended 4 88
ok "... and evaluation says why" once "evaluation: the loss is not finite: parameter bn1.running_var contains NaN"

ok "a static loss scale that is too high" says 1 \
    "; amp.loss_scale (1e+30), which is fixed, or optimizer.lr (0.05, in this step 0.00454545) is" \
    begin trained.safetensors -s amp.loss_scale=1e30 -s train.epochs=1

# The learning rate grows ten thousandfold in the first epoch: the norm follows.
ok "an exploding gradient norm" says 0 "exploding gradients: their norm is " begin trained.safetensors \
    -s amp.precision=fp32 -s schedule.name=step -s schedule.warmup=0 -s schedule.milestones=0.7 \
    -s schedule.gamma=1e4 -s train.clip_norm=0 -s train.epochs=1
ok "... is reported once, with the parameter" once "times the recent one; the largest contribution is from "

# A rate at which the weights leave fp16 in the first epoch; what is not finite is never printed as a number.
diverge() {
    set -- -s optimizer.lr=50 -s train.clip_norm=0 -s schedule.warmup=0 -s amp.init_scale=65536 \
        -s checkpoint.best=val_loss "$@"
    "$AMPTRAIN" -c run.ini -o dead "$@"
}
of="epoch 2 ends without an update: all of its 22 steps were skipped"
ok "a diverging run ends" says 1 "$of" diverge
ok "... with its learning rate" grep -qE "; optimizer.lr \(50, in this step [0-9.]+\) is the usual cause" err
ok "... without nan in its files" sh -c '! grep -E "(^|[^a-z])-?(nan|inf)([^a-z]|\$)" err'
ok "... or in its evaluation" says 0 "" sh -c '
    "$AMPTRAIN" eval -q -c run.ini --weights lost.safetensors >said
    cat said
    grep -q "loss not finite$" said'
ok "... a resumed one ends likewise" says 1 "$of" diverge -r
ok "epochs of one step continue while the loss scale decreases" train short -s data.limit=64 \
    -s train.epochs=14
ok "... although no update was applied" grep -q '"train_loss":[0-9.]*,.*"skipped_steps":1' short/metrics.jsonl

"$top_builddir/tests/support/make_pictures" pictures
ok "images of the step are named" says 1 "(pictures/" "$AMPTRAIN" -q -c run.ini -s data.format=folder \
    -s data.train=pictures -s model.weights=lost.safetensors -s model.classes=10 -s train.batch=4 \
    -s train.epochs=1

# run.verify_every.
ok "steps run twice (run.verify_every)" train twice -s run.verify_every=3
train once
ok "... change nothing" same once twice
finish
