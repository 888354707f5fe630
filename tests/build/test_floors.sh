#!/bin/sh
# Files include their own folder and lower floors only, never a neighbour's, never up, and nothing leads in a
# circle; rooms within a folder likewise. Objects call downward only, except through pointers.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "no program is run"

floors='0 src/base
1 alloc
1 amp
1 conf
1 data
1 src/device
1 src/comm
1 src/format
2 kernels
3 src/graph
4 src/compile
5 src/exec
6 src/checkpoint
6 src/input
7 src/task
7 src/transfer
8 src/session
9 src/explain
9 src/forecast
10 src/api
10 src/evaluate
11 src/train
12 src/measure
12 src/report
13 src/cmd
14 src'
# Rooms are floors within a folder: a file includes its own room, lower rooms, and what lies in the folder
# itself, which includes no room of the table.
rooms='1 kernels/support
2 kernels/elementwise
2 kernels/images
3 kernels/linear
3 kernels/shape
4 kernels/conv
4 kernels/pool
5 kernels/attention
5 kernels/exchange
5 kernels/loss
5 kernels/norm
5 kernels/optimizer
5 kernels/tokens
6 kernels/folded
1 data/image
2 data/augment
2 data/dataset
3 data/formats
3 data/loader'
# Includes that still lead up. None is added here.
leading_up='kernels/conv/conv.c kernels/norm/batchnorm.h'
# Folders with rooms: of these, a floor is the whole. Those of src/compile are no floors.
divided='data kernels src/compile'
# A folder holds at most so many sources, but for src/base, src/cmd and those that still have more.
sources_most=32
crowded='src/base src/cmd'

folders() { echo "$floors" | cut -d ' ' -f 2; }
divisions() { for folder in $divided; do find "$folder" -mindepth 1 -type d; done; }

files() {
    for folder in $(folders) $(divisions); do
        ls "$folder"/*.c "$folder"/*.h "$folder"/*.cu "$folder"/*.cuh "$folder"/*.def
    done 2>/dev/null
}

# Lines `FILE TARGET` for every #include "NAME" of a file in the working folder: names count from the file's
# own folder, from src and from the top. A target that is nowhere is `?NAME`.
includes() {
    files >"$scratch/files"
    awk -v list="$scratch/files" '
        BEGIN { while ((getline file <list) > 0) here[file] = 1 }
        /^[ \t]*#[ \t]*include[ \t]*"/ {
            split($0, quoted, "\"")
            name = quoted[2]
            if (name == "config.h") next
            own = FILENAME
            sub(/[^\/]*$/, "", own)
            target = (own name) in here ? own name : ("src/" name) in here ? "src/" name : name
            print FILENAME, target in here ? target : "?" name
        }' $(cat "$scratch/files") /dev/null
}

keeps_its_floor() {
    echo "$floors" >"$scratch/floors"
    awk -v own="$1" '
        function folder(file) {
            do sub(/\/[^\/]*$/, "", file); while (!(file in floor) && file ~ /\//)
            return file
        }
        FILENAME == ARGV[1] { floor[$2] = $1; next }
        folder($1) != own { next }
        $2 ~ /^\?/ { print $1 ": " substr($2, 2) " is not found, or lies on no floor"; next }
        folder($2) != own && floor[folder($2)] >= floor[own] {
            print $1 " (floor " floor[own] ") includes " $2 " (floor " floor[folder($2)] ")"
        }' "$scratch/floors" "$scratch/includes" >"$scratch/wrong"
    cat "$scratch/wrong"
    [ ! -s "$scratch/wrong" ]
}

keeps_its_room() {
    echo "$rooms" >"$scratch/rooms"
    echo "$leading_up" >"$scratch/leading_up"
    awk '
        function folder(file) { sub(/\/[^\/]*$/, "", file); return file }
        FILENAME == ARGV[1] { room[$2] = $1; top[folder($2)] = 1; next }
        FILENAME == ARGV[2] { known[$0] = 1; next }
        $0 in known { next }
        { own = folder($1); other = folder($2) }
        !(other in room) || own == other { next }
        own in top && index(other, own "/") == 1 { print $1 " includes " $2 " of a room"; next }
        own in room && folder(own) == folder(other) && room[other] >= room[own] {
            print $1 " (room " room[own] ") includes " $2 " (room " room[other] ")"
        }' "$scratch/rooms" "$scratch/leading_up" "$scratch/includes" >"$scratch/wrong"
    cat "$scratch/wrong"
    [ ! -s "$scratch/wrong" ]
}

# Folders with rooms in the table have no others.
has_every_room() {
    for folder in $(echo "$rooms" | sed 's|.* ||; s|/[^/]*$||' | sort -u); do
        for room in "$folder"/*/; do
            ls "$room" | grep -qE '\.(c|h|cu)$' || continue
            echo "$rooms" | grep -q " ${room%/}\$" || { echo "$room is no room of the table"; return 1; }
        done
    done
}

has_few_sources() {
    files | sed 's|/[^/]*$||' | sort | uniq -c | awk -v most=$sources_most -v crowded=" $crowded " '
        $1 > most && !index(crowded, " " $2 " ") { print $2 " has " $1 " sources"; bad = 1 }
        END { exit bad }'
}

# Circles among files; among modules, which are NAME.c with NAME.h and NAME_parts.h, and NAME_cuda for
# NAME.cu; and among folders. An edge within one of them is none.
edges_of_files() { grep -v '?' "$scratch/includes"; }
edges_of_modules() {
    edges_of_files | awk '
        function module(file) {
            sub(/\.cu$/, "_cuda", file)
            sub(/\.[a-z]*$/, "", file)
            sub(/_parts$/, "", file)
            return file
        }
        { print module($1), module($2) }'
}
edges_of_folders() {
    edges_of_files | sed -E "s#(^| )($(echo $divided | tr ' ' '|'))/[a-z]+/#\1\2/#g" |
        sed 's|/[^/]* |/ |; s|/[^/]*$|/|'
}
has_no_circle() {
    "edges_of_$1" | tsort 2>&1 >/dev/null | tee "$scratch/circle"
    [ ! -s "$scratch/circle" ]
}

# Lines `FOLDER OBJECT U|D SYMBOL` of what objects ask for and define.
symbols() {
    for folder in $(folders); do
        objects=$top_builddir/lib${folder##*/}.a
        [ "$folder" != src ] || objects=$(ls "$top_srcdir"/src/*.c | sed "s|.*/|$top_builddir/src/|; s|c$|o|")
        nm -A -P $objects | awk -v folder="$folder" '
            { sub(/.*[[\/]/, "", $1); sub(/\]*:$/, "", $1) }
            $3 ~ /^[A-Z]$/ { print folder, $1, $3 == "U" ? "U" : "D", $2 }'
    done
}
calls_go_down() {
    echo "$floors" >"$scratch/floors"
    awk '
        FILENAME == ARGV[1] { floor[$2] = $1; next }
        FNR == 1 { pass++ }
        pass == 1 && $3 == "D" { home[$4] = $1 }
        pass == 2 && $3 == "U" && $4 in home && home[$4] != $1 && floor[home[$4]] >= floor[$1] {
            print $1 "/" $2 " (floor " floor[$1] ") asks for " $4 " of " home[$4] \
                " (floor " floor[home[$4]] ")"
        }' "$scratch/floors" "$scratch/symbols" "$scratch/symbols" >"$scratch/wrong"
    cat "$scratch/wrong"
    [ ! -s "$scratch/wrong" ]
}

top_builddir=$(cd "$top_builddir" && pwd) top_srcdir=$(cd "$top_srcdir" && pwd)
cd "$top_srcdir" || exit 1
includes >"$scratch/includes"
for folder in $(folders); do
    ok "$folder includes only lower floors" keeps_its_floor "$folder"
done
ok "rooms include only lower rooms" keeps_its_room
ok "every room is in the table" has_every_room
ok "no folder is crowded" has_few_sources
for what in files modules folders; do
    ok "$what form no cycle" has_no_circle $what
done
symbols >"$scratch/symbols"
ok "object files can be read" [ "$(wc -l <"$scratch/symbols")" -gt 1000 ]
ok "calls go to lower floors" calls_go_down

# The test itself must see what it is there for. plant FILE NAME...: a file that includes those.
plant() {
    mkdir -p "$(dirname "$1")"
    file=$1; shift
    : >"$file"
    for header; do echo "#include \"$header\"" >>"$file"; done
}
fresh() {
    rm -rf "$scratch/tree"
    mkdir "$scratch/tree"
    cd "$scratch/tree" || exit 1
    plant src/base/status.h
    plant src/compile/memory/plan.h
    plant amp/scaler.h
}
finds_wrong() {
    fresh
    plant alloc/pack.c "$1"
    includes >"$scratch/includes"
    if keeps_its_floor alloc; then return 1; fi
}
finds_right() {
    fresh
    plant alloc/pack.c base/status.h
    echo '#include <stdio.h>' >>alloc/pack.c
    includes >"$scratch/includes"
    keeps_its_floor alloc && has_no_circle files && has_no_circle modules && has_no_circle folders
}
# finds_circle WHAT: in what was planted.
finds_circle() {
    includes >"$scratch/includes"
    if has_no_circle "$1"; then return 1; fi
}
finds_no_circle() {
    includes >"$scratch/includes"
    has_no_circle "$1"
}
ok "an include from above is found" finds_wrong compile/memory/plan.h
ok "an include of a neighbour is found" finds_wrong amp/scaler.h
ok "an include of a missing file is found" finds_wrong base/nothing.h
ok "an include of a lower floor is accepted" finds_right

finds_wrong_room() {
    fresh
    plant kernels/op.h
    plant kernels/linear/matmul.cuh kernels/op.h
    plant kernels/conv/conv.cu kernels/linear/matmul.cuh
    includes >"$scratch/includes"
    keeps_its_room || return 1
    plant "$1" "$2"
    includes >"$scratch/includes"
    if keeps_its_room; then return 1; fi
}
ok "an include of a higher room is found" finds_wrong_room kernels/linear/linear.cu kernels/conv/conv.cu
ok "an include of a room beside is found" finds_wrong_room kernels/shape/pad.c kernels/linear/matmul.cuh
ok "an include of a room from its folder is found" finds_wrong_room kernels/call.h kernels/linear/matmul.cuh
finds_new_room() {
    fresh
    plant kernels/attic/lumber.h
    if has_every_room; then return 1; fi
}
ok "a room that is not in the table is found" finds_new_room
finds_crowd() {
    fresh
    for i in $(seq $sources_most); do plant "amp/$i.h"; done
    if has_few_sources; then return 1; fi
}
ok "a crowded folder is found" finds_crowd

fresh
plant alloc/a.h alloc/b.h
plant alloc/b.h alloc/c.h
plant alloc/c.h alloc/a.h
ok "a cycle of three files is found" finds_circle files
fresh
plant alloc/a.c a.h alloc/b.h
plant alloc/b.c b.h alloc/a.h
plant alloc/a.h
plant alloc/b.h
ok "a cycle of two modules is found" finds_circle modules
ok "... whose files form none" finds_no_circle files
fresh
plant alloc/a.c alloc/a_parts.h
plant alloc/a_more.c alloc/a_parts.h
plant alloc/a_parts.h alloc/a.h
plant alloc/a.h
ok "the parts of one module are not a cycle" finds_no_circle modules
fresh
plant alloc/a.h amp/b.h
plant amp/c.h alloc/d.h
plant amp/b.h
plant alloc/d.h
ok "a cycle of folders is found" finds_circle folders

# Were train the floor below session, each of its calls would be one up.
finds_calls_up() {
    upside=$(echo "$floors" | sed 's|^11 src/train|5 src/train|')
    if (floors=$upside && calls_go_down); then return 1; fi
    grep -q "^src/train/.* asks for session_loader_open of src/session (floor 8)" "$scratch/wrong"
}
ok "upward calls are found" finds_calls_up
finds_neighbours() {
    upside=$(echo "$floors" | sed 's|^2 kernels|1 kernels|')
    if (floors=$upside && calls_go_down); then return 1; fi
    grep -q "^kernels/.* (floor 1) asks for .* (floor 1)" "$scratch/wrong"
}
ok "calls to neighbours are found" finds_neighbours

# A program and a script of one name would have one log, and one of them would never be run.
names_differ() {
    twice=$(ls "$top_srcdir"/tests/*/test_*.c "$top_srcdir"/tests/*/test_*.sh |
        sed 's|.*/||; s/\.[a-z]*$//' | sort | uniq -d)
    [ -z "$twice" ] || { echo "$twice"; return 1; }
}
ok "test names are unique" names_differ

# A build without OpenMP has neither its header nor its functions.
openmp_is_optional() {
    (cd "$top_srcdir" && files | grep '\.[ch]$' | xargs awk '
        FNR == 1 { last = "" }
        /^#include <omp.h>/ && last != "#ifdef _OPENMP" { print FILENAME; bad = 1 }
        { last = $0 }
        END { exit bad }')
}
ok "OpenMP is optional" openmp_is_optional

lines_are_short() {
    (cd "$top_srcdir" && files | LC_ALL=C.UTF-8 xargs grep -nE '^.{111}' >"$scratch/wrong")
    [ ! -s "$scratch/wrong" ] || { cat "$scratch/wrong"; return 1; }
}
ok "lines have at most 110 characters" lines_are_short
finish
