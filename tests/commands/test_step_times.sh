#!/bin/sh
# Forecasts of a step's time: modelled until a step of the network has run, then in its proportion, or as it
# was measured.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

export XDG_CACHE_HOME="$scratch/cache"
steps=$XDG_CACHE_HOME/amptrain/steps
planned() { "$AMPTRAIN" plan -c run.ini --json "$@" | tr , '\n' | sed -n "s/^{*\"$field\":\"*\([^\"]*\)\"*/\1/p"; }
from() { field=step_ms_from planned "$@"; }
measure() { "$AMPTRAIN" bench -c run.ini --json --steps 5 --warmup 1 "$@"; }

ok "a step that never ran is modelled" [ "$(from)" = model ]
ok "a step runs" measure
cp "$steps" written
ok "... and is measured in the next plan" [ "$(from)" = measured ]
median=$(measure | tr , '\n' | sed -n 's/^{*"step_ms_median"://p')
planned=$(field=step_ms planned)
ok "... with its median" awk "BEGIN { exit !($median > 0.999 * $planned && $median < 1.001 * $planned) }"
ok "... which stands in the file once" [ "$(wc -l <"$steps")" = 1 ]
ok "another batch is scaled by it" [ "$(from -s train.batch=32)" = scaled ]
# Twice as long a step makes all forecasts of the network twice as long.
before=$(field=step_ms planned -s train.batch=32)
awk '{ $3 = 2 * $3; print }' "$steps" >twice && cp twice "$steps"
after=$(field=step_ms planned -s train.batch=32)
ok "... in proportion" awk "BEGIN { exit !($after > 1.99 * $before && $after < 2.01 * $before) }"
ok "another precision is modelled" [ "$(from -s amp.precision=fp32)" = model ]
ok "another network is modelled" [ "$(from -s model.arch=resnet20 -s model.file= -s augment.flip=0)" = model ]
residual="-s model.arch=resnet20 -s model.file="
ok "... until it has run" measure $residual
ok "... which counts for images of another size, too" [ "$(from $residual -s augment.crop=6)" = scaled ]
ok "plan says so in words" sh -c '"$0" plan -c run.ini | grep -q "ms  measured in an earlier run"' "$AMPTRAIN"

# Without a device, a GPU is planned for as the newest measured step names it.
if "$AMPTRAIN" -V | grep -q cuDNN; then
    gpu_ms() { field=step_ms planned -s run.device=cuda "$@"; }
    assumed=$(gpu_ms) assumed_two=$(gpu_ms -s parallel.gpus=2)
    echo "00000001 00000002 1 1 NVIDIA L4" >>"$steps"
    ok "the GPU of an earlier run is planned for" awk "BEGIN { exit !($(gpu_ms) > 1.02 * $assumed) }"
    ok "... unless there are several" [ "$(gpu_ms -s parallel.gpus=2)" = "$assumed_two" ]
else
    skip "the GPU of an earlier run is planned for" "built without CUDA"
fi

# Lines that are damaged count for nothing, and are gone after the next step.
for line in '' x '1 2' 'zz zz 1 1 CPU' '00000001 00000002 nan 1 CPU' '00000001 00000002 inf 1 CPU' \
    '00000001 00000002 1 0 CPU' '00000001 00000002 -1 1 CPU' '00000001 00000002 1e400 1 CPU'; do
    echo "$line" >"$steps"
    ok "'$line' is not taken" [ "$(from)" = model ]
done
head -c 100000 /dev/zero >"$steps"
ok "zeros are not taken" [ "$(from)" = model ]
measure >/dev/null
ok "the next step mends the file" sh -c 'cut -d " " -f 1,2,5 "$0" >a && cut -d " " -f 1,2,5 written | cmp - a' "$steps"
rm -rf "$XDG_CACHE_HOME" && touch "$XDG_CACHE_HOME"
ok "without a cache folder a step runs" measure
ok "... and is modelled" [ "$(from)" = model ]
finish
