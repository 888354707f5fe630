#!/bin/sh
# Several processes that train in one folder at once, on a machine that is busy: one does, the others say so,
# and the run is what it would be alone.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

OMP_WAIT_POLICY=passive
export OMP_WAIT_POLICY
sed -i -e 's/^epochs.*/epochs = 1/' -e 's/^format.*/format = digits\nlimit = 512/' run.ini
ok "a run alone" train alone

# together FOLDER [OPTION...]: four at once; their exit statuses are in the file `ended`.
together() {
    folder=$1; shift
    for i in 1 2 3 4; do
        { "$AMPTRAIN" -q -c run.ini -o "$folder" "$@" 2>"said.$i"; echo $? >"ended.$i"; } &
    done
    wait
    cat ended.? >ended
    cat said.?
}
one_trains() {
    for round in $(seq "$1"); do
        rm -rf shared
        together shared
        # who comes late finds a run that another process has, or that has ended
        [ "$(grep -cx 0 ended)" = 1 ] && ! grep -vxE '[012]' ended && same alone shared ||
            { cat ended; return 1; }
        [ "$(cat said.? | grep -c "is training in this\|holds\|has")" -ge 3 ] || return 1
    done
}
ok "of four processes in a new folder one trains" one_trains "$(rounds 1 30)"
one_resumes() {
    for round in $(seq "$1"); do
        rm -rf shared
        train shared -s run.max_steps=5 || return 1
        together shared -r
        grep -qx 0 ended && ! grep -vxE '[012]' ended && same alone shared || { cat ended; return 1; }
    done
}
ok "... and of four that resume a run" one_resumes "$(rounds 1 30)"

# One is killed in the midst while four others want the folder.
one_is_killed() {
    for round in $(seq "$1"); do
        rm -rf shared
        "$AMPTRAIN" -q -c run.ini -o shared 2>said &
        process=$!
        until [ -s shared/metrics.jsonl ]; do sleep 0.01; done
        together shared -r &
        kill -KILL $process
        wait
        train shared -r && same alone shared || return 1
    done
}
ok "... also where the first is killed meanwhile" one_is_killed "$(rounds 1 30)"
left() { find shared -name '*.tmp' | grep .; }
none_left() { ! left; }
ok "nothing temporary is left" none_left
finish
