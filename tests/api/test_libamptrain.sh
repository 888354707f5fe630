#!/bin/sh
# libamptrain does what predict and embed do, for programs in C, in C++, and of several threads.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures\nval_fraction = 0.25' \
    -e 's/^crop.*/crop = 28/' -e 's/^pad.*/mean = 0.3,0.4,0.5\nstd = 0.2,0.2,0.3/' \
    -e 's/^batch.*/batch = 4/' -e 's/^every = 3 steps/every = 1/' -e 's/^precision.*/precision = fp32/' \
    -e 's/^epochs.*/epochs = 1/' -e 's/tiny.ini/coloured.ini/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 28/' tiny.ini >coloured.ini
"$AMPTRAIN" -q -c pictures.ini -o run || exit 1

# The program's cases count as cases of this test.
"$top_builddir/tests/api/client" run pictures >client.out 2>client.err
ended=$?
grep -v '^1\.\.' client.out
cases=$(grep -c -E '^(not )?ok ' client.out)
ok "the client ends" test $ended = 0

paths=$(for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do
    echo "pictures/apple/$i.png pictures/pear/$i.png"; done)
predicted() { "$AMPTRAIN" predict -q --weights run $paths >wanted; }
ok "predict" predicted
ok "... says the same, and the library nothing" cmp wanted client.err
embedded() {
    "$AMPTRAIN" embed -q --weights run -o wanted.npy $paths && tail -c +129 wanted.npy | cmp - library.features
}
ok "embed writes the same features" embedded

classified() { "$top_builddir/examples/classify" run $paths >got && cmp wanted got; }
ok "the example that classifies" classified
example() {
    "$top_builddir/examples/embed" run pictures/pear got.features >got &&
        "$AMPTRAIN" embed -q --weights run -o wanted.npy pictures/pear &&
        tail -c +129 wanted.npy >wanted.features && wc -c <got.features | grep -qx 301056 &&
        [ "$(wc -l <got)" = 24 ] && od -v -An -t x1 -w12544 got.features | sort >one &&
        od -v -An -t x1 -w12544 wanted.features | sort | cmp - one
}
ok "the example that embeds a folder" example

# Masks: a network that labels pixels.
cat >pixels.ini <<'END'
[input]
channels = 3
size = 16
[layers]
conv1 = conv input filters=8 kernel=3 pad=1
relu1 = relu conv1
head = conv relu1 filters=$classes kernel=1
END
sed -e 's/^format.*/format = synthetic\ntask = segment\nclasses = 5\nlimit = 72/' -e 's/^crop.*/crop = 16/' \
    -e 's/^file.*/file = pixels.ini/' -e 's/^batch.*/batch = 24/' -e 's/^precision.*/precision = fp32/' \
    -e 's/^epochs.*/epochs = 1/' -e '/^init_scale/d' -e '/^growth/d' run.ini >segment.ini
"$AMPTRAIN" -q -c segment.ini -o masks || exit 1
"$top_builddir/tests/api/client_masks" masks pictures/pear/3.png mask.bytes >client.out 2>client.err
ended=$?
grep -v '^1\.\.' client.out | sed -E 's/^(not )?ok [0-9]+/\1ok/'
cases=$((cases + $(grep -c -E '^(not )?ok ' client.out)))
ok "the client of masks ends, and the library says nothing" test $ended = 0 -a ! -s client.err
labelled() {
    "$top_builddir/examples/segment" masks pictures/pear/3.png mask.pgm >got && tail -n +4 mask.pgm |
        cmp - mask.bytes && awk '{ sum += $2 } END { exit !(sum > 0 && NR <= 5) }' got
}
ok "the example that writes a mask" labelled
counted() {
    "$AMPTRAIN" predict -q --weights masks -o written --json pictures/pear/3.png >got.json &&
        sed 's/.*"pixels":{//; s/}.*//' got.json | tr , '\n' | sed 's/"//g; s/:/ /' | grep -v ' 0$' | sort >one &&
        sort got | cmp - one
}
ok "predict counts the same pixels" counted

compiler=${CXX:-c++}
if [ -n "${AMPTRAIN_SANITIZED-}" ] || ! command -v "$compiler" >/dev/null; then
    skip "a client in C++" "sanitizers, or no compiler"
else
    compiled() {
        "$compiler" -std=c++11 -Wall -Wextra -Werror -pedantic -I "$top_srcdir/src/api" -o client_cc \
            "$top_srcdir/tests/api/client.cc" -L"$top_builddir" -lamptrain -Wl,-rpath,"$top_builddir" &&
            ./client_cc run $paths >got && cmp wanted got
    }
    ok "a client in C++" compiled
fi

library=$top_builddir/libamptrain.so
exported() {
    nm -D --defined-only "$library" | sed 's/.* //; s/@.*//' | grep -v '^AMPTRAIN_0$' | sort >got
    sed -n 's/^AMPTRAIN_API.*[ *]\(amptrain_[a-z_]*\)(.*/\1/p' "$top_srcdir/src/api/amptrain.h" | sort >declared
    [ -s got ] && diff declared got
}
if [ -n "${AMPTRAIN_SANITIZED-}" ] || ! command -v nm >/dev/null; then
    skip "its own symbols alone are exported" "sanitizers export theirs, or no nm"
else
    ok "its own symbols alone are exported" exported
fi
kept() { sort "$top_srcdir/tests/stable/v0.1.0/libamptrain.symbols" | comm -23 - declared >lost && [ ! -s lost ]; }
if [ -s declared ]; then ok "... those of 0.1.0 among them" kept
fi
# The interface of 1.0.0, as libabigail describes it: functions, their parameters, structs and enumerations may grow
# at their ends. tests/api/client.c knows sizes and places where that is not installed.
abi() {
    printf '[suppress_type]\nhas_data_member_inserted_at = end\n' >grown
    abidiff --no-added-syms --suppressions grown "$top_srcdir/tests/stable/v1.0.0/libamptrain.abi" "$1"
}
abi_differs() { # a function whose struct is another one, in a library without the others
    sed 's/^    int32_t batch; .*images that/    int64_t batch; \/* the most images that/' \
        "$top_srcdir/src/api/amptrain.h" >amptrain.h && ! cmp -s amptrain.h "$top_srcdir/src/api/amptrain.h" &&
        printf '%s\n' '#include "amptrain.h"' 'int amptrain_open_with(const char *w, const struct amptrain_options *o,' \
            '    struct amptrain **n, struct amptrain_error *e) { return 0; }' >other.c &&
        "${CC:-cc}" -g -shared -fPIC -Wl,-soname,libamptrain.so.0 \
            -Wl,--version-script="$top_srcdir/src/api/libamptrain.map" -o other.so other.c || return 1
    abi other.so | grep -q ' 1 Changed, '
}
if [ -n "${AMPTRAIN_SANITIZED-}" ] || ! command -v abidiff >/dev/null || [ "$(uname -m)" != x86_64 ] ||
    ! nm "$library" 2>/dev/null | grep -q . || ! command -v "${CC:-cc}" >/dev/null; then
    skip "the interface is that of 1.0.0" "no abidiff, or another processor's description"
else
    ok "the interface is that of 1.0.0" abi "$library"
    ok "... and another one is noticed" abi_differs
fi
static() {
    nm -g --defined-only "$top_builddir/libamptrain.a" | sed -n 's/.* //p' | grep '^[^.]' | sort | diff declared -
}
if [ -n "${AMPTRAIN_SANITIZED-}" ] || ! command -v nm >/dev/null; then skip "... the static one's, too" "as above"
else ok "... the static one's, too" static
fi
alone() { ! ldd "$library" | grep -q jemalloc; }
ok "malloc stays the caller's" alone
finish
