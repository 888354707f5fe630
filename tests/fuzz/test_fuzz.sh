#!/bin/sh
# What fuzzing has found and gathered (tests/fuzz.mk): every input once more, and after it a few variants.
. "$top_srcdir/tests/support/tap.sh"

TMPDIR=$scratch
export TMPDIR
variants=$(rounds 0 20000)

# tries TARGET: libFuzzer's own programs know no -m, but are not built to be tested.
tries() {
    program=$top_builddir/tests/fuzz/fuzz_$1
    set -- "$top_srcdir/tests/fuzz/corpus/$1"/* "$top_srcdir/tests/fuzz/cases/$1"/*
    if [ "$variants" -gt 0 ]; then set -- -m "$variants" "$@"; fi
    (cd "$scratch" && "$program" "$@") >"$scratch/tried"
}

for source in "$top_srcdir"/tests/fuzz/fuzz_*.c; do
    target=${source##*/fuzz_} target=${target%.c}
    [ -e "$top_builddir/tests/fuzz/fuzz_$target" ] || continue
    ok "inputs of $target" tries "$target"
    if [ "$variants" -gt 0 ]; then figure "$target: $(tail -n 1 "$scratch/tried")"; fi
done
finish
