#!/bin/sh
# Whole runs step by step beside PyTorch: recipes that torch.optim and torchvision do not have, by the formulas of
# those who published them.
. "$top_srcdir/tests/support/tap.sh"

python=${PYTHON:-python3}
cd "$scratch" || exit 1
recipes='multilabel huber lion muon soft hard token-hard token-soft token-alone'

# beside RECIPE: as of tests/graph/torch_traces.py
beside() {
    "$AMPTRAIN" -q -o "$1" -s run.device=cpu -s data.format=mnist -s data.train=made -s data.val=made \
        -s data.shuffle=no -s model.file=made/model.ini -s model.weights=made/student.safetensors \
        -s train.epochs=4 -s train.batch=16 -s amp.precision=fp32 -s log.every=1 -s log.tensorboard=no \
        -s run.threads=2 $(options "$1") && "$python" "$top_srcdir/tests/graph/torch_traces.py" compare "$1" made "$1"
}
tokens='-s model.file=made/tokens.ini -s model.weights=made/tokens.safetensors'
options() {
    case $1 in
    multilabel)
        echo "-s data.format=csv -s data.train=made/labels.csv -s data.val=made/labels.csv -s augment.crop=8" \
            "-s data.class_weights=0.5,1,1.5,2,2.5,3,3.5,4,4.5,5 -s augment.label_smoothing=0.1" \
            "-s optimizer.lr=0.1 -s optimizer.momentum=0.9 -s optimizer.weight_decay=0" ;;
    huber)
        echo "-s data.format=csv -s data.train=made/values.csv -s data.val=made/values.csv -s augment.crop=8" \
            "-s train.loss=huber -s model.weights=made/single.safetensors -s optimizer.lr=0.1" \
            "-s optimizer.momentum=0.9 -s optimizer.weight_decay=0" ;;
    lion) echo "-s optimizer.name=lion -s optimizer.lr=0.0003 -s optimizer.weight_decay=0.1" ;;
    muon) echo "-s optimizer.name=muon -s optimizer.weight_decay=0.1" ;;
    soft) echo "-s optimizer.momentum=0.9 -s train.teacher=taught -s train.distill_alpha=0.7 -s train.temperature=3" ;;
    swa) echo "-s optimizer.momentum=0.9 -s checkpoint.keep=3" ;;
    hard) echo "-s optimizer.momentum=0.9 -s train.teacher=taught -s train.distill=hard" ;;
    token-alone) echo "-s optimizer.momentum=0.9 $tokens" ;;
    token-hard) echo "-s optimizer.momentum=0.9 $tokens -s train.teacher=taught -s train.distill=hard" \
        "-s train.distill_alpha=0.6" ;;
    token-soft) echo "-s optimizer.momentum=0.9 $tokens -s train.teacher=taught -s train.distill_alpha=0.7" \
        "-s train.temperature=3" ;;
    esac
}
# A run that learns nothing: its checkpoint has the teacher's weights, with the network.
teach() {
    "$AMPTRAIN" -q -o taught -s run.device=cpu -s data.format=mnist -s data.train=made -s data.val=made \
        -s model.file=made/model.ini -s model.weights=made/teacher.safetensors -s train.epochs=1 -s train.batch=16 \
        -s amp.precision=fp32 -s optimizer.lr=0 -s 'train.freeze=*' -s log.tensorboard=no
}

# The mean of the last epochs' weights, with statistics of its own.
averages() {
    beside swa && "$AMPTRAIN" average -q swa/checkpoint-[234].safetensors --recompute-bn -o swa.safetensors &&
        "$python" "$top_srcdir/tests/graph/torch_traces.py" average swa.safetensors made swa/checkpoint-[234].safetensors
}

if "$python" -c 'import safetensors, torch' 2>/dev/null; then
    "$python" "$top_srcdir/tests/graph/torch_traces.py" make made || exit 1
    ok "a teacher" teach
    for recipe in $recipes; do ok "$recipe beside PyTorch" beside "$recipe"; done
    ok "the mean of checkpoints, with its own batch norm statistics, beside PyTorch" averages
else
    for recipe in $recipes; do skip "$recipe beside PyTorch" "python has no torch, or no safetensors"; done
    skip "the mean of checkpoints beside PyTorch" "python has no torch, or no safetensors"
fi
finish
