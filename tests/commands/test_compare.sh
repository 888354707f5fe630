#!/bin/sh
# compare: what differs between runs and what came of them; the curves over one another.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$AMPTRAIN" -q -c run.ini -o one -s run.report=no || exit 1
"$AMPTRAIN" -q -c run.ini -o two -s run.report=no -s optimizer.lr=0.1 -s train.epochs=2 || exit 1
compare() { "$AMPTRAIN" compare "$@" >out 2>err; }
row() { cat out err; grep -qxE "$1 *" out; }

ok "comparing two runs" compare one two
ok "names of the runs" row " +one +two"
ok "a differing setting" row "optimizer.lr +0.05 +0.1"
ok "... another one" row "train.epochs +4 +2"
ok "... no others" sh -c '[ "$(sed "/^$/q" out | grep -c "\.")" = 2 ]'
best() { sed -n 's/.*"event":"epoch".*"val_top1":\([^,]*\),.*/\1/p' $1/metrics.jsonl | sort -g | tail -n 1 |
    awk '{ printf "%.2f %%", 100 * $1 }'; }
ok "best accuracies" row "best accuracy +$(best one) in epoch [0-9] +$(best two) in epoch [0-9]"
ok "numbers of epochs and steps" row "epochs / steps +4 / 88 +2 / 44"
aligned() {
    rm -rf long && cp -r two long &&
        sed -i "s|^train =.*|train = /a/folder/whose/name/is/longer/than/a/column|" long/config.ini &&
        compare one long two && awk '
        NR == 1 { at = index($0, " two") } / long +two/ && !at { exit 1 }
        $1 == "optimizer.lr" { found = substr($0, at, 5) == " 0.1 " || substr($0, at) == " 0.1" }
        END { exit !found }' out
}
versions() {
    sed -i 's/"libraries":"oneDNN [0-9.]*/"libraries":"oneDNN 9.8.7/' long/metrics.jsonl &&
        compare one long && row "libraries +oneDNN [0-9.]*.* oneDNN 9.8.7.*"
}
ok "columns are as wide as their longest value" aligned
ok "library versions" versions
ok "the same validation images" sh -c '! grep -q "validated on different images" err && ! grep -q val_set out'
others() {
    "$AMPTRAIN" -q -c run.ini -o "$@" -s run.report=no -s train.epochs=1 -s data.train="$top_srcdir/data/digits"
}
others first -s data.val_fraction=0.2 || exit 1
others second -s data.val_fraction=0.2 -s data.split_seed=1 || exit 1
others third -s data.val_fraction=0.2 -s run.seed=9 || exit 1
ok "different validation images" says 0 "first and second were validated on different images" \
    "$AMPTRAIN" compare first second
ok "... in the table" row "val_set +[0-9a-f]+ +[0-9a-f]+"
ok "run.seed does not change them" sh -c '"$AMPTRAIN" compare first third 2>err >out; ! grep different err'
ok "a run does not differ from itself" sh -c \
    '"$AMPTRAIN" compare one one | sed "/^$/q" | grep -c . | grep -qx 1'
ok "-o writes a page" compare one two one -o page.html
ok "... with the curves of each run" sh -c '[ "$(grep -c "^<polyline" page.html)" = 18 ]'
narrow() {
    grep -q '<div class="scroll tall"><table>' page.html &&
        sed -n '/^@media(max-width:640px)/,/}}/p' page.html | tr -d '\n' |
        grep -q 'white-space:normal.*max-width:9em.*[.]tall tr>:first-child{position:sticky;left:0'
}
ok "... whose cells are narrow on a narrow screen, and whose first column stays" narrow
if command -v xmllint >/dev/null; then ok "... that is well-formed" xmllint --noout page.html
else skip "... that is well-formed" "xmllint is not installed"
fi
ok "one run is refused" says 2 "two or more run folders" "$AMPTRAIN" compare one
ok "a folder without a run" says 3 "has no run" "$AMPTRAIN" compare one .
ok "a missing folder" says 1 "nowhere" "$AMPTRAIN" compare one nowhere
finish
