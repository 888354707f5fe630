#!/bin/sh
# What a run does with image files: the same with and without a cache.
. "$top_srcdir/tests/tap.sh"
. "$top_srcdir/tests/tiny.sh"

"$top_builddir/tests/make_pictures" pictures || exit 1
cat >pictures.ini <<'END_OF_INI'
[run]
device = cpu
threads = 1
[data]
format = folder
train = pictures
val_fraction = 0.3
[loader]
workers = 2
[augment]
crop = 8
scale = 0.2 1
flip = 0.5
[model]
file = colour.ini
[train]
batch = 4
epochs = 3
[log]
every = 1
tensorboard = no
END_OF_INI
sed 's/channels = 1/channels = 3/' tiny.ini >colour.ini
pictures() { folder=$1; shift; "$AMPTRAIN" -q -c pictures.ini -o "$folder" "$@"; }

ok "a run without a cache" pictures without -s loader.cache=none
with_cache() { pictures "$1" -s loader.cache="$2" -s loader.cache_limit="$3" && same without "$1"; }
ok "... with one" with_cache host host auto
ok "... with a small one" with_cache small host 10K
ok "... as it comes" with_cache auto auto auto
ok "... on the device, which is the host" with_cache device device auto
refused() { "$AMPTRAIN" plan -c pictures.ini -s loader.cache=device -s run.device=cuda 2>said; status=$?; cat said
    grep -q "loader.cache: 'device' is not available on CUDA yet" said && return $status; }
if "$AMPTRAIN" -V | grep -q cuDNN; then
    exits "... which is refused on CUDA" 2 refused
else
    skip "... which is refused on CUDA" "this build has no CUDA code"
fi
finish
