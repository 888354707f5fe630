#!/bin/sh
# The identity matrix, its half of data: after each change of a run's data, each command refuses, warns, or is
# right. (The other half, of networks: test_identity_network.sh.)
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' tiny.ini >coloured.ini
sed -e 's/^format.*/format = folder/' -e '/^format/a train = data\nval_fraction = 0.25' \
    -e 's/^crop.*/crop = 16/' -e 's/^batch.*/batch = 4/' -e 's/^every = 3 steps/every = 0/' \
    -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' -e 's/tiny.ini/coloured.ini/' \
    -e '/^\[log\]/i [memory]\nreport = no' run.ini >pictures.ini
brief='-s run.report=no -s run.max_steps=9'
cp -r pictures data
"$AMPTRAIN" -q -c pictures.ini -o run $brief || exit 1
"$AMPTRAIN" eval -q --json --weights run >figures || exit 1
"$AMPTRAIN" predict -q --weights run pictures >classes || exit 1

# The changes, each of a fresh copy of the data; they tell the path of the result, if it is another one.
added() { cp pictures/apple/3.png data/apple/x.png; }
removed() { rm data/pear/7.png; }
renamed() { mv data/apple/3.png data/apple/q.png; }
contents() { printf x | dd of=data/apple/3.png bs=1 seek=$(($(wc -c <data/apple/3.png) - 1)) conv=notrunc; }
swapped() {
    for number in $(seq 0 23); do
        mv data/apple/"$number".png data/pear/x && mv data/pear/"$number".png data/apple &&
            mv data/pear/x data/pear/"$number".png
    done
}
class_added() { cp -r data/pear data/plum; }
class_removed() { rm -r data/pear; }
class_renamed() { mv data/pear data/quince; }
class_order() { mv data/apple data/zapple; }
touched() { find data -exec touch -d 2001-01-01 {} + && chmod -R a-w data; }
moved() { rm -rf elsewhere && mv data elsewhere && path=elsewhere; }
packed() {
    "$AMPTRAIN" pack -q -c pictures.ini -s data.val_fraction=0 -o data.pack && path=data.pack
    more='-s data.format=packed'
}

# The commands, on data at $path, with $more.
resume() {
    "$AMPTRAIN" -q -r -o resumed -c pictures.ini $brief -s data.train=$path $more -s run.max_steps=18
}
evaluate() { "$AMPTRAIN" eval -q --json --weights run -s data.train=$path $more >figures.now; }
evaluate_all() { "$AMPTRAIN" eval -q --json --weights run --val $path >all.now; }
predict() { "$AMPTRAIN" predict -q --weights run pictures >classes.now; }
average() { "$AMPTRAIN" average -q run run -o average.safetensors; }
begin() {
    "$AMPTRAIN" -q -c pictures.ini $brief -s data.train=$path $more -s model.weights=run -s run.seed=2 \
        -s train.epochs=1
}

# Commands that do not refuse give the same as before.
unmoved() {
    "$AMPTRAIN" -q -c pictures.ini $brief -s data.train=elsewhere -o whole -s run.max_steps=18 &&
        same whole resumed
}
right() {
    case $1 in
    resume) [ "$change" != moved ] || unmoved ;;
    evaluate) cmp figures figures.now ;;
    evaluate_all) grep -q '"images":4[789],' all.now ;;
    predict) cmp classes classes.now ;;
    average) "$AMPTRAIN" predict -q --weights average.safetensors pictures | cmp - classes ;;
    begin) [ ! -s err ] || ! grep -q 'weights were trained on' err ;;
    esac
}

# cell COMMAND VERDICT: "right", "warned: WORDS" (exit status 0), or "N: WORDS" (refused).
cell() {
    rm -rf data elsewhere resumed && cp -r pictures data && cp -r run resumed
    path=data more=''
    "$change" >/dev/null 2>&1 || { echo "the data could not be changed"; return 1; }
    case $2 in
    right) "$1" 2>err && cat err && right "$1" ;;
    warned:*) says 0 "${2#*: }" "$1" && grep -qF warning: err ;;
    *) says "${2%%:*}" "${2#*: }" "$1" ;;
    esac
    status=$?
    chmod -R u+w data elsewhere 2>/dev/null
    return $status
}

# The table: change | command | verdict.
while IFS='|' read -r change command verdict; do
    change=$(echo $change) command=$(echo $command) verdict=$(echo $verdict)
    [ -n "$change" ] || continue
    ok "$change: $command: $verdict" cell "$command" "$verdict"
done <<'END_OF_TABLE'
added         | resume       | 3: data.train differ from those of the run: apple/x.png is new (48 images, now
added         | evaluate     | 3: apple/x.png is new (48 images, now 49); other images would be held out
added         | evaluate_all | right
added         | predict      | right
added         | average      | right
added         | begin        | warned: weights were trained on, besides others (apple/x.png is new
removed       | resume       | 3: pear/7.png is missing
removed       | evaluate     | 3: pear/7.png is missing
removed       | evaluate_all | right
removed       | predict      | right
removed       | average      | right
removed       | begin        | warned: pear/7.png is missing
renamed       | resume       | 3: apple/3.png is missing, apple/q.png is new
renamed       | evaluate     | 3: apple/3.png is missing, apple/q.png is new
renamed       | evaluate_all | right
renamed       | predict      | right
renamed       | average      | right
renamed       | begin        | warned: apple/3.png is missing, apple/q.png is new
contents      | resume       | 3: apple/3.png: contents differ; resuming needs the same data
contents      | evaluate     | 3: apple/3.png: contents differ; other images
contents      | evaluate_all | right
contents      | predict      | right
contents      | average      | right
contents      | begin        | warned: apple/3.png: contents differ
swapped       | resume       | 3: apple/0.png: contents differ, apple/1.png: contents differ
swapped       | evaluate     | 3: apple/0.png: contents differ, apple/1.png: contents differ
swapped       | evaluate_all | right
swapped       | predict      | right
swapped       | average      | right
swapped       | begin        | warned: apple/3.png: contents differ
class_added   | resume       | 3: there were 2 classes when the run started, but are 3 now
class_added   | evaluate     | 3: class 'plum' is not one of the 2 known ones (apple, pear)
class_added   | evaluate_all | 3: class 'plum' is not one of the 2 known ones (apple, pear)
class_added   | predict      | right
class_added   | average      | right
class_added   | begin        | warned: plum/0.png is new
class_removed | resume       | 3: there were 2 classes when the run started, but are 1 now
class_removed | evaluate     | 3: pear/0.png is missing, pear/1.png is missing, pear/2.png is missing
class_removed | predict      | right
class_removed | average      | right
class_removed | begin        | warned: pear/0.png is missing
class_renamed | resume       | 3: class 1 was 'pear' when the run started, but is 'quince' now
class_renamed | evaluate     | 3: class 'quince' is not one of the 2 known ones (apple, pear)
class_renamed | evaluate_all | 3: class 'quince' is not one of the 2 known ones (apple, pear)
class_renamed | predict      | right
class_renamed | average      | right
class_renamed | begin        | warned: pear/0.png is missing
class_order   | resume       | 3: class 0 was 'apple' when the run started, but is 'pear' now
class_order   | evaluate     | 3: class 'zapple' is not one of the 2 known ones (apple, pear)
class_order   | evaluate_all | 3: class 'zapple' is not one of the 2 known ones (apple, pear)
class_order   | predict      | right
class_order   | average      | right
class_order   | begin        | warned: apple/0.png is missing
touched       | resume       | right
touched       | evaluate     | right
touched       | begin        | right
moved         | resume       | right
moved         | evaluate     | right
moved         | evaluate_all | right
moved         | predict      | right
moved         | average      | right
moved         | begin        | right
packed        | resume       | 2: data.format: folder, now packed
packed        | evaluate     | 3: its images had names, these have numbers
packed        | evaluate_all | right
packed        | predict      | right
packed        | average      | right
packed        | begin        | warned: its images had names, these have numbers
END_OF_TABLE

# The attacks that this comes from.

# 84 of 100 files change places among four classes: sizes and names stay.
hundred() {
    for class in a b c d; do
        mkdir -p "hundred/$class"
        for number in $(seq 25); do
            { cat pictures/apple/3.png; printf '%s%02d' $class "$number"; } >"hundred/$class/$number.png"
        done
    done
}
rotate() {
    for number in $(seq 21); do
        mv "hundred/a/$number.png" x && mv "hundred/b/$number.png" hundred/a &&
            mv "hundred/c/$number.png" hundred/b && mv "hundred/d/$number.png" hundred/c &&
            mv x "hundred/d/$number.png" || return 1
    done
}
hundred
on_hundred() { "$AMPTRAIN" -q -c pictures.ini -o shuffled $brief -s data.train=hundred "$@"; }
on_hundred || exit 1
ok "the same files in other classes" sh -c 'true' && rotate
ok "... are not resumed with" says 3 "a/1.png: contents differ" on_hundred -r -s run.max_steps=18

# One image of a set that tells no names.
tarred() {
    rm -rf keys && mkdir keys && number=0
    for picture in pictures/*/*.png; do
        number=$((number + 1))
        cp "$picture" "keys/$number.png"
        echo $((number % 2)) >"keys/$number.cls"
    done
}
tarred
tar_up() { (cd keys && tar --sort=name -cf ../set.tar .); }
on_tar() { "$AMPTRAIN" -q -c pictures.ini -o tarred $brief -s data.format=packed -s data.train=set.tar "$@"; }
tar_up && on_tar || exit 1
echo 1 >keys/2.cls && tar_up
ok "a label in a tar archive" says 3 "was of class '0' and is now of '1'" on_tar -r -s run.max_steps=18
echo 0 >keys/2.cls
cp pictures/pear/8.png keys/2.png && tar_up
ok "an image in a tar archive" says 3 "contents differ" on_tar -r -s run.max_steps=18

# A table, in which no image changes but its group, its label, or one of its labels: what is held out depends
# on groups.
table() { # COLUMNS OF EACH IMAGE'S NUMBER
    echo "path,$1" && number=0
    for picture in pictures/*/*.png; do
        number=$((number + 1))
        printf '%s,%s\n' "$picture" "$(eval "echo $2")"
    done
}
on_table() { "$AMPTRAIN" -q -c pictures.ini $brief -s data.format=csv -s data.train=table.csv "$@"; }
table label,group 'l$((number % 2)),g$((number / 4))' >table.csv
on_table -o grouped || exit 1
ok "a table, unchanged" on_table -o grouped -r -s run.max_steps=10
sed -i '5s/g1/g2/' table.csv
ok "groups of a table" says 3 "pictures/apple/11.png: the label, the mask or the group differs; resuming" \
    on_table -o grouped -r -s run.max_steps=11
ok "... would hold out other images" says 3 "the label, the mask or the group differs" \
    "$AMPTRAIN" eval --weights grouped -s data.train=table.csv
table label 'l$((number % 2))' >table.csv
ok "a table without its groups" says 3 "the images of data.train differ from those of the run" \
    on_table -o grouped -r -s run.max_steps=11
on_table -o labelled || exit 1
sed -i '5s/l0/l1/' table.csv
ok "a label of a table" says 3 "was of class 'l0' and is now of 'l1'" \
    on_table -o labelled -r -s run.max_steps=11

# The bytes of MNIST's files: 20 images of 8x8.
idx() {
    mkdir -p mnist
    { printf '\0\0\10\3\0\0\0\24\0\0\0\10\0\0\0\10'; seq 1000 1319; } >mnist/train-images-idx3-ubyte
    { printf '\0\0\10\1\0\0\0\24'; printf '\0\1\2\3\4\0\1\2\3\4\0\1\2\3\4\0\1\2\3\4'; } \
        >mnist/train-labels-idx1-ubyte
    truncate -s 1296 mnist/train-images-idx3-ubyte
}
change_byte() { printf "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
on_mnist() {
    "$AMPTRAIN" -q -c run.ini -o mnist-run -s data.format=mnist -s data.train=mnist -s data.val_fraction=0.3 \
        -s train.batch=4 -s checkpoint.every=0 -s run.report=no -s run.max_steps=3 "$@"
}
idx && on_mnist 2>/dev/null || exit 1
ok "MNIST, unchanged" on_mnist -r -s run.max_steps=4
change_byte mnist/train-images-idx3-ubyte $((16 + 64 * 12 + 3)) x
ok "a pixel of MNIST" says 3 "image 12: contents differ; resuming" on_mnist -r -s run.max_steps=5
idx && change_byte mnist/train-labels-idx1-ubyte $((8 + 12)) '\4'
ok "a label of MNIST" says 3 "image 12 was of class '2' and is now of '4'" on_mnist -r -s run.max_steps=5

# Validation data of their own.
rm -rf data && cp -r pictures data && cp -r pictures judged
own() { "$AMPTRAIN" -q -c pictures.ini $brief -s data.val_fraction=0 -s data.val=judged "$@"; }
own -o own 2>/dev/null || exit 1
cp pictures/apple/3.png judged/apple/more.png
ok "an image more in data.val" says 3 "data.val differ from those of the run: apple/more.png is new" \
    own -o own -r -s run.max_steps=18
ok "... does not matter to eval" "$AMPTRAIN" eval -q --weights own --val judged
ok "weights that were trained on data.val" says 0 "data.val has images that these weights were trained on" \
    own -s model.weights=run
rm judged/apple/more.png
ok "... on all of it" says 0 "data.val are the images that these weights were trained on" \
    own -s model.weights=run

# Other holdouts of the same data.
hold() { "$AMPTRAIN" -q -c pictures.ini $brief -s train.epochs=1 "$@"; }
same_holdout() { hold -s model.weights=run -s run.seed=5 2>err && cat err && ! grep "trained on" err; }
ok "weights, and another run.seed: the same holdout" same_holdout
ok "weights, and another split_seed" says 0 "of the 12 validation images are among those that these weights" \
    hold -s model.weights=run -s data.split_seed=1
ok "eval with another split_seed" says 0 "of the 12 validation images are among those that these weights" \
    "$AMPTRAIN" eval --weights run -s data.split_seed=1
"$AMPTRAIN" export -q --weights run -o lean.safetensors || exit 1
ok "eval of exported weights does not know" says 0 "does not say which images the weights were trained on" \
    "$AMPTRAIN" eval -c pictures.ini --weights lean.safetensors
other_data() { "$AMPTRAIN" eval --weights run -s data.train=others "$@"; }
mkdir others && cp -r pictures/pear others/apple && cp -r pictures/apple others/pear &&
    for file in others/*/*.png; do echo more >>"$file" && mv "$file" "${file%.png}x.png"; done
ok "eval on the holdout of other data by name" other_data
"$AMPTRAIN" -q -c pictures.ini $brief -s data.val_fraction=0 -s run.max_steps=3 -o all || exit 1
ok "weights of a run without a holdout" says 0 "12 of the 12 validation images are among those" \
    hold -s model.weights=all

# Folds.
fold() { "$AMPTRAIN" -q -c pictures.ini -s data.val_fraction=0 -s train.epochs=1 -s run.report=no "$@"; }
in_folds() {
    for number in 1 2 3; do
        fold -s data.fold=$number/3 -o fold-$number &&
            "$AMPTRAIN" eval -q --weights fold-$number -o fold-$number --logits fold-$number.npy || return 1
        grep -q '"val_images":16,.*"val_set":"[0-9a-f]*","fold":"'$number'/3","split_seed":0' \
            fold-$number/metrics.jsonl || return 1
    done
    [ "$(cat fold-?/metrics.jsonl | sed -n 's/.*"val_set":"\([^"]*\).*/\1/p' | sort -u | wc -l)" = 3 ]
}
ok "folds of a data set" in_folds
# Folds are no less comparable for their different images: they have a mean and a standard deviation.
averaged() {
    "$AMPTRAIN" compare fold-1 fold-2 fold-3 -o folds.html >folds.txt 2>folds.err &&
        grep -q "<p>mean of 3: " folds.html && ! grep -q "different images" folds.err || return 1
    sed -n 's/.*"val_top1":\([0-9.e-]*\).*/\1/p' fold-?/metrics.jsonl | awk '
        { n++; sum += $1; squares += $1 * $1 }
        END { mean = sum / n; printf "mean of %d: %.2f %%, standard deviation %.2f %%\n", n, 100 * mean,
                  100 * sqrt((squares - n * mean * mean) / (n - 1)) }' >wanted.txt
    grep "^mean of" folds.txt >words && cmp words wanted.txt
}
ok "... have a mean" averaged
fold -s data.fold=1/3 -s optimizer.lr=0.01 -o other
ok "... but not with another configuration" says 0 "fold-2 and other were validated on different images" \
    "$AMPTRAIN" compare fold-2 other
fold -s data.fold=2/3 -s optimizer.lr=0.01 -o other-2
crossed() { "$AMPTRAIN" compare "$@" >out 2>err && ! grep -q "different images" err; }
ok "... unless that has the same folds, as a sweep's have" crossed fold-1 fold-2 other other-2
ok "... all of them" says 0 "were validated on different images" "$AMPTRAIN" compare fold-1 fold-2 other
for wrong in 0/3 4/3 1/1 1/1001 1 /3 1/ x/3 1/3x 99999999999999999999/3; do
    ok "data.fold=$wrong" says 2 "data.fold: must be K/N" fold -s data.fold=$wrong
done
ok "fold and val_fraction" says 2 "data.fold: cannot be combined with data.val_fraction" \
    fold -s data.fold=1/3 -s data.val_fraction=0.1
ok "fold and data.val" says 2 "data.fold: cannot be combined with data.val" \
    fold -s data.fold=1/3 -s data.val=pictures
mkdir -p lone/a lone/b && cp pictures/apple/1.png lone/a && cp pictures/pear/1.png lone/b
ok "classes of one image" says 2 "data.fold: there are too few images to split" \
    fold -s data.fold=1/3 -s data.train=lone
finish
