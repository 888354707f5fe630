#!/bin/sh
# Every file includes its own folder and lower floors only, never a neighbour's, never up.
. "$top_srcdir/tests/tap.sh"

# The floor of a folder; nothing for what is not ours.
floor_of() {
    case $1 in
    src/base) echo 0 ;;
    alloc | amp | conf | data | src/device | src/comm | src/format) echo 1 ;;
    kernels) echo 2 ;;
    src/graph) echo 3 ;;
    src/compile) echo 4 ;;
    src/exec) echo 5 ;;
    src/session) echo 6 ;;
    src/train) echo 7 ;;
    src) echo 8 ;;
    esac
}

# The folder in which an include "name.h" of a file in folder $1 is found. Names count from the
# file's own folder, from src and from the top.
folder_of_include() {
    for base in "$1/" src/ ""; do
        [ -f "$base$2" ] && dirname "$base$2" && return
    done
}

# Lines `FILE NAME` for every #include "NAME" of a folder's files.
includes_of() {
    for file in "$1"/*.c "$1"/*.h "$1"/*.cu "$1"/*.cuh "$1"/*.def; do
        [ -f "$file" ] || continue
        sed -n 's/^[ \t]*#[ \t]*include[ \t]*"\([^"]*\)".*/\1/p' "$file" | sed "s|^|$file |"
    done
}

# Names what is wrong with an include, if anything is: file, its folder and floor, the name.
judge() {
    [ "$4" = config.h ] && return
    target=$(folder_of_include "$2" "$4")
    [ -n "$target" ] || { echo "$1: $4 is not found"; return; }
    [ "$target" = "$2" ] && return
    below=$(floor_of "$target")
    [ -n "$below" ] || { echo "$1: $4 lies on no floor"; return; }
    [ "$below" -lt "$3" ] || echo "$1 (floor $3) includes $4 (floor $below)"
}

keeps_its_floor() {
    includes_of "$1" | while read -r file name; do
        judge "$file" "$1" "$(floor_of "$1")" "$name"
    done >"$scratch/wrong"
    cat "$scratch/wrong"
    [ ! -s "$scratch/wrong" ]
}

# The test itself must see what it is there for.
finds_wrong() {
    mkdir -p "$scratch/tree/src/base" "$scratch/tree/src/graph" "$scratch/tree/alloc" "$scratch/tree/amp"
    cd "$scratch/tree" || return 1
    : >src/base/status.h
    : >src/compile/plan.h
    : >amp/scaler.h
    printf '#include "%s"\n' "$1" >alloc/pack.c
    if keeps_its_floor alloc; then return 1; fi
}
finds_right() {
    finds_wrong src/compile/plan.h || return 1
    printf '#include "base/status.h"\n#include <stdio.h>\n' >alloc/pack.c
    keeps_its_floor alloc
}

cd "$top_srcdir" || exit 1
for folder in src/base alloc amp conf data src/device src/comm src/format kernels src/graph src/compile src/exec \
    src/session src/train src; do
    ok "$folder keeps its floor" keeps_its_floor "$folder"
done
ok "an include from above is found" finds_wrong graph/plan.h
ok "an include of a neighbour is found" finds_wrong amp/scaler.h
ok "an include of nothing is found" finds_wrong base/nothing.h
ok "an include from below is right" finds_right

# A program and a script of one name would have one log, and one of them would never be run.
names_differ() {
    twice=$(ls "$top_srcdir"/tests/test_*.c "$top_srcdir"/tests/test_*.sh | sed 's/\.[a-z]*$//' | sort | uniq -d)
    [ -z "$twice" ] || { echo "$twice"; return 1; }
}
ok "every test has a name of its own" names_differ
finish
