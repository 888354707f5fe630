#!/bin/sh
# Parts of recipes in whole runs: each does what it says, goes on exactly after a stop, and is the same for
# any number of ranks and workers.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do rm pictures/apple/$i.png; done   # 8 apples, 24 pears
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures' -e '/^format/a val = pictures' \
    -e 's/^crop.*/crop = 16/' -e 's/^batch.*/batch = 8/' -e 's/^epochs.*/epochs = 2/' \
    -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' -e 's/tiny.ini/coloured.ini/' \
    -e 's/^pad.*/resize = 20/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' tiny.ini >coloured.ini
pictures() { # FOLDER [OPTION...]
    folder=$1; shift
    "$AMPTRAIN" -q -c pictures.ini -o "$folder" "$@"
}

# exact OPTION...: on two ranks and several workers, and from a checkpoint on, as at once. Ranks are slow under
# sanitizers, which see them in tests of their own.
exact() {
    rm -rf once ranks again
    pictures once "$@" || return 1
    [ -n "${AMPTRAIN_SANITIZED-}" ] ||
        { pictures ranks -s parallel.gpus=2 -s train.accumulate=1 -s loader.workers=3 "$@" && same once ranks; } ||
        return 1
    exits_with 75 pictures again -s run.max_time=0.0001 "$@" &&
        pictures again -r "$@" -s run.max_time=0 && same once again
}

# tensor FILE NAME: its numbers.
tensor() {
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    ends=$(head -c $((length + 8)) "$1" | tr '}' '\n' |
        sed -n 's/.*"'"$2"'":{.*"data_offsets":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p')
    [ -n "$ends" ] && od -An -t f4 -j $((length + 8 + ${ends% *})) -N $((${ends#* } - ${ends% *})) "$1"
}

### data.balance

differs() { ! same "$@" >same.txt; }
pictures a && pictures b -s data.balance=yes || exit 1
ok "data.balance changes the run" differs a b
ok "... which resumes exactly" exact -s data.balance=yes
ok "balance needs shuffling" says 2 "data.balance: cannot be combined with data.shuffle = no" pictures e \
    -s data.balance=yes -s data.shuffle=no

### augment.repeats

pictures b3 -s augment.repeats=3 || exit 1
ok "augment.repeats changes the run" differs a b3
ok "... which resumes exactly" exact -s augment.repeats=3
ok "... also with data.balance" exact -s augment.repeats=3 -s data.balance=yes -s augment.mixup=0.2

### augment.auto_augment=three

pictures three -s augment.auto_augment=three && pictures three.3 -s augment.auto_augment=three \
    -s augment.jitter=0.3,0.3,0.3 && pictures three.0 -s augment.auto_augment=three -s augment.jitter=0,0,0 || exit 1
ok "3-Augment changes the run" differs a three
ok "... with a jitter of 0.3" same three three.3
ok "... unless it is set" differs three three.0
ok "... and resumes exactly" exact -s augment.auto_augment=three

### augment.sizes

sed 's/^flat = .*/flat = globalavgpool drop/' coloured.ini >pooled.ini
sized() { # FOLDER [OPTION...]
    folder=$1; shift
    pictures "$folder" -s model.file=pooled.ini -s augment.scale=0.5,1 -s augment.resize=0 -s augment.val_crop=16 "$@"
}
resized="-s model.file=pooled.ini -s augment.scale=0.5,1 -s augment.resize=0 -s augment.sizes=8@1,16@2"
sized whole -s augment.crop=16 && sized small -s augment.crop=8 && sized grown -s augment.sizes=8@1,16@2 || exit 1
first_steps() { lines "$1" | grep '"epoch":1,' | grep '"step"' >"$1.txt" && [ -s "$1.txt" ]; }
begins_small() { first_steps small && first_steps grown && diff small.txt grown.txt; }
ok "augment.sizes changes the run" differs whole grown
ok "... whose first epoch is that of small images" begins_small
ok "... but not its second" differs small grown
ok "... which resumes exactly" exact $resized
ok "a size for all epochs is the crop" sized all -s augment.sizes=16@1
ok "... to the bit" same whole all
ok "sizes need a network for all of them" says 2 \
    "the network cannot be trained on images of 8x8 as well: 'fc.weight' would have another shape" \
    pictures e -s augment.scale=0.5,1 -s augment.sizes=8@1,16@2
ok "... and random parts" says 2 "augment.sizes: needs augment.scale" pictures e -s augment.sizes=8@1
ok "... and epochs in order" says 2 "'16@1' must be SIZE@EPOCH" sized e -s augment.sizes=8@2,16@1

### train.teacher

# A network with batch norm behind a convolution, behind an addition, and behind dropout.
cat >taught.ini <<'END'
[input]
channels = 3
size = 16
[layers]
conv1 = conv input filters=8 kernel=3 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=8 kernel=3 pad=1
add = add conv2 relu1
bn2 = batchnorm add
drop = dropout bn2 rate=0.3
bn3 = batchnorm drop
pool = globalavgpool bn3
fc = linear pool units=$classes
END
pictures guide -s model.file=taught.ini || exit 1
"$AMPTRAIN" export -q --weights guide -o whole.safetensors || exit 1
# Writes the tensors without metadata.
bare() {
    length=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    header=$(head -c $((length + 8)) "$1" | tail -c "$length" | sed 's/"__metadata__":{[^}]*},*//')
    bytes=$(printf %s "$header" | wc -c)
    printf "\\$(printf %o $((bytes % 256)))\\$(printf %o $((bytes / 256)))\\0\\0\\0\\0\\0\\0%s" "$header" && tensors "$1"
}
bare whole.safetensors >bare.safetensors
taught="-s train.teacher=guide -s train.temperature=2"
pictures led $taught || exit 1
ok "a teacher changes the run" differs a led
ok "... which resumes exactly" exact $taught
other_teacher() {
    pictures pupil $taught -s run.max_steps=2 && pictures guide2 -s model.file=taught.ini -s run.seed=5 &&
        mv guide guide1 && cp -r guide2 guide || return 1
    says 2 "the teacher's weights (train.teacher) are others than when the run was saved" \
        pictures pupil $taught -r -s run.max_steps=4
    status=$?
    rm -r guide && mv guide1 guide && pictures pupil $taught -r -s run.max_steps=4 && return $status
}
ok "... but not with another teacher in its place" other_teacher
moved_teacher() {
    mv guide moved && pictures pupil -s train.teacher=moved -s train.temperature=2 -r -s run.max_steps=6 &&
        grep -q "^teacher = .*moved" pupil/config.ini
    status=$?
    mv moved guide && return $status
}
ok "... with the same one in another place" moved_teacher
finished() {
    mv guide moved && says 0 "the run is finished, and goes without its teacher" pictures_said led $taught -r
    status=$?
    mv moved guide && return $status
}
pictures_said() { "$AMPTRAIN" -c pictures.ini -s train.epochs=2 -o "$@"; }
ok "... and without one, when it is finished" finished
ok "keys of teachers need one" says 0 "train.temperature has no effect without train.teacher" \
    "$AMPTRAIN" -c pictures.ini -s train.temperature=3 -s train.distill_alpha=0.1 --check
ok "... each of them" grep -q "train.distill_alpha has no effect without train.teacher" err
ok "... also a teacher of classes, with mixed images" exact $taught -s train.distill=hard -s augment.mixup=0.2
# A distillation token beside the class token.
cat >token.ini <<'END'
[input]
channels = 3
size = 16
[layers]
patches = conv input filters=8 kernel=4 stride=4
dist_token = prepend patches
cls_token = prepend dist_token
placed = position cls_token prefix=2
qkv = linear placed units=24 per_pixel=yes
attn = attention qkv heads=2
class = token_slice attn
distilled = token_slice attn first=1
head = linear class units=$classes
head_dist = linear distilled units=$classes
logits = mean head head_dist
END
token="$taught -s model.file=token.ini -s augment.mixup=0.2"
ok "... also of a distillation token" exact $token
of_head_dist() { # RUN FILE: its numbers
    tensor "$1/checkpoint-last.safetensors" head_dist.weight >"$2"
}
apart() {
    pictures t0 $token -s train.distill_alpha=0 -s optimizer.weight_decay=0 &&
        pictures t1 $token -s train.distill_alpha=0 -s optimizer.weight_decay=0 -s run.max_steps=1 &&
        of_head_dist t0 t0.txt && of_head_dist t1 t1.txt && of_head_dist once t.txt && cmp t0.txt t1.txt &&
        ! cmp -s t.txt t0.txt
}
ok "... whose head learns nothing else" apart
alone() { pictures alone -s train.teacher=guide -s train.distill_alpha=0 && same a alone; }
ok "without weight in the loss it changes nothing" alone
kept() { "$AMPTRAIN" plan -c pictures.ini --json "$@" | sed -n 's/.*"arena_bytes":\([0-9]*\).*/\1/p'; }
lean() {
    without=$(kept -s train.batch=32) with=$(kept -s train.batch=32 -s train.teacher=guide)
    echo "$without without, $with with a teacher"
    [ "$with" -lt $((without + without / 20)) ]
}
ok "none of its activations are kept, nor beside the network's" lean
ok "a teacher needs the loss of classes" says 2 "amptrain: -s: train.teacher: needs train.loss = ce" pictures e $taught \
    -s train.loss=bce
ok "... and the same images" says 2 "augment.mean is " pictures e $taught -s augment.mean=0.5
ok "... and a network" says 2 "has no network; a teacher is a run" pictures e -s train.teacher=bare.safetensors
ok "... and one size" says 2 "train.teacher: cannot be combined with augment.sizes" pictures e $taught \
    -s augment.scale=0.5,1 -s augment.sizes=16@1

### train.freeze_epochs

# Epochs of 4 steps: the first one is that of a run in which they stay frozen, the second one is not.
first() { grep '"epoch":1,' "$1/lines"; }
freezes() {
    set -- -s train.freeze='conv*,bn1.*' -s schedule.name=constant -s schedule.warmup=0
    pictures frozen "$@" && pictures thawed "$@" -s train.freeze_epochs=1 || return 1
    for run in frozen thawed; do lines $run >$run/lines; done
    [ "$(first frozen | wc -l)" = 5 ] && [ "$(first frozen)" = "$(first thawed)" ] &&
        ! cmp -s frozen/lines thawed/lines
}
goes_on() { # STEPS: a run that ended after so many
    rm -rf again
    pictures again -s train.freeze='conv*' -s train.freeze_epochs=1 -s run.max_steps="$1" &&
        pictures again -r -s train.freeze='conv*' -s train.freeze_epochs=1 -s run.max_steps=0 &&
        same once again
}
ok "frozen in the first epoch only" freezes
ok "... with a message" grep -q 'from now on all parameters are trained' thawed/log.txt
ok "... which resumes exactly" exact -s train.freeze='conv*' -s train.freeze_epochs=1
ok "... also stopped between both phases" goes_on 4
ok "... or after the freeze" goes_on 5

### train.ema of a run that had none

steps_of() { lines "$1" | grep '"event":"step"'; }
averages() {
    pictures plain -s train.ema=0 && pictures begun -s train.ema=0 -s run.max_steps=5 || return 1
    says 0 'has no averaged weights: they begin with its weights' "$AMPTRAIN" -c pictures.ini -o begun -r \
        -s run.max_steps=0 -s train.ema=0.5 && [ "$(steps_of plain)" = "$(steps_of begun)" ] &&
        grep -aq average/fc.weight begun/checkpoint-last.safetensors && pictures begun -r -s train.ema=0.5
}
ok "an average can begin when a run is resumed" averages
ok "... but cannot end there" says 2 "train.ema: 0.5, now 0" pictures begun -r -s train.ema=0

### data.class_weights

# 32 images: 32 / (2 * 8) and 32 / (2 * 24).
weights_are_inverse() {
    pictures weighted -s data.class_weights=balanced &&
        pictures listed -s data.class_weights=2,0.66666666666666663 && same weighted listed
}
weights_of_one() { pictures one -s data.class_weights=1,1 && same a one; }
ok "class_weights=balanced is inversely proportional to the number of images" weights_are_inverse
ok "equal weights change nothing" weights_of_one
ok "different weights do" differs a weighted
ok "runs with class weights resume exactly" exact -s data.class_weights=balanced
ok "also with mixed images and smoothed labels" exact -s data.class_weights=balanced -s augment.mixup=0.4 \
    -s augment.label_smoothing=0.1
ok "class weights of another number of classes" says 2 "data.class_weights: 3 numbers for 2 classes" \
    pictures e \
    -s data.class_weights=1,2,3
ok "class weights that are not numbers" says 2 "must be none, balanced, or a number for each class" pictures \
    e \
    -s data.class_weights=balance
ok "class weights that are all 0" says 2 "at least one must be above 0" pictures e -s data.class_weights=0,0

### augment.fit

for fit in letterbox stretch; do
    ok "augment.fit=$fit" exact -s augment.fit=$fit -s augment.resize=0 -s augment.pad=2
    mv once $fit
done
ok "... differ" differs letterbox stretch
predicts() {
    "$AMPTRAIN" export -q --weights letterbox -o box.safetensors &&
        "$AMPTRAIN" predict -q --weights box.safetensors pictures/pear/3.png >one.txt &&
        "$AMPTRAIN" predict -q --weights letterbox pictures/pear/3.png | cmp - one.txt
}
ok "... and are kept with weights" predicts
ok "nothing else resizes them" says 2 "augment.resize: has no meaning with augment.fit = stretch" pictures e \
    -s augment.fit=stretch
ok "borders are black" says 2 "augment.pad_mode: reflect needs augment.fit = crop" pictures e \
    -s augment.fit=letterbox -s augment.resize=0 -s augment.pad_mode=reflect

### train.loss

pictures bce -s train.loss=bce || exit 1
ok "train.loss=bce changes the run" differs a bce
ok "... which resumes exactly" exact -s train.loss=bce -s augment.label_smoothing=0.1
ok "... also with mixed images" exact -s train.loss=bce -s augment.mixup=0.4
pictures ce -s train.loss=ce || exit 1
ok "ce is that of classes" same a ce
ok "losses of numbers are not for classes" says 2 "train.loss: mse is no loss of data.task = classify; it has ce, bce" \
    pictures e -s train.loss=mse
ok "class weights are for cross entropy" says 2 "data.class_weights: cannot be combined with train.loss = bce" \
    pictures e -s train.loss=bce -s data.class_weights=balanced

### optimizer.layer_decay

pictures decayed -s optimizer.layer_decay=0.5 || exit 1
ok "optimizer.layer_decay changes the run" differs a decayed
ok "... which resumes exactly" exact -s optimizer.layer_decay=0.5

### optimizer.lr_scale

pictures scaled -s optimizer.lr_scale='*:0.5, conv1.*:0.25 *1.*:2,bn1.*:0.25 fc.*:2 conv1.*:1' || exit 1
ok "optimizer.lr_scale applies to parameters by name" same decayed scaled
ok "a factor that is not a number" says 2 "optimizer.lr_scale: conv1.*:" pictures e \
    -s optimizer.lr_scale='conv1.*:fast'
ok "... or not after a colon" says 2 "'conv1.*' must be a pattern, a colon and a factor" pictures e \
    -s optimizer.lr_scale='conv1.*'
ok "a pattern that matches no parameter" says 2 "optimizer.lr_scale: no parameter matches 'no'" pictures e \
    -s optimizer.lr_scale='no:2'

### augment.pad_mode

pictures black -s augment.pad=2 && pictures reflected -s augment.pad=2 -s augment.pad_mode=reflect || exit 1
ok "pad_mode=reflect differs from constant" differs black reflected
ok "... and needs images larger than the padding" says 2 "augment.pad: must be less than" pictures e \
    -s augment.pad=64 -s augment.pad_mode=reflect

### train.lookahead

pictures averaged -s train.ema=0.5 && pictures ahead -s train.ema=0.5 -s train.lookahead=2 || exit 1
ok "train.lookahead changes the run" differs averaged ahead
ok "... which resumes exactly" exact -s train.ema=0.5 -s train.lookahead=2
ok "... and needs train.ema" says 2 "train.lookahead: needs an average" pictures e \
    -s train.ema=0 -s train.lookahead=2

### train.swa, schedule.name=plateau

swa="-s train.ema=0 -s train.swa=1 -s schedule.swa_lr=0.05 -s schedule.anneal_epochs=1"
# shellcheck disable=SC2086 # options
pictures swa $swa || exit 1
ok "train.swa changes the run" differs averaged swa
# shellcheck disable=SC2086 # options
ok "... which resumes exactly" exact $swa -s train.epochs=3
ok "... with batch norm's statistics of the average" grep -q "over 4 batches of training images" once/log.txt
"$AMPTRAIN" eval -q --weights once/checkpoint-last.safetensors --json >said || exit 1
loss=$(sed -n 's/.*"event":"epoch","epoch":3,.*"val_loss":\([^,]*\),.*/\1/p' once/metrics.jsonl)
ok "... which is evaluated" grep -qF "\"loss\":$loss" said
ok "... not with train.ema" says 2 "train.swa: and train.ema exclude" pictures e -s train.ema=0.5 -s train.swa=1
ok "... nor beyond the end" says 2 "train.swa: there are only 2 epochs" pictures e -s train.ema=0 -s train.swa=3
plateau="-s schedule.name=plateau -s schedule.patience=0 -s schedule.threshold=1 -s schedule.factor=0.5"
plateau="$plateau -s train.epochs=4 -s optimizer.lr=0.125"
# shellcheck disable=SC2086 # options
pictures plateau $plateau || exit 1
rates() { sed -n 's/.*"event":"epoch".*"lr":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tr '\n' ' '; }
figure "rates $(rates plateau)"
ok "plateau halves the rate after each evaluation" [ "$(rates plateau)" = "0.125 0.0625 0.03125 0.015625 " ]
# shellcheck disable=SC2086 # options
ok "... and resumes exactly" exact $plateau
ok "... and needs evaluations" says 2 "plateau needs validation data" pictures e -s schedule.name=plateau \
    -s train.eval_every=0

### augment.flip=alternate, augment.val_flip, augment.val_shift, train.eval_every

pictures turns -s augment.flip=alternate || exit 1
ok "flip=alternate changes the run" differs a turns
ok "... which resumes exactly" exact -s augment.flip=alternate -s augment.repeats=3
score() { sed -n 's/.*"val_loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl" | tail -1; }
mirrored() {
    pictures mirrored -s augment.val_flip=yes && [ "$(score mirrored)" != "$(score a)" ] &&
        same_tensors mirrored/checkpoint-last.safetensors a/checkpoint-last.safetensors &&
        "$AMPTRAIN" eval -q --json --weights mirrored/checkpoint-last.safetensors >mirrored.json &&
        grep "\"loss\":$(score mirrored)" mirrored.json &&
        "$AMPTRAIN" eval -q --json --weights a/checkpoint-last.safetensors --flip | cmp - mirrored.json
}
ok "augment.val_flip" mirrored
shifted() {
    pictures shifted -s augment.val_shift=2 && [ "$(score shifted)" != "$(score a)" ] &&
        same_tensors shifted/checkpoint-last.safetensors a/checkpoint-last.safetensors &&
        "$AMPTRAIN" eval -q --json --weights shifted/checkpoint-last.safetensors |
        grep "\"loss\":$(score shifted)"
}
ok "augment.val_shift" shifted
ok "... must be smaller than the image" says 2 "augment.val_shift: must be less than" pictures e -s \
    augment.val_shift=64
sparse() { # EVERY EVALUATIONS
    pictures sparse"$1" -s train.eval_every="$1" &&
        [ "$(grep -c '"event":"epoch".*"val_loss":[0-9]' sparse"$1"/metrics.jsonl)" = "$2" ] &&
        [ "$(score sparse"$1")" = "$(score a)" ]
}
ok "eval_every=2" sparse 2 1
ok "... the last epoch is always evaluated" sparse 3 1
ok "... or only the last one" sparse 0 1

### init=whiten

# Filters of one number: of pixels twice as large they are half as large; the second one is the negative.
sed -e 's/^conv1.*/conv1 = conv input filters=2 kernel=1 bias=no init=whiten/' tiny.ini >white.ini
white() { # FOLDER STD
    train "$1" -s model.file=white.ini -s augment.std="$2" -s augment.pad=0 -s augment.flip=0 \
        -s train.freeze='conv1.*' -s run.max_steps=1 -s amp.precision=fp32 &&
        tensor "$1/checkpoint-last.safetensors" conv1.weight >"$1.txt"
}
whitens() {
    white w1 1 && white w2 0.5 && cat w1.txt w2.txt && paste w1.txt w2.txt | awk '
        { good = NF == 4 && ($1 + $2) ^ 2 < 1e-9 && ($1 / $3 - 2) ^ 2 < 1e-2 && $1 ^ 2 > 1 }
        END { exit !good }'
}
ok "init=whiten scales filters by the data" whitens
sed -e 's/^conv1.*/conv1 = conv input filters=8 kernel=2 pad=1 stride=2 init=whiten/' coloured.ini >white.ini
ok "whitened runs resume exactly" exact -s model.file=white.ini
sed -i 's/filters=8/filters=25/' white.ini
ok "more filters than whitening can give" says 2 "conv1: init=whiten makes at most 24 filters" pictures e \
    --check \
    -s model.file=white.ini
sed -e 's/^conv2.*/conv2 = conv relu1 filters=8 kernel=2 init=whiten/' coloured.ini >white.ini
ok "whitening of a convolution that does not read the input" says 2 \
    "conv2: init=whiten needs a convolution of the input" pictures e \
    -s model.file=white.ini

### conf/*.ini

# recipe FILE OPTION...: two steps of it on small images.
recipe() {
    file=$1; shift
    rm -rf recipe
    "$AMPTRAIN" -q -c "$top_srcdir/conf/$file.ini" -o recipe -s data.train=pictures -s run.device=cpu \
        -s augment.crop=32 -s augment.val_resize=36 -s augment.val_crop=32 -s train.batch=4 \
        -s run.max_steps=2 -s run.report=no "$@" 2>warned || { cat warned; return 1; }
    cat warned
    ! grep warning warned && [ -f recipe/checkpoint-last.safetensors ]
}
weights() { "$AMPTRAIN" -q -c "$top_srcdir/conf/finetune.ini" -o before -s data.train=pictures \
    -s run.device=cpu -s augment.crop=32 -s augment.val_crop=32 -s train.batch=4 -s run.max_steps=1 \
    -s run.report=no; }
ok "the recipe for fine-tuning is accepted" weights
ok "... and needs weights" recipe finetune -s model.weights=before/checkpoint-last.safetensors
ok "the long ImageNet recipe is accepted" recipe imagenet_long -s data.val= -s data.val_fraction=0.2 \
    -s model.arch=resnet18 -s model.classes=2
ok "the recipe of DeiT III is accepted" recipe deit3 -s data.val= -s data.val_fraction=0.2 -s train.batch=6
ok "the recipe of DeiT with a distillation token is accepted" recipe deit_distilled -s data.val= \
    -s data.val_fraction=0.2 -s train.batch=6 -s model.arch=deit_tiny_distilled_patch16_224 -s train.teacher=before
ok "the recipe for fine-tuning transformers is accepted" recipe finetune_vit
cp -r recipe vit_before
ok "... at another size of images" recipe finetune_vit -s augment.crop=42 -s augment.val_crop=42 -s \
    augment.val_resize=42 -s model.weights=vit_before
ok "... whose positions are resized" grep "position embeddings of 2x2 patches are resized to 3x3" recipe/log.txt

finish
