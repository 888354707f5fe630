#!/bin/sh
# Images with masks that are wrong: each is refused by --check and by training with the file, the value and its
# pixels, or the line; none begins a run.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

cat >net.ini <<'END'
[input]
channels = 3
size = 32
[layers]
conv = conv input filters=$classes kernel=3 pad=1
END
cat >run.ini <<'END'
[data]
task = segment
train = set
[augment]
crop = 32
[model]
file = net.ini
[train]
epochs = 1
batch = 4
[run]
device = cpu
report = no
[log]
tensorboard = no
END
make() { mkdir -p "$1/${6-images}" "$1/${7-masks}" && "$top_builddir/tests/support/make_masks" "$@"; }
make numbers numbers 6 40 48 && make colours colours 6 40 48 && make two two 6 40 48 && make wide two 6 40 50 || exit 1

# fresh KIND: the set, to be spoilt.
fresh() { rm -rf set && cp -r "$1" set; }

# wrong NAME WORDS [OPTION...]: --check says so, and so does training, which leaves no run folder.
refused() {
    words=$1; shift
    says_wrong "$words" "$@" --check && rm -rf run && says_wrong "$words" "$@" -o run &&
        { [ ! -e run/metrics.jsonl ] || ! grep -q '"event":"step"' run/metrics.jsonl; }
}
says_wrong() {
    words=$1; shift
    "$AMPTRAIN" -c run.ini -s data.format=folder "$@" >out 2>err
    got=$?
    cat err
    { [ $got = 3 ] || [ $got = 2 ]; } && grep -qF -e "$words" err
}
wrong() { name=$1; shift; ok "$name" refused "$@"; }

fresh numbers
wrong "a value that is no class" ".png: value 2 of the mask is no class: 193 pixels" -s data.classes=2
wrong "names for fewer classes" ".png: value 2 of the mask is no class: 193 pixels" -s data.classes=sky,road
wrong "255 that is not left out" "value 255 of the mask is no class" -s data.classes=3 -s data.ignore=none
wrong "255 that should be a class" "masks have the value 255, which can be no class" -s data.ignore=none
wrong "a class named twice" "data.classes: class 'a' is named twice" -s data.classes=a,b,a
wrong "a class without a name" "data.classes: a class without a name" -s data.classes=a,,b
wrong "a file of names that is not there" "names.txt: cannot be read: No such file" -s data.classes=names.txt
wrong "a palette that is not there" "p.txt: cannot be read: No such file" -s data.palette=p.txt
# palette LINES WORDS
palette() {
    printf -- "$2" >p.txt
    wrong "palette: $1" "$3" -s data.palette=p.txt
}
palette "empty" '' "p.txt: names no class"
palette "a line without =" '0 = a\n1 b\n' "p.txt:2: '1 b' is no line VALUE = CLASS"
palette "no class" '0 =\n' "p.txt:1: no class behind '0 ='"
palette "no value" '= road\n' "p.txt:1: '' is no value"
palette "a negative value" '-1 = road\n' "p.txt:1: '-1' is no value"
palette "a value above 65535" '65536 = road\n' "p.txt:1: '65536' is no value"
palette "a colour of two parts" '1 2 = road\n' "p.txt:1: '1 2' is no value"
palette "a colour above 255" '1 2 256 = road\n' "p.txt:1: '1 2 256' is no value"
palette "a wrong hexadecimal colour" '#80408g = road\n' "p.txt:1: '#80408g' is no value"
palette "a value twice" '0 = a\n1 = b\n0 = b\n' "p.txt:3: '0' is already in line 1"
palette "a colour twice, in two forms" '128 64 128 = a\n#804080 = b\n' "p.txt:2: '#804080' is already in line 1"
palette "all is ignored" '0 = ignore\n' "p.txt: names no class"
palette "a value that is not there" '0 = a\n1 = b\n255 = ignore\n' ".png: value 2 of the mask is no class: 193 pixels"
palette "colours for numbers" '0 0 0 = a\n1 1 1 = b\n' ".png: colour 255 255 255 of the mask is no class: "
fresh colours
wrong "colours without a palette" "set/masks/0.png: the mask has colours; data.palette = FILE says which class each of them is"
palette "a colour that is not there" '0 0 0 = a\n128 64 128 = b\nother = ignore\n#00c801 = c\n#00c800 = d\nother = a\n' "p.txt:6: 'other' is already in line 3"
palette "... of some pixels" '0 0 0 = a\n128 64 128 = b\n255 255 255 = ignore\n' ".png: colour 0 200 0 of the mask is no class: 193 pixels"
fresh two
cp wide/masks/3.png set/masks/3.png
wrong "a mask of another size" "set/images/3.png: 48x40 pixels, but the mask has 50x40"
fresh two; rm set/masks/4.png
wrong "an image without a mask" "set/images: 1 of 6 images have no mask, such as 4.png: there is no set/masks/4.png"
fresh two; cp set/masks/4.png set/masks/4_mask.png
wrong "two masks for an image" "set/masks: two masks for the image 4.png: 4.png and 4_mask.png"
fresh two; cp set/images/4.png set/images/4.jpg
wrong "two images for a mask" "4.jpg and 4.png would have the same mask"
fresh two; mv set/masks set/other
wrong "no folder of masks" "set: has images, but no folder masks, labels, annotations or annot beside it"
fresh two; mv set/images set/other
wrong "no folder of images" "set: has no folder images, with one of masks beside it"
fresh two; cp -r set/masks set/labels
wrong "two folders of masks" "set: two folders of masks: set/masks and set/labels"
fresh two; rm set/images/*
wrong "no image" "set/images: no PNG, JPEG, WebP or TIFF image in it"
fresh two; for i in 0 1 2 3 4 5; do head -c 60 two/masks/$i.png >set/masks/$i.png; done
wrong "masks that are cut off" "; nor can any other mask be read"
fresh two; for i in 0 1 2 3 4 5; do echo no >set/masks/$i.png; done
wrong "masks that are no images" "set/masks/0.png: the mask is no PNG file; nor can any other mask be read"
fresh two; cp "$top_srcdir/tests/fuzz/corpus/jpeg/30a1fcf2" set/masks/1.png
wrong "a mask that is a JPEG" "set/masks/1.png: the mask is a JPEG file; masks are PNG files, which keep every value"
fresh two; printf 'II*\0abcdefgh' >set/masks/1.png
wrong "a mask that is a TIFF" "set/masks/1.png: the mask is a TIFF file"
fresh two; cp numbers/masks/3.png set/masks/1.png
wrong "another kind among 0 and 255" "set/masks/1.png: value 2 of the mask is no class: 193 pixels" -s data.classes=2
fresh two; mkdir -p val/images val/masks && cp two/images/1.png val/images/1.png && cp numbers/masks/2.png val/masks/1.png
ok "... among validation masks" says_wrong "val/masks/1.png: value 1 of the mask is no class: 193 pixels" \
    -s data.val=val --check
table() { printf "$2" >set/t.csv; wrong "table: $1" "$3" -s data.format=csv -s data.train=set/t.csv; }
fresh numbers
table "no masks" 'path,label\nimages/0.png,a\n' "t.csv:1: no column 'mask' for data.task = segment"
table "a mask is missing" 'path,mask\nimages/0.png,masks/0.png\nimages/1.png,\n' "t.csv:3: column 'mask' is empty"
table "two columns of masks" 'path,mask,Mask\nimages/0.png,masks/0.png,masks/1.png\n' "t.csv:1: two columns of masks: 'mask' and 'Mask'"
table "files that are not there" 'path,mask\nimages/0.png,none.png\n' "none.png: No such file"
archive() { tar -cf set/a.tar -C set $2; wrong "archive: $1" "$3" -s data.format=packed -s data.train=set/a.tar; }
fresh numbers; for i in 0 1 2; do mv set/images/$i.png set/$i.png; mv set/masks/$i.png set/$i.mask.png; done
archive "an image without a mask" "0.png 0.mask.png 1.png" "images without exactly one mask (KEY.mask.png): 1, such as 1"
archive "no masks" "0.png 1.png" "images without exactly one mask (KEY.mask.png): 2"
cp set/0.mask.png set/0.MASK.png
archive "two masks" "0.png 0.mask.png 0.MASK.png" "0.MASK.png is a second label of the same sample"
wrong "a class of each image" "digits: has a class for each image, not a mask for each image" -s data.format=digits -s data.train=
finish
