#!/bin/sh
# Results by class at the end of training and of eval, against a count by awk from the logits that eval
# writes.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$AMPTRAIN" -c run.ini -o run -s checkpoint.every=1 -s log.tensorboard=yes >results 2>said || exit 1
"$AMPTRAIN" eval -q --weights run/checkpoint-best.safetensors --logits logits.npy -o evaluated >printed ||
    exit 1

# Every fifth line of the digits is for validation; the label is the last of a line.
gzip -dc "$top_srcdir/data/digits/digits.csv.gz" | awk -F , 'NR % 5 == 0 { print $NF + 0 }' >labels
tail -c +129 logits.npy | od -An -v -t f4 -w40 |
    awk '{ best = 1; for (i = 2; i <= NF; i++) if ($i > $best) best = i; print best - 1 }' >predicted
paste labels predicted | awk '
    { images[$1]++; cell[$1, $2]++ }
    END {
        printf "true\\predicted" >"counted.csv"
        for (i = 0; i < 10; i++) printf ",\"%d\"", i >"counted.csv"
        for (i = 0; i < 10; i++) {
            printf "\n\"%d\"", i >"counted.csv"
            for (j = 0; j < 10; j++) printf ",%d", cell[i, j] >"counted.csv"
            accuracy = cell[i, i] / images[i]
            sum += accuracy
            printf "%.17g %d\n", accuracy, i >"accuracies"
            for (j = 0; j < 10; j++) if (j != i && cell[i, j]) print cell[i, j], i, j >"confusions"
        }
        printf "\n" >"counted.csv"
        printf "%.2f %%\n", 10 * sum >"balanced"
    }'
worst=$(sort -k 1,1g -k 2,2n accuracies |
    awk '$1 < 1 && n++ < 5 { printf "%s%d (%.2f %%)", s, $2, 100 * $1; s = ", " }')
confused=$(sort -k 1,1nr -k 2,2n -k 3,3n confusions |
    awk 'n++ < 5 { printf "%s%d as %d (%d)", s, $2, $3, $1; s = ", " }')

ok "the network makes mistakes" [ "$(wc -l <confusions)" -gt 5 ]
ok "confusion.csv of eval" diff counted.csv evaluated/confusion.csv
ok "confusion.csv of the run" diff counted.csv run/confusion.csv
# printed TEXT: a whole line that eval prints.
printed() { cat printed; grep -qxF "$1" printed; }
ok "eval prints balanced accuracy" printed "balanced accuracy: $(cat balanced)"
ok "... the worst classes" printed "worst classes: $worst"
ok "... and the most frequent confusions" printed "most confused: $confused"
# told NAME VALUE: a row at the end of training.
told() { cat results; grep -qxF "  $(printf '%-17s' "$1")  $2" results; }
best=$(sed -n 's/.*"event":"epoch","epoch":\([0-9]*\),.*"val_top1":\([^,]*\),.*/\2 \1/p' run/metrics.jsonl |
    sort -k 1,1gr -k 2,2n | sed -n '1s/.* //p')
epoch=" in epoch $best"
ok "train prints balanced accuracy, and of which epoch" told "balanced accuracy" "$(cat balanced)$epoch"
ok "... the worst classes" told "worst classes" "$worst$epoch"
ok "... and the most frequent confusions" told "most confused" "$confused$epoch"
ok "... alone on standard output" sh -c '! grep -q "balanced accuracy" said && ! grep -v "^  " results'
ok "... and in its log" grep -q "balanced accuracy" run/log.txt

ok "--json has the documented results" sh -c '
    "$AMPTRAIN" eval -q --weights run/checkpoint-best.safetensors --json |
        tee full.json | grep -q "^{\"images\":359,\"errors\":[0-9]*,\"top1\":[^,]*,\"top5\":[^,]*,\"loss\":"'
ok "... and by class, as the text" sh -c '
    first=$(sort -k 1,1nr -k 2,2n -k 3,3n confusions |
        awk "NR == 1 {
            printf \"{\\\"class\\\":\\\"%d\\\",\\\"predicted\\\":\\\"%d\\\",\\\"images\\\":%d}\", \$2, \$3, \$1 }")
    echo "$first"; cat full.json
    grep -qF "\"confusions\":[$first" full.json && grep -o "\"accuracy\":" full.json | grep -c . | grep -qx 10'
ok "the record of eval names the weights" grep -q \
    '^{"event":"eval","split":"val","weights":"run/checkpoint-best.safetensors","images":359,.*,"time":[0-9.e-]*}$' evaluated/metrics.jsonl

# --results: a line for each image, whose truth and prediction are those of the logits.
results() {
    "$AMPTRAIN" eval -q --weights run --results results.csv >results.txt && head -n 1 results.csv |
        grep -qx name,truth,prediction,probability && sed -e 1d -e 's/"//g' results.csv |
        awk -F , '$1 != NR - 1 || $4 <= 0.1 || $4 > 1 { exit 1 } { print $2 "\t" $3 }' >lines &&
        paste labels predicted | diff - lines
}
ok "--results has every image" results
ok "... and writes over nothing else" says 2 "run/config.ini: " "$AMPTRAIN" eval --weights run --results run/config.ini
scores() {
    for folder in run evaluated; do
        grep -q '^{"scores":1,"balanced_accuracy":.*"macro":{"precision":.*"calibration":{"ece":.*"thresholds":\[{' \
            $folder/scores.json || return 1
    done
    grep -o '"classes":.*' full.json >one && grep -o '"classes":.*' evaluated/scores.json | diff one -
}
ok "scores.json has what --json has" scores

# TensorBoard has its rows, and an image for each epoch.
drawn() {
    tail -n +2 counted.csv | sed -e 's/"//g' -e 's/,/ | /g' >rows
    [ -s rows ] && while read -r row; do
        grep -aqF "$row" run/events.out.tfevents.* || { echo "not there: $row"; return 1; }
    done <rows
    [ "$(grep -ao 'PNG' run/events.out.tfevents.* | wc -l)" = \
        "$(grep -c '"event":"epoch"' run/metrics.jsonl)" ]
}
ok "TensorBoard has the confusion matrix" drawn
ok "... and the configuration" grep -aq '^    seed = ' run/events.out.tfevents.*
# per_class FOLDER: the accuracies of the best epoch, one a line.
per_class() { sed -n 's/.*"per_class":\[\(.*\)\].*/\1/p' "$1/metrics.jsonl" | sed -n "${best}p" | tr , '\n'; }
same_accuracies() {
    per_class run | paste - accuracies |
        awk '{ print } ($1 - $2) ^ 2 > 1e-16 { bad = 1 } END { exit bad || NR != 10 }'
}
ok "metrics have accuracies per class" same_accuracies
ok "... in every epoch's line" sh -c '
    [ "$(grep "\"event\":\"epoch\"" run/metrics.jsonl | grep -c per_class)" = 4 ]'
ok "a stopped run has the confusion matrix of its last complete epoch" sh -c '
    "$AMPTRAIN" -q -c run.ini -o within -s run.max_steps=30 -s amp.precision=fp32 &&
    [ "$(wc -l <within/confusion.csv)" = 11 ]'

# Several ranks, with a batch that does not divide the images.
several() {
    "$AMPTRAIN" -q -c run.ini -o several -s checkpoint.every=1 -s parallel.gpus=2 -s train.accumulate=1 &&
        diff counted.csv several/confusion.csv && cmp run/scores.json several/scores.json && per_class run >one && per_class several | diff one -
}
ok "several ranks count all images" several

full() {
    mkdir -p full/confusion.csv
    "$AMPTRAIN" -q -c run.ini -o full -s train.epochs=1 2>said
    status=$?
    cat said
    [ $status = 0 ] && grep -q "the results of the evaluation were not written; the run continues" said &&
        [ -f full/checkpoint-last.safetensors ]
}
ok "the run continues if the matrix cannot be written" full
finish
