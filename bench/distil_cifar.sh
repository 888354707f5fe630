#!/bin/sh
# distil_cifar.sh AMPTRAIN DATA FOLDER [-s KEY=VALUE]...: what a ResNet-50 teaches a ResNet-18 on CIFAR-10.
#
# Trains the teacher (resnet50_cifar), then resnet18_cifar by conf/cifar10.ini for several seeds without it
# and with it, and prints the accuracies after the last epoch, their means and standard deviations, and the
# gain with its standard error. The same command again goes on where it was stopped. DATA has cifar10; FOLDER
# gets the runs; settings are for all of them.
#
#   EPOCHS (16), SEEDS (1,2,3,4,5; at least two), ALPHA (0.9), TEMPERATURE (4)   of the students
#   TEACHER_EPOCHS (40), TEACHER_LR (0.3)   of the teacher
set -eu
case ${1:-} in ''|-h|--help) sed -n '2,/^set -eu/s/^# \{0,1\}//p' "$0" | sed '$d'; exit 0 ;; esac
amptrain=$1 data=$2 folder=$3; shift 3
here=$(cd "$(dirname "$0")" && pwd)
export AMPTRAIN_DATADIR="${AMPTRAIN_DATADIR:-$here/../conf}"
mkdir -p "$folder"

# COMMAND OPTION...: with what all runs share; of metrics.jsonl only the last epoch's accuracy is used.
work() {
    command=$1; shift
    "$amptrain" "$command" -q -c "$here/../conf/cifar10.ini" -s data.train="$data/cifar10" \
        -s data.val="$data/cifar10" -s amp.precision=fp16 -s train.eval_every=0 -s checkpoint.every=0 \
        -s log.tensorboard=no -s run.report=no "$@"
}
last() { sed -n 's/.*"val_top1":\([0-9.e-]*\).*/\1/p' "$1/metrics.jsonl" | tail -n 1; }

work train -s model.arch=resnet50_cifar -s train.epochs="${TEACHER_EPOCHS:-40}" \
    -s optimizer.lr="${TEACHER_LR:-0.3}" -s augment.pad_mode=reflect -s augment.flip=alternate \
    -s augment.random_erasing=0.25 -s checkpoint.every=10 "$@" -r -o "$folder/teacher" >&2
echo "teacher: $(last "$folder/teacher" | awk '{ print 100 * $1 }') %"
for who in alone taught; do
    guide=
    [ $who = alone ] || guide="-s train.teacher=$folder/teacher -s train.distill_alpha=${ALPHA:-0.9} \
        -s train.temperature=${TEMPERATURE:-4}"
    work sweep -s train.epochs="${EPOCHS:-16}" -s run.seed="${SEEDS:-1,2,3,4,5}" $guide "$@" \
        -o "$folder/$who" >"$folder/$who.txt" || { cat "$folder/$who.txt" >&2; exit 1; }
    for run in "$folder/$who"/seed=*; do echo "$who $(last "$run")"; done
done | awk '
    { n[$1]++; sum[$1] += 100 * $2; square[$1] += 1e4 * $2 * $2; print; fflush() }
    END {
        if (!n["alone"] || !n["taught"]) exit 1
        split("alone taught", names, " ")
        for (i = 1; i <= 2; i++) {
            who = names[i]; mean[i] = sum[who] / n[who]
            spread[i] = n[who] > 1 ? (square[who] - n[who] * mean[i] ^ 2) / (n[who] - 1) : 0
            printf "%s: %.2f %% in mean of %d, standard deviation %.2f\n", who, mean[i], n[who],
                sqrt(spread[i])
        }
        printf "gain: %+.2f, standard error %.2f\n", mean[2] - mean[1],
            sqrt(spread[1] / n["alone"] + spread[2] / n["taught"])
    }'
