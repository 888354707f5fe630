#!/bin/sh
# Pairs of options drawn at random, on data and with features drawn as well: a run that stops anywhere and is
# resumed ends like one that never stopped. Pairs that are refused must be refused in one line. Every option
# has a value here, or a reason to have none.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

last=checkpoint-last.safetensors best=checkpoint-best.safetensors
"$top_builddir/tests/support/make_pictures" pictures || exit 1
each() { find pictures -name '*.png' | LC_ALL=C sort; }
table() { # HEADER EXPRESSION...
    echo "$1"; shift
    each | sed -E "$@"
}
table path,label -e 's/.*apple.*/&,a/' -e 's/.*pear.*/&,b/' >classes.csv
table path,red,third -e 's/.*apple.*/&,1/' -e 's/.*pear.*/&,0/' -e 's/.*[0369][.]png.*/&,1/' \
    -e 's/.*[124578][.]png.*/&,0/' >labels.csv
table path,value -e 's,.*apple/(.*).png,&\,1.\1,' -e 's,.*pear/(.*).png,&\,-1.\1,' >values.csv

# A network for images of any size.
network() { # CHANNELS SIZE
    cat <<END
[input]
channels = $1
size = $2
[layers]
conv1 = conv input filters=8 kernel=3 pad=1 bias=no
bn1 = batchnorm conv1
relu1 = relu bn1
conv2 = conv relu1 filters=8 kernel=3 stride=2 pad=1
relu2 = relu conv2
drop = dropout relu2 rate=0.1
pool = globalavgpool drop
fc = linear pool units=\$classes
END
}
network 1 8 >grey.ini
network 3 16 >coloured.ini
plain() { sed -e 's/^epochs.*/epochs = 3/' -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' \
    -e 's/^ema.*/ema = 0/' -e '/^threads/a report = no' -e 's/^every = 3 steps/every = 1/' -e '/^keep/d' "$@" run.ini; }
plain -e 's/tiny.ini/grey.ini/' -e '/^format/a limit = 192\nval_fraction = 0.25' >digits.ini
for data in classes labels values; do
    plain -e 's/tiny.ini/coloured.ini/' -e "s/^format.*/format = csv\ntrain = $data.csv\nval_fraction = 0.25/" \
        -e 's/^crop.*/crop = 16\nresize = 20/' -e 's/^batch.*/batch = 8/' -e 's/^lr.*/lr = 0.01/' >$data.ini
done
for data in digits classes; do
    "$AMPTRAIN" -q -c $data.ini -o teacher-$data -s train.epochs=1 >/dev/null 2>&1 || exit 1
done

cat >values <<'END'
run.seed=5
run.threads=2
run.deterministic=yes
run.conv_algorithm=gemm
run.verify_every=2
data.val_fraction=0.4
data.split_seed=2
data.on_error=stop
data.orientation=ignore
data.shuffle=no
data.balance=yes
data.limit=40
data.class_weights=balanced
loader.workers=3
loader.prefetch=1
loader.decode=cpu
loader.cache=none
loader.cache=host
loader.cache_limit=1M
augment.fit=letterbox
augment.fit=stretch
augment.scale=0.5,1
augment.ratio=0.9,1.1
augment.pad=2
augment.pad_mode=reflect
augment.flip=0
augment.vflip=0.5
augment.rotate=30
augment.shear=20,10
augment.translate=0.2,0.1
augment.gray=0.4
augment.gamma=0.5
augment.blur=0.5,0.1,1
augment.noise=0.5
augment.jitter=0.3,0.3,0.3
augment.resize=18
augment.val_resize=20
augment.interpolation=bicubic
augment.val_flip=yes
augment.val_shift=1
augment.mean=0.4
augment.std=0.3
augment.mixup=0.3
augment.cutmix=1
augment.label_smoothing=0.1
augment.random_erasing=0.3
augment.repeats=2
augment.auto_augment=trivial
augment.auto_augment=rand
augment.auto_augment=three
model.dropout=0.3
model.norm_eps=1e-3
model.bn_momentum=0.5
train.batch=4
train.loss=bce
train.loss=l1
train.loss=huber
train.distill=hard
train.distill_alpha=0.3
train.temperature=3
train.accumulate=1
train.accumulate=4
train.clip_norm=0
train.ema=0.9
train.lookahead=2
train.swa=1
train.swa=2
train.eval_every=2
train.eval_every=0
train.early_stop=1
train.sync_bn=yes
train.freeze=conv1.*,bn1.*
train.freeze_epochs=1
train.on_nan=stop
optimizer.name=adam
optimizer.name=adamw
optimizer.name=adagrad
optimizer.name=rmsprop
optimizer.name=lars
optimizer.name=lamb
optimizer.name=lion
optimizer.name=muon
optimizer.lr=0.001
optimizer.momentum=0.5
optimizer.nesterov=yes
optimizer.adamw_lr=0.01
optimizer.weight_decay=0.1
optimizer.decay_norm_bias=yes
optimizer.layer_decay=0.7
optimizer.layer_decay_by=block
optimizer.lr_scale=fc.*:0.5
optimizer.betas=0.8,0.9
optimizer.alpha=0.9
optimizer.eps=1e-3
optimizer.trust=0.01
schedule.name=constant
schedule.name=step
schedule.name=poly
schedule.name=onecycle
schedule.name=plateau
schedule.warmup=1
schedule.warmup_start=0.1
schedule.milestones=1,2
schedule.gamma=0.5
schedule.min_lr=1e-4
schedule.power=2
schedule.pct_start=0.5
schedule.div=10
schedule.final_div=100
schedule.factor=0.5
schedule.patience=0
schedule.threshold=1
schedule.cooldown=1
schedule.swa_lr=0.05
schedule.anneal_epochs=1
schedule.anneal_strategy=linear
amp.precision=fp16
amp.precision=bf16
amp.loss_scale=128
amp.init_scale=16777216
amp.growth=4
amp.backoff=0.25
amp.growth_interval=2
amp.min_scale=2
amp.max_scale=1024
memory.limit=64M
memory.strategy=recompute
memory.report=yes
checkpoint.every=2 steps
checkpoint.every=0
checkpoint.keep=2
checkpoint.best=val_loss
log.every=2
log.tensorboard=yes
parallel.gpus=2
parallel.stages=2
parallel.microbatches=2
parallel.microbatches=auto
parallel.streams=layers
parallel.schedule=gpipe
parallel.bucket=1K
parallel.wire=storage
END

# Where the run is, what the draw itself chooses, what says when a run ends, and what masks (test_segment.sh),
# image files or tables have alone.
cat >without <<'END'
run.name run.device run.output run.max_time run.max_steps run.report
data.format data.task data.train data.val data.classes data.fold data.value_scale
augment.crop augment.val_crop augment.sizes
data.channels data.bands data.range data.columns data.extension data.root
data.palette data.ignore augment.foreground augment.val_tile augment.val_overlap
train.focal_gamma train.tversky train.dice_background
model.arch model.file model.weights model.weights_strict model.classes model.image_size model.drop_path
train.epochs train.teacher loader.timeout parallel.timeout
END
all_options() {
    "$top_builddir/tests/support/other_values" digits.ini | sed 's/=.*//' | sort -u >options
    { sed 's/=.*//' values; tr ' ' '\n' <without; } | sort -u >here
    comm -23 options here >left
    cat left; [ ! -s left ]
}
ok "every option has a value here, or none for a reason" all_options

next() { state=$(((state * 1103515245 + 12345) % 2147483648)); drawn=$((state / 65536 % $1)); }
pick() { next $#; shift "$drawn"; picked=$1; }
value() { next "$(wc -l <values)"; sed -n "$((drawn + 1))p" values; }

drawing() {
    pick digits classes labels values; data=$picked
    pick none none fold teacher sizes muon swa plateau; feature=$picked
    case $feature:$data in
    fold:*) set -- -s data.fold=2/3 -s data.val_fraction=0 ;;
    teacher:digits | teacher:classes) set -- -s train.teacher=teacher-$data ;;
    sizes:digits) set -- -s augment.scale=0.5,1 -s augment.pad=0 -s augment.sizes=6@1,8@2 ;;
    sizes:*) set -- -s augment.scale=0.5,1 -s augment.pad=0 -s augment.resize=0 -s augment.sizes=12@1,16@3 ;;
    swa:*) set -- -s train.swa=2 -s schedule.anneal_epochs=1 ;;
    plateau:*) set -- -s schedule.name=plateau -s schedule.patience=0 -s schedule.threshold=1 ;;
    muon:*) set -- -s optimizer.name=muon ;;
    *) set -- ;;
    esac
    next 2147; state=$((state + drawn))
    first=$(value)
    next 2147; state=$((state + drawn))
    second=$(value)
    next 14; stop=$((drawn + 1))
    chosen="$data $feature $first $second, stopped after $stop steps"
    echo "$chosen"
    rm -rf whole part
    code=0
    "$AMPTRAIN" -q -c $data.ini -o whole "$@" -s "$first" -s "$second" >whole.txt 2>&1 || code=$?
    case $code in
    0) ;;
    2 | 4) refused=$((refused + 1)); cat whole.txt; [ -s whole.txt ]; return ;;
    1) grep -q 'not finite\|ends without an update' whole.txt || { cat whole.txt; return 1; } ;;
    *) cat whole.txt; return 1 ;;
    esac
    then=0
    "$AMPTRAIN" -q -c $data.ini -o part "$@" -s "$first" -s "$second" -s run.max_steps=$stop >part.txt 2>&1 || then=$?
    [ -e part/$last ] || { cat part.txt; [ $then = $code ] && [ $code = 1 ]; return; }
    then=0
    "$AMPTRAIN" -q -c $data.ini -o part -r "$@" -s "$first" -s "$second" >part.txt 2>&1 || then=$?
    cat part.txt
    [ $then = $code ] || { echo "exit status $then, not $code"; return 1; }
    exact=$((exact + 1))
    same_ends
}

metadata() { tr '"' '\n' <"$1" | grep -A 2 -ax thresholds | tail -n 1 | head -c 4096; }

# The last and the best checkpoint, the thresholds of labels, the results.
same_ends() {
    same whole part || return 1
    [ -e whole/$best ] && { same_tensors whole/$best part/$best || return 1; }
    metadata whole/$last >one.txt && metadata part/$last >two.txt && cmp one.txt two.txt || return 1
    for file in confusion.csv labels.csv values.csv mistakes.json; do
        [ ! -e whole/$file ] || cmp whole/$file part/$file || return 1
    done
}

state=1
many() {
    refused=0 exact=0 i=0
    while [ $i -lt "$1" ]; do
        drawing >words.txt 2>&1 || { cat words.txt; return 1; }
        i=$((i + 1))
    done
    echo "$exact resumed exactly, $refused refused" >figures
    [ $exact -gt 0 ]
}
ok "pairs drawn at random" many "$(rounds 6 2000)"
figure "$(cat figures)"
finish
