#!/bin/sh
# Each option changed alone when a run is resumed: it is refused by its name; or it may change, and the run
# ends in the same bits, or says what becomes of its numbers. Options and values are the table's, so that
# none is left out. With batch norm over all ranks, too.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

last=checkpoint-last.safetensors
sed -i -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' \
    -e 's/^epochs.*/epochs = 2/' -e '/^format/a limit = 192\nval_fraction = 0.5' \
    -e 's/^every = 3 steps/every = 0/' -e '/^crop/a val_crop = 8' -e '/^threads/a report = no' run.ini
cp tiny.ini same.ini

# Values that the table cannot know.
value_of() { # KEY VALUE
    case $1 in
    run.device) echo cpu:0 ;;
    run.output) echo more ;;
    run.conv_algorithm) echo gemm ;;
    run.max_steps) echo 4 ;;
    data.format) echo synthetic ;;
    data.limit) echo 128 ;;
    data.class_weights) echo balanced ;;
    augment.crop | augment.val_crop) echo 7 ;;
    augment.val_resize) echo 9 ;;
    loader.cache_limit) echo 1M ;;
    loader.timeout) echo 1m ;;
    model.arch) echo resnet20 ;;
    model.file) echo same.ini ;;
    model.weights) echo whole ;;
    train.freeze) echo 'fc.*' ;;
    train.loss) echo bce ;;
    train.teacher) echo whole ;;
    optimizer.name) echo adamw ;;
    optimizer.lr_scale) echo 'fc.*:0.5' ;;
    schedule.name) echo poly ;;
    amp.precision) echo bf16 ;;
    parallel.bucket) echo 1K ;;
    parallel.timeout) echo 1m ;;
    *) echo "$2" ;;
    esac
}

# Keys of what a run is to end with, and of which evaluation counts, change its end on purpose.
is_limit() { # KEY
    case $1 in
    run.max_time | run.max_steps | train.epochs | train.early_stop | checkpoint.best) return 0 ;;
    *) return 1 ;;
    esac
}

# The refusal names the key, the path that is not there, or the layer that the key has changed.
named() {
    case $key in
    data.train) grep -q "^amptrain: $value: No such file" said ;;
    model.dropout) grep -q "the network differs from that of the run: layer 'drop' is" said ;;
    model.norm_eps) grep -q "the network differs from that of the run: layer 'bn1' is" said ;;
    *) grep -qF "$key" said ;;
    esac
}

# changed KEY VALUE RESUMABLE [OPTION...]: the stopped run goes on with it.
changed() {
    key=$1 value=$2 resumable=$3 status=0; shift 3
    rm -rf copy && cp -r part copy
    train copy -r "$@" -s "$key=$value" >said 2>&1 || status=$?
    case $status in
    0) allowed=$((allowed + 1)) ;;
    2 | 3 | 4) refused=$((refused + 1)); named; return ;;
    *) return 1 ;;
    esac
    same_tensors whole/$last copy/$last >difference 2>&1 && return
    [ "$resumable" = yes ] || { echo "may not change, but does, and the run's end with it"; return 1; }
    is_limit "$key" || grep -qE "numbers differ|results may differ" said
}

# each WHICH [OPTION...]: the options, or those alone that may change ("yes").
each() {
    which=$1; shift
    rm -rf whole part
    refused=0 allowed=0 bad=0
    train whole "$@" && train part "$@" -s run.max_steps=2 || return 1
    while read -r set resumable; do
        key=${set%%=*} value=$(value_of "${set%%=*}" "${set#*=}")
        [ "$which" != yes ] || [ "$resumable" = yes ] || continue
        [ -n "$value" ] && changed "$key" "$value" "$resumable" "$@" && continue
        bad=$((bad + 1))
        echo "$key=$value: exit status $status"
        cat said
    done <values
    echo "$refused refused, $allowed allowed" >figures
    [ $bad = 0 ]
}

"$top_builddir/tests/support/other_values" run.ini >values || exit 1
ok "each option changed alone" each all
figure "$(cat figures)"
ok "... with train.sync_bn" each "$(rounds yes all)" -s train.sync_bn=yes
figure "$(cat figures)"
ranks='-s train.sync_bn=yes -s parallel.gpus=2 -s train.accumulate=1'
# shellcheck disable=SC2086 # words
ok "... on two ranks" each "$(rounds yes all)" $ranks
figure "$(cat figures)"
finish
