#!/bin/sh
# quickstart: what it asks configure for, with tools that only tell what they are asked.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "a script builds without"

mkdir "$scratch/tree" "$scratch/bin"
cp "$top_srcdir/quickstart" "$scratch/tree"
tool() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
tool "$scratch/tree/configure" 'echo "asked:" "$@" && touch Makefile'
tool "$scratch/bin/dpkg-query" 'echo "install ok installed"'
tool "$scratch/bin/apt-get" 'exit 1'
tool "$scratch/bin/make" 'exit 0'
tool "$scratch/bin/nvidia-smi" '[ -z "$GPUS" ] || printf "$GPUS"'

asks() { # WANTED GPUS ARGUMENT...
    wanted=$1 gpus=$2; shift 2
    rm -rf "$scratch/tree/build"*
    GPUS=$gpus PATH=$scratch/bin:$PATH "$scratch/tree/quickstart" "${1-build}" || return 1
    cat "$scratch/tree"/build*/configure.log
    grep -qx "asked: $wanted" "$scratch/tree"/build*/configure.log
}
unset CUDA_ARCH
ok "without a GPU: no CUDA" asks --without-cuda ''
ok "with GPUs: code for their architectures only" asks '--with-cuda-arch=80 90' '9.0\n8.0\n9.0\n'
ok "without a driver: no CUDA" asks --without-cuda 'NVIDIA-SMI has failed\n'
export CUDA_ARCH=90
ok "CUDA_ARCH selects the architecture without a GPU" asks --with-cuda-arch=90 ''
ok "configure options given by the user come last" asks '--with-cuda-arch=90 CC=clang CFLAGS=-O1 --without-cuda' '' clang

# The package is built with the same libraries.
packaged() {
    libraries=$(sed -n "/^needed='/,/'$/p" "$top_srcdir/quickstart" | tr "' " '\n' | grep -- '-dev$' |
        grep -v libc6)
    [ -n "$libraries" ] || return 1
    for library in $libraries; do
        grep -q " $library,*$" "$top_srcdir/debian/control" ||
            { echo "not in debian/control: $library"; return 1; }
    done
}
ok "debian/control needs what quickstart installs" packaged
finish
