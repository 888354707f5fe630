#!/bin/sh
# make wheel: a package for Python's pip that has the program, the library and a module, and needs nothing else.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "Python does not begin with their libraries"
for tool in python3 objdump strip; do
    command -v $tool >/dev/null && continue
    skip "all cases" "no $tool"
    finish
    exit
done
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures\nval_fraction = 0.25' \
    -e 's/^crop.*/crop = 28/' -e 's/^pad.*/mean = 0.3,0.4,0.5\nstd = 0.2,0.2,0.3/' \
    -e 's/^batch.*/batch = 4/' -e 's/^every = 3 steps/every = 1/' -e 's/^precision.*/precision = fp32/' \
    -e 's/^epochs.*/epochs = 1/' -e 's/tiny.ini/coloured.ini/' -e '/^init_scale/d' -e '/^growth/d' \
    run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 28/' tiny.ini >coloured.ini
"$AMPTRAIN" -q -c pictures.ini -o run || exit 1

made() { rm -f "$top_builddir"/*.whl && make -C "$top_builddir" wheel >log 2>&1 || { cat log; return 1; }; }
ok "make wheel" made
wheel=$(echo "$top_builddir"/*.whl)
figure "$(sed -n 's/.*\(amptrain-.*whl: \)/\1/p' log)"
tagged() { echo "$wheel" | grep -qE 'amptrain-[0-9.]+-py3-none-manylinux_2_[0-9]+_[a-z0-9_]+\.whl$'; }
ok "its tag follows from what it needs" tagged
# Enterprise Linux 9 has 2.34; headers newer than Debian 12's ask for newer symbols.
old_enough() {
    for file in wheel-library wheel-program; do objdump -T "$top_builddir/$file"; done |
        grep -oE 'GLIBC_2\.[0-9]+.*' | awk -F '[._) ]' '$3 > 34 { print; bad = 1 } END { exit bad }'
}
if getconf GNU_LIBC_VERSION | grep -qE ' 2\.3[0-6]$'; then ok "glibc 2.34 is new enough for its own code" old_enough
else skip "glibc 2.34 is new enough for its own code" "another C library"
fi
small() { [ "$(stat -c %s "$wheel")" -lt 15000000 ]; }
if "$AMPTRAIN" --version | grep -q "^cuda:"; then skip "it is smaller than 15 MB" "with GPU code"
else ok "it is smaller than 15 MB" small
fi
recorded() {
    python3 - "$wheel" <<'END'
import base64, csv, hashlib, io, sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
name = next(n for n in wheel.namelist() if n.endswith("/RECORD"))
rows = list(csv.reader(io.StringIO(wheel.read(name).decode())))
assert sorted(row[0] for row in rows) == sorted(wheel.namelist()), "other files than those of RECORD"
for path, digest, size in rows:
    data = wheel.read(path)
    own = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    assert path == name or (digest == "sha256=" + own and int(size) == len(data)), path
END
}
ok "RECORD has every file" recorded
repeated() { cp "$wheel" first.whl && made && cmp "$wheel" first.whl; }
ok "the same wheel is made again, byte for byte" repeated

pathless() {
    python3 - "$wheel" "$(sed -n 's/^prefix = //p' "$top_builddir/Makefile")" "$(cd "$top_srcdir" && pwd)" \
        "$(cd "$top_builddir" && pwd)" <<'END'
import sys, zipfile
wheel, prefix = zipfile.ZipFile(sys.argv[1]), sys.argv[2] + "/"
for name in wheel.namelist():
    data = wheel.read(name).replace(prefix.encode(), b"")
    for path in sys.argv[3:]:
        assert path.encode() not in data, f"{name} has {path} in it"
END
}
case $(sed -n 's/^srcdir = //p' "$top_builddir/Makefile") in
/*) skip "it has no path of this machine in it" "configured by an absolute path" ;;
*) ok "it has no path of this machine in it" pathless ;;
esac

if python3 -m venv venv >/dev/null 2>&1 && venv/bin/pip --version >/dev/null 2>&1; then
    ok "pip installs it" venv/bin/pip install -q --no-index --disable-pip-version-check "$wheel"
    python=$PWD/venv/bin/python program=$PWD/venv/bin/amptrain
else
    skip "pip installs it" "no pip"
    python=python3 program=$PWD/unpacked/amptrain/bin/amptrain PYTHONPATH=$PWD/unpacked
    export PYTHONPATH
    python3 -m zipfile -e "$wheel" unpacked && chmod +x "$program" || exit 1
fi
unset AMPTRAIN_DATADIR
version() { "$program" --version >got && "$AMPTRAIN" --version | diff - got; }
ok "the program" version
models() { "$program" models | grep -q resnet50; }
ok "... knows its models" models
without_proc() { unshare -m sh -c 'umount -l /proc && "$1" models' sh "$program" | grep -q resnet50; }
if [ -d venv ] && unshare -m umount -l /proc 2>/dev/null; then ok "... where /proc is not mounted, too" without_proc
else skip "... where /proc is not mounted, too" "no permission to unmount it"
fi
paths=$(for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23; do
    echo "pictures/apple/$i.png pictures/pear/$i.png"; done)
"$AMPTRAIN" predict -q --weights run $paths >wanted || exit 1
used() {
    "$python" "$top_srcdir/tests/api/client.py" run pictures >wrong 2>got || { cat wrong got; return 1; }
    cat wrong
    [ ! -s wrong ] && cmp wanted got
}
ok "the module" used
example() { "$python" "$top_srcdir/examples/classify.py" run $paths | cmp wanted -; }
ok "the example in Python" example
bundled() {
    "$python" -c 'import amptrain; print(open("/proc/self/maps").read())' >maps &&
        grep -q 'amptrain/lib/libdnnl' maps && ! grep -E '/lib/x86_64-linux-gnu/(libdnnl|libpng|libjpeg)' maps
}
if [ -r /proc/self/maps ]; then ok "the bundled libraries are used" bundled
else skip "the bundled libraries are used" "no /proc"
fi
finish
