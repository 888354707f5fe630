#!/bin/sh
# Several labels an image, and numbers (data.task): whole runs, with everything that has a meaning for them.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = csv/' -e '/^format/a train = labels.csv\nval_fraction = 0.25' \
    -e 's/^crop.*/crop = 16/' -e 's/^batch.*/batch = 8/' -e 's/^epochs.*/epochs = 3/' \
    -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' -e 's/tiny.ini/coloured.ini/' \
    -e 's/^pad.*/resize = 20/' run.ini >labels.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' tiny.ini >coloured.ini
sed -e 's/labels.csv/values.csv/' -e 's/^lr = .*/lr = 0.01/' -e 's/^epochs.*/epochs = 10/' \
    -e 's/^ema.*/ema = 0/' -e 's/^batch.*/batch = 6/' labels.ini >values.ini

# Labels that can be seen, and one that cannot; numbers that are those of the picture's colours and size.
each() { find pictures -name '*.png' | LC_ALL=C sort; }
table() { # HEADER EXPRESSION...
    echo "$1"; shift
    each | sed -E "$@"
}
table path,red,green,third -e 's/.*apple.*/&,1,0/' -e 's/.*pear.*/&,0,1/' -e 's/.*[0369][.]png.*/&,1/' \
    -e 's/.*[124578][.]png.*/&,0/' >labels.csv
table path,value -e 's,.*apple/(.*).png,&\,1.\1,' -e 's,.*pear/(.*).png,&\,-1.\1,' >values.csv
table path,labels -e 's/.*apple.*/&,red/' -e 's/.*pear.*/&,green/' -e 's/.*[0369][.]png.*/&;third/' >sets.csv
table path,label -e 's/$/,any/' >classes.csv
labels() { folder=$1; shift; "$AMPTRAIN" -q -c labels.ini -o "$folder" "$@"; }
values() { folder=$1; shift; "$AMPTRAIN" -q -c values.ini -o "$folder" "$@"; }
number() { sed -n "s/.*\"$1\":\([-0-9.e]*\).*/\1/p" "$2" | tail -n 1; }
above() { awk "BEGIN { exit !($1 > $2) }"; }

# exact COMMAND OPTION...: on two ranks and several workers, and from a checkpoint on, as at once.
exact() {
    run=$1; shift
    rm -rf once ranks again
    $run once "$@" && $run ranks -s parallel.gpus=2 -s train.accumulate=1 -s loader.workers=3 "$@" &&
        same once ranks && exits_with 75 $run again -s run.max_time=0.0001 "$@" &&
        $run again -r "$@" -s run.max_time=0 && same once again
}

### Several labels

labels l || exit 1
ok "labels are learned" above "$(number val_map l/metrics.jsonl)" 0.7
learns() {
    grep -q '"task":"multilabel","loss":"bce"' l/metrics.jsonl && grep -q '"per_label":\[1,1,' l/metrics.jsonl
}
ok "... those that can be seen, without a mistake" learns
ok "runs resume exactly, on several ranks" exact labels
ok "... with mixed images, smoothed labels and their weights" exact labels -s augment.mixup=0.4 \
    -s augment.cutmix=1 -s augment.label_smoothing=0.1 -s data.class_weights=balanced
differs() { ! same "$@" >same.txt; }
labels w -s data.class_weights=balanced && labels o -s data.class_weights=1,1,1 || exit 1
ok "weights of one change nothing" same l o
ok "... others do" differs l w
sets() {
    labels s -s data.train=sets.csv || return 1
    lines l | sed 's/"per_label".*//' >l.txt && lines s | sed 's/"per_label".*//' >s.txt
    [ "$(number val_map l/metrics.jsonl | cut -c 1-4)" ] && [ "$(wc -l <l.txt)" = "$(wc -l <s.txt)" ] &&
        grep -q '"label":"green","images":' evaluated.json
}
last=checkpoint-last.safetensors
"$AMPTRAIN" eval -q --weights l/$last --json >evaluated.json || exit 1
ok "sets of labels are read, too" sets
evaluates() {
    [ "$(number map evaluated.json)" = "$(number val_map l/metrics.jsonl)" ] &&
        [ "$(number loss evaluated.json)" = "$(number val_loss l/metrics.jsonl)" ] &&
        [ "$(wc -l <l/labels.csv)" = 4 ]
}
ok "eval finds what the run found" evaluates
thresholds() {
    "$AMPTRAIN" eval -q --weights l --json >best.json
    grep -oE '"threshold":[0-9.e-]+' best.json | cut -d : -f 2 >one.txt
    sed 1d l/labels.csv | cut -d , -f 5 >two.txt
    cmp one.txt two.txt && ! grep -qx 0.5 one.txt
}
ok "... with the thresholds of each label" thresholds
results() {
    "$AMPTRAIN" eval -q --weights l --val labels.csv --results r.csv >out && [ "$(wc -l <r.csv)" = "$(wc -l <labels.csv)" ] &&
        grep -qE '^"pictures/apple/0.png","red;third","red(;third)?",0[0-9.]*' r.csv && grep -q '^ *macro: .*ROC AUC 0[.]' out
}
ok "... and the result of each image" results
views() {
    "$AMPTRAIN" eval --weights l --flip -s augment.val_shift=1 --json >flipped.json &&
        above "$(number map flipped.json)" 0.6
}
ok "... and of several views" views
predicts() {
    "$AMPTRAIN" predict --weights l pictures/apple/1.png pictures/pear/2.png none.png >said 2>err
    [ $? = 3 ] && grep -q '^pictures/apple/1.png:.* red ' said &&
        grep -q '^pictures/pear/2.png:.* green ' said &&
        grep -q '^none.png: error: ' said && ! grep -q 'pear.* red' said &&
        grep -qE 'labels are predicted from these probabilities on, .*: red 0[.][0-9]+, green 0[.]' err
}
ok "predict names labels at their thresholds" predicts
tops() {
    "$AMPTRAIN" predict --weights l --top 3 --json pictures/apple/1.png >said &&
        [ "$(grep -o '"class"' said | wc -l)" = 3 ] && grep -q '"labels":\[.*"class":"red","index":0,"probability":[0-9.]*,"threshold":0' said
}
ok "... or the most probable ones" tops
csv_of() {
    "$AMPTRAIN" predict --weights l --csv pictures/apple/1.png >said &&
        grep -q '^"pictures/apple/1.png",[12],"red",0,' said
}
ok "... as lines" csv_of
exports() {
    "$AMPTRAIN" export -q --weights l -o l.safetensors && "$AMPTRAIN" export -q --weights l -o l.onnx &&
        "$AMPTRAIN" predict --weights l.safetensors pictures/apple/1.png >one.txt &&
        "$AMPTRAIN" predict --weights l pictures/apple/1.png | cmp - one.txt
}
ok "exported weights know the task and the thresholds" exports
ok "... also in ONNX metadata" grep -aq thresholds l.onnx

# Thresholds that were chosen for the mean of two views are for that of each image in predict, too.
flipped() {
    image=$(sed 1d labels.csv | head -n 1 | cut -d , -f 1)
    labels lf -s augment.val_flip=yes || return 1
    "$AMPTRAIN" eval -q --weights lf --val labels.csv --logits all.npy >/dev/null &&
        "$AMPTRAIN" predict --weights lf --top 3 --json "$image" >said && cat said || return 1
    tail -c +129 all.npy | od -An -v -t f4 -w12 | head -n 1 | tr -s ' ' '\n' | sed 1d |
        awk '{ printf "%d %.5f\n", NR - 1, 1 / (1 + exp(-$1)) }' >one.txt
    grep -oE '"index":[0-9],"probability":[0-9.e-]+' said | sed 's/.*"index":\(.\),.*:/\1 /' | sort |
        awk '{ printf "%d %.5f\n", $1, $2 }' >two.txt
    diff one.txt two.txt && ! "$AMPTRAIN" predict --weights l --top 3 --json "$image" | cmp -s - said
}
ok "predict's views are those of the thresholds" flipped
averaged() {
    says 0 "have different thresholds of labels: the mean has none" "$AMPTRAIN" average l lf -o mean.safetensors &&
        ! grep -aq thresholds mean.safetensors && "$AMPTRAIN" average -q l l -o mean.safetensors &&
        grep -aq thresholds mean.safetensors
}
ok "the mean of several has no thresholds" averaged
ok "one label an image is a class" says 3 "the image has 2 labels, not one, as data.task = classify needs" \
    labels e -s data.task=classify
ok "... or a set of one" "$AMPTRAIN" -q --check -c labels.ini -s data.task=multilabel \
    -s data.train=classes.csv
bad_images() {
    sed '3s,pictures,photos,' labels.csv >some.csv
    says 0 'photos/apple/1.png' labels bad -s data.train=some.csv -s data.val_fraction=0 \
        -s data.val=some.csv &&
        grep -q '"bad_images":[1-9]' bad/metrics.jsonl
}
ok "unreadable images are replaced, and not evaluated" bad_images
tensorboard() {
    labels t -s log.tensorboard=yes -s run.max_steps=5 && grep -aq epoch/val_map t/events.out.tfevents.*
}
ok "metrics are drawn" tensorboard
report() { [ -s l/report.html ] && "$AMPTRAIN" report l >out 2>err; }
ok "there is a report" report
stops() {
    labels early -s train.early_stop=1 -s train.epochs=60 -s optimizer.lr=0.0001 &&
        grep -q '"reason":"early_stop"' early/metrics.jsonl
}
ok "early stopping follows mAP" stops

### Numbers

values v || exit 1
ok "numbers are learned" above "$(number val_r2 v/metrics.jsonl)" 0.5
ok "... at their scale" grep -q '"task":"regress","loss":"mse"' v/metrics.jsonl
ok "runs resume exactly, on several ranks" exact values
ok "... with mixed images" exact values -s augment.mixup=0.4 -s train.loss=huber
for loss in l1 huber; do values $loss -s train.loss=$loss || exit 1; done
ok "losses differ" differs l1 huber
numbers() {
    "$AMPTRAIN" eval -q --weights v/$last --json >evaluated.json && for key in mae rmse mse r2 loss; do
        [ "$(number $key evaluated.json)" = "$(number val_$key v/metrics.jsonl)" ] || return 1
    done
}
ok "eval finds what the run found" numbers
# values.csv names every image; its numbers, and those of eval --logits, are in the values' own unit: the mean
# absolute error that they give is the one that is reported.
floats() { od -An -v -t f4 -j 128 -w4 "$1" | tr -d ' '; }
own_unit() {
    "$AMPTRAIN" eval -q --weights v/$last -o v --logits v.npy --json >evaluated.json && floats v.npy >floats &&
        head -n 1 v/values.csv | grep -qx name,value,prediction && sed '1d; s/"//g; s,^.*/pictures,pictures,' v/values.csv |
        paste -d , - floats | awk -F , -v mae="$(number mae evaluated.json)" '
            NR == FNR { value[$1] = $2; next }
            { n++; sum += $2 > $3 ? $2 - $3 : $3 - $2; off = $3 - $4; wrong = wrong || value[$1] != $2 }
            off > 1e-5 || off < -1e-5 { wrong = 1 }
            END { print n, sum / n, mae; exit wrong || n != 12 || sum / n / mae < 0.9999 || sum / n / mae > 1.0001 }
        ' values.csv -
}
ok "... and writes names, values and predictions in their unit" own_unit
each_number() {
    "$AMPTRAIN" eval -q --weights v/$last --results r.csv >out && grep -qx name,truth,prediction,probability r.csv &&
        sed -e '1d' -e 's/,$//' -e 's,^.*/pictures,"pictures,' r.csv >one &&
        sed -e '1d' -e 's,^.*/pictures,"pictures,' v/values.csv | diff one -
}
ok "... likewise eval --results" each_number
predicts_numbers() {
    "$AMPTRAIN" predict --weights v --json pictures/apple/1.png pictures/pear/1.png >said &&
        above "$(sed -n 's/.*apple.*"value":\([-0-9.e]*\).*/\1/p' said)" 0 &&
        ! above "$(sed -n 's/.*pear.*"value":\([-0-9.e]*\).*/\1/p' said)" 0
}
ok "predict gives numbers in their unit" predicts_numbers
scales() {
    values big -s data.value_scale=0,1000 && values own -s data.value_scale="$(number_pair)" && same v own &&
        differs v big
}
number_pair() { sed -n 's/^value_scale = *; *//p' v/config.ini; }
ok "the scale is that of the training images, or what data.value_scale says" scales
# Older versions rounded numbers to floats, which moves their mean by a millionth of the deviation at most.
rounded() {
    values r -s run.max_steps=7 && number_pair | awk -F , '{ printf "%.17g,%.17g\n", $1 + 5e-7, $2 - 5e-7 }' >pair &&
        values r -r -s data.value_scale="$(cat pair)" -s run.max_steps=9 &&
        number_pair | awk -F , '{ printf "%.17g,%.17g\n", $1 + 1e-5, $2 }' >pair &&
        says 2 "data.value_scale: " values r -r -s data.value_scale="$(cat pair)"
}
ok "a run is resumed with the same scale, but for rounding" rounded
ok "... which is kept in exported weights" sh -c "'$AMPTRAIN' export -q --weights v -o v.safetensors &&
    '$AMPTRAIN' predict --weights v.safetensors pictures/apple/1.png >one.txt &&
    '$AMPTRAIN' predict --weights v pictures/apple/1.png | cmp - one.txt"
# Numbers that floats do not tell apart are learned as well as others.
far() {
    awk -F , 'NR > 1 { $2 = sprintf("%.2f", 100000000 + $2) } { print $1 "," $2 }' values.csv >far.csv
    values far -s data.train=far.csv 2>err || return 1
    cat err; ! grep -q "all training images have the value" err && lines far >far.txt && lines v >near.txt &&
        above 1e-3 "$(number val_mae far/metrics.jsonl) - $(number val_mae v/metrics.jsonl)" &&
        above "$(number val_r2 far/metrics.jsonl)" 0.5 && "$AMPTRAIN" predict --weights far pictures/apple/1.png |
        grep -q "1.png: 10000000[0-9][.][0-9]"
}
ok "numbers that floats do not tell apart" far
# The largest numbers that are read are trained on; larger ones are refused where they are read.
largest() {
    awk -F , 'NR > 1 { $2 = (NR % 2 ? "-" : "") largest } { print $1 "," $2 }' largest="$1" values.csv >largest.csv
    shift
    "$@" largest.csv
}
on_table() { rm -rf large && values large -s train.epochs=1 -s data.train="$1"; }
ok "the largest numbers" largest 1e30 on_table
ok "... of which init makes a configuration" largest 1e30 "$AMPTRAIN" init
ok "larger ones" largest 1.5e30 says 3 "largest.csv:2: column 'value': must be between -1e+30 and 1e+30" on_table
ok "... by init" largest 1.5e30 says 3 "largest.csv:2: column 'value': must be between" "$AMPTRAIN" init
best() {
    values b -s checkpoint.best=val_r2 || return 1
    best=$(sed -n 's/.*"val_r2":\([-0-9.e]*\).*/\1/p' b/metrics.jsonl | sort -g | tail -n 1)
    [ "$(number best b/metrics.jsonl)" = "$best" ]
}
ok "checkpoint.best may be any of the metrics" best
in_report() { grep -q '^<path class="dots few" d="M' v/report.html && grep -q 'Largest losses' v/report.html &&
    grep -qF '<td>third</td>' l/report.html && grep -q '<h2 id="scores">Scores</h2>' l/report.html; }
# Right predictions are not red, nor is any number: one is no more wrong than the next.
red() {
    awk '/Largest losses/ { on = 1 } on && /predicted as/ { print }' l/report.html >lines && cat lines &&
        grep -q 'class="bad">third</span>' lines && ! grep -qE 'class="bad">(red|green|none)' lines &&
        ! grep -q 'predicted as.*class="bad"' v/report.html
}
ok "... in red what is wrong alone" red
ok "reports have predictions beside values, and labels" in_report
other_scale() {
    values scaled -s data.value_scale=0,2 && says 5 "-best.safetensors: data.value_scale is 0,2, not" \
        "$AMPTRAIN" average v scaled -o scaled.safetensors
}
ok "numbers of another scale are not averaged" other_scale
other_task() {
    "$AMPTRAIN" average l v -o tasks.safetensors 2>err && return 1
    cat err; grep -q "data.task is regress, not multilabel" err
}
ok "... nor those of labels" other_task

# There is no average precision of labels that no validation image has.
table path,red,green,third -e 's/$/,0,0,0/' | head -n 9 >unset.csv
undefined() {
    says 1 "there is no best checkpoint, since checkpoint.best was never defined" \
        labels u -s data.val_fraction=0 -s data.val=unset.csv &&
        [ "$(grep -c "mAP is not defined by these validation images" err)" = 1 ] &&
        grep -q '"reason":"not_finite"' u/metrics.jsonl && [ ! -e u/checkpoint-best.safetensors ] &&
        labels u2 -s data.val_fraction=0 -s data.val=unset.csv -s checkpoint.best=val_loss
}
ok "a metric that is never defined chooses no epoch, and that is no success" undefined

### Other commands

# packed FOLDER COMMAND: a run on what pack makes of its table is the same run.
packed() {
    "$AMPTRAIN" pack -q -c "$2.ini" -s data.val_fraction=0 -o $2.pack && "$AMPTRAIN" pack -q -c "$2.ini" \
        -s data.val_fraction=0 --shards 3 -o $2-shards.pack || return 1
    for of in $2.pack $2-shards; do
        [ -d $of ] || [ -f $of ] || { mkdir $of && mv $2-shards-0*.pack $of; } || return 1
        rm -rf p
        $2 p -s data.format=packed -s data.train=$of -s data.val_fraction=0 -s data.val=$of &&
            { [ -d q$2 ] || $2 q$2 -s data.val_fraction=0 -s data.val="$2.csv"; } && same p q$2 || return 1
    done
}
ok "packed labels are the same" packed l labels
ok "packed numbers are the same" packed v values
# archives TABLE: every image with its target, in the order of the table.
archives() {
    rm -rf members && mkdir members
    sed 1d "$1" | { i=1000; while IFS= read -r line; do
        i=$((i + 1)) path=${line%%,*} target=${line#*,}
        cp "$path" members/$i.png
        case $1 in
        labels.csv)
            for k in 1 2 3; do [ "$(echo "$target" | cut -d , -f $k)" = 0 ] || echo $((k - 1)); done ;;
        *) echo "$target" ;;
        esac >members/$i.cls
    done; }
    (cd members && tar -cf - $(ls)) >"${1%.csv}.tar"
}
tars() {
    archives labels.csv && archives values.csv && rm -rf p || return 1
    labels p -s data.format=packed -s data.train=labels.tar -s data.val=labels.tar -s data.val_fraction=0 \
        -s data.task=multilabel && same p qlabels && rm -rf p &&
        values p -s data.format=packed -s data.train=values.tar -s data.val=values.tar \
            -s data.val_fraction=0 -s data.task=regress && same p qvalues
}
ok "so are those of tar archives" tars
ok "... of which each label must be one" says 3 "1001.cls is not numbers of labels, such as 1 4 7" labels e \
    -s data.format=packed -s data.train=values.tar -s data.val_fraction=0 -s data.task=multilabel
groups() {
    sed -e '1s/$/,group/' -e '2,$s,.*[/]\([0-9]*\)[.]png.*,&\,\1,' values.csv >groups.csv
    rm -rf p q
    "$AMPTRAIN" pack -q -c values.ini -s data.train=groups.csv -s data.val_fraction=0 -o groups.pack &&
        values p -s data.format=packed -s data.train=groups.pack -s data.fold=2/6 -s data.val_fraction=0 &&
        values q -s data.train=groups.csv -s data.fold=2/6 -s data.val_fraction=0 &&
        grep -q '"val_images":8' p/metrics.jsonl && grep -q '"val_images":8' q/metrics.jsonl
}
ok "packed groups are not divided" groups
damaged() {
    at=$(($(wc -c <labels.pack) - 60))
    printf '\377' | dd of=labels.pack bs=1 seek=$at conv=notrunc 2>err
    says 3 'labels.pack: the ' labels e -s data.format=packed -s data.train=labels.pack
}
ok "... and damage is noticed" damaged
inits() {
    "$AMPTRAIN" init labels.csv -o new.ini && grep -q '^task = multilabel' new.ini &&
        grep -q '48 training images with any of 3 labels' new.ini && "$AMPTRAIN" -q --check -c new.ini &&
        "$AMPTRAIN" init values.csv -o other.ini && grep -q '^task = regress' other.ini &&
        grep -q '48 training images with numbers from -1.9 to 1.9' other.ini &&
        "$AMPTRAIN" -q --check -c other.ini
}
ok "init writes configurations for them" inits
compares() {
    "$AMPTRAIN" compare v l1 huber -o table.html >said && grep -q '^best .* in epoch' said &&
        grep -q 'Mean absolute error' table.html && "$AMPTRAIN" compare l w >said &&
        grep -q ' % in epoch' said
}
ok "compare knows their metrics" compares
sweeps() {
    "$AMPTRAIN" sweep -c values.ini -s optimizer.lr=0.000001,0.01 --folds 2 -s data.val_fraction=0 -o swept \
        -s data.train=groups.csv >said 2>err || { cat err; return 1; }
    sed -n 2p said | grep -q '^lr=0.01' && sed -n 5p said | grep -q "^lr=0.000001" &&
        [ "$(number val_mae swept/lr=0.01,fold=1-2/metrics.jsonl)" ] && grep -q '^lr=0.01 * 2 ' said
}
ok "sweep finds the smallest error, and its mean over folds of groups" sweeps
# near ONE OTHER: numbers.
near() { awk "BEGIN { d = $1 - $2; exit !(d < 0.001 && d > -0.001) }"; }
explains() { # RUN
    one=$("$AMPTRAIN" predict -q --weights "$1" --top 1 pictures/apple/1.png | sed 's/.* //')
    other=$("$AMPTRAIN" explain -q --weights "$1" pictures/apple/1.png -o "maps-$1" |
        sed -E 's/.* ([-0-9.]+), .*/\1/')
    [ "$one" ] && near "$one" "$other"
}
ok "explain has their probability" explains l
ok "... or the number" explains v
pages() {
    grep -q 'best mAP, epoch' l/report.html && grep -q '<b>Labels</b>' l/report.html &&
        grep -q 'best mean absolute error, epoch' v/report.html && grep -q '<b>Errors</b>' v/report.html &&
        grep -q 'Largest losses' v/report.html
}
ok "reports have curves and the largest losses" pages

### What has no meaning is refused

refused() { # WORDS COMMAND OPTION...
    words=$1 run=$2; shift 2
    ok "refused: $words" says 2 "$words" $run e "$@"
}
refused "train.loss: ce is no loss of data.task = multilabel; it has bce" labels -s train.loss=ce
refused "train.loss: bce is no loss of data.task = regress; it has mse, l1, huber" values -s train.loss=bce
refused "checkpoint.best: val_top1 is no metric of data.task = multilabel; it has val_map" labels \
    -s checkpoint.best=val_top1
refused "data.balance: draws images by their class" labels -s data.balance=yes
refused "data.balance: draws images by their class" values -s data.balance=yes
refused "data.class_weights: there are no classes with data.task = regress" values \
    -s data.class_weights=balanced
refused "data.class_weights: 2 numbers for 3 classes" labels -s data.class_weights=1,2
refused "augment.label_smoothing: there are no classes" values -s augment.label_smoothing=0.1
refused "augment.cutmix: a part of an image does not have a part of its number" values -s augment.cutmix=1
refused "data.value_scale: the second number must be above 0" values -s data.value_scale=1,0
ok "other data for the task" says 3 "pictures: has a class for each image, not several labels an image" \
    labels e -s data.format=folder -s data.train=pictures -s data.task=multilabel
ok "softmax of labels" says 2 "--softmax is for classes" "$AMPTRAIN" export --softmax --weights l -o e.onnx

### Beside Python

python=${PYTHON:-python3}
if "$python" -c 'import sklearn' 2>/dev/null; then
    "$top_builddir/tests/train/test_task" dump >cases.json || exit 1
    ok "metrics are scikit-learn's" "$python" "$top_srcdir/tests/graph/python_peers.py" metrics cases.json
    "$top_builddir/tests/train/test_scores" dump >cases.json || exit 1
    ok "... and scores of classes and labels" "$python" "$top_srcdir/tests/graph/python_peers.py" scores cases.json
else
    skip "metrics are scikit-learn's" "python has no sklearn"
fi
finish
