#!/bin/sh
# init writes a configuration that trains as it is; data sets that lie elsewhere or are packed are told so;
# the defaults alone learn.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

init() { "$AMPTRAIN" init "$@" >out.ini 2>err || { cat err; return 1; }; }
has() { grep -E "$1" "${2:-out.ini}" || { cat "${2:-out.ini}"; return 1; }; }
checks() { "$AMPTRAIN" -q -c "${1:-out.ini}" --check >/dev/null; }

"$top_builddir/tests/support/make_pictures" pictures || exit 1
ok "init of a folder of images" init pictures
fits() { ! grep -E '.{81}' "$@"; }
ok "... can be trained on" checks
ok "... with a validation fraction" has '^val_fraction = 0.2 '
ok "... in lines of 80 characters" fits out.ini
ok "... normalised by its mean and deviation" has '^mean = 0\.[0-9]* 0\.[0-9]* 0\.[0-9]* '
few() {
    rm -rf few
    for class in apple pear; do
        mkdir -p few/$class
        i=0
        while [ $i -lt "$1" ]; do cp pictures/$class/$i.png few/$class/; i=$((i + 1)); done
    done
    init few && "$AMPTRAIN" -q -c out.ini -s run.max_steps=1
}
for images in 1 2 3 5 9; do ok "$images images of a class can be trained on" few $images; done
single() { mkdir -p single/only && cp pictures/apple/0.png single/only/ && init single && checks; }
ok "... and a single image" single
uneven() { cp -r pictures uneven && rm uneven/pear/1?.png uneven/pear/2?.png uneven/pear/[0-7].png &&
    init uneven && has '^; balance = yes ' && sed -i 's/^; balance/balance/' out.ini && checks; }
ok "imbalanced classes may be balanced" uneven
mkdir -p parted && cp -r pictures parted/train && cp -r pictures parted/valid
ok "folders of training and validation images" init parted
ok "... are told apart" has '^val = parted/valid '
# splits TRAIN VAL [OTHER]: folders of these names are the two splits; the other one is said to be not used.
splits() {
    rm -rf cased && mkdir cased && cp -r pictures "cased/$1" && cp -r pictures "cased/$2" || return 1
    [ $# -lt 3 ] || cp -r pictures "cased/$3"
    init cased; cat err
    has "^train = cased/$1 " && has "^val = cased/$2 " || return 1
    [ $# -lt 3 ] || grep -qF "cased: not used: $3" err
}
for names in Training/Testing TRAIN/TEST Train/Val train/eval train/dev train/valid training/Validation \
    training_set/test_set Train-Set/Val-Set trainset/testset TRAIN_DATA/valid_data train_images/val-images; do
    ok "... as $names" splits "${names%/*}" "${names#*/}"
done
ok "... beside a test" splits train val test
ok "... beside another training" splits train val Training
mkdir flat && cp -r pictures flat/train && mkdir flat/test && cp pictures/apple/1.png flat/test
ok "a test without classes validates nothing" init flat
ok "... but a part of the training images does" has '^val_fraction = '
cp -r pictures vehicles && mv vehicles/apple vehicles/train && mv vehicles/pear vehicles/test
ok "classes may have such names" init vehicles
ok "... without folders in them" has '^train = vehicles '
ok "... can be trained on" checks
mkdir configurations
ok "a configuration in another folder" "$AMPTRAIN" init -q pictures -o configurations/my.ini
ok "... finds its images" checks configurations/my.ini
ok "... and is not overwritten" says 2 "exists" "$AMPTRAIN" init digits -o configurations/my.ini
ok "a data set by name" init cifar10
ok "... has its own recipe" has '^arch = resnet18_cifar '
ok "the digits data set" init digits
ok "... can be trained on" checks
ok "an unknown name" says 2 "did you mean cifar10?" "$AMPTRAIN" init cifar01
ok "a folder without images" says 3 "no class folders" "$AMPTRAIN" init configurations
ok "no argument" says 2 "give one folder" "$AMPTRAIN" init
# A path is quoted where it must be; config.ini has the whole of it, so that a run resumes from anywhere.
moves() {
    rm -rf odd-run && cp -r pictures "$1" && "$AMPTRAIN" init -q "$1" >odd.ini && cat odd.ini &&
        "$AMPTRAIN" -q -c odd.ini -s run.device=cpu -s model.arch=resnet20 -s augment.crop=32 \
            -s augment.val_crop=32 -s train.epochs=2 -s run.max_steps=1 -o odd-run &&
        (cd configurations && "$AMPTRAIN" -q -o ../odd-run -r -s run.max_steps=2)
}
for path in 'a ;b' ';a' 'a ' '"a"' 'a\b' "$(printf 'a\tb')" "$(printf 'a\nlimit = 5')"; do
    ok "a folder whose name has odd characters" moves "$path"
done

# Pretrained weights: here those of a run on grey images.
"$AMPTRAIN" -q -s data.format=digits -s model.arch=resnet20 -s data.limit=40 -s train.epochs=1 -s train.batch=20 \
    -s augment.mean=0.25 -s augment.std=0.5 -s run.device=cpu -o grey || exit 1
ok "weights of a run are fine-tuned" init pictures --weights grey
ok "... in the network that they are of" has '^arch = resnet20 '
ok "... which is said" grep -q "is of the network resnet20, 10 classes" err
ok "... but not the classifier" has '^weights = .* but not the classifier$'
ok "... with their normalisation" has '^mean = 0.25 0.25 0.25 '
ok "... at their size" has '^val_crop = 8 '
ok "... the classifier first" has '^freeze = conv\*, bn\*, layer\* '
ok "... few steps at a high rate" has '^lr = 0.01  *; .* high for few steps$'
ok "... in lines of 80 characters" fits out.ini
ok "... which trains" "$AMPTRAIN" -q -c out.ini -s run.max_steps=1 -s run.device=cpu
elsewhere() {
    "$AMPTRAIN" init -q pictures --weights grey/checkpoint-last.safetensors -o configurations/tuned.ini &&
        has "^weights = $scratch/grey/checkpoint-last.safetensors " configurations/tuned.ini &&
        checks configurations/tuned.ini
}
ok "... from another folder" elsewhere
ok "weights that are not there" says 5 "nowhere.pth: cannot be opened" "$AMPTRAIN" init pictures \
    --weights nowhere.pth

"$AMPTRAIN" -q -c out.ini -s run.max_steps=1 -s run.device=cpu -o tuned >/dev/null || exit 1
ok "... of as many classes: with the classifier" init pictures --weights tuned
ok "... which init says" has '^weights = .* and the classifier, by the names of its classes$'
ok "... and training" says 0 "116 of 116 tensors of the network are loaded" "$AMPTRAIN" -c out.ini --check
no_layers() { "$AMPTRAIN" -c out.ini --check -s model.drop_path=0 -s model.dropout=0 >out 2>err && ! grep drop err; }
ok "drop_path=0, dropout=0: as it has no such layers" no_layers

# Data sets as torchvision, Python or an archive leaves them.
idx() { printf '\000\000\010\003\000\000\000\001\000\000\000\002\000\000\000\002abcd'; }
labels() { printf '\000\000\010\001\000\000\000\001\003'; }
mkdir -p root/MNIST/raw python && touch python/data_batch_1 cifar.tar.gz
for split in train t10k; do
    idx >root/MNIST/raw/$split-images-idx3-ubyte
    labels >root/MNIST/raw/$split-labels-idx1-ubyte
done
train() { "$AMPTRAIN" train -s model.arch=lenet5 -s data.format="$1" -s data.train="$2" --check; }
ok "torchvision's folder of MNIST" says 3 "root: the mnist files are in its folder MNIST/raw: use that path" \
    train mnist root
ok "... init finds them" init root
ok "... where they are" has '^train = root/MNIST/raw '
ok "no folder" says 3 "mnist: no folder is given; set data.train" \
    "$AMPTRAIN" train -s model.arch=lenet5 -s data.format=mnist --check
mkdir -p zipped/MNIST/raw && touch zipped/MNIST/raw/train-images-idx3-ubyte.gz
ok "torchvision's folder of compressed files" says 3 "are in its folder MNIST/raw" train mnist zipped
both_labels() {
    "$AMPTRAIN" init root >out 2>err || return 1
    cat err
    grep "root/MNIST/raw: train-labels-idx1-ubyte and train-labels-idx1-ubyte.gz differ" err |
        grep -q "the labels are those of train-labels-idx1-ubyte$"
}
labels | gzip >root/MNIST/raw/train-labels-idx1-ubyte.gz
ok "two files of labels that are alike" sh -c '! "$AMPTRAIN" init root 2>&1 | grep differ'
labels | tr '\003' '\004' | gzip >root/MNIST/raw/train-labels-idx1-ubyte.gz
ok "... that differ: which is used" both_labels
ok "CIFAR's Python version" says 3 'get the "binary version"' train cifar10 python
ok "a compressed archive" says 3 "cifar.tar.gz: a compressed archive: unpack it" train cifar10 cifar.tar.gz

if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    skip "the written configuration learns the digits" "takes long with sanitizers"
else
    learns() {
        "$AMPTRAIN" -q -s run.device=cpu -s data.format=digits -s model.arch=resnet20 -s log.tensorboard=no \
            -o run &&
            sed -n 's/.*"epoch":10,.*"val_top1":\([0-9.]*\),.*/\1/p' run/metrics.jsonl |
            awk '{ print "accuracy", $1; good = $1 >= 0.97 } END { exit !good }'
    }
    ok "the written configuration learns the digits" learns
fi
echo "1..$cases"
