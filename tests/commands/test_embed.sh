#!/bin/sh
# embed writes what a layer puts out for images, in their order, with their names beside.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures\nval_fraction = 0.25' \
    -e 's/^crop.*/crop = 28/' -e 's/^pad.*/mean = 0.3,0.4,0.5\nstd = 0.2,0.2,0.3/' \
    -e 's/^batch.*/batch = 4/' -e 's/^every = 3 steps/every = 1/' -e 's/^precision.*/precision = fp32/' \
    -e 's/^epochs.*/epochs = 1/' -e 's/tiny.ini/coloured.ini/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 28/' -e 's/^fc /block.1.fc /' tiny.ini >coloured.ini
"$AMPTRAIN" -q -c pictures.ini -o run || exit 1

embed() { "$AMPTRAIN" embed --weights run "$@" >out 2>err || { cat err; return 1; }; }
has() { grep -qF -e "$1" "$2" || { cat "$2"; return 1; }; }
shape() { has "'shape': ($1), }" "$2"; }
numbers() { tail -c +129 "$1"; }

ok "features of a folder of images" embed -o plain.npy pictures
ok "... of 48 images, what the classifier reads" shape "48, 3136" plain.npy
ok "... which is said" has "3136 features of each image: layer 'flat' of coloured" err
names() { find pictures -name '*.png' | LC_ALL=C sort >wanted && LC_ALL=C sort plain.txt | cmp - wanted; }
ok "... with their names" names
logits() {
    embed -o logits.npy --layer block.1.fc pictures && shape "48, 2" logits.npy &&
        "$AMPTRAIN" eval -q --weights run --val pictures -s train.batch=48 -s train.accumulate=1 \
            --logits eval.npy >/dev/null &&
        numbers logits.npy >one && numbers eval.npy | cmp - one
}
ok "features of the last layer are eval's logits" logits
block() { embed -o block.npy --layer block.1 pictures && cmp block.npy logits.npy; }
ok "a block's layer is its last one" block
mean() {
    embed -o mean.npy --layer relu2 pictures && shape "48, 16" mean.npy && has "the mean of its pixels" err
}
ok "a layer with pixels gives their mean" mean
tensors_alike() {
    embed -o plain.safetensors pictures && cmp plain.txt wanted.txt &&
        tensors plain.safetensors >one && numbers plain.npy | cmp - one
}
cp plain.txt wanted.txt
ok "safetensors has the same numbers" tensors_alike
batches() { embed -o seven.npy --batch 7 pictures && cmp plain.npy seven.npy; }
ok "the batch changes nothing" batches
list() { ls pictures/*/1*.png >list && embed -o list.npy @list && cmp list list.txt; }
ok "images of a list" list
echo no >broken.png
broken() {
    says 3 "broken.png: " "$AMPTRAIN" embed --weights run -o broken.npy pictures/apple/1.png broken.png \
        pictures/pear/1.png && has "its row is NaN" err && shape "3, 3136" broken.npy &&
        [ "$(numbers broken.npy | tail -c +12545 | head -c 12544 | od -An -t f4 -v | tr -s ' ' '\n' |
            sed '/^$/d' | sort -u)" = nan ]
}
ok "an image that cannot be read has a row of NaN" broken
refuses() { words=$1; shift; says 2 "$words" "$AMPTRAIN" embed --weights run "$@"; }
limited() {
    (ulimit -f 8 && says 1 "x.npy" "$AMPTRAIN" embed --weights run -o x.npy pictures) && has "File too large" err &&
        [ -z "$(find . -name 'x.npy*')" ]
}
ok "a file larger than allowed" limited
ok "no file to write" refuses "-o FILE.npy or -o FILE.safetensors" pictures
ok "another ending" refuses "must end in .npy or .safetensors" -o x.csv pictures
ok "no image" refuses "no image given" -o x.npy
ok "no such layer" refuses "has no layer 'relu3'; did you mean 'relu" -o x.npy --layer relu3 pictures
kept() { echo mine >x.npy && refuses "x.npy" -o x.npy pictures && has mine x.npy; }
ok "a file of another kind is kept" kept
other_checkpoint() {
    "$AMPTRAIN" -q -c pictures.ini -s run.seed=9 -o other && cp other/checkpoint-last.safetensors before &&
        refuses "checkpoint-last.safetensors: exists and is not a file as 'embed' writes it" \
            -o other/checkpoint-last.safetensors pictures && cmp before other/checkpoint-last.safetensors
}
ok "a checkpoint is kept" other_checkpoint
exported() {
    "$AMPTRAIN" export -q --weights run -o lean.safetensors &&
        refuses "lean.safetensors: exists and is not" -o lean.safetensors pictures
}
ok "... and exported weights" exported
ok "features are replaced" embed -o plain.safetensors pictures
notes() { echo mine >notes.txt && refuses "notes.txt: exists" -o notes.npy pictures && has mine notes.txt; }
ok "a text with the name of the list is kept" notes
ok "... and a list that is read" refuses "list.txt: is an input of this command (@list.txt)" \
    -o list.npy @list.txt
finish
