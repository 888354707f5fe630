#!/bin/sh
# profile: stages that add up, layers whose work is known, a timeline, peaks that are remembered.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"
XDG_CACHE_HOME=$scratch/cache; export XDG_CACHE_HOME

ok "a profile" sh -c '"$AMPTRAIN" profile -c run.ini -s amp.growth_interval=2000 >out 2>err && cat out &&
    [ ! -s err ]'
for stage in read decode copy forward backward update; do
    ok "... with the stage $stage" grep -qE "^$stage +[0-9.]+ +[0-9.]+ +[0-9.]+ %$" out
done
ok "exposed times add up to the step time" awk '
    / ms a step/ { sub(/.*: /, ""); step = $1 }
    $1 ~ /^(read|decode|copy|forward|backward|update)$/ { sum += $3 }
    END { print sum, step; exit !(step > 0 && sum > 0.999 * step - 0.01 && sum < 1.001 * step + 0.01) }' out
ok "a layer, forward and both gradients" sh -c '
    for phase in forward "data gradient" "weight gradient"; do
        grep -qE " conv2 +$phase +conv " out || { cat out; exit 1; }
    done'
ok "... with the memory of weights, output and workspace, and its share of device memory" sh -c '
    grep -E " ms +gain .* weights +activation +workspace +% memory " out &&
        grep -qE " conv2 +forward +conv +2.3 KiB +32.0 KiB +[0-9.]+ [KM]?i?B +[0-9]+\.[0-9]{2} " out ||
        { cat out; exit 1; }'

# conv2 computes 64 images, 4x4 positions, 16 filters of 3x3x8, a multiply and an add each.
json() { "$AMPTRAIN" profile -c run.ini --json -o folder "$@" >json 2>err; }
ok "--json" json
rows() { tr '\n' ' ' <json | sed 's/},* *{/}\n{/g'; }
ok "FLOPs of conv2" sh -c '
    tr "\n" " " <json | sed "s/},* *{/}\n{/g" >rows
    [ "$(grep "\"name\":\"conv2\",\"op\":\"conv\"" rows | grep -c "\"flops\":2359296,")" = 3 ]'
ok "... none for a ReLU" grep -q '"name":"relu2","op":"relu","phase":"forward",.*"flops":0,' rows
ok "... whose bytes are those of its tensors" grep -q \
    '"name":"relu2","op":"relu","phase":"forward",.*"flops":0,"bytes":[1-9][0-9]*,' rows
ok "... the memory of conv2 as a share of device memory" awk '
    /"name":"conv2".*"phase":"forward"/ { n++
        match($0, /"share_of_card":[^,]*/); share = substr($0, RSTART + 16, RLENGTH - 16)
        match($0, /"weight_bytes":.*/); split(substr($0, RSTART), part, /[:,}]/)
        sum = part[2] + part[4] + part[6]; if (share * all < 0.99 * sum || share * all > 1.01 * sum) bad = 1 }
    match($0, /"card_bytes":[^,]*/) { all = substr($0, RSTART + 13, RLENGTH - 13) }
    END { exit bad || n != 1 }' rows
ok "sums of gradients count as backward" sh -c '
    grep -q "\"name\":\"sum of d conv2.weight\",\"op\":\"sum\",\"phase\":\"backward\"," rows'
ok "rows with the largest possible gain come first" awk '
    /"share_of_peak"/ { match($0, /"ms":[^,]*/); ms = substr($0, RSTART + 5, RLENGTH - 5)
        match($0, /"share_of_peak":[^,]*/); share = substr($0, RSTART + 16, RLENGTH - 16)
        won = ms * (1 - share); if (n++ && won > before + 1e-6) bad = 1; before = won }
    END { exit bad || n < 10 }' rows
ok "-o writes the same" sh -c '[ "$(grep -c . folder/profile.json)" = "$(grep -c . json)" ]'
if command -v python3 >/dev/null; then
    cat >check.py <<'END'
import json
profile = json.load(open("json"))
assert abs(sum(s["exposed_ms"] for s in profile["stages"]) - profile["step_ms"]) < 0.03 * profile["step_ms"]
events = json.load(open("folder/profile.trace.json"))["traceEvents"]
names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert {"stream 0", "steps and stages", "host", "loader 0"} <= set(names.values()) and 0 not in names
assert all(e["tid"] in names for e in events if e["name"] != "process_name")
for tid in names:
    open_until = []
    spans = sorted((e for e in events if e["ph"] == "X" and e["tid"] == tid),
                   key=lambda e: (e["ts"], -e["dur"]))
    assert spans
    for e in spans:
        while open_until and open_until[-1] <= e["ts"] + 0.002:
            open_until.pop()
        assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 0.002, e
        open_until.append(e["ts"] + e["dur"])
END
    ok "stages add up, and spans of the timeline are nested" python3 check.py
else
    skip "stages add up, and spans of the timeline are nested" "python3 is not installed"
fi
ok "peak rates are measured once" [ "$(wc -l <cache/amptrain/peaks)" = 1 ]
gains() { grep -o '"won_ms":[^,]*' json | cut -d : -f 2 |
    awk '$1 < 0 { bad = 1 } { n++ } END { exit bad || n < 5 }'; }
ok "no gain is negative" gains
# Half of a GB/s is what the kernel needs to give a process its pages, which is not to be measured. Other
# processes may take as much for a while.
has_pages() {
    for _ in 1 2 3 4 5; do
        awk '{ exit !($NF > 0.8) }' cache/amptrain/peaks && return
        rm cache/amptrain/peaks && "$AMPTRAIN" profile -c run.ini >out || return
    done
    return 1
}
[ -n "${AMPTRAIN_SANITIZED-}" ] || ok "... of memory that has its pages" has_pages
remembered() {
    sed -i 's/ = .*/ = 12.5 345/' cache/amptrain/peaks
    "$AMPTRAIN" profile -c run.ini >out && grep -q "12.500 TFLOP/s, 345.0 GB/s" out
}
ok "... and cached" remembered
slow() {
    sed -i 's/ = .*/ = 1e-9 345/' cache/amptrain/peaks
    "$AMPTRAIN" profile -c run.ini >out &&
        grep -qE "^measured peaks: [0-9.]+ TFLOP/s in a layer \(0.000 in a \
large matrix product\), 345.0 GB/s;" out && "$AMPTRAIN" profile -c run.ini --json >json &&
        tr '\n' ' ' <json | sed 's/},* *{/}\n{/g' |
        sed -n 's/.*"flops":[1-9].*"share_of_peak":\([^,]*\),.*/\1/p' |
        awk '$1 > 1.000001 { bad = 1 } { n++ } END { exit bad || n < 5 }'
}
ok "no layer computes faster than the peak" slow
infinite() {
    sed -i 's/ = .*/ = 1e400 345/' cache/amptrain/peaks
    "$AMPTRAIN" profile -c run.ini --json >json && ! grep -qw inf json &&
        [ "$(wc -l <cache/amptrain/peaks)" = 2 ]
}
ok "a peak that is not finite is measured again" infinite
ok "several batches" sh -c '"$AMPTRAIN" profile -c run.ini --batch 32,128 >out &&
    grep -q "^batch 32 " out && grep -q "^batch 128 " out'
ok "profile does not diverge at any learning rate" sh -c '
    "$AMPTRAIN" profile -c run.ini -s optimizer.lr=1e9 -s amp.growth_interval=2000 >out 2>err
    cat err && [ ! -s err ]'
overflowing() {
    "$AMPTRAIN" profile -c run.ini -s amp.loss_scale=1e30 -s optimizer.lr=1e9 >out 2>err; cat err
    grep -q "gradients overflow, and a skipped update takes less time" err
}
ok "skipped updates are reported" overflowing
ranks() {
    "$AMPTRAIN" profile -c run.ini -s parallel.gpus=2 -s train.accumulate=1 --batch 64,32 -o two >out 2>err \
        && cat out err &&
        [ "$(grep -c ', the first of 2 ranks: ' out)" = 2 ] &&
            grep -qE '^exchange +[0-9.]+ +[0-9.]+ +[0-9.]+ %$' out &&
        grep -q '"ranks":2,' two/profile.json && grep -q '"name":"exchange"' two/profile.trace.json
}
ok "ranks and their exchanges" ranks
micro_batches() {
    "$AMPTRAIN" profile -c run.ini -s train.accumulate=1 -s parallel.microbatches=4 --json >json &&
        tr '\n' ' ' <json | sed 's/},* *{/}\n{/g' |
            grep -q '"name":"conv2","op":"conv","phase":"forward",.*"flops":2359296,'
}
ok "micro-batches of one device are rows of their layers" micro_batches
for list in 0 8, a -4 8,x; do
    ok "--batch $list" says 2 "not '$list'" "$AMPTRAIN" profile -c run.ini --batch="$list"
done
ok "--batch beyond the range of train.batch" says 2 "--batch: must be between 1 and 1048576, not 2000000" \
    "$AMPTRAIN" profile -c run.ini --batch=2000000
forced() {
    "$AMPTRAIN" profile -c run.ini -s run.conv_algorithm="$1" --json >json &&
        [ "$(tr '\n' ' ' <json | grep -o "\"algorithm\":\"$1\"" | wc -l)" = 5 ]
}
for algorithm in gemm gemm-per-image; do ok "run.conv_algorithm=$algorithm" forced $algorithm; done
ok "... must exist" says 2 "there is no 'gem', only auto, native, widened, winograd, shifted, depthwise, gemm, gemm-per-image" \
    "$AMPTRAIN" profile -c run.ini -s run.conv_algorithm=gem
compared() {
    "$AMPTRAIN" profile -c run.ini --libraries --batch 8,32 >out && cat out &&
        [ "$(grep -c '^batch ' out)" = 2 ] &&
        [ "$(grep -cE '^conv1 +1 (forward|weight gradient) ' out)" = 4 ] &&
            ! grep -q '^conv1 .*data gradient' out &&
        [ "$(grep -cE '^fc +1 .* - +- +- +- +[0-9.]+ +[0-9.]+ ' out)" = 6 ] &&
        grep -qE '^conv +by gemm +[0-9.]+ ms, .* in 5 of its phases' out &&
        grep -qE '^oneDNN is [0-9.]+ times as fast as gemm' out
}
ok "--libraries by layer" compared
compared_json() {
    "$AMPTRAIN" profile -c run.ini --libraries --json >json && tr '\n' ' ' <json |
        grep -qE '"name":"conv2","layers":1,"op":"conv","phase":"forward","flops":2359296,.*"gemm":\{"ms":[0-9.e-]+,'
}
ok "... as JSON, with FLOPs" compared_json
ok "... not with -o" says 2 "--libraries writes no files" "$AMPTRAIN" profile -c run.ini --libraries -o x
reported() {
    "$AMPTRAIN" -q -c run.ini -o folder -s train.epochs=1 && grep -q '<h2 id="profile">' folder/report.html &&
        if command -v xmllint >/dev/null; then xmllint --noout folder/report.html; fi
}
ok "the report shows it" reported
finish
