#!/bin/sh
# Runs on two GPUs: ranks and stages end in the bits of one GPU that has as many micro-batches; batch norm
# over both repeats itself; a run goes on with any number.
. "$top_srcdir/tests/support/two.sh"

printf '[parallel]\ntimeout = 20\n' >>run.ini

# equals FOLDER [OPTION...]: a run of four micro-batches ends as the one on a GPU by itself.
equals() {
    folder=$1; shift
    train "$folder" -s run.max_steps=12 -s train.accumulate=1 -s parallel.gpus=2 "$@" && same alone "$folder"
}
pipeline="-s parallel.stages=2 -s parallel.microbatches=4"
for precision in fp32 fp16; do
    rm -rf alone
    ok "$precision, one GPU" train alone -s run.max_steps=12 -s train.accumulate=4 -s amp.precision=$precision
    ok "... two" equals ranks.$precision -s train.accumulate=2 -s amp.precision=$precision
    for schedule in gpipe 1f1b zerobubble vshape; do
        ok "... two stages, $schedule" equals $schedule.$precision $pipeline -s parallel.schedule=$schedule \
            -s amp.precision=$precision
    done
done
# Gradients of a MiB and more are exchanged by copy engines where there are some, smaller ones by kernels.
conv3='conv3 = conv relu2 filters=256 kernel=3 pad=1'
sed -e 's/filters=16/filters=256/' -e "s/^drop = .*/$conv3\ndrop = dropout conv3 rate=0.2/" tiny.ini >wide.ini
for wire in fp32 storage; do
    wide="-s model.file=wide.ini -s parallel.wire=$wire"
    rm -rf alone
    ok "a wider network, wire=$wire, one GPU" train alone -s run.max_steps=12 -s train.accumulate=4 $wide
    ok "... two" equals wide.$wire -s train.accumulate=2 $wide
    ok "... two stages, gpipe" equals stages.$wire $pipeline -s parallel.schedule=gpipe $wide
done
# Three matrices of one size, which go together: three, or two and one.
sed "s/^drop = .*/conv4 = conv conv3 filters=256 kernel=3 pad=1\nconv5 = conv conv4 filters=256 kernel=3 pad=1\n\
drop = dropout conv5 rate=0.2/" wide.ini >deep.ini
muon="-s model.file=deep.ini -s optimizer.name=muon -s optimizer.lr=0.01"
rm -rf alone
ok "muon, one GPU" train alone -s run.max_steps=12 -s train.accumulate=4 $muon
ok "... two, which share matrices" equals muon -s train.accumulate=2 $muon
ok "... two stages" equals muon.stages $pipeline -s parallel.schedule=gpipe $muon
stop_and_go() {
    train muon.stopped -s run.max_steps=7 -s train.accumulate=2 -s parallel.gpus=2 $muon &&
        train muon.stopped -r -s run.max_steps=12 -s train.accumulate=4 $muon && same alone muon.stopped
}
ok "... two that are stopped, and one goes on" stop_and_go
rm -rf alone
ok "one GPU" train alone -s run.max_steps=12 -s train.accumulate=4
mv alone done
ok "a run is stopped" train alone -s run.max_steps=5 -s train.accumulate=1 -s parallel.gpus=2 $pipeline
ok "... goes on with two ranks" train alone -r -s run.max_steps=9 -s train.accumulate=2 -s parallel.gpus=2
ok "... and on one GPU" train alone -r -s run.max_steps=12 -s train.accumulate=4
ok "... to the same bits" same done alone

synced() { train "$1" -s run.max_steps=12 -s train.accumulate=1 -s parallel.gpus=2 -s train.sync_bn=yes; }
twice() { synced once && synced again && same once again; }
ok "batch norm over both GPUs repeats itself" twice
finish
