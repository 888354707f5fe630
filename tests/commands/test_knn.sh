#!/bin/sh
# eval --knn: the nearest neighbours among the training images, by features, as awk finds them.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" all || exit 1
mkdir -p train/apple train/pear val/apple val/pear
for class in apple pear; do
    mv all/$class/*[02468].png train/$class/ && mv all/$class/*.png val/$class/ || exit 1
done
cat >pooled.ini <<'END_OF_MODEL'
[input]
channels = 3
size = 28
[layers]
conv1 = conv input filters=8 kernel=3 stride=2
relu1 = relu conv1
pool = globalavgpool relu1
fc = linear pool units=$classes
END_OF_MODEL
"$AMPTRAIN" -q -s data.format=folder -s data.train=train -s data.val=val -s augment.crop=28 \
    -s model.file=pooled.ini -s train.epochs=1 -s train.batch=8 -s run.device=cpu -s log.tensorboard=no \
    -o run || exit 1
images=$(ls val/*/*.png | wc -l)

knn() { "$AMPTRAIN" eval --weights run --knn "$@" >out 2>err || { cat err; return 1; }; }
has() { grep -qE -e "$1" "$2" || { cat "$2"; return 1; }; }
# expected K: the number of images that awk finds right, by the features that embed writes.
rows() { "$AMPTRAIN" embed -q --weights run -o "$1.npy" "$1" && tail -c +129 "$1.npy" | od -An -v -t f4 -w32 |
    paste "$1.txt" -; }
expected() {
    rows train >train.rows && rows val >val.rows && awk -v k="$1" '
        { split($1, path, "/"); length2 = 0
          for (i = 2; i <= 9; i++) length2 += $i * $i
          for (i = 2; i <= 9; i++) $i /= sqrt(length2) }
        FILENAME == ARGV[1] { class[n] = path[2]; for (i = 2; i <= 9; i++) x[n, i] = $i; n++; next }
        { for (t = 0; t < n; t++) {
              cosine[t] = used[t] = 0
              for (i = 2; i <= 9; i++) cosine[t] += x[t, i] * $i
          }
          votes["apple"] = votes["pear"] = 0
          for (j = 0; j < k; j++) {
              best = -1
              for (t = 0; t < n; t++) if (!used[t] && (best < 0 || cosine[t] > cosine[best])) best = t
              used[best] = 1; votes[class[best]] += exp(cosine[best] / 0.07)
          }
          right += (votes["apple"] >= votes["pear"] ? "apple" : "pear") == path[2] }
        END { print right }' train.rows val.rows
}
for k in 1 3 20; do
    as_awk() { right=$(expected $k) && knn $k --json && has "\"errors\":$((images - right))," out; }
    ok "$k neighbours" as_awk
done
ok "... among all classes" has '"errors":[0-9]*,"top1":[0-9.]*,"top5":1,"loss":null,"knn":20' out
itself() { knn 1 --val train && has "^[0-9]* images, 0 errors: top1 100.00 %" out; }
ok "the nearest neighbour of a training image is itself" itself
ok "... as text says" has "by 1 nearest neighbour" out
records() {
    knn 3 -o out-3 && has '"event":"eval",.*"knn":3' out-3/metrics.jsonl && [ -s out-3/confusion.csv ]
}
ok "its records" records
# A backbone of another library, without its classifier, and other classes.
backbone() {
    "$AMPTRAIN" -q -s data.format=digits -s data.limit=20 -s model.arch=resnet20 -s train.epochs=1 \
        -s train.batch=10 -s run.device=cpu -o digits &&
        "$AMPTRAIN" eval --weights digits --knn 5 -s data.format=folder -s data.train=train -s data.val=val \
            -s augment.val_crop=28 >out && has "^$images images" out
}
ok "weights of other classes" backbone
refuses() { words=$1; shift; says 2 "$words" "$AMPTRAIN" eval --weights run "$@"; }
ok "more neighbours than images" refuses "there are $(ls train/*/*.png | wc -l) training images" --knn 1000
results() { "$AMPTRAIN" eval -q --weights run --knn 5 --results r.csv >out && [ "$(wc -l <r.csv)" = $((images + 1)) ]; }
ok "the result of each image" results
ok "no number" refuses "knn" --knn many
ok "with logits" refuses "--knn excludes" --knn 3 --logits x.npy
ok "with mirror images" refuses "--knn excludes" --knn 3 --flip
ok "of training images" refuses "--knn excludes" --knn 3 --split train
finish
