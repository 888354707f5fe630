#!/bin/sh
# Limits on memory: what is made again or moved to the host instead of kept changes no bit; what cannot fit
# says so.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

steps() { train "$@" -s run.max_steps=9 -s model.arch=resnet20 -s model.file= -s augment.flip=0; }
number() { "$AMPTRAIN" plan -c run.ini -s model.arch=resnet20 -s model.file= --json "$@" | tr , '\n' |
               sed -n "s/^{*\"$field\"://p"; }
field=total_bytes
all=$(number)
most=$(number -s memory.strategy=keep)
limit=$((all * 17 / 20))

ok "everything is kept without a limit" steps all
ok "normalised activations are recomputed" steps keep -s memory.strategy=keep
ok "... with the same bits" same all keep
ok "... in less memory" [ "$most" -lt "$all" ]
ok "a lower limit" steps fit -s memory.limit="$limit"
ok "... is met" [ "$(number -s memory.limit="$limit")" -le "$limit" ]
field=recomputed
ok "... by recomputing more" [ "$(number -s memory.limit="$limit")" -gt 10 ]
ok "... with the same bits" same all fit
# Every limit between the least that can be done and all that there is holds, the least too, but for what only
# a search finds that has time on a fast machine.
parts='0 1 4 8 12 15'
[ -z "${AMPTRAIN_SANITIZED-}" ] || parts='0 8'
holds() {
    field=total_bytes
    least=$(number -s memory.limit=1M "$@")
    all=$(number "$@")
    for part in $parts; do
        limit=$((least + (all - least) * part / 16))
        total=$(number -s memory.limit="$limit" "$@")
        [ $part != 0 ] || limit=$((limit * 102 / 100))
        [ "$total" -le "$limit" ] || { echo "$total of $limit"; return 1; }
    done
    [ "$least" -lt "$all" ]
}
ok "every feasible limit is met" holds

# told LIMIT: what the limit is said to be, and what is needed.
told() {
    steps told -s memory.limit="$1" 2>err && return 1
    sed -n 's/.*memory.limit: \(.*\) is not enough, the run needs \(at least \)*\([^;]*\);.*/\1 \3/p' err
}
# A limit that would look like what is needed is told in bytes.
told_apart() {
    field=total_bytes
    need=$(number -s memory.limit=1M)
    in_bytes=0
    for below in 20000 40000 60000 100000; do
        words=$(told $((need - below))) || continue
        echo "$below: $words"
        case $words in *bytes*bytes) in_bytes=$((in_bytes + 1)) ;; esac
        echo "$words" | awk '{ exit $1 $2 == $3 $4 || NF != 4 }' || return 1
    done
    [ $in_bytes -gt 0 ]
}
ok "a limit is told apart from what is needed" told_apart
ok "... in 16 bits, with micro-batches" holds -s amp.precision=fp16 -s train.accumulate=2
ok "... with memory.strategy=keep" holds -s memory.strategy=keep -s amp.precision=bf16

# Off-loading.
ok "activations are offloaded to the host" steps away -s memory.strategy=offload
ok "... with the same bits" same all away
ok "... to meet a limit" steps away-limit -s memory.strategy=offload -s memory.limit="$limit"
ok "... with the same bits" same all away-limit
field=offloaded_bytes
ok "... which plan reports" [ "$(number -s memory.strategy=offload)" -gt 10000 ]
ok "... only if there are any" [ "$(number -s memory.strategy=keep)" = 0 ]
ok "... as text" sh -c \
    '"$AMPTRAIN" plan -q -c run.ini -s memory.strategy=offload | grep -q "offloaded to the host  *[0-9]"'
[ "$(rounds 0 1)" = 0 ] || ok "every limit is met" holds -s memory.strategy=offload
ok "an infeasible limit is refused" sh -c '
    "$AMPTRAIN" -q -c run.ini -s model.arch=resnet20 -s model.file= -s memory.limit=1M -o none 2>err
    got=$?
    cat err
    [ $got = 4 ] && grep -q "memory.limit" err'
finish
