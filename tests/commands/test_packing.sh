#!/bin/sh
# amptrain pack: a packed data set trains as what it was packed from does.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
cat >pictures.ini <<'END_OF_INI'
[data]
format = folder
train = pictures
[model]
arch = resnet20
[train]
batch = 4
epochs = 1
[log]
every = 1
tensorboard = no
END_OF_INI
pack() { "$AMPTRAIN" pack -q -c pictures.ini "$@"; }
losses() { sed -n 's/.*"event":"step".*"loss":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
trains_alike() {
    "$AMPTRAIN" -q -c pictures.ini -o from-folder -s loader.workers=1 || return 1
    "$AMPTRAIN" -q -c pictures.ini -s data.format=packed -s data.train="$1" -o "$2" -s loader.workers=3 ||
        return 1
    losses from-folder >a && losses "$2" >b && [ -s a ] && cmp a b
    status=$?
    rm -r from-folder
    return $status
}

ok "files packed unchanged" pack -o all.pack
ok "... give the same losses in training" trains_alike all.pack from-file
ok "packing needs no network and no full batch" sh -c '
    "$AMPTRAIN" pack -q -s data.format=folder -s data.train=pictures -o alone.pack && cmp alone.pack all.pack'
ok "packed into shards" sh -c '
    mkdir shards && "$AMPTRAIN" pack -q -c pictures.ini --shards 3 -o shards/x.pack &&
    [ "$(ls shards)" = "$(printf "x-0000.pack\nx-0001.pack\nx-0002.pack")" ]'
ok "... give the same losses in training" trains_alike shards from-shards
ok "fewer shards replace an earlier set completely" sh -c 'mkdir fewer &&
    "$AMPTRAIN" pack -q -c pictures.ini --shards 4 -o fewer/x.pack && cp fewer/x-0003.pack kept &&
    "$AMPTRAIN" pack -c pictures.ini --shards 2 -o fewer/x.pack 2>said; cat said
    [ "$(ls fewer)" = "$(printf "x-0000.pack\nx-0001.pack")" ] && grep -q "x-0003.pack: removed" said &&
    grep -q "x.pack: 2 files of an earlier set replaced" said'
packs() { "$AMPTRAIN" -q -c pictures.ini -s data.format=packed -s data.train="$1" -o refused; }
cp kept fewer/x-0003.pack
ok "a shard of another set is refused" says 3 "fewer: x-0003.pack is not from the same set as x-0000.pack" \
    packs fewer
mv fewer/x-0003.pack fewer/x-0002.pack
ok "... but files that are not of that set are not removed" \
    says 3 "fewer/x-0002.pack: has the name of one of" pack --shards 2 -o fewer/x.pack
cp fewer/x-0001.pack own && echo mine >fewer/x-0001.pack
rm fewer/x-0002.pack
ok "... nor is another file replaced" says 3 "fewer/x-0001.pack: has the name of one of" pack --shards 2 \
    -o fewer/x.pack
cp own fewer/x-0001.pack
rm fewer/x-0000.pack
ok "a missing shard is named" says 3 "fewer: shard 0000 of 2 is missing" packs fewer
ok "packed again" "$AMPTRAIN" pack -q -c pictures.ini -s data.format=packed -s data.train=shards -o again.pack
ok "... to the same bytes" cmp all.pack again.pack
ok "packed with --side" pack --side 16 --quality 80 -o small.pack
ok "... can be trained" "$AMPTRAIN" -q -c pictures.ini -s data.format=packed -s data.train=small.pack

# A picture that Exif says to turn, and the same without its Exif, which is 36 bytes long.
turned=$top_srcdir/tests/fuzz/corpus/jpeg/30a1fcf2
mkdir -p turned/a stored/a && cp "$turned" turned/a/1.jpg || exit 1
{ head -c 2 "$turned" && tail -c +39 "$turned"; } >stored/a/1.jpg
shrinks() { folder=$1; shift; pack -s data.train="$folder" --side 8 "$@"; }
ok "--side after applying the Exif orientation" shrinks turned -o upright.pack
ok "... or to the stored image" shrinks turned -s data.orientation=ignore -o ignored.pack
ok "... as without Exif" eval 'shrinks stored -o stored.pack && cmp ignored.pack stored.pack'
exits "... which differs from the rotated one" 1 cmp -s ignored.pack upright.pack

ok "packing images that are not files" "$AMPTRAIN" pack -q -c run.ini -o digits.pack
ok "... can be trained" "$AMPTRAIN" -q -c run.ini -s data.format=packed -s data.train="$PWD/digits.pack" -s \
    data.val_fraction=0.2
exits "an output that cannot be written" 2 pack
exits "an unknown split" 2 pack --split test -o x.pack
exits "no validation images" 3 pack --split val -o x.pack
exits "more shards than images" 2 pack --shards 9999 -o x.pack
exits "a quality above 100" 2 pack --quality 101 -o x.pack
exits "a side above 65536" 2 pack --side 65537 -o x.pack
exits "a missing folder" 1 pack -o nowhere/x.pack
head -c 2000 all.pack >cut.pack
exits "a truncated file" 3 "$AMPTRAIN" -q -c pictures.ini -s data.format=packed -s data.train=cut.pack
[ ! -e x.pack ] && [ -z "$(find . -name "x.pack*tmp")" ]
ok "no incomplete output is left" sh -c '[ ! -e x.pack ] && [ -z "$(find . -name "x.pack*tmp")" ]'
cp -r pictures broken
for class in broken/*; do echo "no image" >"$class/zz.png"; printf '\211PNG\r\n\032\n' >"$class/zy.png"; done
ok "unusable images are left out with --side" sh -c '
    "$AMPTRAIN" pack -c pictures.ini -s data.train=broken --side 16 -o broken.pack 2>said
    cat said; grep -q "left out" said'
exits "... or end packing (on_error=stop)" 3 "$AMPTRAIN" pack -q -c pictures.ini -s data.train=broken -s \
    data.on_error=stop --side 16 -o b.pack
finish
