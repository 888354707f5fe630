#!/bin/sh
# Whose network: what weights mean is changed in each way, and whatever takes them refuses, warns, or is
# right. And a run stays alone in its folder.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

last=checkpoint-last.safetensors
"$top_builddir/tests/support/make_pictures" fruit || exit 1
mv fruit/pear fruit/peach
mkdir names && cp -r fruit/apple names/apple && cp -r fruit/peach names/melon
cp -r fruit number && cp -r fruit/peach number/plum
sed -e 's/^format.*/format = folder/' -e '/^format/a train = fruit\nval = fruit' -e 's/^crop.*/crop = 16/' \
    -e 's/^pad.*/resize = 20\nmean = 0.5,0.5,0.5/' -e 's/^batch.*/batch = 8/' \
    -e 's/^every = 3 steps/every = 1/' -e 's/^precision.*/precision = fp32/' \
    -e '/^init_scale/d' -e '/^growth/d' -e 's/^epochs.*/epochs = 1/' \
    -e 's/tiny.ini/net.ini/' run.ini >base.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' tiny.ini >net.ini

# Changes: of the network, of the configuration, or in a checkpoint of the order of its classes.
changed() { sed "$2" net.ini >"$1-net.ini" && sed "s/net.ini/$1-net.ini/" base.ini >"$1.ini"; }
changed activation 's/relu2 = relu/relu2 = leaky_relu/'
changed width 's/filters=8/filters=4/'
changed setting 's/batchnorm conv1/batchnorm conv1 eps=0.1/'
cp base.ini order.ini
sed 's/= fruit/= names/' base.ini >names.ini
sed 's/= fruit/= number/' base.ini >number.ini
sed 's/^mean.*/mean = 0.25,0.5,0.5/' base.ini >mean.ini
for change in base activation width setting names number mean; do
    "$AMPTRAIN" -q -c $change.ini -o $change 2>/dev/null || exit 1
done
cp -r base order
for file in order/checkpoint-*; do
    sed -i 's/apple\(.\{1,9\}\)peach/peach\1apple/' "$file"
    # The message has the checksum of the header as it is now.
    sums=$("$AMPTRAIN" predict -q --weights "$file" fruit 2>&1 |
        sed -n 's/.*(checksum \([0-9a-f]*\), not \([0-9a-f]*\))/\2\/\1/p')
    [ -n "$sums" ] && sed -i "s/$sums/" "$file" || exit 1
done

program() { "$AMPTRAIN" "$@"; }
resume() { cp -r base copy && program -c "$1.ini" -o copy -r -s train.epochs=2; }
resume_order() { cp -r order copy && program -c base.ini -o copy -r -s train.epochs=2; }
eval_of() { program eval -c "$1.ini" --weights base; }
eval_order() { program eval -c base.ini --weights order; }
predict() { program predict -c "$1.ini" --weights base fruit/apple/1.png; }
predict_order() { program predict --weights order fruit/apple/1.png; }
average() { program average base "$1" -o mean.safetensors; }
weights() { program -c "$1.ini" -s model.weights=base -o copy; }
weights_order() { program -c base.ini -s model.weights=order -o copy; }
into() { cp -r base copy && program -c "$1.ini" -o copy -r="$1/$last" -s train.epochs=2; }
into_order() { cp -r base copy && program -c base.ini -o copy -r=order/$last -s train.epochs=2; }

# cell CHANGE COMMAND STATUS WORDS: the status that it exits with, and what is said.
cell() {
    rm -rf copy
    how=$2
    case $(type "$2_$1" 2>/dev/null) in *function*) how=$2_$1 ;; esac
    ok "$1: $2" says "$3" "$4" "$how" "$1"
}

relu="layer 'relu2' is 'leaky_relu conv2', not 'relu conv2'"
conv="layer 'conv1' is 'conv input filters=4 kernel=3 pad=1 bias=no', not 'conv input filters=8"
bn="layer 'bn1' is 'batchnorm conv1 eps=0.1', not 'batchnorm conv1'"
order="the classes are in another order: class 0 is 'peach', not 'apple'"
instead="best.safetensors: the weights belong to another network, which is used instead: layer"
otherwise="the weights were trained otherwise than they are used here"
apart="cannot be averaged with base/checkpoint-best.safetensors:"
alone="copy/$last: belongs to another run than"

while IFS='|' read -r change command status words; do
    cell "$change" "$command" "$status" "$words"
done <<END_OF_TABLE
activation|resume|2|the network differs from that of the run: $relu
activation|eval_of|0|$instead
activation|predict|0|$instead
activation|average|5|activation/checkpoint-best.safetensors: $apart $relu
activation|weights|0|$otherwise: $relu
activation|into|2|$alone activation/$last
width|resume|2|the network differs from that of the run: $conv
width|eval_of|0|$instead
width|predict|0|$instead
width|average|5|width/checkpoint-best.safetensors: $apart $conv
width|weights|5|tensors of another shape or type: conv1.weight
width|into|2|$alone width/$last
setting|resume|2|the network differs from that of the run: $bn
setting|eval_of|0|$instead
setting|predict|0|$instead
setting|average|5|setting/checkpoint-best.safetensors: $apart $bn
setting|weights|0|$otherwise: $bn
setting|into|2|$alone setting/$last
order|resume|3|class 0 was 'peach' when the run started, but is 'apple' now
order|eval_of|0|using the averaged weights
order|predict|0|using the averaged weights
order|average|5|order/checkpoint-best.safetensors: $apart $order
order|weights|0|has the same classes in a different order
order|into|3|class 0 was 'peach' when the run started, but is 'apple' now
names|resume|3|class 1 was 'peach' when the run started, but is 'melon' now
names|eval_of|3|class 'melon' is not one of the 2 known ones
names|predict|0|using the averaged weights
names|average|5|names/checkpoint-best.safetensors: $apart class 1 is 'melon', not 'peach'
names|weights|0|has 1 of the 2 classes, but not 'melon'
names|into|2|$alone names/$last
number|resume|3|there were 2 classes when the run started, but are 3 now
number|eval_of|3|class 'plum' is not one of the 2 known ones
number|predict|0|using the averaged weights
number|average|5|number/checkpoint-best.safetensors: $apart there are 3 classes, not 2
number|weights|0|has 2 classes, this model 3
number|into|2|$alone number/$last
mean|resume|2|augment.mean: 0.5,0.5,0.5, now 0.25,0.5,0.5
mean|eval_of|0|the weights were trained with augment.mean = 0.5,0.5,0.5, not 0.25,0.5,0.5
mean|predict|0|the weights were trained with augment.mean = 0.5,0.5,0.5, not 0.25,0.5,0.5
mean|average|5|mean/checkpoint-best.safetensors: $apart augment.mean is 0.25,0.5,0.5, not 0.5,0.5,0.5
mean|weights|0|$otherwise: augment.mean is 0.25,0.5,0.5, not 0.5,0.5,0.5
mean|into|2|$alone mean/$last
END_OF_TABLE

# The cells that are right, to the figure.
right() { # WEIGHTS: apple's and peach's share, and the class of an apple
    "$AMPTRAIN" eval -q --json -c base.ini --weights "$1" | sed 's/.*"top1":\([0-9.e-]*\).*/\1/'
    "$AMPTRAIN" predict -q --weights "$1" fruit/apple/1.png | sed 's/.*: //'
}
# shellcheck disable=SC2046 # lines become words
swapped() {
    set -- $(right base) $(right order)
    echo "$@"
    [ "$2" != "$5" ] && [ "$3" = "$6" ] && awk "BEGIN { exit ($1 + $4 - 1) ^ 2 > 1e-9 }"
}
ok "classes in another order are evaluated and predicted by their names" swapped
in_words() { # CONFIGURATION: predictions, whatever the classes of its data
    "$AMPTRAIN" predict -q -c "$1" --weights base fruit/*/1.png
}
ok "other classes in a configuration do not rename those of weights" [ "$(in_words names.ini)" = \
    "$(in_words base.ini)" ]

# Changes that leave what weights mean as it is.
changed rate 's/rate=0.2/rate=0.5/'
"$AMPTRAIN" -q -c rate.ini -o rate 2>/dev/null
"$AMPTRAIN" -q -c base.ini -s run.seed=9 -s optimizer.lr=0.01 -o seed 2>/dev/null
"$AMPTRAIN" export -q --weights seed -o seed.safetensors
quiet() { "$AMPTRAIN" "$@" -q 2>said && cat said && [ ! -s said ]; }
ok "average of runs with other rates of dropout, seeds and learning rates" quiet average base rate seed \
    seed.safetensors -o all.safetensors
"$AMPTRAIN" export -q --weights mean -o mean.safetensors
ok "... of an exported file with another mean" says 5 \
    "mean.safetensors: cannot be averaged with seed.safetensors" \
    "$AMPTRAIN" average seed.safetensors mean.safetensors -o none.safetensors
ok "... which is not written" [ ! -e none.safetensors ]

# A run alone in its folder.
twin() {
    cp -r base copy &&
        says 2 "$alone twin/$last" program -c base.ini -o copy -r=twin/$last -s train.epochs=2
}
rm -rf copy && "$AMPTRAIN" -q -c base.ini -o twin 2>/dev/null
ok "a run of the same configuration does not go on in another's folder" twin
untouched() { for file in base/checkpoint-* base/log.txt; do cmp "$file" "copy/${file##*/}" || return 1; done; }
ok "... whose checkpoints and log are as they were" untouched
exchanged() {
    cp twin/checkpoint-best.safetensors copy &&
        says 2 "copy/checkpoint-best.safetensors: belongs to another" \
            program -c base.ini -o copy -r -s train.epochs=2
}
ok "a best checkpoint of another run is found when the run is resumed" exchanged
moved() {
    rm -rf copy && cp -r base copy &&
        program -q -c base.ini -o copy -r=base/$last -s train.epochs=2 &&
        program -q -c base.ini -o copy -r -s train.epochs=3 &&
        program -q -c base.ini -o new -r=copy/$last -s train.epochs=4
}
ok "a run goes on from its own checkpoint, in its folder's copy and in a new one" moved

# Grey networks: files are read with their channels; arrays of pixels have their own.
sed -e 's/^channels.*/channels = 1/' net.ini >grey-net.ini
sed -e 's/net.ini/grey-net.ini/' -e '/^mean/d' base.ini >grey.ini
"$AMPTRAIN" -q -c grey.ini -o grey 2>/dev/null &&
    "$AMPTRAIN" pack -q -c base.ini -s model.file= -o coloured.pack || exit 1
channels="the images have 3 channels, but the network was trained on images of 1"
ok "a grey network is evaluated on files in colour" program eval --weights grey --val fruit
ok "... predicts them" program predict --weights grey fruit/apple/1.png
ok "... and says that packed pixels in colour are not for it" says 3 "$channels" program eval \
    --weights grey --val coloured.pack
ok "... with a configuration, too" says 3 "$channels" program eval -c base.ini \
    -s data.format=packed --weights grey --val coloured.pack

# Batch norm over all ranks: another number of them is another network while it trains.
synced() { # RANKS MICRO-BATCHES FOLDER
    "$AMPTRAIN" -c run.ini -o "$3" -s train.sync_bn=yes -s amp.precision=fp32 -s "parallel.gpus=$1" \
        -s "train.accumulate=$2" -s train.epochs=2 -s run.max_steps="$4" -r
}
synced 1 2 synced 3 >/dev/null 2>&1
parts="batch norm normalised a step's images in 2 parts (train.sync_bn), and now does in 1"
ok "train.sync_bn: other ranks with as many micro-batches" says 0 "$parts" synced 2 1 synced 6
same_parts() { synced 2 1 synced 8 2>said && cat said && ! grep -q "the numbers differ" said; }
ok "... as many ranks as before" same_parts
finish
