#!/bin/sh
# Images of more than 8 bits or 3 channels, as their user meets them: trained, resumed, cached, packed, predicted,
# exported, labelled by pixel; and what is refused.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

for kind in grey bands masks stacks; do "$top_builddir/tests/support/make_bands" $kind $kind 48 || exit 1; done
net() {
    cat <<END
[input]
channels = $1
size = 32
[layers]
conv1 = conv input filters=8 kernel=3 pad=1 stride=$2
norm1 = batchnorm conv1
relu1 = relu norm1
END
}
{ net 3 2; printf 'pool = globalavgpool relu1\nfc = linear pool units=$classes\n'; } >net.ini
{ net 1 1; printf 'conv = conv relu1 filters=$classes kernel=3 pad=1\n'; } >pixels.ini
cat >run.ini <<'END'
[run]
seed = 1
device = cpu
threads = 1
report = no
[data]
format = folder
train = grey
val_fraction = 0.25
channels = 1
range = 1000,1300
[augment]
crop = 28
resize = 32
flip = 0.5
mean = 0.5
std = 0.25
[model]
file = net.ini
[train]
epochs = 6
batch = 6
[optimizer]
name = adam
lr = 0.02
END
train() { rm -rf "$1"; out=$1; shift; "$AMPTRAIN" -c run.ini -o "$out" "$@" 2>said || { cat said; return 1; }; }
bands() { out=$1; shift; train "$out" -s data.train=bands -s data.channels=13 "$@"; }
best() { sed -n 's/.*"event":"end".*"best":\([0-9.]*\).*/\1/p' "$1/metrics.jsonl" | awk '{ print; exit !($1 > 0.9) }'; }
losses() { grep '"event":"epoch"' "$1/metrics.jsonl" | grep -o '"\(train\|val\)_loss": *[^,]*'; }
same() { losses "$1" >one; losses "$2" >other; [ "$(wc -l <one)" = 12 ] && cmp one other; }

ok "16 bits of grey are learned, where 8 would show nothing" train grey1
ok "... well" best grey1
ok "... and it is said that they are kept" grep -q "12 of 12 examined have more than 8 bits\|25 of 25 examined have more than 8 bits" said
ok "without a cache, on 3 threads" train grey2 -s loader.cache=none -s loader.workers=3
ok "... to the bit" same grey1 grey2
ok "a packed set" sh -c '"$AMPTRAIN" pack -q -c run.ini -s data.val_fraction=0 -o grey.pack'
ok "... is trained on" train grey3 -s data.format=packed -s data.train=grey.pack
ok "... and learned" best grey3
ok "... but not shrunk to JPEG" says 2 "--side writes JPEG files" "$AMPTRAIN" pack -c run.ini --side 16 -o small.pack
ok "13 channels in TIFF files of every layout" bands bands1
ok "... are learned" best bands1
ok "stopped in between" bands bands2 -s run.max_steps=17
ok "... and resumed" sh -c '"$AMPTRAIN" -q -c run.ini -s data.train=bands -s data.channels=13 -o bands2 -r'
ok "... to the bit" same bands1 bands2
ok "another range is another run" says 2 "range" "$AMPTRAIN" -q -c run.ini -s data.train=bands -s data.channels=13 -o bands2 -r \
    -s data.range=0,2000
right() { "$AMPTRAIN" predict --weights bands1 bands | awk '{ split($1, part, "/"); n += $2 == part[2] } END { print n; exit !(n > 44) }'; }
ok "predict finds the classes by weights alone" right
ok "a file with fewer channels names both numbers" sh -c \
    '! "$AMPTRAIN" predict --weights bands1 grey/a/0.png >out 2>&1; grep "has 1 channel, not 13" out'
ok "some bands, in their order" bands bands3 -s data.channels=auto -s data.bands=9,1,5
ok "... are learned" best bands3
ok "features have the network's width" sh -c '"$AMPTRAIN" embed -q --weights bands3 bands/a -o e.npy && grep -aq "(16, 8)" e.npy'
ok "ONNX names range and bands" sh -c '"$AMPTRAIN" export -q --weights bands3 -o net.onnx &&
    grep -aq "1000, 1300\|1000,1300" net.onnx && grep -aq bands net.onnx'
ok "... which takes numbers, not bytes" says 2 "takes bytes, but data.range reaches beyond" \
    "$AMPTRAIN" export --weights bands3 --preprocess -o bytes.onnx
ok "a tar archive" sh -c 'mkdir tar && for i in 0 1 2; do cp bands/$(echo a b c | cut -d" " -f$((i + 1)))/$i.tif tar/$i.tif
    echo $i >tar/$i.cls; done; tar -cf set.tar -C tar 0.cls 0.tif 1.cls 1.tif 2.cls 2.tif &&
    "$AMPTRAIN" eval --weights bands1 --val set.tar -s data.format=packed -s data.val_fraction=0 --json | grep "\"errors\": *0"'

refuses() { says 2 "$1" "$AMPTRAIN" --check -c run.ini -s "$2" -s "${3-train.epochs=6}"; }
ok "policies are refused" refuses "is defined on 8 bits a sample" augment.auto_augment=trivial
ok "... colours of 13 channels, too" refuses "images of 1 or 3 channels, not 13" augment.jitter='0.2 0.2 0.2' data.channels=13
ok "a range is rising" refuses "must be less than" data.range=5,5
ok "bands are whole numbers" refuses "is no number of a channel" data.bands=1.5 data.channels=auto
ok "brightness and contrast vary" train grey4 -s augment.jitter='0.01 0.01 0'

ok "init" sh -c '"$AMPTRAIN" init bands -o bands.ini 2>said && grep "99.8 % of those of 32 lie between" said && grep "^channels = 13" bands.ini &&
    grep "^range = 10[0-9]*,12[0-9]*" bands.ini && ! grep auto_augment bands.ini && "$AMPTRAIN" --check -q -c bands.ini'
segment() {
    train masks1 -s data.train=masks -s data.task=segment -s model.file=pixels.ini -s augment.resize=0 -s train.epochs=12 \
        -s augment.val_tile=28 && "$AMPTRAIN" eval --json --weights masks1 --val masks >out &&
        sed -n 's/.*"miou": *\([0-9.]*\).*/\1/p' out | head -n 1 | awk '{ print; exit !($1 > 0.9) }'
}
ok "masks of images of 16 bits" segment
ok "... predicted in tiles, drawn over the image" sh -c '"$AMPTRAIN" predict -q --weights masks1 masks/images -o drawn --overlay &&
    [ "$(ls drawn | wc -l)" = 96 ]'
{ net 2 1; printf 'conv = conv relu1 filters=$classes kernel=3 pad=1\n'; } | sed 's/channels = 1/channels = 2/' >stack.ini
stacked() {
    train stacks1 -s data.train=stacks -s data.task=segment -s model.file=stack.ini -s augment.resize=0 \
        -s train.epochs=12 -s augment.val_tile=28 -s data.channels=auto -s data.bands=4,2 -s augment.rotate=20 -s augment.vflip=0.5 &&
        "$AMPTRAIN" eval --json --weights stacks1 --val stacks >out &&
        sed -n 's/.*"miou": *\([0-9.]*\).*/\1/p' out | head -n 1 | awk '{ print; exit !($1 > 0.9) }'
}
ok "masks of images of 5 channels of 16 bits, two of them chosen, turned" stacked
ok "... predicted" sh -c '"$AMPTRAIN" predict -q --weights stacks1 stacks/images -o layers && [ "$(ls layers | wc -l)" = 48 ]'

# The library, by its examples, beside predict.
library() {
    "$AMPTRAIN" predict --weights bands1 bands/a/0.tif bands/b/1.tif | awk '{ print $2 }' >one &&
        "$top_builddir/examples/classify" bands1 bands/a/0.tif bands/b/1.tif | awk '{ print $2 }' >other && cmp one other
}
ok "the library reads 13 channels of 16 bits" library
layers() {
    "$top_builddir/examples/segment" stacks1 stacks/images/7.tif mask.pgm >said && "$AMPTRAIN" predict -q --json \
        --weights stacks1 stacks/images/7.tif -o layer | grep -o '"pixels": *{[^}]*}' | grep -o ': *[0-9]\+' | tr -d ': ' >one &&
        awk '{ print $2 }' said >other && sort one >a && sort other >b && cmp a b
}
ok "... and labels two of five by pixel" layers
finish
