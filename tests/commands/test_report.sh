#!/bin/sh
# report: the page of a run: what a run leaves is on it, it needs nothing but itself, and nothing in a folder
# breaks it.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

page=run/report.html

# wellformed FILE: every element is closed where it should be.
wellformed() {
    if command -v xmllint >/dev/null; then xmllint --noout "$1"
    else awk '{ opened += gsub(/<[a-z]/, ""); closed += gsub(/<\//, "") + gsub(/\/>/, "") }
              END { print opened, closed; exit opened != closed || opened == 0 }' "$1"
    fi
}

ok "a run writes its report" "$AMPTRAIN" -q -c run.ini -o run
ok "... well-formed" wellformed $page
ok "... with no external references" sh -c \
    '! grep -oE "(src|href)=\"[^d#][^\"]*\"|@import|url\(" run/report.html'
has() { grep -qF -e "$1" $page || { echo "not on the page: $1"; return 1; }; }
for title in Loss Accuracy "Learning rate" "Loss scale" "Gradient norm" Throughput "Waiting for data"; do
    ok "... with the curve '$title'" has "<b>$title</b>"
done

# A line has the points that metrics have: steps are few enough for all.
points() { grep "^<polyline.*data-name=\"$1\"" $page | sed 's/.*points="//' | wc -w; }
ok "every step is a point" [ "$(points step)" = "$(grep -c '"event":"step"' run/metrics.jsonl)" ]
ok "every epoch is a point" [ "$(points 'validation top-1')" = 4 ]
# A run whose last steps have no line.
every() {
    "$AMPTRAIN" -q -c run.ini -o every -s log.every=50 -s run.max_steps=33 || return 1
    steps=$(sed -n 's/.*"event":"end".*"steps":\([0-9]*\),.*/\1/p' every/metrics.jsonl)
    grep -qF "<b>$steps</b>steps" every/report.html &&
        "$AMPTRAIN" compare every run >out && grep -qE " / $steps( |$)" out
}
ok "... and counted" every
best() { sed -n 's/.*"event":"epoch".*"val_top1":\([^,]*\),.*/\1/p' run/metrics.jsonl | sort -g | tail -n 1; }
ok "the best accuracy" has "<b>$(best | awk '{ printf "%.2f %%", 100 * $1 }')</b>best accuracy"
ok "skipped steps are marked" has '<path class="mark"'

# The confusion matrix: its cells add up to the images.
cells() { sed -n 's/.*predicted as .*: \([0-9]*\) of [0-9]* (.*<\/title>.*/\1/p' $page; }
ok "the confusion matrix has all cells" [ "$(cells | wc -l)" = 100 ]
ok "... and all images" [ "$(cells | awk '{ n += $1 } END { print n }')" = 359 ]
ok "a matrix without names has an outline" grep -qF '.cells[data-names]{outline' $page
ok "no gap below names of one letter" sh -c '
    grep -q "class=.cells. viewBox=\"-0.56 0 10.56 10.56\"" run/report.html'
ok "no tick is at -0" sh -c '! grep -q ">-0<" run/report.html && grep -q ">0</text>" run/report.html'
ok "a row for every class" [ "$(grep -c 'class="bar"' $page)" = 10 ]
ok "mistakes with pictures" [ "$(grep -c 'src="data:image/jpeg;base64,/9j/' $page)" = 24 ]
ok "... and with explanations" [ "$(grep -o 'src="data:image/jpeg;base64,/9j/' $page | wc -l)" = 48 ]
# A class for every pixel: the matrix has pixels, and each of the worst images one wide picture.
pixels() {
    cp -r run pixels && rm pixels/report.html || return 1
    sed -e 's/"task":"classify"/"task":"segment"/' -e 's/"val_top1"/"val_miou"/' -e 's/"checkpoint_best":"val_top1",*//' \
        run/metrics.jsonl >pixels/metrics.jsonl
    printf 'true,road,sky,none\nroad,900,100,0\nsky,0,1000,0\nnone,0,0,0\n' >pixels/confusion.csv
    printf '[{"image":"a/b.png","index":1,"loss":0.5,"miou":0.25,"picture":"/9j/"}]' >pixels/mistakes.json
    "$AMPTRAIN" report pixels
}
page=pixels/report.html
ok "a class for every pixel" pixels
ok "... whose curve is there" has '<b>Pixels</b>'
ok "... IoU and Dice of a class" has '<td>road</td><td class="n">90.0</td><td class="bar" style="--v:90.0%"></td><td class="n">94.7</td><td>sky</td><td class="n">1000</td>'
ok "... of one that is nowhere" has '<td>none</td><td class="n"></td>'
ok "... pixels taken for another class" has '<td>road</td><td>sky</td><td class="n">100</td><td class="n">10.0</td>'
ok "... shares in the matrix" has '>90</text>'
ok "... the worst images" has '<figure class="strip" title="a/b.png"><img alt="" src="data:image/jpeg;base64,/9j/"/>mean IoU 25.0 %, loss 0.5 <span class="grey">b.png</span></figure>'
ok "... well-formed" wellformed $page
page=run/report.html

the_map() { sed -n 's/.*sandbox="" .*svg+xml;base64,\([^"]*\)".*/\1/p' $page | base64 -d |
    cmp - run/memory.svg; }
ok "the memory map in a sandboxed frame" the_map
ok "... as wide as the page" sh -c '
    grep -q "<style>svg { max-width: 100%; height: auto }" run/memory.svg &&
        size=$(sed -n "s/.*<svg.* width=.\([0-9]*\). height=.\([0-9]*\). .*/\1 \2/p" run/memory.svg) &&
        grep -q "class=.map.*style=.max-width:${size% *}px;aspect-ratio:${size% *}/${size#* }." \
            run/report.html'

# The axis of a chart is logarithmic (data-log) where one high value would flatten the line.
high() {
    awk '/"event":"epoch"/ && !done { sub(/"val_loss":[^,]*/, "\"val_loss\":1e5"); done = 1 } { print }' \
        run/metrics.jsonl >high/metrics.jsonl
    "$AMPTRAIN" report -q high && wellformed high/report.html && is_log high 1
}
is_log() { grep -q "aria-label=\"Loss\".*data-log=\"$2\"" "$1/report.html"; }
mkdir high
ok "losses of one size have a linear axis" is_log run 0
ok "... with a very high one, a logarithmic axis" high
named() {
    printf '[{"image":"/a/<b>.png","label":"1","predicted":"2"},{"index":7,"label":"1","predicted":"2"}]' \
        >high/mistakes.json
    "$AMPTRAIN" report -q high && grep -qF 'title="/a/&lt;b&gt;.png"' high/report.html &&
        grep -qF '>&lt;b&gt;.png</span></figure>' high/report.html && grep -qF '>image 7</span>' high/report.html
}
ok "a mistake has the name of its file, or its index" named
unscaled() {
    sed 's/"loss_scale":[0-9.e+]*/"loss_scale":1/' run/metrics.jsonl >high/metrics.jsonl
    "$AMPTRAIN" report -q high && ! grep -q "<b>Loss scale</b>" high/report.html
}
ok "a run without loss scaling has no curve of it" unscaled
class_sizes() { sed -n "s/.*\"$1\":\[\([0-9,]*\)\].*/\1/p" run/metrics.jsonl | tr , '\n' | sort -n |
    sed -n '1p;$p' | paste -s -d - |
    sed 's/-/ to /'; }
ok "numbers of images per class" has \
    "<p>1438 training images, $(class_sizes train_per_class) in a class; 359 for \
validation, $(class_sizes val_per_class) in a class</p>"
# In a browser, where there is one that starts.
browser=$(command -v chromium || command -v google-chrome)
browse() {
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
        --user-data-dir="$scratch/browser" \
        --enable-logging=stderr --dump-dom "file://$PWD/$1" >dom 2>said
}
if [ -n "$browser" ] && browse $page; then
    ok "a browser shows it without errors" sh -c 'grep CONSOLE said; ! grep -q CONSOLE said &&
    grep -q "<output>" dom'
    sed 's/function nearest/function nearest nearest/' $page >broken.html
    browse broken.html
    ok "... which it reports if the script is broken" grep -q CONSOLE said
else
    skip "a browser shows it without errors" "there is none that starts"
    skip "... which it reports if the script is broken" "there is none that starts"
fi
ok "library versions" sh -c 'grep -q "<td>libraries</td><td>oneDNN [0-9.]*" run/report.html'
ok "the configuration" has "init_scale = 16777216"

# Mistakes as eval finds them by its logits: the image, its label, what it is predicted as, how sure.
"$AMPTRAIN" eval -q --weights run/checkpoint-best.safetensors --logits logits.npy -o evaluated >/dev/null ||
    exit 1
gzip -dc "$top_srcdir/data/digits/digits.csv.gz" | awk -F , 'NR % 5 == 0 { print $NF + 0 }' >labels
tail -c +129 logits.npy | od -An -v -t f4 -w40 | paste labels - | awk '
    { best = 2; for (i = 3; i <= NF; i++) if ($i > $best) best = i
      sum = 0; for (i = 2; i <= NF; i++) sum += exp($i - $best)
      if (best - 2 != $1) printf "%.5f %d %d %d\n", 1 / sum, NR - 1, $1, best - 2 }' | sort -k 1,1gr | head -n 24 >wanted
# the_mistakes FILE
the_mistakes() {
    grep -o '"index":[0-9]*,"label":"[0-9]*","predicted":"[0-9]*","confidence":[0-9.]*' "$1" | tr -d '"a-z:' |
        awk -F , '{ printf "%.5f %d %d %d\n", $4, $1, $2, $3 }' >found
    paste found wanted | awk '{ print } ($1 - $5) ^ 2 > 1e-9 { bad = 1 } END { exit bad || NR != 24 }' &&
        cut -d ' ' -f 2- found | sort >found.sorted && cut -d ' ' -f 2- wanted | sort |
            comm -3 - found.sorted | wc -l |
        awk '{ exit $1 > 2 }'
}
ok "the most confident mistakes of eval" the_mistakes evaluated/mistakes.json
ok "... and of the run" the_mistakes run/mistakes.json
several() {
    "$AMPTRAIN" -q -c run.ini -o several -s parallel.gpus=2 -s train.accumulate=1 &&
        sed 's/,"width.*//' run/mistakes.json >one && sed 's/,"width.*//' several/mistakes.json |
            diff one - &&
        wellformed several/report.html
}
ok "several ranks give the same" several

ok "the command report writes the same page" sh -c '
    cp run/report.html first && rm run/report.html && "$AMPTRAIN" report -q run && cmp first run/report.html'
ok "run.report=no: nothing is written" sh -c '
    "$AMPTRAIN" -q -c run.ini -o silent -s run.report=no &&
    [ ! -e silent/report.html ] && [ ! -e silent/memory.svg ]'
resumed() {
    "$AMPTRAIN" -q -c run.ini -o resumed -s run.max_steps=30 && "$AMPTRAIN" -q -c run.ini -o resumed -r ||
        return 1
    sed 's/.*points="//; t; d' $page | head -n 3 >one
    sed 's/.*points="//; t; d' resumed/report.html | head -n 3 | cmp - one &&
        grep -q "was resumed" resumed/report.html
}
ok "a resumed run has the same curves" resumed

# Epochs that took half a kilowatt-hour each, and two after the last one.
energy() {
    mkdir -p energy &&
        sed 's/^{"event":"epoch",/&"joules":1800000,/
            s/^{"event":"end",/&"joules":7200000,/' run/metrics.jsonl >energy/metrics.jsonl &&
        "$AMPTRAIN" report -q energy && wellformed energy/report.html || return 1
    hours=$(awk "BEGIN { printf \"%.2f\", 2 + 0.5 * $(grep -c '"event":"epoch"' run/metrics.jsonl) }")
    grep -qF "<b>$hours kWh</b>energy" energy/report.html
}
ok "energy" energy

# Folders that say little, or lies.
bare() { mkdir -p bare && grep '"event":"step"' run/metrics.jsonl | head -n 3 >bare/metrics.jsonl &&
    printf '{"event":"epo' >>bare/metrics.jsonl && "$AMPTRAIN" report -q bare &&
        wellformed bare/report.html &&
    grep -q "not ended" bare/report.html; }
ok "a run in progress" bare
odd() {
    rm -rf odd && cp -r run odd
    printf '"true\\predicted","<b>&amp;","""q"", \n\001\377x"\n"<b>&amp;",1,2\n"q",0,3\n' >odd/confusion.csv
    printf 'label,images,average_precision,f1,threshold\n"<b>&amp;","""q""",1,1,0.5\n"\001",1\n' >odd/labels.csv
    printf '[{"label":"</td>","predicted":"\\u0001","picture":"\\"onload=x"},7]' >odd/mistakes.json
    printf 'val\t1\t<script>\tno\n' >odd/bad-images.txt
    "$AMPTRAIN" report -q odd && wellformed odd/report.html && ! grep -q "onload=x" odd/report.html &&
        grep -qF '&lt;script&gt;' odd/report.html
}
ok "names that look like markup" odd
formulas() {
    printf "true,a,\"'=x,y\"\na,1,2\n\"'=x,y\",0,3\n" >odd/confusion.csv
    "$AMPTRAIN" report -q odd && grep -qF ">=x,y<" odd/report.html && ! grep -qF "'=x,y" odd/report.html
}
ok "... or like formulas" formulas
# lies LINE...: the page of these metrics, where nothing is not a number. Characters that XML does not have,
# numbers whose sums overflow or whose differences are lost, marks without a place, counts below 0.
lies() {
    rm -rf lies && mkdir lies && printf '%s\n' "$@" >lies/metrics.jsonl
    printf 'true,a,b\na,nan,1\nb,-1,1e308\n' >lies/confusion.csv
    printf 'name,value,prediction\na,1,1e308\nb,-1e308,2\nc,nan,3\nd,4,\n' >lies/values.csv
    printf 'label,images,average_precision,f1,threshold\na,1e308,-7,nan,\nb,,9,inf,x\n' >lies/labels.csv
    timeout 60 "$AMPTRAIN" report -q lies && wellformed lies/report.html &&
        ! grep -E '<b onload|[ ,>"M][+-]?(nan|inf)[ ,<"]' lies/report.html
}
ok "a reason that looks like markup" lies '{"event":"end","reason":"<b onload=x>"}'
ok "characters that XML does not have" lies \
    "$(printf '{"event":"start","model":"\357\277\276\357\277\277\001"}')"
ok "numbers that overflow" lies '{"event":"step","step":-1e308,"loss":-1e308,"lr":1e307}' \
    '{"event":"step","step":1e308,"loss":1e308,"lr":1e299}' '{"event":"step","step":1,"loss":2,"lr":1}' \
    '{"event":"epoch","epoch":1,"step":1,"seconds":1e308,"device_peak_bytes":1e299,"joules":1e308}'
# Values of which a tenth of the predictions is far off: nothing falls outside of the picture.
predicted() {
    mkdir -p predicted && cp run/metrics.jsonl predicted && awk 'BEGIN {
        srand(1); print "name,value,prediction"
        for (i = 0; i < 20000; i++) {
            v = 360 * rand() - 180
            printf "i,%.6g,%.6g\n", v, v + (rand() < 0.1 ? 90 : 8) * (rand() - rand())
        }
    }' >predicted/values.csv
    "$AMPTRAIN" report -q predicted && wellformed predicted/report.html &&
        grep '^<path class="dots many"' predicted/report.html | grep -o 'M[0-9.]* [0-9.]*h0' |
            sed 's/^M\(.*\)h0/\1/' |
            awk '$1 < 52 || $1 > 348 || $2 < 12 || $2 > 330 { print; wrong = 1 } { dots++ }
                END { print dots; exit wrong || dots < 5000 || dots > 20000 }'
}
ok "predictions beside values" predicted
same_values() { printf 'name,value,prediction\na,5,5\nb,5,5\n' >predicted/values.csv && "$AMPTRAIN" report -q predicted &&
    wellformed predicted/report.html && grep -q '^<path class="dots few" d="M200 171h0"/>$' predicted/report.html; }
ok "... of which all are one" same_values
ok "numbers that are nearly equal" lies '{"event":"step","step":1e16,"loss":1e16}' \
    '{"event":"step","step":10000000000000002,"loss":10000000000000002}'
ok "skipped steps without a number" lies '{"event":"step","skipped":1}' '{"event":"step","step":2,"loss":1}'
marked() {
    lies '{"event":"step","step":1,"skipped":1,"loss":9}' '{"event":"step","step":2,"loss":1,"grad_norm":1}' \
        '{"event":"step","step":3,"loss":1,"grad_norm":2}' &&
        [ "$(grep -c '^<path class="mark" d="M52.0 18l' lies/report.html)" = 2 ]
}
ok "skipped steps before the first norm are in its picture" marked
cut_off() {
    for bytes in 1 20 30 60 150 250; do
        rm -rf part && cp -r run part
        for file in confusion.csv mistakes.json metrics.jsonl config.ini; do head -c $bytes run/$file \
            >part/$file; done
        "$AMPTRAIN" report -q part && wellformed part/report.html || return 1
    done
}
ok "truncated files" cut_off
ok "a folder without a run" says 3 "has no run" "$AMPTRAIN" report .
ok "a missing folder" says 1 "nowhere" "$AMPTRAIN" report nowhere
ok "no argument" says 2 "give one run folder" "$AMPTRAIN" report
full() {
    cp -r run full && rm full/report.html && mkdir -p full/report.html/x
    "$AMPTRAIN" -q -c run.ini -o full -r -s train.epochs=5 2>said
    status=$?
    cat said
    [ $status = 0 ] && grep -q "the report was not written; .amptrain report. writes it" said
}
ok "the run continues if the report cannot be written" full

# A large one: ninety epochs, and a thousand classes whose cells are runs of paths.
large() {
    mkdir -p large && awk 'BEGIN {
        srand(1)
        for (i = 1; i <= 45000; i++) printf "{\"event\":\"step\",\"step\":%d,\"epoch\":%d,\"loss\":%f,\"grad_norm\":%f}\n",
            i * 10, 1 + int(i / 500), rand(), rand()
    }' >large/metrics.jsonl
    awk 'BEGIN {
        srand(1); printf "\"\""; for (i = 0; i < 1000; i++) printf ",\"class number %d\"", i
        for (i = 0; i < 1000; i++) {
            printf "\n\"class number %d\"", i
            for (j = 0; j < 1000; j++) printf ",%d", i == j ? 38 : rand() < 0.012
        }
        printf "\n" }' >large/confusion.csv
    "$AMPTRAIN" report -q large && wellformed large/report.html && bytes=$(wc -c <large/report.html) &&
        figure "$bytes bytes" && [ "$bytes" -lt 5000000 ] && grep -q 'class="cells tiny"' large/report.html
}
ok "ninety epochs of a thousand classes stay small" large

# MLflow's file store: what its own client reads, or where that is not installed, its files.
stored() {
    "$AMPTRAIN" report run --mlflow store && "$AMPTRAIN" report run --mlflow store &&
        "$AMPTRAIN" report every --mlflow store || return 1
    [ "$(ls -d store/*/*/ | wc -l)" = 2 ] || { ls store/*; return 1; }
    at=$(dirname "$(grep -lF "artifact_uri: \"$(pwd -P)/run\"" store/*/*/meta.yaml)")
    sed -n 's/.*"event":"step","step":\([0-9]*\),.*"loss":\([^,]*\),.*/\2 \1/p' run/metrics.jsonl >wanted
    cut -d ' ' -f 2- "$at/metrics/loss" | diff - wanted && [ -s wanted ] &&
        grep -qx 'status: 3' "$at/meta.yaml" && [ "$(cat "$at/params/train.epochs")" = 4 ] &&
        [ "$(cut -d ' ' -f 2 "$at/metrics/val_top1" | sort -g | tail -n 1)" = "$(best)" ]
}
ok "--mlflow adds runs to a file store, each once" stored
python=${PYTHON-python3}
if "$python" -c 'import mlflow' 2>/dev/null; then
    client() {
        MLFLOW_ALLOW_FILE_STORE=true "$python" - <<'END'
import json, mlflow.tracking
client = mlflow.tracking.MlflowClient("store")
runs = client.search_runs([client.get_experiment_by_name("amptrain").experiment_id])
assert sorted(run.info.status for run in runs) == ["FINISHED", "FINISHED"], runs
run, = [run for run in runs if run.info.artifact_uri.endswith("/run")]
lines = [json.loads(line) for line in open("run/metrics.jsonl")]
for key, event in ("loss", "step"), ("lr", "step"), ("val_top1", "epoch"), ("train_loss", "epoch"):
    wanted = [(line["step"], line[key]) for line in lines if line["event"] == event and line[key] is not None]
    assert [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, key)] == wanted, key
assert run.data.params["train.epochs"] == "4" and run.data.tags["precision"] == "fp16"
assert "report.html" in [file.path for file in client.list_artifacts(run.info.run_id)]
END
    }
    ok "... and MLflow reads them" client
else
    skip "... and MLflow reads them" "python has no mlflow"
fi
hostile() {
    mkdir -p odd/a && { head -n 1 run/metrics.jsonl && echo '{"event":"step","step":1,"../../../out":1,"/x":2,".y":3,"z":4}'
    } >odd/a/metrics.jsonl && "$AMPTRAIN" report odd/a --mlflow odd/store &&
        [ "$(find odd -name z)" = "$(echo odd/store/*/*/metrics/z)" ] && [ -z "$(find odd -name out -o -name .y)" ] && [ ! -e /x ]
}
ok "... and a record's key is no path" hostile
ok "... without records it fails" says 3 "has no run" "$AMPTRAIN" report store --mlflow other
cut() { # a disk that is full leaves nothing that is taken for an experiment later
    (ulimit -f 0; "$AMPTRAIN" report run --mlflow cut 2>&1; echo "status $?") | tr '\n' ' ' |
        grep -E "109709112116114971/meta.yaml: .*File too large status 1" || return 1
    [ -z "$(find cut -type f)" ] && "$AMPTRAIN" report run --mlflow cut && grep 'name: amptrain' cut/*/meta.yaml
}
ok "... and where nothing can be written" cut

# W&B's log: a reader of its own checks every piece and sum, and what the records say.
cat >read.py <<'END'
import json, struct, sys, zlib

def records(path):
    data, record = open(path, "rb").read(), b""
    assert data[:7] == b":W&B\xe1\xbe\0", data[:7]
    at, middle = 7, False
    while at < len(data):
        room = 32768 - at % 32768
        if room < 7:
            assert data[at:at + room] == bytes(room)
            at += room
            continue
        crc, size, kind = struct.unpack_from("<IHB", data, at)
        piece = data[at + 7:at + 7 + size]
        assert len(piece) == size <= room - 7 and zlib.crc32(bytes([kind]) + piece) == crc, at
        assert middle == (kind in (3, 4)) and kind in (1, 2, 3, 4), (at, kind)
        assert kind in (1, 4) or size == room - 7
        record, at, middle = record + piece, at + 7 + size, kind in (2, 3)
        if not middle:
            yield fields(record)
            record = b""
    assert not middle

def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return value, at

def fields(data):
    found, at = {}, 0
    while at < len(data):
        tag, at = varint(data, at)
        value, at = varint(data, at)
        if tag & 7 == 2:
            value, at = data[at:at + value], at + value
            assert at <= len(data)
        else:
            assert tag & 7 == 0
        found.setdefault(tag >> 3, []).append(value)
    return found

def items(message):
    pairs = [(item[1][0].decode(), json.loads(item[16][0])) for item in map(fields, fields(message).get(1, []))]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)

def points(lines, key, event):
    return [(line["step"], line[key]) for line in lines if line["event"] == event and line.get(key) is not None]

log, metrics = sys.argv[1:3]
found = list(records(log))
assert [record[1][0] for record in found] == list(range(1, len(found) + 1))
lines = [json.loads(line) for line in open(metrics)]
rows = [items(record[2][0]) for record in found if 2 in record]
steps = [fields(fields(record[2][0])[2][0])[1][0] for record in found if 2 in record]
assert steps == [row["_step"] for row in rows] and steps == sorted(set(steps))
for key, event in ("loss", "step"), ("lr", "step"), ("grad_norm", "step"), ("val_top1", "epoch"), ("train_loss", "epoch"):
    assert [(row["_step"], row[key]) for row in rows if key in row] == points(lines, key, event), key
summary, = [items(record[3][0]) for record in found if 3 in record]
assert summary["loss"] == points(lines, "loss", "step")[-1][1]
run = fields(found[1][17][0])
assert log.endswith("/run-%s.wandb" % run[1][0].decode()) and run[3] == [b"amptrain"]
begun = fields(run[17][0])
assert abs(begun[1][0] + begun[2][0] * 1e-9 + rows[0]["_runtime"] - rows[0]["_timestamp"]) < 1e-3
config = items(run[4][0])
ends = [fields(record[18][0])[1][0] for record in found if 18 in record]
print(len(found), run[8][0].decode(), ends, config.get("train", {}).get("epochs"), config["start"]["precision"])
END
python=${PYTHON-python3}
# logged FOLDER RUN WANTED
logged() {
    "$AMPTRAIN" report "$2" --wandb "$1" && log=$(echo "$1"/offline-run-*/run-*.wandb) && [ -f "$log" ] || return 1
    if command -v "$python" >/dev/null; then
        said=$("$python" read.py "$log" "$2/metrics.jsonl") && echo "$said" && [ "${said#* }" = "$3" ]
    else
        [ "$(head -c 7 "$log" | od -An -v -t x1 | tr -d ' ')" = 3a572642e1be00 ] && grep -qa loss "$log"
    fi
}
again() {
    cp wandb/offline-run-*/run-*.wandb first.wandb && touch -d '1 hour ago' run/metrics.jsonl &&
        logged wandb run "run [0] 4 fp16" && ! cmp -s wandb/offline-run-*/run-*.wandb first.wandb
}
ok "--wandb writes an offline run" logged wandb run "run [0] 4 fp16"
ok "... once, though its time has changed" again
# Records of 30 to 100,000 bytes: they end everywhere in a block, and cover several.
long() {
    mkdir -p long && { head -n 1 run/metrics.jsonl; awk 'BEGIN {
        for (i = 1; i <= 9000; i++) {
            printf "{\"event\":\"step\",\"step\":%d,\"loss\":%.9g", i, 1 / i
            if (i % 3000 == 0) for (j = 0; j < 5000; j++) printf ",\"key%d\":%d", j, j
            printf ",\"time\":%d}\n", i
        } }'; } >long/metrics.jsonl && logged longer long "long [1] None fp16"
}
ok "... with records of several blocks; without an end it failed" long
stopped() {
    mkdir -p stopped && sed 's/"reason":"[a-z]*"/"reason":"stopped"/' run/metrics.jsonl >stopped/metrics.jsonl &&
        printf '[run]\nname = "a \\"b\\""\n' >stopped/config.ini && logged stops stopped 'a "b" [75] None fp16'
}
ok "... one that was stopped, with a name" stopped
foreign() {
    mkdir -p others && log=$(echo wandb/offline-run-*/run-*.wandb) && place=${log#wandb/} && mkdir "others/${place%/*}" &&
        printf ':W&B\341\276\000another' >"others/$place" && cp "others/$place" kept &&
        says 1 "amptrain did not write it" "$AMPTRAIN" report run --wandb others && cmp kept "others/$place" &&
        head -c 3 kept >"others/$place" && says 1 "amptrain did not write it" "$AMPTRAIN" report run --wandb others &&
        head -c 5000 "$log" >"others/$place" && "$AMPTRAIN" report run --wandb others && cmp "$log" "others/$place"
}
ok "... over its own, cut off or not, but over no other's" foreign
ok "... not into a file" says 1 "cannot be created" "$AMPTRAIN" report run --wandb kept
ok "... without records it fails" says 3 "has no run" "$AMPTRAIN" report store --wandb other
neither() { says 3 "no beginning" "$AMPTRAIN" report bare --wandb other && [ ! -e other ]; }
ok "... and without a beginning, leaving nothing" neither
both() { "$AMPTRAIN" report run --wandb both/w --mlflow both/m && ls both/w/offline-run-*/run-*.wandb both/m/*/*/meta.yaml; }
ok "both at once" both
finish
