#!/bin/sh
# make dist takes along every file of the checkout.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "a package is built without"

if ! git -C "$top_srcdir" ls-files >"$scratch/files" 2>/dev/null || ! [ -s "$scratch/files" ]; then
    echo "1..0 # SKIP this is no git checkout"
    exit
fi

complete() {
    make -C "$top_builddir" distdir distdir="$scratch/tree" >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; return 1; }
    absent=0
    while read -r file; do
        [ -e "$scratch/tree/$file" ] || [ "$file" = .gitignore ] || { echo "$file is not in it"; absent=1; }
    done <"$scratch/files"
    return $absent
}
ok "every file of the checkout is in the distribution" complete
finish
