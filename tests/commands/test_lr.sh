#!/bin/sh
# lr: the suggestion is a rate at which the network learns, and what cannot learn is told so.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

lr() { "$AMPTRAIN" lr -q -c run.ini -s train.accumulate=1 -s amp.precision=fp32 "$@"; }
ok "lr suggests a rate" sh -c '
    "$AMPTRAIN" lr -q -c run.ini -s amp.precision=fp32 | grep "^optimizer.lr = 0.[0-9]* is"'
ok "... in JSON" lr --json --steps 60
lr --json --steps 60 >told
rate=$(sed -n 's/^{"suggestion":\([0-9.e-]*\),.*/\1/p' told)
in_range() { awk -v rate="$1" 'BEGIN { print rate; exit !(rate > 0.001 && rate < 1) }'; }
ok "... that is sensible" in_range "$rate"
points() { [ "$(tr '{' '\n' <told | grep -c '^"lr"')" -ge 40 ]; }
ok "... with every point" points
ok "-o writes a picture" lr -o curve.svg
ok "... which is SVG" says 2 "curve.png: the name must end in .svg" lr -o curve.png
ok "... with the curve" grep -q '<polyline' curve.svg
ok "... and its axes" sh -c 'grep -q ">learning rate<" curve.svg && grep -q ">0.01<" curve.svg &&
    [ "$(grep -c "text-anchor=.end." curve.svg)" -ge 2 ]'
ok "another optimizer starts from another rate" sh -c '
    "$AMPTRAIN" lr -q -c run.ini -s amp.precision=fp32 -s optimizer.name=adamw --json |
        grep -q "\"points\":\[{\"lr\":1e-07,"'
noisy() {
    "$AMPTRAIN" lr -q --json -c "$top_srcdir/conf/digits.ini" -s train.batch=16 >told || return 1
    in_range "$(sed -n 's/^{"suggestion":\([0-9.e-]*\),.*/\1/p' told)"
}
ok "... also if the losses of batches vary much" noisy
ok "a network that cannot learn" says 1 "the loss does not clearly fall at any learning rate" \
    "$AMPTRAIN" lr -q -c run.ini -s 'train.freeze=*'
finish
