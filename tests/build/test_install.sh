#!/bin/sh
# make install: everything has its place, the program runs from there, and make uninstall leaves nothing.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "files are copied"

root=$scratch/root
prefix=$(sed -n 's/^prefix = //p' "$top_builddir/Makefile")
share=$root$prefix/share
build() { make -C "$top_builddir" DESTDIR="$root" "$@"; }

ok "make install" build install
ok "the program" test -x "$root$prefix/bin/amptrain"
ok "models" test -f "$share/amptrain/models/resnet50.ini"
ok "example configurations" test -f "$share/amptrain/conf/imagenet.ini"
ok "the demo's data" sh -c 'ls "$1"/* >/dev/null' sh "$share/amptrain/data/digits"
lib=$root$prefix/lib
ok "the library" test -L "$lib/libamptrain.so" -a -L "$lib/libamptrain.so.0" -a -f "$lib/libamptrain.a"
ok "its header" test -f "$root$prefix/include/amptrain.h"
ok "amptrain(3)" test -f "$share/man/man3/amptrain.3"
ok "amptrain(1)" test -f "$share/man/man1/amptrain.1"
ok "amptrain.ini(5)" grep -q 'label_smoothing' "$share/man/man5/amptrain.ini.5"
ok "amptrain-model(5)" test -f "$share/man/man5/amptrain-model.5"
ok "amptrain-ir(7)" test -f "$share/man/man7/amptrain-ir.7"
ok "bash completion" test -f "$share/bash-completion/completions/amptrain"

# Away from the source tree and from its own prefix: models and data are found beside the program.
cd "$scratch" || exit 1
ok "installed models are found" sh -c '"$1" models | grep -q resnet50' sh "$root$prefix/bin/amptrain"
ok "the demo configuration is accepted" "$root$prefix/bin/amptrain" --check -c \
    "$share/amptrain/conf/digits.ini"

# A user of the library knows pkg-config alone.
if command -v pkg-config >/dev/null && command -v "${CC:-cc}" >/dev/null; then
    linked() {
        flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --define-variable=prefix="$root$prefix" \
            --cflags --libs amptrain) || return 1
        "${CC:-cc}" "$top_srcdir/examples/classify.c" -o classify $flags &&
            LD_LIBRARY_PATH=$lib exits_with 2 ./classify
    }
    ok "a program is linked with the installed library" linked
    complete() {
        flags=$(PKG_CONFIG_PATH=$lib/pkgconfig pkg-config --static --define-variable=prefix="$root$prefix" \
            --cflags --libs amptrain) || return 1
        "${CC:-cc}" "$top_srcdir/examples/classify.c" -o classify $(echo "$flags" |
            sed "s|-lamptrain|$lib/libamptrain.a|") && exits_with 2 ./classify
    }
    ok "... and with the static one" complete
else
    skip "a program is linked with the installed library" "no pkg-config or compiler"
fi

configured() { mkdir -p configured && (cd configured && "$top_srcdir/configure" -q --without-cuda "$@"); }
if [ -e "$top_srcdir/config.status" ]; then
    skip "configure refuses a folder without oneDNN" "the source folder is configured itself"
else
    ok "configure refuses a folder without oneDNN" says 1 "but oneDNN is not in /nowhere" \
        configured --with-onednn=/nowhere
fi

ok "make uninstall" build uninstall
nothing_left() {
    find "$root" ! -type d >"$scratch/left"
    ! [ -s "$scratch/left" ] || { cat "$scratch/left"; return 1; }
}
ok "no file is left" nothing_left
finish
