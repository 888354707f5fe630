#!/bin/sh
# Builds are reproducible: no path of the source tree or of the build folder is in what is built, archives have
# no times, and (make torture) a build in another folder, of another name, gives the same bytes.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "they are not for others"

source=$(cd "$top_srcdir" && pwd) build=$(cd "$top_builddir" && pwd)
shared=$(echo "$build"/libamptrain.so.*.*)

# The loader's paths of a build configured with --with-DEPENDENCY=FOLDER are no paths of the build, nor is the
# folder to be installed to, which distcheck has below the source.
prefix=$(sed -n 's/^prefix = //p' "$build/Makefile")
has_no_path() { # FILE
    [ -s "$1" ] &&
        ! LC_ALL=C sed "s|$prefix/||g" "$1" | grep -aoE -m 1 ".{0,40}($source|$build)[/\"].{0,40}"
}
for file in amptrain "${shared##*/}" libamptrain.a libbase.a libkernels.a; do
    ok "$file has no path of the build" has_no_path "$build/$file"
done

has_no_times() { # ARCHIVE: seconds, owner and group of each member
    ar tv "$1" >members && [ -s members ] && ! grep -v '^[-rwx]* 0/0 .* Jan  1 00:00 1970 ' members
}
if command -v ar >/dev/null; then
    cd "$scratch" && TZ=UTC && export TZ || exit 1
    ok "archives have no times" has_no_times "$build/libamptrain.a"
    ok "... those within the build neither" has_no_times "$build/libbase.a"
else
    skip "archives have no times" "no ar"
fi

# Two builds of the distribution, configured as this one is, one of them with a longer path.
builds() { # FOLDER
    mkdir -p "$1" && make -C "$build" -s distdir distdir="$1/amptrain" && mkdir "$1/amptrain/build" &&
        (cd "$1/amptrain" && { [ -x configure ] || ./bootstrap; } && cd build &&
            eval "../configure $("$build/config.status" --config)" && make -j 2 && make wheel) >"$1/log" 2>&1 ||
        { tail -n 20 "$1/log"; return 1; }
}
same() { # NAME...
    for name; do
        cmp "$scratch"/one/amptrain/build/$name "$scratch"/another/longer/amptrain/build/$name || return 1
    done
}
if [ "$(rounds 0 1)" = 1 ]; then
    ok "a build" builds "$scratch/one"
    ok "... and one in another folder" builds "$scratch/another/longer"
    ok "... have the same program" same amptrain
    ok "... libraries" same "${shared##*/}" libamptrain.a
    ok "... manual pages" same man/amptrain.ini.5 man/amptrain-model.5
    ok "... and wheel" same 'amptrain-*.whl'
    figure "$(cd "$scratch/one/amptrain/build" && sha256sum amptrain amptrain-*.whl | tr '\n' ' ')"
else
    skip "two builds have the same bytes" "make torture"
fi
finish
