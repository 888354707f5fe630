#!/bin/sh
# Inputs that fuzzing has found and gathered (tests/fuzz.mk): each once more, and after it a few variants.
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

# A target whose last attempt ends as WORDS say, for tests/fuzz/run: it left no input.
attempted() { # STATUS WORDS
    mkdir -p attempted && cd attempted || return 1
    printf '#!/bin/sh\necho stat::number_of_executed_units: 5\n%s\n' "$2" >fuzz_one && chmod +x fuzz_one
    sh "$top_srcdir/tests/fuzz/run" --target "$top_srcdir" 1 ./fuzz_one >../said 2>&1
    got=$?
    cat ../said
    cd .. && rm -rf attempted && [ $got = "$1" ]
}
cd "$scratch" || exit 1
ok "an attempt to its end is no find" attempted 0 'sleep 1'
for end in 'exit 1' 'exit 77' 'exit 99' 'kill -ABRT $$' 'kill -KILL $$'; do
    ok "an attempt that ends with '$end' is one" attempted 1 "$end"
done

for source in "$top_srcdir"/tests/fuzz/fuzz_*.c; do
    target=${source##*/fuzz_} target=${target%.c}
    [ -e "$top_builddir/tests/fuzz/fuzz_$target" ] || continue
    ok "inputs of $target" tries "$target"
    if [ "$variants" -gt 0 ]; then figure "$target: $(tail -n 1 "$scratch/tried")"; fi
done
finish
