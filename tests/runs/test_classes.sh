#!/bin/sh
# Names of classes: of any bytes, and when weights trained on others are taken over.
. "$top_srcdir/tests/support/tap.sh"

cd "$scratch" || exit 1
"$top_builddir/tests/support/make_pictures" pictures || exit 1
cat >small.ini <<'END'
[input]
channels = 3
size = 32
[layers]
conv1 = conv input filters=8 kernel=3 stride=2 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
avgpool = globalavgpool relu1
linear = linear avgpool units=$classes
END
cat >run.ini <<'END'
[run]
device = cpu
threads = 1
[data]
format = folder
train = pictures
val = pictures
[model]
file = small.ini
[train]
batch = 8
epochs = 2
[log]
tensorboard = no
END
amp() { "$AMPTRAIN" "$@" -c run.ini; }

# Two names that differ in a byte which is not UTF-8, and one that looks as such a byte is written.
one=$(printf 'caf\351') two=$(printf 'caf\350') three='caf\xe8'
if mkdir "$one" 2>/dev/null && rmdir "$one"; then
    cp -r pictures odd
    mv odd/apple "odd/$one"
    cp -r odd/pear "odd/$three"
    mv odd/pear "odd/$two"
    sed "s/pictures/odd/" run.ini >odd.ini
    odd() { "$AMPTRAIN" "$@" -q -c odd.ini; }
    ok "class names that are not UTF-8" odd train -o odd-run -s run.max_steps=5
    ok "... resumed" odd train -o odd-run -r
    odd eval --weights odd-run/checkpoint-last.safetensors --json >told 2>said
    ok "... evaluated without warnings" sh -c 'cat said; test -s told && test ! -s said'
    odd predict --weights odd-run/checkpoint-last.safetensors --json "odd/$one"/1.png "odd/$three"/1.png >told
    ok "... printed as UTF-8, distinguishable" sh -c 'cat told; iconv -f UTF-8 -t UTF-8 told >/dev/null &&
        grep -qF "odd/caf\\\\xe9/1.png" told && grep -qF "odd/caf\\\\x5cxe8/1.png" told'
    other=$(printf 'caf\352')
    mv "odd/$two" "odd/$other"
    ok "names that differ in one byte are different classes" says 3 "was 'caf" odd train -o odd-run -r
    mkdir "$one"
    cp -r pictures "$one/pictures"
    ok "a path that is not UTF-8" amp train -q -o path-run -s data.train="$one/pictures" -s run.max_steps=2
    ok "... resumed" amp train -q -o path-run -r -s data.train="$one/pictures" -s run.max_steps=3
else
    skip "class names that are not UTF-8" "this file system has none"
fi

check() { "$AMPTRAIN" --check -c run.ini "$@"; }
by_class="images by class (training + validation)"
ok "image sizes are reported" says 0 "short sides of 56 to 64 pixels, median 60 (25 examined)" check
ok "images are counted by class" says 0 "$by_class: apple: 24 + 24, pear: 24 + 24" check
ok "... with data.limit, in all classes" says 0 "$by_class: apple: 10 + 24, pear: 10 + 24" check \
    -s data.limit=20
ok "... with a class that has none" says 0 "class 'apple' has no training images" check -s data.limit=1 -s \
    train.batch=1 \
    -s train.accumulate=1
cp -r pictures uneven && rm uneven/pear/1?.png uneven/pear/2?.png
ok "a fraction of each class is held out" says 0 "$by_class: apple: 18 + 6, pear: 7 + 3" check \
    -s data.train=uneven -s data.val= -s data.val_fraction=0.25
cp -r pictures few && rm few/pear/1?.png few/pear/2?.png few/pear/[0-7].png
ok "a warning about classes with few images" says 0 \
    "warning: the classes are imbalanced: 'apple' has 24 training images, 'pear' 2; with data.balance" \
    check -s data.train=few
heeded() { check -s data.train=few "$@" >out 2>err && cat err &&
    grep -qx "the classes are imbalanced: .*2" err; }
ok "... no warning with data.balance" heeded -s data.balance=yes
ok "... no warning with data.class_weights" heeded -s data.class_weights=balanced
ok "a single image" says 0 "1 training image of " check -s data.limit=1 -s train.batch=1 -s train.accumulate=1
ok "... also when training begins" says 0 "the classes are imbalanced" \
    amp train -s data.train=few -s run.max_steps=1
ok "a class without validation images" says 0 "class 'pear' has no validation images" \
    check -s data.train=few -s data.val= -s data.val_fraction=0.05
ok "many classes" says 0 "833 ('4') to 834 ('0') training images in a class" check -s data.format=synthetic \
    -s data.train= -s data.val= -s data.classes=12
ok "... some of which have no validation images" says 0 \
    "10 of 12 classes have no validation images, such as '0'" check \
    -s data.format=synthetic -s data.train= -s data.val= -s data.classes=12 -s data.limit=24 -s \
        data.val_fraction=0.1
quiet() { check -q -s data.val= -s data.val_fraction=0.25 2>said && cat said && [ ! -s said ]; }
ok "... no warning if all is in order" quiet
cp -r pictures judged && rm judged/apple/1*.png judged/pear/*.png &&
    cp pictures/apple/3.png judged/pear/other.png &&
    head -c 100 pictures/pear/3.png >judged/pear/cut.png
count=$(find judged/apple -name '*.png' | wc -l)
ok "images in both splits are found under any name" says 0 \
    "$((count + 1)) of $((count + 2)) validation images are among the training images, too, such as judged/" \
    check -s data.val=judged
mkdir splits && cp -r pictures splits/train && cp -r pictures splits/val
ok "a warning if splits are taken for classes" says 0 \
    "classes; if they are splits, set data.train = splits/train and data.val = splits/val" \
    check -s data.train=splits -s data.val= -s data.val_fraction=0.1
mkdir sets && cp -r pictures sets/training_set && cp -r pictures sets/Test-Set
ok "... under any name" says 0 \
    "if they are splits, set data.train = sets/training_set and data.val = sets/Test-Set" \
    check -s data.train=sets -s data.val= -s data.val_fraction=0.1
# Data of other tasks are named for what they are.
mkdir other && cp -r pictures/apple other/images && cp -r pictures/pear other/Ground_Truth
masks="'images' and 'Ground_Truth' are treated as classes; if the second are masks of the first"
ok "masks" says 0 "other: $masks" check -s data.train=other -s data.val= -s data.val_fraction=0.1
ok "... in init" says 0 "other: $masks" "$AMPTRAIN" init other -o other.ini
mkdir -p boxes/labels && cp -r pictures/apple boxes/images && echo '0 0.5 0.5 0.2 0.2' >boxes/labels/1.txt
boxes="boxes: looks like 'images' with boxes or outlines in 'labels' (object detection)"
ok "boxes" says 3 "$boxes" check -s data.train=boxes -s data.val= -s data.val_fraction=0.1
ok "... in init" says 3 "$boxes" "$AMPTRAIN" init boxes -o boxes.ini
# Validation data may have fewer classes: a folder without images is one that they do not have.
mkdir -p fewer/pear && cp -r pictures/apple fewer
ok "a class folder without validation images" says 0 \
    "fewer: class folders without PNG, JPEG, WebP or TIFF images: pear" check -s data.val=fewer
ok "... of which training images may have none" says 3 "without PNG, JPEG, WebP or TIFF images: pear; remove or fill" \
    check -s data.train=fewer
# Names that differ in their Unicode form alone are the same class: macOS takes letters apart.
composed=$(printf 'caf\303\251') apart=$(printf 'cafe\314\201')
mkdir -p nfc nfd && cp -r pictures/apple "nfc/$composed" && cp -r pictures/pear nfc/bean
cp -r pictures/apple "nfd/$apart" && cp -r pictures/pear nfd/bean
for folders in "nfc nfd" "nfd nfc"; do
    ok "another Unicode form of a name" says 0 "the same name in another Unicode form" \
        check -s data.train="${folders% *}" -s data.val="${folders#* }"
done
cp -r pictures/pear "nfc/$apart" && cp -r pictures/pear nfc/BEAN
ok "names that differ in case or form alone" says 0 "form alone; such pairs: 2" \
    check -s data.train=nfc -s data.val= -s data.val_fraction=0.1
ln -s . fewer/again
ok "a link to the folder itself is no class" says 0 "fewer/again: links to a folder that it is in, and is no" \
    check -s data.val=fewer

amp train -q -o run
weights=run/checkpoint-last.safetensors
cp -r pictures others
mv others/apple others/zebra
ok "fine-tuning: the same classes" says 0 "no run folder" amp train -s model.weights=$weights -s \
    run.max_steps=1
ok "... without messages about classifier rows" sh -c '! grep -q rows err'
ok "a different class resets its classifier row" says 0 \
    "has 1 of the 2 classes, but not 'zebra': the other rows of the classifier 'linear'" \
    amp train -s model.weights=$weights -s data.train=others -s data.val=others -s run.max_steps=1

# Validation data with other classes, in another order: images are what their classes are named.
mkdir digits && cp -r pictures/apple digits/7 && cp -r pictures/pear digits/9
cp -r digits two && cp -r digits/7 two/3 && mkdir nine && cp -r digits/9 nine
for folder in digits two nine; do
    "$AMPTRAIN" pack -q -s data.format=folder -s data.train=$folder -s augment.val_crop=32 \
        -s model.file=small.ini -o $folder.pack || exit 1
done
"$AMPTRAIN" pack -q -c run.ini -o pictures.pack
amp train -q -s data.train=digits -s data.val=digits -o seven-run -s optimizer.lr=0.01 -s train.epochs=4
top1() { "$AMPTRAIN" eval -q --json --weights seven-run --val "$@" >out 2>err && cat err out &&
    sed 's/.*"top1":\([^,]*\),.*/\1/' out >figure; }
both() { top1 digits && mv figure wanted && top1 digits.pack && cmp wanted figure; }
ok "packed validation data give the same figures" both
one_class() { top1 digits/../nine && mv figure wanted && top1 nine.pack && cmp wanted figure; }
ok "... those of one class as well" one_class
ok "... other classes are refused, by name" says 3 \
    "two.pack: class '3' is not one of the 2 known ones (7, 9); the data have 3, 7, 9" \
    "$AMPTRAIN" eval --weights seven-run --val two.pack
ok "... and so are fewer" says 3 \
    "class 'apple' is not one of the 2 known ones (7, 9); the data have apple, pear" \
    "$AMPTRAIN" eval --weights seven-run --val pictures.pack
ok "... and so are digits" says 3 \
    "class '0' is not one of the 2 known ones (7, 9); the data have 0, 1, 2, 3" \
    "$AMPTRAIN" eval --weights seven-run -s data.format=digits --val "$top_srcdir/data/digits"

mkdir lonely
cp -r pictures/apple lonely
ok "a single class" says 0 "there is only one class, 'apple', so there is nothing to learn" \
    "$AMPTRAIN" --check -c run.ini -s data.train=lonely -s data.val=lonely
ok "... and init" says 0 "there is only one class, 'apple'" "$AMPTRAIN" init lonely -o lonely.ini
finish
