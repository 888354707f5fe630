#!/bin/sh
# Images with masks as a folder, a table, packed files, shards and a tar archive: the same images, the same steps.
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
[run]
device = cpu
report = no
[data]
task = segment
format = packed
[augment]
crop = 32
flip = 0.5
foreground = 0.5
[model]
file = net.ini
[train]
epochs = 2
batch = 4
loss = dice_ce
[log]
every = 1
tensorboard = no
END
mkdir -p set/images set/masks && "$top_builddir/tests/support/make_masks" set numbers 12 40 48 || exit 1
for i in 0 1 2 3 4 5 6 7 8 9; do mv set/images/$i.png set/images/0$i.png; mv set/masks/$i.png set/masks/0$i.png; done
(echo image,mask; cd set && for i in images/*; do echo "$i,masks/${i#images/}"; done) >set/t.csv
mkdir flat && for i in set/images/*; do
    name=${i##*/}
    cp "$i" "flat/$name" && cp "set/masks/$name" "flat/${name%.png}.mask.png"
done
(cd flat && tar -cf ../flat.tar -- *)

train() { # FOLDER [OPTION...]
    out=$1; shift
    rm -rf "$out"; "$AMPTRAIN" -q -c run.ini -o "$out" "$@"
}
steps() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$1/metrics.jsonl"; }
same() { train other "$@" && steps whole >a && steps other >b && [ -s a ] && cmp a b; }
pack() { "$AMPTRAIN" pack -q -c run.ini "$@"; }
checked() { "$AMPTRAIN" -c run.ini --check "$@" 2>err >out || { cat err; return 1; }; sed -n 's/^pixels of/pixels/p' err; }

ok "a folder" train whole -s data.format=folder -s data.train=set
ok "... a table" same -s data.format=csv -s data.train=set/t.csv
ok "... a tar archive" same -s data.train=flat.tar
ok "pack" pack -s data.format=folder -s data.train=set -s data.classes=sky,road,lane -o set.pack
ok "... trains the same steps" same -s data.train=set.pack
ok "... with the names of classes" sh -c '
    "$AMPTRAIN" -c run.ini --check -s data.train=set.pack 2>&1 >out | grep "^pixels of 12 training masks: sky 9.*, road .*, lane .*, ignored "'
shares() {
    checked -s data.train=set.pack >a && checked -s data.format=folder -s data.train=set -s data.classes=sky,road,lane >b &&
        [ -s a ] && cmp a b
}
ok "... and the shares of the folder" shares
ok "pack from a table" pack -s data.format=csv -s data.train=set/t.csv -s data.classes=sky,road,lane -o table.pack
ok "... is the same file" cmp set.pack table.pack
ok "pack from packed" pack -s data.train=set.pack -o again.pack
ok "... is the same file, too" cmp set.pack again.pack
mkdir shards
ok "shards" pack -s data.train=flat.tar --shards 3 -o shards/set.pack
ok "... train the same steps" same -s data.train=shards
ok "smaller images" pack -s data.train=set.pack --side 32 -o small.pack
ok "... and smaller masks" sh -c '"$AMPTRAIN" -c run.ini --check -s data.train=small.pack 2>&1 >out | grep "12 training masks: sky 9"'
ok "... can be trained" train small -s data.train=small.pack
mkdir -p two/images two/masks && "$top_builddir/tests/support/make_masks" two two 6 40 48 || exit 1
ok "masks of 0 and 255 are packed" pack -s data.format=folder -s data.train=two -o two.pack
ok "... as their classes" sh -c '
    "$AMPTRAIN" -c run.ini --check -s data.train=two.pack 2>&1 >out | grep "^pixels of 6 training masks: background .*, foreground"'
mkdir -p colours/images colours/masks && "$top_builddir/tests/support/make_masks" colours colours 6 40 48 || exit 1
printf '0 0 0 = sky\n128 64 128 = road\n#00c800 = lane\n255 255 255 = ignore\n' >p.txt
ok "masks of colours" pack -s data.format=folder -s data.train=colours -s data.palette=p.txt -o colours.pack
ok "... as their classes" sh -c '
    "$AMPTRAIN" -c run.ini --check -s data.train=colours.pack 2>&1 >out | grep "^pixels of 6 training masks: sky .*, road .*, lane .*, ignored"'
cp two/masks/1.png set/masks/01.png
ok "a wrong mask" says 3 "set/masks/00.png: value 255 of the mask is no class: 112 pixels" pack -s data.format=folder -s data.train=set -s data.ignore=none \
    -s data.classes=3 -o wrong.pack
cp set/masks/02.png set/masks/01.png; printf no >set/masks/03.png
ok "a mask that cannot be read is left out" says 0 "set/masks/03.png: the mask is no PNG file: left out" \
    pack -s data.format=folder -s data.train=set -s data.classes=3 -o left.pack
finish
