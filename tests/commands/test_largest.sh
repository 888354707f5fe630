#!/bin/sh
# The largest batch that memory.limit allows: named by plan and by what does not fit, and taken by
# train.batch=auto.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

# A chain, in which more is alive at once in training, however little is kept, than in evaluation.
{
    printf '[input]\nchannels = 1\nsize = 8\n[layers]\nconv1 = conv input filters=8 kernel=3 pad=1\n'
    for i in 2 3 4 5 6; do
        echo "bn$i = batchnorm conv$((i - 1))"
        echo "relu$i = relu bn$i"
        echo "conv$i = conv relu$i filters=8 kernel=3 pad=1"
    done
    printf 'pool = globalavgpool conv6\nfc = linear pool units=$classes\n'
} >tiny.ini
sed -i.bak 's/^accumulate.*/accumulate = 1/; s/^ema.*//' run.ini

plan() { "$AMPTRAIN" plan -q -c run.ini -s memory.limit=1M "$@"; }
largest() { plan --json "$@" | sed -n 's/.*"largest_batch":\([0-9]*\),.*/\1/p'; }
check() { plan --check "$@" >words 2>err; }
resolved() { sed -n "s/^$2 = \(.*    ; \)*//p" "$1/config.ini"; }
images=1438                    # of the digits, to train on

batch=$(largest)
figure "1 MiB: $batch images a step"
ok "plan reports the largest batch" [ "$batch" -gt 64 ]
parts=$(largest -s train.accumulate=7 -s train.batch=7)
figure "in 7 parts: $parts"
ok "... a multiple of the micro-batches" [ $((parts > 64 && parts % 7 == 0)) = 1 ]
ok "... whatever the planned batch" [ "$(largest -s train.batch=2)" = "$batch" ]
ok "... as text" sh -c '"$AMPTRAIN" plan -q -c run.ini -s memory.limit=1M | grep -q "largest batch  *$1 "' \
    sh "$batch"
ok "... not without a limit" sh -c '"$AMPTRAIN" plan -q -c run.ini --json | grep -q "\"largest_batch\":null"'
ok "it fits" check -s train.batch="$batch"
ok "one image more does not, with the reason" says 4 "the largest train.batch that fits is 1" \
    plan --check -s train.batch=$((batch + 1))
ok "... which plan marks as well" sh -c '
    "$AMPTRAIN" plan -q -c run.ini -s memory.limit=1M -s train.batch=$(($1 + 1)) |
        grep "^  total .*more than memory.limit, 1.0 MiB$"' sh "$batch"
ok "it can be trained" train it -s memory.limit=1M -s train.batch="$batch" -s run.max_steps=1
ok "a quarter more does not train" says 4 "the largest train.batch that fits is 1" \
    train more -s memory.limit=1M -s train.batch=$((batch * 5 / 4))
needed=$(sed -n 's/.* the run needs \([0-9.]*\) MiB.*/\1/p' err)
ok "... it does with the memory that is said to be needed" train more -s memory.limit="${needed}M" \
    -s train.batch=$((batch * 5 / 4)) -s run.max_steps=1
ok "with more memory it is not smaller" [ "$(largest -s memory.limit=1536K)" -ge "$batch" ]
ok "it does not exceed the number of images" [ "$(largest -s memory.limit=1G)" = $images ]
wide="-s model.arch=resnet20 -s model.file= -s augment.flip=0"
ok "not even one image fits" says 4 "not even train.batch=1 fits" plan --check $wide

: >big.ini
hopeless() { timeout 5 "$AMPTRAIN" "$@" -q -c big.ini -s data.format=synthetic -s augment.crop=4096 \
    -s train.batch=16 -s model.arch=vgg16 -s memory.limit=300M -s run.device=cpu; }
for command in bench train; do
    ok "$command: a limit that no choice can meet is refused before parameters are initialised" \
        says 4 "needs at least" hopeless $command
    ok "... and --check says the same" sh -c 'grep -o "needs at least.*" err >needs; "$@" 2>&1 | grep -qF "$(cat needs)"' \
        sh "$AMPTRAIN" -q -c big.ini -s data.format=synthetic -s augment.crop=4096 -s train.batch=16 \
        -s model.arch=vgg16 -s memory.limit=300M -s run.device=cpu --check
    ok "... by the limit" grep -q "memory.limit: 300.0 MiB is not enough.*not even train.batch=1 fits" err
done

ok "train.batch=auto trains" train auto -s memory.limit=1M -s train.batch=auto -s run.max_steps=3
ok "... with that batch" [ "$(resolved auto batch)" = "$batch" ]
train number -s memory.limit=1M -s train.batch="$batch" -s run.max_steps=3
ok "... with the same bits as the number" same auto number
ok "a resumed run keeps it" train auto -r -s memory.limit=2M -s train.batch=auto -s run.max_steps=4
ok "... in config.ini" [ "$(resolved auto batch)" = "$batch" ]
ok "another batch is a different run" says 2 "train.batch" train auto -r -s train.batch=64
ok "auto without a limit uses free memory" train free -s train.batch=auto -s run.max_steps=1
ok "... and the run stays within it" [ "$(resolved free limit)" != auto ]
ok "... which fits all images here" [ "$(resolved free batch)" = $images ]
free=$(resolved free limit)
ok "a resumed run ignores what is free then" train free -r -s train.batch=auto -s run.max_steps=2
ok "... and keeps the limit" [ "$(resolved free limit)" = "$free" ]
ok "auto if nothing fits" says 4 "train.batch: not even 1 image" \
    "$AMPTRAIN" -q -c run.ini $wide -s memory.limit=1M -s train.batch=auto
ok "evaluation needs no batch" "$AMPTRAIN" eval -q -c run.ini --weights auto/checkpoint-last.safetensors \
    -s train.batch=auto
ok "neither does pack" "$AMPTRAIN" pack -q -c run.ini -o digits.pack -s train.batch=auto

# Networks as users have them: the search for what to recompute decides how many images fit. It is long under
# sanitizers, and test_memory.sh has shown them the same code.
[ -z "${AMPTRAIN_SANITIZED-}" ] || { finish; exit; }
printf '[data]\nformat = synthetic\n[model]\narch = resnet152\n[amp]\nprecision = fp16\n' >large.ini
large() { "$AMPTRAIN" plan -q -c large.ini --json -s memory.limit=8G -s model.arch="$1" |
    sed -n 's/.*"largest_batch":\([0-9]*\),.*/\1/p'; }
for least in resnet152:610 densenet121:805; do
    batch=$(large "${least%:*}")
    figure "${least%:*} in 8 GiB: $batch"
    ok "${least%:*}: at least ${least#*:} images in 8 GiB" [ "$batch" -ge "${least#*:}" ]
done
finish
