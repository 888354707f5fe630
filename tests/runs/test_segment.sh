#!/bin/sh
# data.task = segment: a class for every pixel is learned, of a network with two outputs; however a step is
# divided, kept within memory or interrupted, it is the same step.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# Group norm: an image does not see the others, so that only rounding depends on micro-batches.
cat >pixels.ini <<'EOF'
[input]
channels = 3
size = 16
[block:unit]
conv = conv in filters=$width kernel=3 pad=1
norm = groupnorm conv groups=2
relu = relu norm
[layers]
down1 = unit input width=6
pool1 = maxpool down1 kernel=2 stride=2
down2 = unit pool1 width=8
small = conv down2 filters=$classes kernel=1
up = upsample down2 scale=2 mode=bilinear
cat = concat down1 up
last = unit cat width=6
head = conv last filters=$classes kernel=1
[outputs]
main = head
aux = small weight=0.4
EOF
sed 's/groupnorm conv groups=2/batchnorm conv/' pixels.ini >norm.ini

sed -e 's/^format.*/format = synthetic\ntask = segment\nclasses = 5\nlimit = 72/' -e 's/^crop.*/crop = 16/' \
    -e 's/^file.*/file = pixels.ini/' -e 's/^batch.*/batch = 24/' -e 's/^precision.*/precision = fp32/' \
    -e 's/^epochs.*/epochs = 3/' run.ini >segment.ini && mv segment.ini run.ini

# steps FOLDER: the loss and the gradient's norm of each step.
steps() {
    sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"
}

# near FOLDER FOLDER: but for rounding, both made the same steps.
near() {
    steps "$1" >one.txt && steps "$2" | paste one.txt - | awk '
        { for (i = 1; i < 3; i++) if (($i - $(i + 2)) ^ 2 > (4e-5 * $i) ^ 2) { far++; print } }
        END { exit far > 0 || NR != 9 }'
}

# falls SHARE [OPTION...]: the last step's loss is below this share of the first one's.
falls() {
    most=$1; shift
    rm -rf falls
    train falls -s train.epochs=12 -s model.file=norm.ini -s optimizer.name=adam -s optimizer.lr=0.01 "$@" ||
        return 1
    steps falls | sed -n '1p; $p' | awk -v most="$most" '
        { print; if (NR == 1) first = $1; last = $1 } END { exit !(last < most * first) }'
}
for loss in ce dice dice_ce focal tversky; do
    ok "$loss is learned" falls 0.75 -s train.loss=$loss
done
for precision in bf16 fp16; do
    ok "... in $precision" falls 0.75 -s amp.precision=$precision
done

# divided K OPTION...: as one batch, for losses that are those of all pixels of the batch.
divided() {
    k=$1; shift
    rm -rf one several
    train one -s train.accumulate=1 "$@" && train several -s train.accumulate="$k" "$@" && near one several
}
differs() { ! divided "$@" >/dev/null; }
weights="-s data.class_weights=1,9,0.3,4,0"
ok "ce: 4 micro-batches are one" divided 4 $weights
ok "focal: 3 are one" divided 3 $weights -s train.loss=focal -s train.focal_gamma=1.5
ok "dice is a micro-batch's" differs 4 -s train.loss=dice

# equals K OPTION...: the same bits as K micro-batches one after another.
equals() {
    k=$1; shift
    rm -rf alone several
    train alone "$@" -s train.accumulate="$k" -s parallel.gpus=1 -s parallel.stages=1 \
        -s parallel.microbatches=1 && train several "$@" && same alone several
}
ranks="-s train.accumulate=1 -s parallel.gpus=2"
for loss in ce dice_ce; do
    all="-s model.file=norm.ini -s train.loss=$loss $weights"
    ok "$loss: 2 ranks, the bits of 2 micro-batches" equals 2 $ranks $all
    ok "... of 2 each, bf16: of 4" equals 4 $ranks -s train.accumulate=2 $all -s amp.precision=bf16
    ok "... micro-batches on streams" equals 4 -s train.accumulate=2 -s parallel.microbatches=2 $all
    for schedule in 1f1b vshape; do
        ok "... 2 stages, $schedule" equals 4 $ranks -s parallel.microbatches=4 -s parallel.stages=2 $all \
            -s parallel.schedule=$schedule
    done
    ok "... 3 stages, fp16" equals 2 -s train.accumulate=1 -s parallel.gpus=3 -s parallel.stages=3 $all \
        -s parallel.microbatches=2 -s amp.precision=fp16
done

# frugal STRATEGY: the same bits within 200 KiB less than all activations take.
taken() { grep -o '"total_bytes":[0-9]*' "$1/metrics.jsonl" | cut -d : -f 2; }
frugal() {
    rm -rf alone several
    train alone -s train.accumulate=1 && least=$(($(taken alone) - 204800)) &&
        train several -s train.accumulate=1 -s memory.strategy="$1" -s memory.limit=$least || return 1
    echo "$(taken several) of $least"
    [ "$(taken several)" -le $least ] && same alone several
}
ok "recomputation: the same bits" frugal recompute
ok "offload: the same bits" frugal offload
ok "the largest batch is found" train largest -s train.batch=auto -s memory.limit="$(taken alone)" \
    -s train.accumulate=1

# benched: the loss of a network that knows nothing, with random masks, and the same from the loader.
benched() {
    "$AMPTRAIN" bench -q -c run.ini --steps 2 --json "$@" >bench.json && cat bench.json || return 1
    grep -o '"first_loss":[0-9.]*' bench.json | cut -d : -f 2 | awk '{ exit !($1 > 1.5 && $1 < 4) }'
}
ok "bench has masks" benched
ok "... of the loader" benched --data
ok "profile" "$AMPTRAIN" profile -q -c run.ini --json

# resumed OPTION...: a run that stops and goes on ends in the same bits.
resumed() {
    rm -rf alone several
    train alone "$@" && train several "$@" -s run.max_steps=4 && train several "$@" -r && same alone several
}
ok "a resumed run: the same bits" resumed $weights
ok "... with ranks" resumed $ranks -s amp.precision=fp16 -s model.file=norm.ini
ok "frozen layers stay" train frozen -s train.freeze='down1.*' -s train.freeze_epochs=1

no() { key=$1 words=$2; shift 2; ok "refused: $key" says 2 "$words" train refused "$@" -s "$key"; }
no augment.mixup=0.2 "augment.mixup: mixes classes of images (data.task = segment)"
no augment.cutmix=1 "augment.cutmix"
no augment.label_smoothing=0.1 "augment.label_smoothing"
no augment.auto_augment=rand "augment.auto_augment: moves pixels"
no augment.val_crop=8 "augment.val_crop: has no meaning"
no train.teacher=x "train.teacher"
no data.balance=yes "data.balance"
no train.loss=bce "train.loss: bce is no loss of data.task = segment; it has ce, dice, dice_ce, focal, tversky"
no checkpoint.best=val_top1 "val_top1 is no metric of data.task = segment; it has val_miou"
no model.file=tiny.ini "the output must have a vector for each pixel" -s data.classes=10
no train.tversky=1 "train.tversky"
no data.task=classify "several outputs are for a class for every pixel (data.task = segment)"
ok "refused without masks: focal_gamma" says 2 "train.focal_gamma: needs data.task = segment" train refused \
    -s data.task=classify -s model.file=tiny.ini -s train.focal_gamma=1
ok "... names of classes" says 2 "names need data.task = segment" train refused \
    -s data.task=classify -s model.file=tiny.ini -s data.classes=a,b
finish
