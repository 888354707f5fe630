#!/bin/sh
# Configurations that cannot be: each is refused with the key and what is wrong about it.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# refused WORDS OVERRIDE...
refused() {
    words=$1; shift
    for override; do set -- "$@" -s "$override"; shift; done
    ok "$words" says 2 "$words" "$AMPTRAIN" -q -c run.ini "$@"
}

refused "data.format is not set" data.format=
refused "data.format: there is no 'xyzzy'" data.format=xyzzy
refused "model.arch is not set" model.file=
refused "model.arch and model.file cannot be combined" model.arch=lenet5
refused "data.val_fraction: cannot be combined with data.val" data.val_fraction=0.1 data.val=there
refused "data.classes: the data have 10" data.classes=11
refused "model.classes: 5 are too few; the data have 10" model.classes=5
refused "augment.mean: 2 numbers for images of 1 channels" augment.mean=0.1,0.2
refused "augment.scale: needs augment.crop, the size to resize to" augment.scale=0.5,1 augment.crop=0
refused "augment.jitter: takes three or four numbers" augment.jitter=0.1,0.2
refused "augment.jitter: the fourth number, of the hue, is at most 0.5" augment.jitter=0,0,0,0.9
refused "optimizer.name: there is no 'xyzzy', only sgd, adam" optimizer.name=xyzzy
refused "optimizer.nesterov: needs a momentum above 0" optimizer.nesterov=yes optimizer.momentum=0
refused "optimizer.nesterov: is for sgd, lars and muon, not for rmsprop" optimizer.nesterov=yes \
    optimizer.name=rmsprop \
    optimizer.momentum=0.9
refused "optimizer.nesterov: is for sgd, lars and muon, not for adam" optimizer.nesterov=yes \
    optimizer.name=adam
sed 's/^name = sgd/&\nnesterov = yes/' run.ini >nesterov.ini
sed 's/^name = sgd/name = adam\nnesterov = yes/' run.ini >adam.ini
ok "... in the file" says 2 "adam.ini:" "$AMPTRAIN" -q -c adam.ini
ok "another optimizer is tried without the Nesterov momentum of the file" says 0 \
    "optimizer.nesterov is for sgd, lars and muon: it is off with optimizer.name = adamw" "$AMPTRAIN" -q \
    -c nesterov.ini -s optimizer.name=adamw -s train.epochs=1 -o adamw
ok "... which the run's configuration no longer has" grep -q '^nesterov = no$' adamw/config.ini
ok "... so that it can be resumed" "$AMPTRAIN" -q -r -o adamw -s train.epochs=2
refused "amp.min_scale is above amp.max_scale" amp.min_scale=8 amp.max_scale=4
refused "amp.init_scale: must be between amp.min_scale and amp.max_scale" amp.max_scale=1024
refused "schedule.name: there is no 'cosin'; did you mean 'cosine'?" schedule.name=cosin
refused "train.accumulate: 4294967296 micro-batches a step are more than" train.accumulate=65536 \
    parallel.microbatches=65536 train.batch=auto
refused "schedule.warmup: onecycle has its own warm-up" schedule.name=onecycle schedule.warmup=1
"$top_builddir/tests/support/make_pictures" pictures
refused "train.early_stop: needs validation data" train.early_stop=2 data.format=folder \
    data.train=pictures model.classes=10 train.batch=4

# The classes that packed data sets bring along.
pack() { "$AMPTRAIN" pack -q -c run.ini -s data.format=folder -s data.train="$1" -s train.batch=4 -o "$2"; }
cp -r pictures others
mv others/apple others/apricot
pack pictures one.pack && pack others two.pack
refused_packs() {
    ok "$1" says 3 "$1" "$AMPTRAIN" -q -c run.ini -s train.batch=4 -s data.format=packed -s \
        data.train=one.pack \
        -s data.val="$2"
}
refused_packs "class 'apricot' is not one of the 2 known ones (apple, pear); the data have apricot, pear" two.pack
tried() { "$AMPTRAIN" "$@" -q -c run.ini -s train.batch=4 -s data.format=packed -s data.train=one.pack; }
tried train -s data.val=one.pack -s train.epochs=1 -s model.classes=2 -o run
ok "classes with other names" says 3 \
    "class 'apricot' is not one of the 2 known ones (apple, pear); the data have apricot, pear" \
    tried eval -s data.val=two.pack --weights run/checkpoint-last.safetensors
rm -r others/apricot
one=$(ls pictures/apple | head -n 1)
rm -r others/*
mkdir others/apple
cp "pictures/apple/$one" others/apple
refused "there are too few images to split" data.format=folder data.train=others data.val_fraction=0.5

# The beginning of a long path is left out, not what is wrong with the file.
long=$(printf 'long%.0s' $(seq 60))
mkdir -p "$long/$long"
echo no >"$long/$long/x.pack"
ok "a path longer than a message's room" says 3 "long/x.pack: neither a packed data set nor a tar archive" \
    "$AMPTRAIN" -q -c run.ini -s data.format=packed -s data.train="$long/$long/x.pack"
finish
