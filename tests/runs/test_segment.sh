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

sed -e 's/^format.*/format = synthetic\ntask = segment\nclasses = 5\nlimit = 80\nval_fraction = 0.1/' -e 's/^crop.*/crop = 16/' \
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

evaluated() {
    grep -o '"val_loss":[0-9.]*,"val_miou":[0-9.]*,"val_dice":[0-9.]*,"val_pixel_accuracy":[0-9.]*' falls/metrics.jsonl
}
ok "... and evaluated, by pixels" evaluated
early() {
    rm -rf early
    train early -s train.early_stop=1 -s train.ema=0 -s optimizer.lr=0 -s train.epochs=9 "$@" &&
        grep '"reason":"early_stop","epochs":2' early/metrics.jsonl
}
ok "a run without gain ends early" early
ok "... by its Dice" early -s checkpoint.best=val_dice

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
norms="-s model.file=norm.ini $weights"
ok "ce: 2 ranks, the bits of 2 micro-batches" equals 2 $ranks $norms
ok "... of 2 each, bf16: of 4" equals 4 $ranks -s train.accumulate=2 $norms -s amp.precision=bf16
ok "... micro-batches on streams" equals 4 -s train.accumulate=2 -s parallel.microbatches=2 $norms
stages="$ranks -s parallel.microbatches=4 -s parallel.stages=2"
ok "... 2 stages" equals 4 $stages $norms -s parallel.schedule=1f1b
ok "dice_ce: 2 ranks" equals 2 $ranks $norms -s train.loss=dice_ce
ok "... 2 stages, vshape, fp16" equals 4 $stages $norms -s train.loss=dice_ce -s parallel.schedule=vshape \
    -s amp.precision=fp16
ok "... 3 stages" equals 2 -s train.accumulate=1 -s parallel.gpus=3 -s parallel.stages=3 $norms \
    -s parallel.microbatches=2 -s train.loss=dice_ce

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
outputs() {
    for command in plan summary; do
        "$AMPTRAIN" $command -c run.ini >told.txt && cat told.txt || return 1
        grep -qx 'outputs      main: head, weight 1' told.txt && grep -q ' aux: small, weight 0.4$' told.txt || return 1
    done
    "$AMPTRAIN" summary -c run.ini --json | grep -F '{"name":"aux","layer":"small","output":[1,8,8,5],"weight":0.4}]' &&
        "$AMPTRAIN" plan -c run.ini --json | grep -F '"outputs":[{"name":"main","layer":"head","output":[24,16,16,5],"weight":1},{"name":"aux","layer":"small","output":[24,8,8,5],"weight":0.4}]'
}
# The layer of a number that is not finite, within a network whose loss is of pixels.
diagnosed() {
    "$AMPTRAIN" -c run.ini -o diagnosed -s optimizer.lr=1e30 -s train.clip_norm=0 -s train.on_nan=stop \
        -s amp.precision=bf16 2>err && return 1
    cat err; grep -q "gradients are not finite at loss scale 1: .*forward: output contains" err
}
ok "the layer of a NaN is named" diagnosed
ok "plan and summary tell the outputs" outputs
ok "profile" "$AMPTRAIN" profile -q -c run.ini --json

# resumed OPTION...: a run that stops and goes on ends in the same bits.
resumed() {
    rm -rf alone several
    train alone "$@" && train several "$@" -s run.max_steps=4 && train several "$@" -r && same alone several
}
other_network() {
    sed 's/weight=0.4/weight=0.5/' pixels.ini >other.ini
    says 2 "the outputs ([outputs]) differ" train several -r -s model.file=other.ini $weights
}
ok "a resumed run: the same bits" resumed $weights
ok "other weights of outputs are another network" other_network
ok "... with ranks" resumed $ranks -s amp.precision=fp16 -s model.file=norm.ini
ok "frozen layers stay" train frozen -s train.freeze='down1.*' -s train.freeze_epochs=1

# Files of images and masks.
for kind in numbers colours; do
    mkdir -p $kind/images $kind/masks $kind-val/images $kind-val/masks
    "$top_builddir/tests/support/make_masks" $kind $kind 12 20 28
    "$top_builddir/tests/support/make_masks" $kind-val $kind 4 20 28
done
printf 'ground\nleft\nright\n' >names.txt
printf '#000000 = ground\n128 64 128 = left\n0 200 0 = right\nother = ignore\n' >palette.txt
files() {
    folder=$1; shift
    train "$folder" -s data.format=folder -s data.train=numbers -s data.val=numbers-val -s data.limit=0 -s data.val_fraction=0 \
        -s data.classes=names.txt -s train.batch=6 -s data.class_weights=balanced -s augment.foreground=0.5 \
        -s augment.rotate=20 -s augment.vflip=0.5 "$@"
}
ok "files of images and masks" files files
ok "... whose classes have names" grep -aq 'ground.*left.*right' files/checkpoint-last.safetensors
classes_at() { grep "^classes = " files/config.ini && grep -qF "classes = $PWD/names.txt" files/config.ini; }
ok "... of a file, whose path config.ini has" classes_at
elsewhere() {
    mkdir -p elsewhere && cp -r files goes && cd elsewhere && "$AMPTRAIN" -q -c ../goes/config.ini -r -o ../goes \
        -s train.epochs=4 && cd ..
}
ok "... and which goes on from elsewhere" elsewhere
uncached() { rm -rf several && files several -s loader.cache=none -s loader.workers=2 && same files several; }
ok "... without a cache: the same bits" uncached
by_palette() {
    rm -rf several
    files several -s data.train=colours -s data.val=colours-val -s data.classes=auto -s data.palette=palette.txt &&
        same files several
}
ok "... of colours, by a palette: the same bits" by_palette
named() { rm -rf several && files several -s data.classes=ground,left,right && same files several; }
ok "... of classes named by the key: the same bits" named
fold() { rm -rf several && files several -s data.val= -s data.fold=1/3; }
ok "... by a fold" fold
ok "refused: two names for three classes" says 3 "numbers/masks/0.png" files refused -s data.classes=a,b
probe() {
    rm -rf several
    train several -s augment.pad=0 -s augment.flip=0 -s augment.crop=0 -s train.freeze='down*,last*,small*' &&
        steps several | grep -v null
}
ok "frozen features are not kept" probe
ok "sizes grow" train grows -s augment.scale=0.5,1 -s augment.pad=0 -s augment.sizes=16@1,24@2

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
