#!/bin/sh
# A network that labels pixels: whole images are evaluated and predicted in tiles, whatever their size; masks
# are written as they were read.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

cat >pixels.ini <<'END'
[input]
channels = 3
size = 16
[layers]
down = conv input filters=8 kernel=3 pad=1
relu = relu down
pool = maxpool relu kernel=2 stride=2
deep = conv pool filters=12 kernel=3 pad=1
act = relu deep
up = upsample act like=relu mode=bilinear
cat = concat relu up
head = conv cat filters=$classes kernel=1
END
make() { # FOLDER KIND COUNT H W
    mkdir -p "$1/images" "$1/masks" && "$top_builddir/tests/support/make_masks" "$1" "$2" "$3" "$4" "$5"
}
for kind in two colours; do make $kind $kind 12 48 64 && make val-$kind $kind 5 37 71 || exit 1; done
make one two 1 1 1 && cp one/images/0.png val-two/images/tiny.png && cp one/masks/0.png val-two/masks/tiny.png || exit 1
printf '0 0 0 = ground\n128 64 128 = disc\n0 200 0 = other\n255 255 255 = ignore\n' >colours.palette
for kind in two colours; do
    sed -e "s/^format.*/format = folder\ntask = segment\ntrain = $kind\nval = val-$kind/" -e 's/^crop.*/crop = 16/' \
        -e 's/^file.*/file = pixels.ini/' -e 's/^batch.*/batch = 6/' -e 's/^precision.*/precision = fp32/' \
        -e 's/^accumulate.*/accumulate = 1/' -e 's/^name = sgd/name = adam/' -e 's/^lr.*/lr = 0.02/' \
        -e 's/^threads.*/threads = 2/' run.ini >$kind.ini
done
sed -i 's/^task = segment/&\npalette = colours.palette/' colours.ini
has() { grep -E "$1" "${2:-out}" || { cat "${2:-out}"; return 1; }; }

for kind in two colours; do
    ok "$kind: trained" "$AMPTRAIN" train -c $kind.ini -o run-$kind -s log.tensorboard=yes
    ok "... with its metrics" has '"val_loss":[0-9.]*,"val_miou":[01][0-9.]*,"val_dice":[01][0-9.]*,"val_pixel_accuracy":[01][0-9.]*' run-$kind/metrics.jsonl
    ok "... and the IoU of each class" has '"per_class":\[[0-9.,]*\]' run-$kind/metrics.jsonl
    ok "... and a confusion of pixels" has '^"*true.*predicted' run-$kind/confusion.csv
    ok "$kind: predicted" sh -c "\"$AMPTRAIN\" predict --weights run-$kind val-$kind/images -o pred-$kind --json >out"
    ok "... with counts" has '"file":"val-[a-z]*/images/0.png","mask":"pred-[a-z]*/0.png","height":37,"width":71,"pixels":\{'
    # Predictions taken as the truth are right everywhere: they have its values, and evaluation sees the same.
    mkdir -p again-$kind && cp -r val-$kind/images again-$kind/images && cp -r pred-$kind again-$kind/masks
    ok "... as evaluated, in the values of masks" sh -c "\"$AMPTRAIN\" eval --weights run-$kind --val again-$kind --json >out"
    ok "... to the pixel" has '"miou":1,"dice":1,"pixel_accuracy":1,'
done
weights="--weights run-two"
eval_() { "$AMPTRAIN" eval $weights "$@" --json >out 2>err || { cat err; return 1; }; }
predict() { "$AMPTRAIN" predict $weights "$@" >out 2>err; }
ok "eval" eval_ -o ev
ok "... has all of INTERFACE" has '"images":6,.*"miou":.*"dice":.*"pixel_accuracy":.*"loss":.*"pixels":13136,"per_class":\[\{"class":"background","pixels":[0-9]*,"iou":[0-9.]*,"dice":'
ok "... counts every pixel" sh -c "tail -n +2 ev/confusion.csv | tr , '\n' | awk '/^[0-9]/ { n += \$1 } END { exit n != 13136 }'"
cp out whole
ok "... in batches of any size" sh -c "\"$AMPTRAIN\" eval $weights -s memory.limit=1M --json >out 2>err && cmp whole out || { cat out err; exit 1; }"
ok "... within a limit" says 4 "memory.limit: 1.0 MiB is not enough for tiles of 256x256" "$AMPTRAIN" eval $weights -s memory.limit=1M -s augment.val_tile=256
ok "... mirrored, too" eval_ --flip
ok "... other tiles" eval_ -s augment.val_tile=24x32 -s augment.val_overlap=0.25
results() {
    eval_ --results r.csv && head -n 1 r.csv | grep -x 'name,"background","foreground"' && [ "$(wc -l <r.csv)" = 7 ] &&
        sed 1d r.csv | tee lines | grep -cE '^".*[a-z0-9].png",[0-9.e-]*,[0-9.e-]*$' | grep -qx 6 || { cat lines; return 1; }
}
ok "... with the IoU of each image" results
ok "... without logits" says 2 "predict --probabilities" "$AMPTRAIN" eval $weights --logits l.npy

# The plan has evaluations, and the run keeps to it.
"$AMPTRAIN" plan -c two.ini -s log.tensorboard=yes --json >out
ok "plan: evaluations" has '"evaluation":\{"tile":\[16,16\],"tiles":6,"total_bytes":[0-9]+\}'
total() { grep -o '"total_bytes":[0-9]*' "$1" | head -n "$2" | tail -n 1; }
ok "... are in the total, which the run takes" [ "$(sed 's/"evaluation":{[^}]*},//' out | total - 1)" = "$(total run-two/metrics.jsonl 1)" ]
ok "... in words" sh -c '"$AMPTRAIN" plan -c two.ini | grep "evaluation alone .* images of any size, 6 tiles of 16x16 at a time"'

# ONNX: images of any size, and what comes of a pixel.
export_() { rm -f out.onnx; "$AMPTRAIN" export $weights -o out.onnx "$@" 2>err && tr -dc '[:print:]' <out.onnx >out || { cat err; return 1; }; }
ok "ONNX" export_
ok "... of any height and width" sh -c 'grep -q "height.*width" out && grep "Nx3xHxW, logits of 2 classes" err'
ok "... resized to a layer's size" grep -q Shape out
ok "... probabilities" export_ --softmax
ok "... which are said" has 'probabilities of 2 classes' err
ok "... classes" export_ --argmax
ok "... as bytes" sh -c 'grep -q ArgMax out && grep "the most probable of 2 classes" err'
ok "... not both" says 2 "exclude each other" "$AMPTRAIN" export $weights -o both.onnx --softmax --argmax

# Ranks share images; nothing depends on how many they are.
epochs() { sed -n 's/.*"event":"epoch".*\("val_loss":.*"val_pixel_accuracy":[^,]*\).*/\1/p' "$1/metrics.jsonl"; }
ranks() { "$AMPTRAIN" train -c two.ini -o run-$1 -s train.epochs=2 -s parallel.gpus=$1 -s train.accumulate=$((2 / $1)) && epochs run-$1 >$1.txt; }
ok "one rank" ranks 1
ok "two ranks" ranks 2
ok "... see the same" cmp 1.txt 2.txt

ok "overlay and probabilities" predict val-two/images/0.png -o all --overlay --probabilities --flip
ok "... are written" [ -s all/0.png -a -s all/0.overlay.png ]
ok "... of all classes" has "'shape': \(37, 71, 2\)" all/0.npy
ok "... of that size" [ "$(wc -c <all/0.npy)" -eq $((128 + 37 * 71 * 2 * 4)) ]
mkdir -p deep/a/b && cp val-two/images/0.png deep/a/b/x.png && cp val-two/images/1.png deep/y.png
ok "folders keep their paths" predict deep -o below
ok "... below the one that is named" [ -s below/a/b/x.png -a -s below/y.png ]
ok "a text for people" has '^deep/y.png: below/y.png, 71x37, background [0-9.]* %'
ok "images that are made smaller" predict val-two/images/0.png -o resized -s augment.val_resize=24 --overlay --json
ok "... have masks of their own size" has '"height":37,"width":71'
cp deep/y.png deep/a/y.png
ok "two of one name" says 2 "would both be written to twice/y.png" "$AMPTRAIN" predict $weights deep/y.png deep/a/y.png -o twice
ok "... before anything is written" [ ! -e twice ]
ok "images are not replaced" says 2 "would replace it" "$AMPTRAIN" predict $weights deep -o deep
echo nothing >deep/a/bad.png
ok "a bad image" says 3 "deep/a/bad.png: neither PNG" "$AMPTRAIN" predict $weights deep -o below --json
"$AMPTRAIN" predict $weights deep -o below --json >out 2>err
ok "... is a record" has '"file":"deep/a/bad.png","error":"neither PNG'
ok "... the others have masks" [ "$(grep -c '"mask":"below/' out)" -eq 3 ]
mkdir -p taken/0.png
ok "a mask that cannot be written" says 1 "taken/0.png" "$AMPTRAIN" predict $weights val-two/images -o taken
ok "... whose records are not printed" [ ! -s out ]
ok "no folder" says 2 "-o FOLDER" "$AMPTRAIN" predict $weights deep
ok "options of classes" says 2 "--top has no meaning" "$AMPTRAIN" predict $weights deep -o below --top 2
ok "a tile that is none" says 2 "predict: --tile" "$AMPTRAIN" predict $weights deep -o below --tile 0
finish
