#!/bin/sh
# Runs on image files: they do the same with and without a cache; and files that are broken.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
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
ok "... with a cache" with_cache host host auto
ok "... with a small one" with_cache small host 10K
ok "... with loader.cache=auto" with_cache auto auto auto
ok "... on the device, here the host" with_cache device device auto
refused() { "$AMPTRAIN" plan -c pictures.ini -s loader.cache=device -s run.device=cuda 2>said; status=$?; \
    cat said
    grep -q "loader.cache: a GPU caches images of one size only" said && return $status; }
if "$AMPTRAIN" -V | grep -q cuDNN; then
    exits "... not on a GPU if image sizes differ" 2 refused
else
    skip "... not on a GPU if image sizes differ" "this build has no CUDA code"
fi

refused() { "$AMPTRAIN" plan -c pictures.ini -s loader.decode=gpu 2>said; status=$?; cat said
    grep -q "loader.decode: gpu is not possible: " said && return $status; }
exits "GPU decoding for a run on the CPU" 2 refused

# Broken files, one of them for validation: named and listed, once, however often they are met.
cp -r pictures broken
cp -r pictures judged
for name in broken/apple/1.png broken/pear/7.png judged/pear/3.png; do
    head -c 60 "$name" >cut && mv cut "$name"
done
printf 'no image any more' >broken/pear/2.png
tab=$(printf '\t')
odd="broken/pear/a${tab}tab.png"
: >"$odd"
# A class of which no image can be used is named, by --check and in the end; its accuracy is not in the mean.
cp -r pictures lost && for name in lost/pear/*.png; do echo "no image" >"$name"; done
mv lost/pear lost/pearl && mkdir lost/pear && for name in lost/pearl/*.png; do
    head -c 60 "pictures/pear/${name##*/}" >"lost/pear/${name##*/}"
done && rm -r lost/pearl
lost="-s data.train=lost -s data.val= -s data.val_fraction=0.25"
# shellcheck disable=SC2086
ok "classes without usable images, in --check" says 0 \
    "classes without usable images: 'pear' (training), 'pear' (validation)" \
    "$AMPTRAIN" --check -c pictures.ini $lost
ends() {
    # shellcheck disable=SC2086
    "$AMPTRAIN" -c pictures.ini -o lost-run $lost >out 2>err || return 1
    cat out; grep -q "classes without usable images *'pear' (training), 'pear' (validation)" out &&
        grep -q "balanced accuracy .* % of 1 of 2 classes" out
}
ok "... and in the end of a run" ends
# Held out images are validation images, and a resumed run knows them again.
held_out() {
    cut -f 1 lost-run/bad-images.txt | sort | uniq -c | tr -s ' ' | sed 's/^ //' >counts
    cat counts
    sort -u lost-run/bad-images.txt | wc -l >all && grep -qx "6 val" counts && grep -qx "18 train" counts &&
        # shellcheck disable=SC2086
        "$AMPTRAIN" -q -c pictures.ini -o lost-run -r $lost -s train.epochs=4 &&
        sort lost-run/bad-images.txt | wc -l | cmp - all
}
ok "... whose held out images are listed as validation images" held_out
broken() { folder=$1; shift
    pictures "$folder" -s data.train=broken -s data.val=judged -s data.val_fraction=0 "$@"; }
listed() { # FOLDER: three in training and one in the validation, by name and each once
    cut -f 1,3 "$1/bad-images.txt" | sort >list
    printf '%s\t%s\n' train broken/apple/1.png train 'broken/pear/a\ttab.png' train broken/pear/7.png \
        val judged/pear/3.png | sort >wanted
    cat "$1/bad-images.txt"
    diff wanted list && awk -F "$tab" 'NF != 4 || $4 == "" { exit 1 }' "$1/bad-images.txt"
}
counted() { grep '"event":"epoch"' "$1/metrics.jsonl" | sed 's/.*"bad_images"://; s/[,}].*//' | tr '\n' ' '; }
ok "corrupt files are skipped" broken skipping
ok "... and listed" listed skipping
ok "... and counted, in each epoch" [ "$(counted skipping)" = "4 4 4 " ]
warned() { grep -c "warning: .*$1" said; }
again() {
    broken again -s run.max_steps=11 || return 1
    [ "$(wc -l <again/bad-images.txt)" -ge 3 ] || return 1
    printf 'train\t5\t./bro' >>again/bad-images.txt
    "$AMPTRAIN" -c pictures.ini -o again -r -s data.train=broken -s data.val=judged -s data.val_fraction=0 \
        2>said &&
        ! grep "warning: .*apple/1.png" said && listed again && same skipping again
}
ok "... not again when the run is resumed" again
# config.ini has other paths of the same files.
from_elsewhere() {
    broken moved -s run.max_steps=11 && cp moved/bad-images.txt before &&
        (mkdir -p else && cd else && "$AMPTRAIN" -q -o ../moved -r -s run.max_steps=1000) || return 1
    cat moved/bad-images.txt
    [ "$(wc -l <moved/bad-images.txt)" = 4 ] &&
        [ "$(cut -f 1,2 moved/bad-images.txt | sort -u | wc -l)" = 4 ] &&
        head -n "$(wc -l <before)" moved/bad-images.txt | cmp - before
}
ok "... nor listed twice when it is resumed from another folder" from_elsewhere
stops() { broken stopped -s data.on_error=stop 2>said; status=$?; cat said
    grep -Eq "^amptrain: broken/(apple/1.png|pear/7.png|pear/a${tab}tab.png): " said && return $status; }
exits "... or end the run, by name" 3 stops
val_stops() { pictures judging -s data.val=judged -s data.val_fraction=0 -s data.on_error=stop 2>said; \
    status=$?
    cat said
    grep -q "^amptrain: judged/pear/3.png: " said && return $status; }
exits "... in evaluation as well" 3 val_stops
cp -r pictures many
for i in $(seq 30); do cp broken/pear/7.png "many/pear/no$i.png"; done
many() { "$AMPTRAIN" -c pictures.ini -o many-run -s data.train=many -s data.val_fraction=0 -s train.epochs=9 \
        >table 2>said || return 1
    cat table said
    [ "$(grep -c 'warning: many/pear/no' said)" = 20 ] && grep -q "20 unusable images so far; more are " said &&
        [ "$(wc -l <many-run/bad-images.txt)" = 30 ] && grep -q "unusable images  *30$" table; }
ok "... of many, the first are reported, and their number" many
val_many() { "$AMPTRAIN" eval --weights many-run --val many >said; cat said
    grep -qx "unusable images: 30" said; }
ok "... and by eval" val_many

# The bottleneck is measured, and said in a sentence.
bench() { "$AMPTRAIN" bench -q -c pictures.ini --steps 4 "$@" >said || return 1; cat said; }
explained() { bench "$@" && grep -q "^The bottleneck is .*\.$" said; }
ok "bench reports the bottleneck" explained --data
ok "... for a given data format" explained -s data.format=folder
nothing() { bench && ! grep limits said; }
ok "... not for synthetic batches" nothing
keys='"images_per_s":.*"loader_images_per_s":[0-9.e+]*,"copy_images_per_s":null,"compute_images_per_s":[0-9.e+]*'
rest='"data_wait_fraction":[0-9.e-]*,"limit":"(loader|compute)"'
json() { bench --json --data && grep -Eq "^\{$keys,$rest" said; }
ok "... as JSON" json
finish
