#!/bin/sh
# Images that are not square: HxW crops through all commands, beside crops, borders and stretching.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" wide 20 60 || exit 1
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' -e 's/^flat = .*/flat = globalavgpool drop/' \
    tiny.ini >pooled.ini
cat >wide.ini <<'END_OF_INI'
[run]
device = cpu
threads = 1
[data]
format = folder
train = wide
val = wide
[augment]
crop = 12x36
[model]
file = pooled.ini
[train]
batch = 8
epochs = 8
[optimizer]
name = adamw
lr = 0.02
[log]
tensorboard = no
END_OF_INI
wide() { "$AMPTRAIN" -q -c wide.ini "$@"; }
has() { grep -E -e "$1" "$2" || { cat "$2"; return 1; }; }
whole() { wide -s augment.resize=12x36 "$@"; }

ok "a crop of height and width" whole -o run
ok "... is recorded" has '^crop = 12x36$' run/config.ini
ok "... also in evaluation" has '^val_crop = 0    ; 12x36$' run/config.ini
ok "... with images resized as in training" has '^val_resize = auto    ; 12x36$' run/config.ini
ok "... in the report" has 'crop = 12x36' run/report.html
larger() { wide -s train.epochs=1 -s augment.scale=0.5,1 -o larger && has '^val_resize = auto    ; 14x41$' larger/config.ini; }
ok "... or else to cover 8/7 of it" larger

# Bits do not depend on the number of workers, nor on being interrupted and resumed.
turned() { # RUN OPTION...
    run=$1; shift
    whole -s augment.vflip=0.5 -s augment.rotate=20 -s augment.shear=10,5 -s augment.translate=0.2 \
        -s augment.gray=0.3 -s augment.gamma=0.5 -s augment.blur=0.5 -s augment.noise=0.5 \
        -s augment.pad=2 -s train.epochs=3 "$@" -o "$run"
}
turned_alike() { # RUN
    for one in turned "$1"; do
        "$AMPTRAIN" eval -q --weights "$one/checkpoint-last.safetensors" --logits "$one.npy" || return 1
    done
    cmp turned.npy "$1.npy"
}
ok "images are flipped vertically and turned" turned turned
ok "... with three workers" turned turned3 -s loader.workers=3
ok "... and are the same" turned_alike turned3
other_turn() { ! turned_alike upright; }
ok "... but not as without" turned upright -s augment.rotate=0
ok "... a turn" other_turn
turned_resumed() { turned turned2 -s run.max_steps=5 && turned turned2 -r -s run.max_steps=0; }
ok "... resumed" turned_resumed
ok "... they are the same, too" turned_alike turned2
ok "a turn of more than half a circle is refused" says 2 "augment.rotate" turned other -s augment.rotate=181
own() { wide -s train.epochs=1 -s augment.crop="$1" -o "own$1" && has "^val_resize = auto    ; $1\$" "own$1/config.ini"; }
ok "... but not if they have its size" own 20x60
ok "... or its short side" own 20
# top1 FOLDER [OPTION...]: the accuracy at the end of a run, of evaluation images.
top1() { sed -n 's/.*"event":"epoch".*"val_top1":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | tail -1; }
between() { awk -v x="$(top1 "$1")" -v low="$2" -v high="$3" 'BEGIN { print x; exit !(x >= low && x <= high) }'; }

# Only the first third of an image has its class: a square crop of the middle does not see it.
kind() { folder=$1; shift; wide -s augment.val_resize=12x36 "$@" -o "$folder"; }
ok "whole images" kind hxw -s augment.resize=12x36
ok "... are told apart" between hxw 0.95 1
ok "... between borders" kind letterbox -s augment.crop=36 -s augment.fit=letterbox -s augment.val_resize=auto
ok "... are told apart, too" between letterbox 0.95 1
ok "... stretched" kind stretch -s augment.crop=20 -s augment.fit=stretch -s augment.val_resize=auto
ok "... likewise" between stretch 0.95 1
ok "square crops of the middle" kind square -s augment.crop=12 -s augment.resize=12 -s augment.val_resize=12
ok "... are not" between square 0 0.8
ok "random parts have the shape of the crop" wide -s augment.scale=0.25,1 -s train.epochs=1 -o parts
ok "... which is recorded" has '^ratio = 0.75,1.3333333333333333    ; 2.25,4$' parts/config.ini
ok "... unless it is given" sh -c '"$AMPTRAIN" train -q -c wide.ini -s augment.scale=0.25,1 -s augment.ratio=1,2 \
    -s train.epochs=1 -o given && grep -qx "ratio = 1,2" given/config.ini'

# Every command works on them, from the checkpoint alone.
images() { "$AMPTRAIN" predict -q --weights "$@" wide >"$scratch/predicted" && [ "$(wc -l <predicted)" = 48 ]; }
ok "predict" images hxw
mv predicted ours
ok "eval says the same" sh -c '[ "$("$AMPTRAIN" eval -q --weights hxw --json | sed "s/.*\"top1\":\([0-9.]*\).*/\1/")" = \
    "$(sed -n "s/.*\"event\":\"epoch\".*\"val_top1\":\([0-9.]*\).*/\1/p" hxw/metrics.jsonl | tail -1)" ]'
ok "exported weights" "$AMPTRAIN" export -q --weights hxw -o bare.safetensors
ok "... have their size" sh -c 'head -c 4000 bare.safetensors | grep -aq "val_crop = 12x36"'
ok "... and predict" images bare.safetensors
ok "... the same" cmp ours predicted
ok "ONNX" says 0 "input Nx3x12x36" "$AMPTRAIN" export --weights hxw -o net.onnx
ok "... has their size" grep -aq '\[12, 36\]' net.onnx
ok "embed" "$AMPTRAIN" embed -q --weights hxw wide -o features.npy
ok "explain" "$AMPTRAIN" explain -q --weights hxw wide/apple/1.png -o maps
ok "... draws what evaluation sees" sh -c '
    [ "$(od -An -t u1 -j 16 -N 8 maps/*.png | tr -s " ")" = " 0 0 0 36 0 0 0 12" ]'
ok "bench" "$AMPTRAIN" bench -q -c wide.ini -s data.format=synthetic --steps 2 --json
ok "plan" "$AMPTRAIN" plan -q -c wide.ini --json
summary() { "$AMPTRAIN" summary -q "$@" >summary.txt; }
ok "summary" summary -c wide.ini
ok "... has the size" has 'one image of 1x12x36x3' summary.txt
for ranks in 1 2; do
    whole -s parallel.gpus=$ranks -s train.accumulate=$((2 / ranks)) -s train.epochs=1 -s augment.flip=0.5 -o ranks$ranks
done
ok "two ranks compute the same" same ranks1 ranks2
ok "a run goes on" whole -o ranks1 -r -s train.epochs=2 -s train.accumulate=2 -s augment.flip=0.5
ok "... of the same size" says 2 "augment.crop: 12x36, now 12x34" whole -o ranks1 -r -s augment.crop=12x34 \
    -s train.accumulate=2 -s augment.flip=0.5
sized() { wide -s augment.scale=0.5,1 -s train.epochs=2 "$@"; }
ok "progressive sizes" sized -s augment.sizes=6x18@1,12x36@2
ok "... of which one covers the others" says 2 "augment.sizes: 20x20 is larger than 12x36 in one direction" \
    sized -s augment.sizes=20x20@2
ok "a size that is none" says 2 "-s augment.crop=12x: must be a side (224) or a height and a width (128x384)" \
    wide -s augment.crop=12x

# Position embeddings have a grid: 2x8 patches are other ones than 4x4.
sed -e 's/^flat = .*/patches = conv drop filters=6 kernel=4 stride=4\nclass = prepend patches\npos = position class prefix=1/' \
    -e 's/^fc = .*/token = token_pool pos\nfc = linear token units=$classes/' \
    pooled.ini >positions.ini
grid() { wide -s model.file=positions.ini -s augment.fit=stretch -s train.epochs=1 "$@"; }
ok "positions of a long grid" grid -s augment.crop=16x64 -o long
ok "... are evaluated" "$AMPTRAIN" eval -q --weights long
ok "... and predicted with" images long
ok "... but not on as many patches of another grid" says 2 \
    "the network cannot evaluate images of 32x32: 'pos' needs 16x64" grid -s augment.crop=16x64 -s augment.val_crop=32
ok "... nor by other weights" says 5 "pos (of 2x8 patches, not 4x4)" "$AMPTRAIN" eval -q -c wide.ini --weights long \
    -s model.file=positions.ini -s augment.crop=32 -s augment.val_crop=32 -s augment.fit=stretch
ok "... in which training resizes them" says 0 "position embeddings of 2x8 patches are resized to 4x4" \
    "$AMPTRAIN" -c wide.ini -s model.file=positions.ini -s train.epochs=1 -s augment.crop=32 -s augment.fit=stretch \
    -s model.weights=long
ok "windows of Swin" summary -s model.arch=swin_t -s augment.crop=56x168 -s data.format=synthetic
ok "... cover long images" has 'one image of 1x56x168x3' summary.txt

ok "init of long images" sh -c '"$AMPTRAIN" init -q wide >init.ini'
ok "... keeps their shape" has '^crop = 16x56 ' init.ini
ok "... and can be trained on" "$AMPTRAIN" -q -c init.ini -s run.device=cpu -s run.max_steps=1
"$AMPTRAIN" -q -c init.ini -s run.device=cpu -s run.max_steps=1 -o weights
ok "... with weights in their shape" sh -c '"$AMPTRAIN" init -q wide --weights weights >tuned.ini'
ok "... has it, too" has '^crop = 16x56 ' tuned.ini
finish
