#!/bin/sh
# forecast.sh AMPTRAIN [SEED...]: forecasts of training steps beside measured ones, on this machine's device.
# Each seed (default: 11 12 13) draws PAIRS (5) of cases at random: a network and a precision, and for both
# cases a number of images, their size, and half of the time a memory limit of 50 to 90 % of what the step
# takes without one.
#
# A row has `plan`'s milliseconds a step before anything has run; after the other case of the pair has run;
# after this very step has run; and the median of a second run, to which the errors are relative. Then
# plan's bytes, and the run's peak as their share. The autotuner begins each case without a cache.
#
#   DEVICE      run.device (cuda)
#   NETWORKS BATCHES PRECISIONS SIZES    what is drawn from
#   STEPS       measured steps of a run (12), after a third as many
#   JOBS        plans at the same time (number of processors)
set -eu
case ${1:-} in '' | -h | --help) sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;; esac
amptrain=$1
shift
[ $# -gt 0 ] || set -- 11 12 13
networks=${NETWORKS:-alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet
    mobilenet_v2 mobilenet_v3_large mobilenetv4_conv_small regnet_y_400mf regnet_y_8gf resnet18 resnet34
    resnet50 resnet101 resnext50_32x4d shufflenet_v2_x1_0 squeezenet1_1 vgg11_bn vgg16 wide_resnet50_2}
batches=${BATCHES:-32 48 64 96 128 192 256} precisions=${PRECISIONS:-fp16 bf16 tf32}
sizes=${SIZES:-128 160 192 224 256}
device=${DEVICE:-cuda} steps=${STEPS:-12} jobs=${JOBS:-$(getconf _NPROCESSORS_ONLN)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
printf '[data]\nformat = synthetic\n' > "$work/run.ini"

# A line a case: seed, network, precision, batch, size, share of memory (1: no limit). Park and Miller's
# generator, which every awk computes alike.
draw() {
    for seed; do
        awk -v seed="$seed" -v pairs="${PAIRS:-5}" -v networks="$networks" -v batches="$batches" \
            -v precisions="$precisions" -v sizes="$sizes" '
            function below(n) { state = state * 16807 % 2147483647; return int(state / 2147483647 * n) }
            function one(words, all) { return all[1 + below(split(words, all))] }
            BEGIN {
                gsub("\n", " ", networks)
                state = seed * 7919 + 1
                for (i = 0; i < 10; i++) below(1)
                for (i = 0; i < pairs; i++) {
                    pair = seed " " one(networks, a) " " one(precisions, a)
                    for (k = 0; k < 2; k++) {
                        batch = one(batches, a); size = one(sizes, a); limited = below(2); share = below(41)
                        print pair, batch, size, limited ? (50 + share) / 100 : 1
                    }
                }
            }'
    done
}

value() { cat "$1" 2> /dev/null | tr , '\n' | sed -n "s/^{*\"$2\":\([0-9.e+-]*\)\$/\1/p" | head -n 1; }

# CASE CACHE COMMAND [OPTION...]: `plan` or `bench` of a case, with a cache folder of that name.
run() {
    read -r _ network precision batch size _ < "$work/$1/case"
    at=$1 cache=$2
    shift 2
    [ -f "$work/$at/limit" ] && set -- "$@" -s memory.limit="$(cat "$work/$at/limit")"
    XDG_CACHE_HOME=$work/$cache "$amptrain" "$@" -c "$work/run.ini" -s run.device="$device" --json \
        -s model.arch="$network" -s amp.precision="$precision" -s train.batch="$batch" \
        -s augment.crop="$size" 2>> "$work/$at/errors"
}

before() { # CASE
    read -r _ _ _ _ _ share < "$work/$1/case"
    run "$1" none plan > "$work/$1/before" || return 0
    [ "$share" = 1 ] && return
    awk "BEGIN { printf \"%.0f\n\", $share * $(value "$work/$1/before" total_bytes) }" > "$work/$1/limit"
    run "$1" none plan > "$work/$1/before" || true
}

measure() { # CASE
    run "$1" "$1" bench --steps "$steps" --warmup $((steps / 3)) > "$work/$1/first" || return 0
    cp -r "$work/$1/amptrain" "$work/$1/kept"
    run "$1" "$1" bench --steps "$steps" --warmup $((steps / 3)) > "$work/$1/measured" || return 0
    cp "$work/$1/kept/steps" "$work/$1/amptrain/steps"
}

after() { # CASE
    run "$1" $(($1 % 2 ? $1 + 1 : $1 - 1)) plan > "$work/$1/scaled" || true
    run "$1" "$1" plan > "$work/$1/after" || true
}

# FUNCTION: of all cases, `jobs` at the same time.
each() {
    running=0
    for at in $numbers; do
        "$1" "$at" &
        running=$((running + 1))
        [ $((running % jobs)) -gt 0 ] || wait
    done
    wait
}

# The case, and a number or - for each figure; without figures the last message instead.
row() { # CASE
    folder=$work/$1
    set -- $(cat "$folder/case")
    for file in before scaled after; do set -- "$@" "$(value "$folder/$file" step_ms)"; done
    echo "$@" "$(value "$folder/measured" step_ms_median)" "$(value "$folder/before" total_bytes)" \
        "$(value "$folder/measured" device_peak_bytes)"
    [ -s "$folder/measured" ] || tail -n 1 "$folder/errors" >&2
}

table() {
    awk '
    function off(ms) { return 100 * (ms / $10 - 1) }
    function note(kind, value) { errors[kind, ++count[kind]] = value < 0 ? -value : value; return value }
    function at(kind, share,    i, j, v) {       # the quantile of a column, sorted by insertion
        for (i = 2; i <= count[kind]; i++) {
            v = errors[kind, i]
            for (j = i - 1; j >= 1 && errors[kind, j] > v; j--) errors[kind, j + 1] = errors[kind, j]
            errors[kind, j + 1] = v
        }
        i = int(share * count[kind])
        return errors[kind, i < share * count[kind] || i == 0 ? i + 1 : i]
    }
    BEGIN {
        printf "seed %-22s %-5s %5s %5s %6s %8s %7s %8s %7s %8s %7s %9s %9s %6s\n", "network", "prec",
               "batch", "size", "limit", "before", "%", "other", "%", "same", "%", "measured", "MiB", "peak"
    }
    function summary(kind, words) {
        printf "%-36s %6.1f %% %10.1f %%\n", words, at(kind, 0.5), at(kind, 0.9)
    }
    NF != 12 { failed++; print $1, $2, $3, $4, $5, $6, "was not measured"; next }
    {
        rows++
        printf "%4d %-22s %-5s %5d %5d %6s ", $1, $2, $3, $4, $5, $6 == 1 ? "-" : $6
        printf "%8.2f %+7.1f ", $7, note("before", off($7))
        if ($8 == $7) printf "%8s %7s ", "-", "-"                # the other case did not run
        else printf "%8.2f %+7.1f ", $8, note("other", off($8))
        printf "%8.2f %+7.1f %9.2f %9.1f %6.3f\n", $9, note("same", off($9)), $10, $11 / 2 ^ 20, $12 / $11
        if ($12 > $11) more++
    }
    END {
        if (rows == 0) exit 1
        printf "\n%d cases, %d of them not measured; ", rows + failed, failed
        printf "the peak is above the forecast in %d\n", more
        printf "%-36s %8s %12s\n", "error of the forecast", "median", "nine of ten"
        summary("before", "nothing has run")
        summary("other", "another step of the network has run")
        summary("same", "this step has run")
    }'
}

numbers=
draw "$@" > "$work/cases"
while read -r line; do
    number=$(($(echo $numbers | wc -w) + 1)) numbers="$numbers $number"
    mkdir "$work/$number"
    echo "$line" > "$work/$number/case"
done < "$work/cases"
each before
for number in $numbers; do measure "$number"; done
each after
for number in $numbers; do row "$number"; done | table
