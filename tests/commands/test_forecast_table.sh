#!/bin/sh
# bench/forecast.sh: its table of forecasts and measured steps, of cases that a seed draws.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "a script measures what is tested elsewhere"

export NETWORKS="resnet20 resnet32" BATCHES="16 32" SIZES="24 32" PRECISIONS=fp32
export DEVICE=cpu STEPS=6 PAIRS=1 JOBS=2 OMP_NUM_THREADS=1
cd "$scratch" || exit 1

table() { # FILE SEED...
    file=$1; shift
    sh "$top_srcdir/bench/forecast.sh" "$AMPTRAIN" "$@" >"$file" 2>&1
}
rows() { awk '/ resnet/ && NF == 15' "$1"; }
drawn() { rows "$1" | awk '{ print $1, $2, $3, $4, $5, $6 }'; }

ok "cases of two seeds are measured" table both 3 4
ok "... two of each, of one network and precision" \
    [ "$(rows both | awk '{ print $1, $2, $3 }' | uniq -c | awk '{ print $1 }' | xargs)" = "2 2" ]
ok "a seed draws the same again" table one 4
ok "... whatever other seeds there are" [ "$(drawn one)" = "$(drawn both | grep '^4')" ]

# Columns: 7 before, 8 its error, 9 other, 10, 11 same, 12, 13 measured, 14 MiB, 15 the peak's share.
errors_are_right() {
    rows both | awk '
        function far(ms, error) { error -= 100 * (ms / $13 - 1); return error > 1 || error < -1 }
        far($7, $8) || far($9, $10) || far($11, $12) || $15 > 1.001 { wrong = 1 }
        END { exit wrong || NR != 4 }'
}
ok "errors are relative to the measured step" errors_are_right
of_rows() { rows both | awk -v k="$1" '{ print $k < 0 ? -$k : $k + 0 }' | sort -g | sed -n '2p;4p' | xargs; }
of_table() { sed -n "s/^$1 *\([0-9.]*\) % *\([0-9.]*\) %/\1 \2/p" both | awk '{ print $1 + 0, $2 + 0 }'; }
ok "the summary has the median and nine of ten" [ "$(of_rows 8)" = "$(of_table 'nothing has run')" ]
ok "... after the step has run, too" [ "$(of_rows 12)" = "$(of_table 'this step has run')" ]

refuses_nonsense() { ! NETWORKS=nonsense table none 3 && grep -q "nonsense.* was not measured" none; }
ok "cases that cannot run are told, and do not make a table" refuses_nonsense
finish
