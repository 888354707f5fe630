#!/bin/sh
# amptrain plan: the memory map is written and well-formed; its words say what --json says.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

plan() { "$AMPTRAIN" plan -c run.ini "$@"; }
plan --json >json || exit 1
plan >said || exit 1

# field NAME [SECTION]: a member of the JSON, the first one, or the first of a section.
field() { tr ',{' '\n\n' <json | sed -n "/\"${2-}/,\$s/^\"$1\"://p" | head -1 | tr -d '"}'; }

# bytes NUMBER: as they are written for people.
bytes() {
    echo "$1" | awk '{ split("B KiB MiB GiB TiB", unit); i = 1
        while ($1 >= 1024) { $1 /= 1024; i++ }
        if (i == 1) printf "%d B\n", $1; else printf "%.1f %s\n", $1, unit[i] }'
}
says() { grep -qF -e "$1" said || { echo "not said: $1"; cat said; return 1; }; }

ok "plan -o draws the memory map" plan -o deep/map
ok "... in addition to --json" sh -c '"$AMPTRAIN" plan -c run.ini -o map --json | cmp - json'
ok "... reproducibly" cmp map/memory.svg deep/map/memory.svg
stages() { plan -o stages -s parallel.gpus=2 -s parallel.stages=2 &&
    grep -q "stage 0 of 2" stages/memory-stage0.svg &&
    grep -q "stage 1 of 2" stages/memory-stage1.svg && ! grep -q ">conv1:" stages/memory-stage1.svg &&
    cat stages/memory-stage?.svg | grep -c "<title>" && [ -e stages/memory.svg ] &&
        [ ! -e map/memory-stage0.svg ]; }
ok "... one per pipeline stage" stages
if command -v xmllint >/dev/null; then
    ok "the SVG is well-formed" xmllint --noout map/memory.svg
else
    skip "the SVG is well-formed" "xmllint is not installed"
fi
ok "every element is closed" awk '
    { opened += gsub(/<[a-z]/, ""); closed += gsub(/<\//, "") + gsub(/\/>/, "") }
    END { print opened, closed; exit opened != closed || opened == 0 }' map/memory.svg
ok "a box for each tensor" sh -c '
    boxes=$(sed -n "/<g id=\"tensors\">/,/<\/g>/p" map/memory.svg | grep -c "<rect")
    echo "$boxes boxes"; [ "$boxes" = "$1" ]' sh "$(field tensors)"
ok "title, axes and legend" sh -c '
    for said in ">tiny, batch 64, fp16<" ">address, KiB<" ">alive, KiB<" ">gradients of activations<" \
                ">time, instructions of a training step<"; do
        grep -qF -e "$said" map/memory.svg || { echo "not drawn: $said"; exit 1; }
    done'
long=a_name_of_a_layer_that_is_so_long_that_it_only_fits_into_the_tooltips_of_pictures
long() {
    printf '[input]\nsize = 8\nchannels = 1\n[layers]\n' >long.ini
    printf '%s = globalavgpool input\nfc = linear %s units=$classes\n' $long $long >>long.ini
    plan -o long -s model.file=long.ini >/dev/null && grep -q "<rect.*><title>$long</title>" long/memory.svg
}
ok "long names are whole in tooltips" long
ok "boxes have tooltips" grep -q '<title>conv1: activations, 32x8x8x8, fp16$' map/memory.svg

ok "the peak as text" says "Peak at instruction $(field instruction) of "
ok "... and its layer" says "(layer $(field layer peak)): $(bytes "$(field live_bytes_bound)")"
ok "the peak equals the live-bytes bound" [ "$(field live_bytes_bound)" = "$(field bytes)" ]
ok "tensors at the peak add up to it" sh -c '
    sum=$(sed "s/.*\"peak\":{\"bytes\":[0-9]*//; s/\]}.*//" json | grep -o "\"bytes\":[0-9]*" |
          awk -F: "{ sum += \$2 } END { print sum }")
    echo "$sum"; [ "$sum" = "$1" ]' sh "$(field live_bytes_bound)"
ok "the total as text" says "$(bytes "$(field total_bytes)")"

ok "a smaller batch is suggested" grep -q '^  train.batch=32 .* saves ' said
advised=$(sed -n 's/^  train.batch=32  *\([0-9.]* [KMGi]*B\) .*/\1/p' said)
plan --json -s train.batch=32 >json
ok "... with the resulting memory" [ "$advised" = "$(bytes "$(field total_bytes)")" ]
plan -s model.arch=resnet20 -s model.file= >said
ok "recomputation has a price" grep -q 'recomputes [0-9]* activations, .*\(slower\|no cost\)$' said

### memory.report: what a run has used; plan only estimates its workspaces

train without -s run.max_steps=1 && train used -s memory.report=yes -s run.max_steps=2 || exit 1
report=used/memory.json
sed -n 's/.*"plan":{\([^}]*\)}.*/\1/p' used/metrics.jsonl | tr ',' '\n' | tr -d '"' >planned
number() { sed -n "s/^$1://p" planned; }
has_plan() {
    [ "$(wc -l <planned)" = 6 ] || return 1
    for key in $(tr -d '"' <planned | sed 's/:.*//'); do
        grep -q "\"plan\":{.*\"$key\":$(number $key)," $report || { echo "$key"; return 1; }
    done
}
ok "memory.report has the run's plan" has_plan
ok "... its peak" grep -q "\"peak\":{\"bytes\":$(number live_bytes_bound),\"instruction\":[1-9]" $report
ok "... every tensor, in the arena" awk -F '[:,}]' -v arena="$(number arena_bytes)" '
    /"offset":/ { for (i = 1; i < NF; i++) { if ($i == "\"offset\"") at = $(i + 1)
                                            if ($i == "\"bytes\"") bytes = $(i + 1) }
                  if (at + bytes > arena) exit 1; if (at + bytes > end) end = at + bytes }
    END { exit end != arena }' $report
ok "... and host memory" awk -F : '/"host":/ { found = $3 + 0 > 1048576 } END { exit !found }' $report
ok "memory.json is only written if configured" test ! -e without/memory.json

: >file
exits "-o that is a file" 1 plan -o file
printf 'id,lower,upper,size\na,0,1,4\n' >spans.csv
exits "-o with --spans" 2 "$AMPTRAIN" plan --spans spans.csv -o map
finish
