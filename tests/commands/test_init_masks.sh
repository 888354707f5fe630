#!/bin/sh
# init knows how images and masks lie in folders, which kind of masks they are, and says so in a configuration.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

make() { # FOLDER KIND [IMAGES MASKS [ENDINGS]]: twelve pairs of 48x64
    folder=$1 kind=$2; shift 2
    mkdir -p "$folder/${1-images}" "$folder/${2-masks}" &&
        "$top_builddir/tests/support/make_masks" "$folder" "$kind" 12 48 64 "$@"
}
init() { rm -f out.ini out.palette; "$AMPTRAIN" init "$@" -o out.ini 2>err || { cat err; return 1; }; cat err; }
has() { grep -E "$1" "${2:-out.ini}" || { cat "${2:-out.ini}"; return 1; }; }

make two two || exit 1
ok "images and masks" init two
ok "... are a task" has '^task = segment '
ok "... with the kind of masks" has 'masks of 2 classes \(0 and 255\)'
ok "... and shares of pixels" has '^# background [0-9.]* %, foreground [0-9.]* %$'
ok "... and names" has '^classes = background,foreground '
ok "... crops that show something" has '^foreground = 0.33 '
ok "... of three quarters" has '^crop = 32 '
ok "... and a holdout" has '^val_fraction = 0.2 '
ok "... in lines of 80 characters" sh -c '! grep -E ".{81}" out.ini'
ok "... on standard output, too" sh -c '"$AMPTRAIN" init two -q | grep "^task = segment "'
make numbers numbers || exit 1
ok "numbers" init numbers
ok "... are counted" has '^classes = 3 '
ok "... 255 is left out" has '^ignore = 255 '
make palette palette
ok "indices of a palette" init palette
ok "... which is said" has '\(numbers, with a palette\)'
make sparse sparse
ok "few of many numbers" init sparse
ok "... need a palette" has '^palette = out.palette '
sed 's/  *;.*//' out.palette >values
ok "... of the values, by frequency" sh -c 'printf "0 = class0\n50 = class1\n100 = class2\n255 = ignore\n" | diff - values'
make colours colours
ok "colours" init colours
ok "... need a palette" has '^palette = out.palette '
ok "... black first" sh -c 'head -n 1 out.palette | grep "^0 0 0 = class0 "'
ok "... which is read" has '^128 64 128 = class1 .*pixels$' out.palette
ok "... and is not written over" says 2 "out.palette: exists" sh -c 'rm out.ini; "$AMPTRAIN" init colours -o out.ini'
ok "... needs a file" says 2 "use -o FILE.ini" "$AMPTRAIN" init colours
cp -r colours mixed && cp two/masks/0.png mixed/masks/0.png
ok "colours and numbers" says 3 "some masks have colours, and some have numbers" "$AMPTRAIN" init mixed -o mixed.ini
cp -r numbers broken && echo no >broken/masks/3.png
ok "a mask that cannot be read" init broken
ok "... is named" grep "broken/masks/3.png: the mask is no PNG file; masks that cannot be read: 1$" err
rm broken/masks/*; for i in 0 1 2 3 4 5 6 7 8 9 10 11; do echo no >broken/masks/$i.png; done
ok "... nor any" says 3 "nor can any other mask be read" "$AMPTRAIN" init broken

# Layouts: TRAIN and VAL are where the splits are.
splits() { init layout && has "^train = layout/$1 " && has "^val = layout/$2 " && has 'classes = 3 '; }
layout() {
    rm -rf layout && mkdir layout
}
layout; make layout/train numbers && make layout/Val numbers
ok "train and val" splits train Val
layout; make layout numbers train trainannot && make layout numbers val valannot && make layout numbers test testannot
ok "train and trainannot" splits train val
layout; make layout numbers images/training annotations/training && make layout numbers images/validation \
    annotations/validation
ok "images/training and annotations/training" splits images/training images/validation
layout; make layout numbers img_dir/train ann_dir/train && make layout numbers img_dir/val ann_dir/val
ok "img_dir and ann_dir" splits img_dir/train img_dir/val
layout; for split in train val; do
    make layout numbers leftImg8bit/$split/city gtFine/$split/city _leftImg8bit _gtFine_labelIds
done
cityscapes() { init layout && has '^train = layout/leftImg8bit/train ' && has '\(Cityscapes\)' &&
    has '^7 = road$' out.palette && has '^other = ignore ' out.palette; }
ok "leftImg8bit and gtFine, with Cityscapes' classes" cityscapes
layout; make layout palette JPEGImages SegmentationClass && mkdir -p layout/ImageSets/Segmentation &&
    seq 0 7 >layout/ImageSets/Segmentation/train.txt && seq 8 11 >layout/ImageSets/Segmentation/val.txt
voc() { init layout && has '^train = layout/ImageSets/Segmentation/train.txt ' && has '/val.txt ' && has '\(VOC\)' &&
    has '^1 = aeroplane$' out.palette; }
ok "JPEGImages, SegmentationClass and ImageSets, with VOC's classes" voc
ok "... by the list" has '^# 8 training images '
layout; make layout numbers && for i in 0 1; do
    mv layout/images/$i.png layout/images/0001TP_0$i.png; mv layout/masks/$i.png layout/masks/0001TP_0$i.png
done
camvid() { init layout && has '^10 = bicyclist$' out.palette && has '^11 = ignore ' out.palette; }
ok "CamVid's classes" camvid
(echo image,mask; for i in 0 1 2 3 4 5 6 7; do echo "images/$i.png,masks/$i.png"; done) >numbers/table.csv
ok "a table of masks" init numbers/table.csv
ok "... is one" has '^format = csv '
printf 'path,mask,hat\nimages/0.png,1,0\nimages/1.png,0,1\n' >numbers/faces.csv
ok "a mask may be worn" init numbers/faces.csv
ok "... as a label" has '^task = multilabel '
ok "pretrained weights" says 2 "set model.weights" "$AMPTRAIN" init two --weights none.pth
finish
