#!/bin/sh
# Folders of pictures, and limits: what follows when the configuration says little.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
cp -r pictures held
rm -r held/apple
cat >pictures.ini <<'END_OF_INI'
[data]
format = folder
train = pictures
val = held
[model]
arch = resnet20
[train]
batch = 4
epochs = 1
[optimizer]
lr = 0.001
momentum = 0
[log]
tensorboard = no
END_OF_INI
pictures() { "$AMPTRAIN" -q -c pictures.ini "$@"; }

ok "images of any size can be trained on without warnings" pictures -o run
ok "... with random crops" grep -qx 'scale = *; 0.08,1' run/config.ini
ok "a validation split without some class has the training labels" sh -c '
    "$AMPTRAIN" eval -q -c pictures.ini --weights run/checkpoint-last.safetensors -o seen >/dev/null
    cat seen/confusion.csv
    grep -q "^\"apple\",0,0" seen/confusion.csv && ! grep -q "^\"pear\",0,0" seen/confusion.csv'
ok "predict --json" sh -c '
    "$AMPTRAIN" predict -q -c pictures.ini --weights run/checkpoint-last.safetensors --json \
        pictures/*/*.png >out
    cat out; number="[0-9.e-]*"
    line="{\"image\":\"pictures/[^\"]*\",\"class\":\"[a-z]*\",\"index\":[0-9],\"probability\":$number}"
    test "$(grep -cx "[[ ]$line[],]" out)" = "$(ls pictures/*/*.png | wc -l)"'
weights=run/checkpoint-last.safetensors
"$AMPTRAIN" export -q --weights $weights -o bare.safetensors
# results WEIGHTS OPTION...: what eval and predict say of the same pictures, but for the names of classes.
results() {
    named=$1; shift
    set -- -s model.classes=2 "$@"
    "$AMPTRAIN" eval -q -c pictures.ini --weights "$named" --json "$@" &&
        "$AMPTRAIN" predict -q -c pictures.ini --weights "$named" pictures/*/*.png "$@" | sed "s/: [^ ]* /: /"
}
results $weights >auto
results $weights -s augment.val_resize=37 >given
results $weights -s augment.val_resize=0 >whole
results bare.safetensors >bare
ok "eval and predict resize to 8/7 of the crop" cmp auto given
ok "... also predict from weights alone" sh -c "sed 1d auto >a; sed 1d bare >b; cmp a b"
ok "... but eval does not with val_resize=0" sh -c 'head -1 auto >a; head -1 whole >b; ! cmp -s a b'
ok "... nor does predict" sh -c 'sed 1d auto >a; sed 1d whole >b; ! cmp -s a b'
ok "config.ini has the setting and the resolved value" grep -qx 'val_resize = auto    ; 37' run/config.ini
deep() {
    "$top_builddir/tests/support/make_pictures" deep deep && says 0 "25 of 25 examined have more than 8 bits a sample, which are kept" \
        "$AMPTRAIN" -c pictures.ini -s data.train=deep -s data.val=deep -s run.max_steps=1
}
ok "images of 16 bits are kept, which is said" deep
cp -r pictures broken
head -c 60 pictures/apple/5.png >broken/apple/5.png
head -c 60 pictures/pear/17.png >broken/pear/17.png
ok "unreadable images are counted in --logits" says 0 "logits.npy: 2 of 48 rows are NaN" "$AMPTRAIN" eval -q \
    -c pictures.ini -s data.val=broken --weights $weights --logits logits.npy
ok "... and only their rows are NaN" sh -c '
    tail -c +129 logits.npy | od -An -v -t x4 -w8 | grep -n 7fc00000 >rows; cat rows
    test "$(sed "s/  */ /g" rows | tr "\n" ,)" = "20: 7fc00000 7fc00000,34: 7fc00000 7fc00000,"'
ok "no prediction from outputs that are not finite" says 1 "pictures/apple/0.png: the network" \
    "$AMPTRAIN" predict -q -c pictures.ini --weights $weights -s amp.precision=fp16 -s augment.std=0.000001 \
    pictures/apple/0.png pictures/apple/1.png
ok "... the records say so" sh -c 'grep -c ": error: the network.s output is not finite$" out | grep -qx 2'
ok "an image smaller than the crop is named" says 3 ".png: " pictures -s augment.crop=100
ok "a crop larger than the resized image" says 2 "augment.resize" pictures -s augment.resize=20
ok "a crop larger than the data's images" says 2 "augment.crop" "$AMPTRAIN" -q -c run.ini -s augment.crop=32
ok "memory.limit that is too small" says 4 "memory.limit" pictures -s memory.limit=1M
ok "... in --check" says 4 "memory.limit" pictures -s memory.limit=1M --check
ok "... in bench" says 4 "memory.limit" "$AMPTRAIN" bench -q -c pictures.ini -s memory.limit=1M
# Names out of files and folders are shown, but cannot steer the terminal.
odd=$(printf 'a\033[31mpple')
cp -r pictures odd
mv odd/apple "odd/$odd"
cat >no_escapes <<'END_OF_SCRIPT'
"$@" >seen.txt 2>&1
cat -v seen.txt
grep -qF 'a\x1b[31mpple' seen.txt && ! grep -q "$(printf '\033')" seen.txt
END_OF_SCRIPT
ok "file names cannot control the terminal" sh no_escapes "$AMPTRAIN" predict -q -c pictures.ini \
    --weights run/checkpoint-last.safetensors "odd/$odd"/*
ok "... nor class names" sh no_escapes "$AMPTRAIN" eval -c pictures.ini -s data.train=odd -s data.val=odd \
    --weights run/checkpoint-last.safetensors
[ -c /dev/full ] && ok "the run continues if the list of bad images cannot be written" says 1 \
    "standard output" sh -c '
    "$AMPTRAIN" models >/dev/full'
# Files of one size, 24x24, of which the crop is most: they are not resized, to 23.
mkdir -p grey/a grey/b
base64 -d >grey.png <<'END'
iVBORw0KGgoAAAANSUhEUgAAABgAAAAYCAIAAABvFaqvAAAAHUlEQVR4nGPgohJgGDVo1KBRg0YNGjVo1KCBNwgADmFDgdE3roAA
AAAASUVORK5CYII=
END
for file in a/0 a/1 a/2 b/0 b/1 b/2; do cp grey.png grey/$file.png; done
whole() {
    "$AMPTRAIN" -q -s data.format=folder -s data.train=grey -s data.val_fraction=0.34 -s model.arch=resnet20 \
        -s augment.crop=20 -s augment.val_crop=20 -s train.batch=2 -s run.max_steps=1 -s run.device=cpu -o grey-run &&
        grep -qx 'val_resize = auto    ; 24' grey-run/config.ini
}
ok "files of one size that is almost the crop's are not resized" whole
finish
