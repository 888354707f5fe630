#!/bin/sh
# explain draws a picture of each image, of the class that predict finds, or of another.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures\nval_fraction = 0.25' \
    -e 's/^crop.*/crop = 28/' -e 's/^pad.*/mean = 0.3,0.4,0.5\nstd = 0.2,0.2,0.3/' \
    -e 's/^batch.*/batch = 4/' -e 's/^every = 3 steps/every = 1/' -e 's/^precision.*/precision = fp32/' \
    -e 's/^epochs.*/epochs = 2/' -e 's/tiny.ini/coloured.ini/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 28/' tiny.ini >coloured.ini
"$AMPTRAIN" -q -c pictures.ini -o run || exit 1

explain() { "$AMPTRAIN" explain --weights run "$@" >out 2>err || { cat err; return 1; }; }
has() { grep -qF -e "$1" "$2" || { cat "$2"; return 1; }; }
side() { [ "$(od -An -j 16 -N 8 -t u1 "$1" | tr -s ' ')" = " 0 0 0 28 0 0 0 28" ]; }

ok "a folder of images" explain -o maps pictures
count() { [ "$(wc -l <out)" = 48 ] && [ "$(ls maps | wc -l)" = 48 ]; }
ok "... has a picture of each" count
ok "... which is said" has "Grad-CAM: layer 'drop' of coloured has 14x14 pixels" err
ok "... of the size that the network sees" side maps/1.png
twice() {
    has "pictures/pear/1.png: " out && grep -q "pear/1.png: .*, maps/1-2.png" out && side maps/1-2.png
}
ok "... with names of their own" twice
same_classes() {
    "$AMPTRAIN" predict -q --weights run pictures >classes && sed 's/, [^,]*$//' out | cmp - classes
}
ok "its classes and probabilities are predict's" same_classes
other() {
    explain -q -o pear --class pear pictures/apple/1.png && has "pictures/apple/1.png: pear 0." out &&
        explain -q -o apple --class apple pictures/apple/1.png && has ": apple 0." out &&
        ! cmp -s pear/1.png apple/1.png
}
ok "another class has another picture" other
layer() {
    explain -o early --layer conv1 pictures/apple/1.png && has "layer 'conv1' of coloured has 28x28" err
}
ok "another layer" layer
json() {
    explain -q --json -o json pictures/apple/1.png pictures/pear/1.png &&
        sed 's/0\.[0-9]*/N/; s/"class":"[a-z]*","index":[01]/CLASS/' out >plain &&
        has '[{"image":"pictures/apple/1.png",CLASS,"probability":N,"picture":"json/1.png"},' plain &&
        has ' {"image":"pictures/pear/1.png",CLASS,"probability":N,"picture":"json/1-2.png"}]' plain
}
ok "... in JSON" json
input() { "$AMPTRAIN" explain -q --weights run -o input - <pictures/apple/1.png && side input/image.png; }
ok "an image on standard input" input
broken() {
    echo no >broken.png
    says 3 "1 of 2 images cannot be explained" "$AMPTRAIN" explain --weights run -o broken broken.png \
        pictures/pear/1.png && has "broken.png: error: " out && [ "$(ls broken)" = 1.png ]
}
ok "an image that cannot be read" broken
# A vision transformer: the same map for each class, on its patches; of a layer, Grad-CAM.
cat >vit.ini <<'END_OF_MODEL'
[input]
channels = 3
size = 28
[layers]
patch = conv input filters=8 kernel=7 stride=7
cls = prepend patch
norm = layernorm cls
qkv = linear norm units=24 per_pixel=yes
att = attention qkv heads=2
add = add att cls
norm2 = layernorm add
pool = token_pool norm2
fc = linear pool units=$classes
END_OF_MODEL
"$AMPTRAIN" -q -c pictures.ini -s model.file=vit.ini -o vit || exit 1
transformer() {
    "$AMPTRAIN" explain --weights vit -o vit-maps pictures/apple/1.png >one 2>err &&
        has "attention rollout of 1 layer of vit: 4x4 patches" err && side vit-maps/1.png &&
        "$AMPTRAIN" predict -q --weights vit pictures/apple/1.png >two && sed 's/, [^,]*$//' one | cmp - two
}
ok "a vision transformer" transformer
tokens() {
    "$AMPTRAIN" explain --weights vit -o vit-add --layer add pictures/apple/1.png >one 2>err &&
        has "Grad-CAM: layer 'add' of vit has 4x4 pixels" err && side vit-add/1.png
}
ok "... one layer of it" tokens
refuses() { words=$1; shift; says 2 "$words" "$AMPTRAIN" explain --weights run "$@"; }
ok "no folder" refuses "-o FOLDER is needed" pictures
ok "no image" refuses "no image given" -o none
ok "no such class" refuses "there is no class 'pera'; did you mean 'pear'?" -o none --class pera pictures
ok "no such layer" refuses "has no layer 'conv3'" -o none --layer conv3 pictures
ok "a layer of one pixel" refuses "has one pixel" -o none --layer flat pictures
ok "... and no folder is left" [ ! -e none ]
kept() {
    cp pictures/apple/1.png mine.png && refuses "./mine.png: exists" -o . mine.png &&
        cmp mine.png pictures/apple/1.png
}
ok "images are not overwritten" kept
finish
