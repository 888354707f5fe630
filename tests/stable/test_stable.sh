#!/bin/sh
# Files that 0.1.0 wrote are read by every later version, and mean the same: a run, which is evaluated and goes
# on, exported weights, and a packed set. Keys of JSON are those that were promised (amptrain-json(5)). These
# files stay as they are; those of a later version would join them.
. "$top_srcdir/tests/support/tap.sh"

old=$top_srcdir/tests/stable/v0.1.0
cd "$scratch" && cp -R "$old" v && chmod -R u+w v && cd v || exit 1
has() { grep -qF -e "$1" "$2" || { cat "$2"; return 1; }; }
# keys FILE KEY...: a JSON object has these keys, at some depth.
keys() {
    file=$1; shift
    for key; do has "\"$key\":" "$file" || return 1; done
}

# says_loss LOSS: and eval.json's is that, but for rounding.
says_loss() {
    sed 's/.*"loss":\([^,]*\),.*/\1/' eval.json | awk -v loss="$1" '{ exit !(($1 - loss) ^ 2 < 1e-10) }'
}
evaluated() {
    "$AMPTRAIN" eval -q --weights run --json >eval.json &&
        keys eval.json images errors top1 top5 loss balanced_accuracy classes class accuracy confusions &&
        has '{"images":359,"errors":41,"top1":0.885793872,"top5":1,"loss":' eval.json && says_loss 0.493775454
}
ok "a run's weights have the same accuracy" evaluated
exported() {
    "$AMPTRAIN" eval -q --weights exported.safetensors --val few.pack -s data.format=packed --json \
        >eval.json && has '{"images":20,"errors":6,"top1":0.7,"top5":1,"loss":' eval.json &&
        says_loss 0.630920084
}
ok "so have exported weights, on a packed set" exported
again() {
    "$AMPTRAIN" export -q --weights run -o again.safetensors && tail -c 2776 again.safetensors >one &&
        tail -c 2776 exported.safetensors | cmp - one
}
ok "they are exported again as they were" again
resumed() {
    sed 's/^epochs = 2/epochs = 4/' run.ini >longer.ini
    "$AMPTRAIN" -q -c longer.ini -o run -r 2>err || { cat err; return 1; }
    grep -c '"event":"epoch"' run/metrics.jsonl | grep -qx 4 &&
        tail -n 1 run/metrics.jsonl | grep -q '"reason":"done","epochs":4,"steps":88,'
}
ok "the run goes on" resumed
recorded() {
    for event in start step epoch; do
        grep "\"event\":\"$event\"" run/metrics.jsonl | tail -n 1 >$event || return 1
    done
    keys start format version device precision params train_images val_images plan arena_bytes \
        live_bytes_bound store_bytes total_bytes time &&
        keys step step epoch loss lr loss_scale skipped grad_norm images_per_s time &&
        keys epoch epoch train_loss train_top1 val_loss val_top1 val_top5 images_per_s seconds \
            device_peak_bytes host_peak_bytes data_wait_fraction skipped_steps bad_images lr grad_norm \
            loss_scale time
}
ok "its records have the promised keys" recorded
reported() { "$AMPTRAIN" report run && "$AMPTRAIN" compare run run >/dev/null && test -s run/report.html; }
ok "its report is written, with what 0.1.0 recorded" reported
# configure.ac has the version; what has to repeat it says the same.
version=$(sed -n 's/^AC_INIT(\[amptrain\], \[\(.*\)\])$/\1/p' "$top_srcdir/configure.ac")
versions() {
    "$AMPTRAIN" --version | head -n 1 | grep -qx "amptrain $version" &&
        head -n 1 "$top_srcdir/debian/changelog" | grep -q "^amptrain ($version-" &&
        sed -n 4p "$top_srcdir/CHANGES" | grep -q "^$version (20[0-9-]*)$"
}
ok "the version is the same everywhere" versions
planned() {
    "$AMPTRAIN" plan -c run.ini --json >plan.json && keys plan.json arena_bytes live_bytes_bound store_bytes \
        batch_bytes workspace_bytes total_bytes step_ms strategy recomputed estimated layers
}
ok "plan --json" planned
finish
