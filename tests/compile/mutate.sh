#!/bin/sh
# mutate.sh [FILE...]: whether the tests of the compiler notice each line that sets what an instruction or a
# value is: members, operands, epilogues. Run by hand in the build folder:
# `sh ../tests/compile/mutate.sh`, or with some files of src/compile. Each such statement is taken out in turn,
# and the programs that $MUTATE_TESTS names, or test_dump alone, are built with that file and run, until one
# fails. TAP.
set -u
top_srcdir=$(cd "$(dirname "$0")/../.." && pwd)
. "$top_srcdir/tests/support/tap.sh"
[ -f libcompile.a ] || { echo "mutate.sh: not a build folder, or nothing is built" >&2; exit 2; }
: "${MUTATE_TESTS=compile/test_dump}"
: "${MUTATE_MEMBERS=ranks among_stages peer loss_weight kernel_plan micro_batch behind divided low stream}"
: "${MUTATE_CALLS=operand_set operands_replace epilogue_add epilogues_take}"
[ $# -gt 0 ] || set -- "$top_srcdir"/src/compile/*/*.c
members=$(echo $MUTATE_MEMBERS | tr ' ' '|') calls=$(echo $MUTATE_CALLS | tr ' ' '|')

# Files whose members of these names are not an instruction's, or which make no program.
others='/(parse|pass_text|program_words|fit_.*|simulate|pipeline_schedule|partition.*|recompute_replay'
others="$others|cut_choose|verify.*|cost|kernel_plans)\\.c\$"

# statements FILE: the numbers of their lines. Declarations with initial values are no assignments.
statements() { grep -nE "^ .*([]a-z_)](->|\.)($members) = |($calls)\()" "$1" | cut -d: -f1; }

# without FILE LINE: the file without the statement that begins in that line.
without() {
    awk -v line="$2" -v start="[a-z_.>-]*(->|[.])($members) = |($calls)[(]" '
        NR == line {
            match($0, start)
            printf "%s", substr($0, 1, RSTART - 1)
            $0 = substr($0, RSTART)
            cut = 1
        }
        cut { end = index($0, ";"); if (!end) { print ""; next } $0 = substr($0, end); cut = 0 }
        { print }' "$1"
}

# compiled MODULE: makes object $scratch/MODULE.o of $scratch/MODULE.c, as the build does.
compiled() {
    source=$(cd "$top_srcdir" && ls src/compile/*/"$1".c)
    changed=$(sed -n 's/^srcdir = //p' Makefile)/$source
    command=$(make -n -W "$changed" "${source%c}o" 2>/dev/null | tr '\n' ' ' |
        sed -n 's/.*\(-DHAVE_CONFIG_H .*\) -MT .*/\1/p')
    command="\${CC-cc} $command -w -Wno-error -O0 -c"
    eval "$command -o \"\$scratch/$1.o\" \"\$scratch/$1.c\""
}

# noticed MODULE: whether a test, built with that object in front of the library, fails.
noticed() {
    for test in $MUTATE_TESTS; do
        rm -f "tests/$test"
        make -s "tests/$test" LDFLAGS="$scratch/$1.o" >/dev/null 2>&1 || return 2
        timeout 100 "tests/$test" >/dev/null 2>&1 || { echo "# $test"; return 0; }
    done
    return 1
}

# unnoticed MODULE: as it is, the file passes.
unnoticed() {
    cp "$top_srcdir"/src/compile/*/"$1".c "$scratch/$1.c" && compiled "$1" || return 1
    noticed "$1"
    [ $? -eq 1 ]
}

for file; do
    echo "$file" | grep -qE "$others" && continue
    module=$(basename "$file" .c)
    lines=$(statements "$file")
    [ -z "$lines" ] || ok "$module.c as it is" unnoticed "$module"
    for line in $lines; do
        without "$file" "$line" >"$scratch/$module.c"
        label="$module.c:$line: $(sed -n "${line}s/^ *//p" "$file")"
        if ! compiled "$module" 2>/dev/null; then skip "$label" "does not compile without it"
        else ok "$label" noticed "$module"
        fi
    done
done
for test in $MUTATE_TESTS; do rm -f "tests/$test"; done
echo "1..$cases"
