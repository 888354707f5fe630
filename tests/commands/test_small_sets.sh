#!/bin/sh
# Recipes of `init` for small sets of twenty kinds, at any length: no epoch leaves the scale of the data.
. "$top_srcdir/tests/support/tap.sh"
cd "$scratch" || exit 1

# worst FOLDER RUN: the worst epoch's validation error, in the unit of what a guess is worth: a number's
# deviation, or the loss of equally likely classes; 99999 if one is not finite.
worst() {
    awk -F '[:,]' '
        FNR == 1 && !kind { kind = $2 }
        FNR > 1 && FILENAME ~ /labels.csv/ { v[++n] = $2; s += $2; classes[$2] }
        /"event":"epoch"/ {
            for (i = 1; i < NF; i++) {
                if (kind == "value" && $i == "\"val_rmse\"" || kind != "value" && $i == "\"val_loss\"") {
                    value = $(i + 1) == "null" ? 1e30 : $(i + 1) + 0
                    if (value > most) most = value
                    seen++
                }
            }
        }
        END {
            for (i = 1; i <= n; i++) d += (v[i] - s / n) ^ 2
            for (c in classes) k++
            unit = kind == "value" ? sqrt(d / n) : kind == "label" ? log(k) : log(2)
            far = !seen || most > 99999 * unit ? 99999 : most / unit
            printf "%.2f\n", far
        }' "$1/labels.csv" "$2/metrics.jsonl"
}

# trains FOLDER EPOCHS RUN
trains() {
    rm -rf "$3"
    "$AMPTRAIN" -q -c "$1.ini" -o "$3" -s train.epochs="$2" -s run.device=cpu -s run.threads=1 \
        -s run.report=no -s amp.precision=fp32 -s log.tensorboard=no
}

# stays FOLDER EPOCHS KIND COUNT SIDE CHANNELS [A [B]]; from the weights of $weights, if it has one.
stays() {
    set=$1 epochs=$2; shift 2
    [ -d "$set" ] || "$top_builddir/tests/support/make_set" "$set" "$@" || return 1
    [ -f "$set.ini" ] || "$AMPTRAIN" -q init "$set/labels.csv" -o "$set.ini" ${weights:+--weights "$weights"} ||
        return 1
    trains "$set" "$epochs" run || return 1
    far=$(worst "$set" run)
    echo "$set $epochs $far" >>far.txt
    echo "$far ${weights:+2.5}" | awk '{ exit !($1 + 0 > 0 && $1 < ($2 ? $2 : 5)) }' ||
        { echo "an error of $far at $epochs epochs"; return 1; }
}

# kind NAME KIND COUNT SIDE CHANNELS [A [B]]
lengths=${AMPTRAIN_TORTURE:+3 5 10 20 30 40 80 300}
kind() {
    of=$1; shift
    for length in ${lengths:-3}; do ok "$of, $length epochs" stays "$of" "$length" "$@"; done
}

# tuned NAME KIND COUNT SIDE CHANNELS A B: numbers, by weights whose features have another size.
tuned() {
    weights=trained
    kind "$@"
    weights=
}

kind prices regress 96 16 1 92000 13000
kind imbalanced classify 30 16 1 2 0.7
kind labels multilabel 40 12 3
kind three classify 3 16 1 2
if [ -n "${AMPTRAIN_TORTURE-}" ]; then
    kind hundred-prices regress 100 16 3 92000 13000
    kind tiny regress 40 16 1 2e-5 3e-6
    kind huge regress 60 12 3 9.2e8 1.3e7
    kind negative regress 100 16 1 -5 0.5
    kind wide regress 80 16 1 0 1e6
    kind seven-numbers regress 7 16 3 10 3
    kind twenty-numbers regress 20 16 1 1 0.001
    kind three-hundred regress 300 16 1 3.5 1
    kind four classify 4 16 3 2
    kind twelve classify 12 16 3 3
    kind fifty classify 50 24 1 5
    kind hundred classify 96 16 1 3
    kind many-classes classify 200 12 3 20
    kind rare classify 300 12 1 4 0.8
    kind few-labels multilabel 12 16 1
    kind colour-labels multilabel 150 16 3
    kind large-images regress 40 56 3 92000 13000
    kind large-classes classify 40 56 3 2
fi
ok "weights" stays hundred-three 12 classify 96 16 1 3
mv run trained
tuned tuned-prices regress 96 16 1 92000 13000
tuned tuned-seven regress 7 16 3 10 3
figure "worst errors: $(tr '\n' ';' <far.txt)"
finish
