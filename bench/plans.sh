#!/bin/sh
# plans.sh AMPTRAIN [MODEL...]: plans of models (default: all that come with amptrain) without memory.limit
# and under shares of what they take then. One line a plan: model, batch, precision, share, exit code, arena
# over live-bytes bound, ms of a step, processor time.
set -u
amptrain=${1:?usage: plans.sh AMPTRAIN [MODEL...]}
shift
[ $# -gt 0 ] || set -- $("$amptrain" models | awk '{ print $1 }')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
printf '[data]\nformat = synthetic\n' > "$work/plan.ini"

value() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" "$work/plan.json"; }

plan() { # SHARE [-s memory.limit=BYTES]
    share=$1; shift
    code_and_time=$("$amptrain" plan -c "$work/plan.ini" -s model.arch=$model -s train.batch=$batch \
        -s amp.precision=$precision --json "$@" > "$work/plan.json" 2> /dev/null; echo $?; times)
    echo $model $batch $precision $share $code_and_time "$(value arena_bytes)" "$(value live_bytes_bound)" \
        "$(value step_ms)" | awk '{ print $1, $2, $3, $4, $5, $11 ? $10 / $11 : "-", $12, $8 }'
}

for model; do
    for batch in 32 256; do
        for precision in fp32 fp16; do
            plan all
            bytes=$(value total_bytes)
            [ -n "$bytes" ] || continue
            for share in 0.8 0.6 0.45 0.35 0.25 0.18; do
                plan $share -s memory.limit="$(awk "BEGIN { printf \"%.0f\", $bytes * $share }")"
            done
        done
    done
done
