#!/bin/sh
# The manual: well-formed and complete. tests/build/test_examples.sh runs its examples.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "its commands are tested elsewhere"

ini_page=$top_builddir/man/amptrain.ini.5
[ -f "$ini_page" ] || ini_page=$top_srcdir/man/amptrain.ini.5
model_page=$top_builddir/man/amptrain-model.5
[ -f "$model_page" ] || model_page=$top_srcdir/man/amptrain-model.5

for page in "$top_srcdir"/man/*.[1357] "$ini_page" "$model_page"; do
    name=$(basename "$page")
    case $name in '*'*) continue ;; esac
    if command -v mandoc >/dev/null; then
        ok "$name is well-formed" mandoc -T lint -W warning "$page"
    else
        skip "$name is well-formed" "mandoc is not installed"
    fi
done

# Both lists as SECTION.KEY, one a line.
options() {
    sed -n 's/^OPTION(\([a-z]*\), *\([a-z_0-9]*\),.*/\1.\2/p' "$top_srcdir/conf/options.def"
}
manual_options() {
    tr -d '\\' <"$ini_page" | awk '
        /^\.SS \[/ { section = $2; gsub(/[^a-z]/, "", section) }
        /^\.SH NOTES/ { exit }
        /^\.TP/ { getline; sub(/^\.[A-Z]+ "?/, ""); print section "." $1 }' | grep '^[a-z]*\.[a-z]'
}
same_options() {
    options | sort >"$scratch/options"
    manual_options | sort | comm -23 "$scratch/options" - >"$scratch/missing"
    [ -s "$scratch/options" ] && ! [ -s "$scratch/missing" ] || { cat "$scratch/missing"; return 1; }
}
ok "amptrain.ini(5) has every option" same_options

# Keys that the pages and the example configurations mention, but not the names of files.
known_keys() {
    sections=$(sed -n 's/^SECTION(\([a-z]*\),.*/\1/p' "$top_srcdir/conf/options.def" | paste -sd '|')
    for page in "$top_srcdir"/man/*.[157] "$ini_page" "$top_srcdir"/conf/*.ini "$top_srcdir/README"; do
        tr -d '\\' <"$page" | grep -ohE "(^|[^A-Za-z0-9_./-])($sections)\.[a-z][a-z_]+" | sed 's/^[^a-z]//'
    done | sort -u | grep -vE '\.(ini|txt|bin|json|svg|html)$|_$' >"$scratch/mentioned"
    [ "$(wc -l <"$scratch/mentioned")" -gt 50 ] || return 1
    ! comm -23 "$scratch/mentioned" "$scratch/options" | grep .
}
ok "the keys that the manual mentions exist" known_keys

# Every command, and every option that a command's --help names, is explained in amptrain(1).
"$AMPTRAIN" --help | sed -n 's/^  \([a-z][a-z]*\)  *.*/\1/p' >"$scratch/names"
tr -d '\\' <"$top_srcdir/man/amptrain.1" >"$scratch/page"
explained() {
    grep -qE "^\.BR? .*\b$1\b" "$scratch/page" || { echo "no paragraph on $1"; return 1; }
    "$AMPTRAIN" "$1" --help | sed '/^Configuration keys/,$d' | grep -oE -- '--[a-z][a-z-]+' |
        sort -u >"$scratch/flags"
    [ -s "$scratch/flags" ] || return 1
    while read -r flag; do
        grep -qE -- "^\.BR? .*$flag" "$scratch/page" || { echo "no paragraph on $flag"; return 1; }
    done <"$scratch/flags"
}
ok "--help names the commands" grep -q '^train$' "$scratch/names"
while read -r command; do
    ok "amptrain(1) explains $command and its options" explained "$command"
done <"$scratch/names"

# The passes, in their order, as the refusal of an unknown one lists them.
passes() { "$AMPTRAIN" plan --dump=? 2>&1 | sed -n 's/.*(passes: \(.*\), all)$/\1/p' | tr -d , |
    tr ' ' '\n'; }
same_passes() {
    sed -n '/^\.SH PASSES/,/^\.SH EXAMPLE/p' "$top_srcdir/man/amptrain-ir.7" |
        sed -n '/^\.TP/{n;s/^\.B //p;}' >"$scratch/explained"
    passes >"$scratch/passes"
    [ -s "$scratch/passes" ] && diff "$scratch/passes" "$scratch/explained"
}
ok "amptrain-ir(7) explains every pass, in order" same_passes

# ARCHITECTURE has the table of passes, and its example is what the program prints. Passes after differentiate
# do there what they do for a GPU.
architecture=$top_srcdir/ARCHITECTURE
pass_table() { sed -n '/^  pass  *condition/,/^$/{/^  [a-z]/s/^  \([a-z_]*\) .*/\1/p;}' "$architecture" |
    sed 1d; }
same_table() { pass_table | diff - "$scratch/passes"; }
ok "ARCHITECTURE's table has every pass, in order" same_table
sed -n '/^    \[input\]/,/^$/s/^    //p' "$architecture" >"$scratch/small.ini"
squeezed() { tr -d ' \n'; }
example_of() { sed -n "/^    pass $1\$/,/^    pass \|^$/{/^    pass/d;p;}" "$architecture"; }
dumped_example() { # PASS: each of its instructions
    example_of "$1" | sed 's/^    \([0-9]\)/@\1/' | squeezed | tr @ '\n' | sed 1d >"$scratch/expected"
    (cd "$scratch" && "$AMPTRAIN" plan -s data.format=digits -s model.file=small.ini -s train.batch=64 \
        -s amp.precision=fp16 -s run.device=cuda --dump="$1") | tr -d ' ' >"$scratch/dumped"
    [ -s "$scratch/expected" ] || return 1
    while read -r line || [ -n "$line" ]; do
        grep -qxF -e "$line" "$scratch/dumped" || { echo "not printed: $line"; return 1; }
    done <"$scratch/expected"
}
for pass in $(sed -n 's/^    pass \([a-z_]*\)$/\1/p' "$architecture"); do
    case $pass in
    fuse_gradient_sums | streams)
        "$AMPTRAIN" -V | grep -q cuDNN ||
            { skip "ARCHITECTURE's example: $pass" "built without CUDA"; continue; } ;;
    esac
    ok "ARCHITECTURE's example: $pass" dumped_example "$pass"
done

"$top_builddir/tests/support/make_pictures" "$scratch/images"
# amptrain-json(5) has every key that is written, and none that is not.
json=$top_srcdir/man/amptrain-json.5
section() { sed -n "/^\.SH $1\$/,/^\.SH /p" "$json" | sed 's/\\-/-/g'; }
written() { # SECTION COMMAND...: the keys that it prints
    section=$1; shift
    "$@" >"$scratch/json" || return 1
    grep -o '"[a-z_0-9]*":' "$scratch/json" | tr -d '":' | sort -u >"$scratch/keys"
    section "$section" >"$scratch/section"
    [ -s "$scratch/keys" ] || return 1
    while read -r key; do
        grep -qw -e "$key" "$scratch/section" || { echo "not explained: $key"; return 1; }
    done <"$scratch/keys"
}
small() { command=$1; shift; "$AMPTRAIN" "$command" -q -c "$scratch/small.ini" --json "$@"; }
{ printf '[data]\nformat = digits\n[augment]\ncrop = 8\n[model]\nfile = net.ini\n[train]\nepochs = 1\n'
} >"$scratch/small.ini"
sed 's/^size = .*/size = 8/' "$top_srcdir/conf/models/resnet20.ini" >"$scratch/net.ini"
run=$scratch/jsonrun
records() {
    "$AMPTRAIN" -q -c "$scratch/small.ini" -o "$run" -s run.device=cpu -s run.max_steps=22 &&
        "$AMPTRAIN" eval -q --weights "$run" -o "$run" >"$scratch/out" && cat "$run/metrics.jsonl"
}
image() { find "$scratch/images" -name 3.png | head -n 1; }
stages="-s parallel.gpus=4 -s parallel.stages=2 -s train.batch=64 -s parallel.microbatches=4"
ok "amptrain-json(5): metrics.jsonl" written METRICS.JSONL records
ok "... mistakes.json" written MISTAKES.JSON cat "$run/mistakes.json"
ok "... eval" written EVAL "$AMPTRAIN" eval -q --weights "$run" --json
ok "... predict" written PREDICT "$AMPTRAIN" predict -q --weights "$run" --json --top 2 "$(image)"
ok "... plan" written PLAN small plan
ok "... plan of stages" written PLAN small plan $stages
printf 'id,lower,upper,size\na,0,2,8\n' >"$scratch/spans.csv"
ok "... plan of a table" written PLAN "$AMPTRAIN" plan -q --spans "$scratch/spans.csv" --json
ok "... summary" written SUMMARY small summary
ok "... bench" written BENCH small bench --layers --data --steps 1 --warmup 1
ok "... lr" written LR small lr --steps 20
ok "... profile" written PROFILE small profile
ok "... profile --libraries" written PROFILE small profile --libraries
explained_keys() {
    sed -n 's/^\([a-z_0-9, ]*\)\tT{$/\1/p' "$json" | tr -d ' ' | tr , '\n' | sort -u >"$scratch/keys"
    [ "$(wc -l <"$scratch/keys")" -gt 90 ] || return 1
    while read -r key; do
        grep -qrE -e "\"$key\\\\?\"" "$top_srcdir/src" || { echo "not written: $key"; return 1; }
    done <"$scratch/keys"
}
ok "... and no key that is not written" explained_keys

ok "amptrain-model(5) gives no op 0 inputs" sh -c "grep -q 'Takes 2 inputs' '$model_page' &&
    ! tr '\\n' ' ' <'$model_page' | grep -o '[^.]* Takes 0 [a-z0-9 ]*inputs'"

# Every example configuration, as far as it goes without its data.
for file in "$top_srcdir"/conf/*.ini; do
    ok "$(basename "$file") is accepted" "$AMPTRAIN" --print-config -c "$file"
done
finish
