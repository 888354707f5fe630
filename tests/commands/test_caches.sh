#!/bin/sh
# Files in the cache folder: of any size, and written by several processes at once.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

XDG_CACHE_HOME=$scratch/cache
export XDG_CACHE_HOME
cache=$XDG_CACHE_HOME/amptrain
quickly() { timeout 60 "$AMPTRAIN" "$@"; }
bench() { quickly bench -c run.ini --steps 5 --warmup 1; }

### Files that are nothing but a hole

for command in bench "quickly profile -c run.ini"; do $command || exit 1; done >out
hole() { truncate -s 200G "$1"; }
if hole "$cache/steps" 2>said; then
    hole "$cache/peaks"
    ok "a plan, with a file of steps of 200 GB" quickly plan -c run.ini
    ok "... a step" bench
    ok "... after which the file is small again" [ "$(wc -c <"$cache/steps")" -lt 1000 ]
    ok "peaks are measured with a file of 200 GB" quickly profile -c run.ini
    ok "... and written into a small one" [ "$(wc -l <"$cache/peaks")" = 1 ]
    hole "$cache/algorithms"
    ok "kernel plans in a file of 200 GB are not read" quickly plan -c run.ini
    "$AMPTRAIN" -q -c run.ini -o run -s run.max_steps=2 || exit 1
    hole run/metrics.jsonl
    ok "report of a run whose records are a hole" says 3 "metrics.jsonl: too large: it exceeds 4096 MiB" \
        quickly report run
else
    skip "files of 200 GB" "$(cat said)"
fi

### Several processes

rm -rf "$cache"
many() { # COMMAND...: eight of them, none of which has a word to say
    for i in 1 2 3 4 5 6 7 8; do
        { "$@" >"out.$i" 2>"err.$i"; echo $? >"status.$i"; } &
    done
    wait
    cat err.?
    [ "$(cat status.? | tr -d '\n')" = 00000000 ] && [ ! -s err.1 ] && [ "$(cat err.? | wc -c)" = 0 ]
}
whole_lines() { # FILE EXPRESSION: one line or more, all of them so
    [ -s "$1" ] && ! grep -vE "$2" "$1"
}
ok "eight benches at once" many bench
ok "... leave the step of them" whole_lines "$cache/steps" '^[0-9a-f]{8} [0-9a-f]{8} [0-9.e-]+ [0-9.e-]+ CPU$'
ok "... once" [ "$(wc -l <"$cache/steps")" = 1 ]
ok "eight profiles at once" many quickly profile -c run.ini
ok "... leave peaks" whole_lines "$cache/peaks" ', fp16, [0-9]+ threads = [0-9.e+-]+ [0-9.e+-]+$'
none_left() { find "$cache" -type f ! -name steps ! -name peaks | { ! grep .; }; }
ok "no temporary file is left" none_left
finish
