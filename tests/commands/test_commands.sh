#!/bin/sh
# The commands, their exit codes, and what they say about what is wrong.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

run() { "$AMPTRAIN" -q -c run.ini "$@"; }

# They are opened with a device: relocating them takes 0.1 s.
alone() { ldd "$AMPTRAIN" >libraries && ! grep -E 'cudnn|cublas|nvjpeg|nccl|nvidia' libraries; }
ok "it starts without CUDA's libraries" alone

# Usage and configuration: 2.
ok "an unknown command, with a suggestion" says 2 "did you mean 'eval'?" "$AMPTRAIN" evl
ok "an unknown command, without a suggestion" says 2 "there is no command 'xyzzy'" "$AMPTRAIN" xyzzy
ok "an unknown option, with a suggestion" says 2 "did you mean --output?" "$AMPTRAIN" train --outptu x
ok "an unknown option, without a suggestion" says 2 "no such option: --xyzzy" "$AMPTRAIN" train --xyzzy
for number in 3x 0 1000000001 99999999999999999999; do
    ok "an option's number: not $number" says 2 \
        "--steps must be a whole number between 1 and 1000000000, not '$number'" \
        "$AMPTRAIN" bench -c run.ini --steps $number
done
ok "an option without its value" says 2 "needs a value" "$AMPTRAIN" train -c
for option in "-o" "--output" "-c" "-s" "-r=" "--resume="; do
    case $option in
    *=) ok "an empty value of $option" says 2 "needs a value" "$AMPTRAIN" train -c run.ini "$option" ;;
    *) ok "an empty value of $option" says 2 "needs a value" "$AMPTRAIN" train -c run.ini "$option" '' ;;
    esac
done
ok "an empty value of a command's own option" says 2 "needs a value" "$AMPTRAIN" eval -c run.ini --weights ''
ok "a key as an option" says 2 "did you mean -s optimizer.weight_decay=VALUE?" \
    "$AMPTRAIN" train --weight-decay=1
ok "... of a command without configuration" says 2 "no such option: --epochs; \`amptrain report" \
    "$AMPTRAIN" report --epochs 1
ok "an extra argument" says 2 "unexpected argument" "$AMPTRAIN" plan -c run.ini word
ok "a configuration without -c" says 2 "did you mean -c run.ini?" "$AMPTRAIN" train run.ini
ok "... and without a command" says 2 "did you mean -c run.ini?" "$AMPTRAIN" run.ini
ok "a run without --weights" says 2 "did you mean --weights runs/a?" "$AMPTRAIN" eval runs/a
ok "nothing to train" says 2 "there is no configuration (-c FILE)" "$AMPTRAIN" train
exits "no arguments" 2 "$AMPTRAIN"
ok "a configuration that does not exist" says 2 "nowhere.ini" "$AMPTRAIN" -c nowhere.ini
ok "an unknown key, with its line" says 2 "broken.ini:2" sh -c '
    printf "[train]\nepcohs = 3\n" >broken.ini; "$AMPTRAIN" -c broken.ini'
ok "... and the nearest name" says 2 "epochs" "$AMPTRAIN" -c broken.ini
ok "a wrong value" says 2 "train.epochs" run -s train.epochs=-1
ok "a wrong choice" says 2 "fp16" run -s amp.precision=fp61
ok "a wrong optimizer" says 2 "did you mean 'adam'?" run -s optimizer.name=adm
ok "a wrong schedule" says 2 "did you mean 'cosine'?" run -s schedule.name=cosin
ok "a wrong format" says 2 "did you mean 'digits'?" run -s data.format=digit
ok "a wrong model" says 2 "resnet18" run -s model.file= -s model.arch=resnet81
ok "train.accumulate that does not divide the batch" says 2 "does not divide" run -s train.accumulate=3
ok "a batch larger than the data set" says 2 "train.batch" run -s train.batch=100000 -s train.accumulate=1
ok "train.freeze that matches nothing" says 2 "train.freeze" run -s 'train.freeze=nothing*'
ok "a wrong layer, with its line" says 2 "wrong.ini:5" sh -c '
    sed "s/= conv input/= conf input/" tiny.ini >wrong.ini
    "$AMPTRAIN" -c run.ini -s model.file=wrong.ini'
ok "eval without weights" says 2 "--weights is missing" "$AMPTRAIN" eval -c run.ini

# Data: 3.
ok "no data" says 3 "nowhere" run -s data.format=mnist -s data.train=nowhere -s data.val=nowhere
ok "a folder without images" says 3 "empty" sh -c '
    mkdir -p empty/a empty/b; "$AMPTRAIN" -q -c run.ini -s data.format=folder -s data.train=empty'
ok "a truncated IDX file" says 3 "train-images" sh -c '
    mkdir -p idx; printf "\0\0\10\3\0\0\0\144\0\0\0\34\0\0\0\34abc" >idx/train-images-idx3-ubyte
    printf "\0\0\10\1\0\0\0\144abc" >idx/train-labels-idx1-ubyte
    "$AMPTRAIN" -q -c run.ini -s data.format=mnist -s data.train=idx'

# Devices: 4.
ok "a GPU index that does not exist" says 4 "there are only 1 (numbered from 0)" run -s run.device=cpu:3
ok "a GPU index that is not a number" says 2 "must be auto, cpu, cuda or cuda:N" run -s run.device=cpu:x
ok "an unknown device" says 4 "cuda" run -s run.device=cuda:77
ok "a wrong device, without opening it" says 2 "run.device: 'gpu': must be auto" run -s run.device=gpu --check

# A run, and what there is to do with it.
ok "train" train run
# lines EVERY: the steps that three epochs of 22 write lines of.
lines() {
    rm -rf lines
    train lines -s train.epochs=3 -s log.every="$1" || return 1
    sed -n 's/^{"event":"step","step":\([0-9]*\),.*/\1/p' lines/metrics.jsonl | tr '\n' ' '
}
ok "step lines in metrics.jsonl" [ "$(lines 20)" = "20 40 60 " ]
ok "... at least one per epoch" [ "$(lines 30) $(lines 1000)" = "22 30 60  22 44 66 " ]
ok "the folder is refused without -r" says 2 "already contains a run" train run
ok "-r on a finished run" train run -r
ok "training with frozen parameters" says 0 "parameters, of which 3738 are trained" \
    "$AMPTRAIN" -c run.ini -o frozen -s 'train.freeze=conv1.* bn1.*' -s train.epochs=1
ok "... whose number is in the metrics" grep -q '"trained_params":3738,' frozen/metrics.jsonl
ok "-r with another learning rate" says 2 "optimizer.lr" train run -r -s optimizer.lr=1
ok "-r with more epochs" train run -r -s train.epochs=5
longer() {
    train longer -s schedule.name=cosine -s schedule.warmup=0 -s train.epochs=1 &&
        says 0 "train.epochs is 2, not 1: the schedule 'cosine' changes, and the learning rate continues at $1" \
            train longer -r -s schedule.name=cosine -s schedule.warmup=0 -s train.epochs=2
}
ok "-r with more epochs of cosine warns that the learning rate changes" longer "0."
ok "-r from a named file" train other -r=run/checkpoint-best.safetensors
ok "-r from a missing file" says 5 "nowhere" train other2 -r=nowhere
ok "-r with another model" says 2 "layer 'conv1' is 'conv input filters=4" sh -c '
    sed "s/filters=8/filters=4/" tiny.ini >small.ini
    "$AMPTRAIN" -q -c run.ini -o run -r -s model.file=small.ini'
sed 's/relu2 = relu/relu2 = leaky_relu/' tiny.ini >leaky.ini
sed 's/rate=0.2/rate=0.7/' tiny.ini >drop.ini
{ echo '; the same'; cat tiny.ini; } >named.ini
last=run/checkpoint-last.safetensors
other="the network differs from that of the run: layer"
ok "-r with another activation" says 2 "$other 'relu2' is 'leaky_relu conv2', not 'relu conv2'" \
    train run -r -s model.file=leaky.ini
ok "-r with another dropout" says 2 "$other 'drop' is 'dropout relu2 rate=0.7'" train run -r -s \
    model.file=drop.ini
ok "-r with the same model under another name" train run -r -s model.file=named.ini
ok "weights trained with another activation" says 0 \
    "belong to another network, which is used instead: layer 'relu2'" \
    "$AMPTRAIN" eval -q -c run.ini -s model.file=leaky.ini --weights $last
ok "checkpoint.keep" sh -c 'test -f run/checkpoint-5.safetensors -a -f run/checkpoint-4.safetensors'
ok "config.ini reads back the same" "$AMPTRAIN" -q -c run/config.ini -o run -r -s train.epochs=5
ok "the run continues if a checkpoint cannot be written" sh -c '
    mkdir full && mkdir full/checkpoint-last.safetensors.tmp &&
    "$AMPTRAIN" -q -c run.ini -o full 2>said; status=$?
    cat said; grep -q "the run continues" said && test $status = 1'

# One that cannot be written is said each time that it is due.
ok "checkpoint.every of a microsecond: one after each of 22 steps and at the epoch's end" sh -c '
    mkdir often && mkdir often/checkpoint-last.safetensors.tmp
    "$AMPTRAIN" -q -c run.ini -o often -s train.epochs=1 -s checkpoint.every=1e-6s 2>said
    cat said; test "$(grep -c "the run continues" said)" = 23'

json() { "$AMPTRAIN" "$@" --json >out.json && grep -q "$(cat pattern)" out.json; }
echo '^{"images":359,"errors":[0-9]*,"top1":[0-9.]*,"top5":[0-9.]*,"loss":[0-9.]*,"bad_images":0,' >pattern
ok "eval --json" json eval -q -c run.ini --weights $last
ok "eval gives the results of training" sh -c '
    loss=$(grep "\"epoch\":5," run/metrics.jsonl | sed -n "s/.*\"val_loss\":\([^,]*\),.*/\1/p")
    echo "$loss"; cat out.json; grep -q "\"loss\":$loss," out.json'
ok "results do not depend on the batch" sh -c '
    cp out.json first.json
    "$AMPTRAIN" eval -q -c run.ini --weights run/checkpoint-last.safetensors --json \
        -s train.batch=34 >out.json
    cat first.json out.json; test "$(cut -d, -f1-4 first.json)" = "$(cut -d, -f1-4 out.json)"'
ok "eval --logits" sh -c '
    "$AMPTRAIN" eval -q -c run.ini --weights run/checkpoint-last.safetensors --logits logits.npy &&
    test "$(wc -c <logits.npy)" = $((128 + 359 * 10 * 4)) && head -c 128 logits.npy | grep -q "(359, 10)"'
ok "eval -o" sh -c '
    "$AMPTRAIN" eval -q -c run.ini --weights run/checkpoint-last.safetensors -o evaluated &&
    grep -q "^{\"event\":\"eval\"" evaluated/metrics.jsonl && test "$(wc -l <evaluated/confusion.csv)" = 11'
echo '^{"images":1438,' >pattern
ok "eval --split train" json eval -q -c run.ini --weights $last --split train
ok "model.weights of another model" says 5 "conv1.weight" "$AMPTRAIN" -q -c run.ini -s model.file=small.ini \
    -s model.weights=$last
ok "... are also refused by --check" says 5 "conv1.weight" "$AMPTRAIN" -q -c run.ini --check -s \
    model.file=small.ini \
    -s model.weights=$last
ok "--check accepts matching weights" "$AMPTRAIN" -q -c run.ini --check -s model.weights=$last
ok "... of a run folder, too" says 0 "run/checkpoint-best.safetensors: the weights of this run" "$AMPTRAIN" \
    -c run.ini --check -s model.weights=run
ok "weights that are not safetensors" says 5 "run.ini" "$AMPTRAIN" eval -q -c run.ini --weights run.ini
ok "eval with an unknown --split" says 2 "--split must be train or val, not 'test'" "$AMPTRAIN" eval -q -c \
    run.ini \
    --weights $last --split test
ok "eval --logits to a path that cannot be written" says 1 "nowhere/logits.npy: cannot be written" \
    "$AMPTRAIN" eval -q -c run.ini --weights $last --logits nowhere/logits.npy
ok "export" "$AMPTRAIN" export -q --weights $last -o weights.safetensors
ok "an export evaluates like its checkpoint" sh -c '
    "$AMPTRAIN" eval -q -c run.ini --weights weights.safetensors --json >exported.json
    cat first.json exported.json; cmp first.json exported.json'
ok "export to fp16" "$AMPTRAIN" export -q --weights $last --dtype fp16 -o half.safetensors
ok "... can be evaluated" "$AMPTRAIN" eval -q -c run.ini --weights half.safetensors
ok "export to ONNX" "$AMPTRAIN" export --weights $last -o net.onnx
ok "... with class names" grep -qaF '["0","1","2","3","4","5","6","7","8","9"]' net.onnx
ok "export of an export to ONNX, with a configuration" "$AMPTRAIN" export -q -c run.ini \
    --weights weights.safetensors -o again.onnx
ok "... gives the same file" cmp net.onnx again.onnx
ok "export to ONNX in bf16" says 2 "fp32 or fp16" "$AMPTRAIN" export --weights $last --dtype bf16 -o x.onnx
ok "export of safetensors with softmax" says 2 "are for ONNX files" "$AMPTRAIN" export --weights $last \
    --softmax -o x.safetensors
ok "export of a file without weights" says 5 "run.ini" "$AMPTRAIN" export --weights run.ini -o x.safetensors
ok "export to an unsupported type" says 2 "--dtype must be fp32, fp16, bf16 or int8, not 'fp64'" \
    "$AMPTRAIN" export --weights $last --dtype fp64 -o x.safetensors
ok "export under a name with another ending" says 2 "must end in .safetensors or .onnx" "$AMPTRAIN" export \
    --weights $last \
    -o x.bin
ok "training from weights with other classes" says 0 "is initialised" "$AMPTRAIN" -c run.ini -s \
    model.classes=12 \
    -s model.weights=weights.safetensors -s train.epochs=1
ok "predict: a file that is not an image" says 3 "run.ini" "$AMPTRAIN" predict -q -c run.ini --weights $last \
    run.ini
ok "a global option before the command" sh -c '
    "$AMPTRAIN" -q models >one && "$AMPTRAIN" --quiet -v models >two && "$AMPTRAIN" models | cmp - one &&
        cmp one two'
ok "... is not a value of train" says 2 "predict: no image given" "$AMPTRAIN" -q predict --weights $last
ok "... before what is no command" says 2 "there is no command 'modls'; did you mean 'models'?" \
    "$AMPTRAIN" -vq modls
ok "... and help" sh -c '"$AMPTRAIN" -v predict --help | grep -q "^usage: amptrain predict"'
ok "predict: no image given" says 2 "image" "$AMPTRAIN" predict -q -c run.ini --weights $last
echo '"total_bytes":[0-9]*,"step_ms":[0-9.]*,"step_ms_from":"[a-z]*","outputs":\[{.*}\],"strategy":"keep","recomputed":0,"offloaded_bytes":0,"estimated":true,"layers":\[{' >pattern
ok "plan --json" json plan -q -c run.ini
ok "plan" "$AMPTRAIN" plan -c run.ini
printf '[data]\nformat = digits\n[model]\narch = resnet18_cifar\n' >deep.ini
modelled() { "$AMPTRAIN" plan -q -c deep.ini --json "$@" | sed 's/.*"step_ms":\([0-9.]*\),.*/\1/'; }
faster() { modelled >cpu.ms; modelled -s run.device=cuda >gpu.ms; cat cpu.ms gpu.ms
    awk 'NR == 1 { cpu = $1 } END { exit !(NR == 2 && $1 > 0 && $1 < cpu / 20) }' cpu.ms gpu.ms; }
if "$AMPTRAIN" -V | grep -q cuDNN; then
    ok "plan for a GPU: faster" faster
    # 526 MiB, and for deterministic exchanges of four 350 more.
    nccl() { "$AMPTRAIN" plan -q -c deep.ini --json -s run.device=cuda -s "$@" |
        grep -q "\"exchange_bytes\":$bytes,"; }
    bytes=551550976
    ok "... and for two, with NCCL's memory" nccl parallel.gpus=2
    bytes=918552576
    ok "... and for four" nccl parallel.gpus=4 -s run.deterministic=yes
else
    ok "plan for a GPU, in a build without CUDA" says 0 "planning for the CPU" \
        "$AMPTRAIN" plan -c deep.ini -s run.device=cuda
fi
"$AMPTRAIN" bench -q -c deep.ini --steps 3 --layers --json >times.json
number() { sed "s/.*\"$1\":\([0-9.e+-]*\)[,}].*/\1/" "$2"; }
among() { awk -v least="$1" -v most="$2" -v is="$3" \
    'BEGIN { print least, is, most; exit !(is >= least && is <= most) }'; }
measured() { "$AMPTRAIN" plan -q -c deep.ini --times times.json --json >timed.json &&
    among 0.99 1.01 "$(echo "$(number step_ms timed.json) $(number step_ms_median times.json)" |
        awk '{ print $1 / $2 }')"; }
ok "plan --times uses measured times" measured
ok "... refuses files that bench did not write" says 3 "no times of instructions" "$AMPTRAIN" plan -c \
    deep.ini --times timed.json
sed 's/"ms":/"ms":-/' times.json >negative.json
ok "... and times below 0" says 3 "no times of instructions" "$AMPTRAIN" plan -c deep.ini --times negative.json
ok "... and missing ones" says 3 "cannot read nowhere.json: No such file" \
    "$AMPTRAIN" plan -c deep.ini --times nowhere.json
mkfifo times.pipe
ok "... and pipes" says 3 "times.pipe: not a regular file" \
    timeout 60 "$AMPTRAIN" plan -c deep.ini --times times.pipe
planned() { "$AMPTRAIN" plan -q -c deep.ini -s train.batch=64 -s parallel.gpus=4 --json "$@"; }
slower() { planned --hosts 2 --link 100Gb >fast.json && planned --hosts 2 --link 2x0.5Gb >slow.json &&
    among 0.3 1 "$(number efficiency fast.json)" && among 0.01 0.2 "$(number efficiency slow.json)"; }
ok "plan --hosts: a slow link costs time" slower
ok "plan for ranks with train.sync_bn" planned -s train.sync_bn=yes
ok "... suggests nothing that does not divide among the ranks" sh -c '
    ! "$AMPTRAIN" plan -q -c deep.ini -s train.batch=4 -s parallel.gpus=4 2>&1 |
        grep -E "divide|accumulate=|batch="'
ok "plan for ranks, as text" sh -c '"$AMPTRAIN" plan -c deep.ini -s train.batch=64 -s parallel.gpus=4 |
    grep "^ *images/s .* of 4 independent GPUs with 16 images each"'
staged() { "$AMPTRAIN" plan -q -c deep.ini -s train.batch=64 -s parallel.gpus=4 -s parallel.stages=2 \
    -s parallel.microbatches=4 "$@"; }
pipeline() { staged --json -s parallel.schedule=1f1b >staged.json && among 1 1.15 "$(number balance staged.json)" &&
    among 0.2 0.9 "$(number bubble staged.json)" &&
        grep -q '"stages":\[{"first":"conv1",.*"last":"fc",' staged.json &&
    grep -q '"data_parallel_images_per_s":[0-9.]*,' staged.json; }
ok "plan for a pipeline: stages, balance, bubble" pipeline
ok "a schedule with more parts than the network has is left out" \
    "$AMPTRAIN" plan -q -s data.format=synthetic -s augment.crop=32 -s model.arch=lenet5 -s run.device=cpu \
    -s parallel.gpus=4 -s parallel.stages=4
ok "... and as text, with alternatives" sh -c '"$0" "$@" | awk "/best pipeline .*parallel.stages=/ { a = 1 }
    /without stages .*parallel.stages=1/ { b = 1 } /^ *0 .*conv1 to / { c = 1 } / to fc / { d = 1 }
    END { exit !(a && b && c && d) }"' \
    "$AMPTRAIN" plan -q -c deep.ini -s train.batch=64 -s parallel.gpus=4 -s parallel.stages=2 \
    -s parallel.schedule=1f1b
scheduled() { for schedule in auto gpipe 1f1b zerobubble vshape; do
        staged --json -s parallel.schedule=$schedule >$schedule.json || return 1
        number step_ms $schedule.json
    done >steps.txt
    awk 'NR == 1 { own = $1 } NR > 1 && own > 1.03 * $1 { slow = 1 } END { exit NR != 5 || slow }' steps.txt \
        &&
        ! cmp gpipe.json zerobubble.json; }
ok "... parallel.schedule=auto is as fast as the best" scheduled
limited() { staged --json -s memory.limit=1G | grep -q ',"schedule":"1f1b","balance"'; }
ok "... and 1f1b if memory is limited" limited
ok "... and the programs of both stages" test \
    "$(staged --dump | grep -c '^program training.*, stage [01] of 2')" = 2
many() { "$AMPTRAIN" plan -c deep.ini -s data.format=synthetic -s train.batch=65536 -s parallel.gpus=1024 \
    --hosts 128 \
    --link 8x400Gb >many.txt && grep -q "of 1024 independent GPUs with 64 images each" many.txt &&
    grep -q "train.accumulate=2 .* micro-batches of 32 images" many.txt; }
ok "plan for a batch larger than the data set" many
ok "plan for hosts that do not divide the ranks" says 2 "does not divide" planned --hosts 3 --link 1Gb
ok "plan for hosts without a link" says 2 "go together" planned --hosts 2
ok "plan --link with an invalid rate" says 2 "8x400Gb" planned --hosts 2 --link fast
{ printf '[input]\nchannels = 3\nsize = 8\n[layers]\ndown0 = conv input filters=64 kernel=1\n'
  for i in 1 2 3; do
      printf 'up%s = linear down%s units=256 per_pixel=yes\nact%s = gelu up%s\n' $i $((i - 1)) $i $i
      printf 'down%s = linear act%s units=64 per_pixel=yes\n' $i $i
  done; printf 'pool = globalavgpool down3\nfc = linear pool units=$classes\n'; } >gelus.model
gelus() { "$AMPTRAIN" plan -s data.format=synthetic -s model.file=gelus.model -s train.batch=256 \
    -s run.device=cpu -s model.classes=10 "$@"; }
faster() { gelus >whole.txt && ! grep -q "accumulate.*faster" whole.txt &&
    gelus -s memory.limit=60M | grep -q "train.accumulate=2 .* micro-batches of 128 images, .* faster"; }
ok "plan under a limit names smaller micro-batches that are faster" faster
dumped() { "$AMPTRAIN" plan -c run.ini --dump >dump1 && "$AMPTRAIN" plan -c run.ini --dump >dump2 &&
    cmp dump1 dump2; }
ok "plan --dump gives the same text every time" dumped
instructions() {
    head -n 1 dump1 | grep -q '^network "' && grep -q '^program training, batch [0-9]*, ' dump1 || return 1
    value='".*"(#[0-9]+)?:[a-z0-9]+\[[0-9x]*\] [a-z_]+(, .*)?'
    operands='\(.*\) -> \(.*\) (shapes \(.*\) )?([a-z].*)?stream [0-9].*'
    sed '1,/^program/d' dump1 |
        grep -vE "^($value|[0-9]+ (op [a-z_]+ [a-z0-9_]+|update update -) .*$operands)\$" && return 1
    tail -n 1 dump1 | grep -q update
}
ok "... one instruction per line" instructions
ok "plan --dump=PASS" sh -c '"$AMPTRAIN" plan -c run.ini --dump=differentiate | head -n 1 |
    grep -qx "pass differentiate"'
"$AMPTRAIN" plan -c run.ini --dump=all >dump3
ok "plan --dump=all" sh -c 'grep "^pass " dump3 | tr "\n" " " |
    grep -q "^pass fuse pass lower pass autocast .*pass relu_mask "'
after_each() { for pass; do "$AMPTRAIN" plan -c run.ini --dump="$pass" && echo; done | sed '$d' |
    cmp - dump3; }
ok "... equals --dump=PASS for each pass" after_each $(sed -n 's/^pass //p' dump3)
ok "plan --dump with an unknown pass" says 2 "no such pass: autocas; did you mean autocast?" \
    "$AMPTRAIN" plan -c run.ini --dump=autocas
ok "... lists the passes" says 2 "passes: fuse, lower, autocast, " "$AMPTRAIN" plan -c run.ini --dump=x
ok "plan --dump with a pass that does not run" says 2 "the pass offload does not run" \
    "$AMPTRAIN" plan -c run.ini --dump=offload
ok "plan --dump with other output" says 2 "cannot be combined" "$AMPTRAIN" plan -c run.ini --dump --json
texts=$top_srcdir/tests/dumps
sed '/^after /,$d' "$texts/streams.txt" >streams.txt
sed '1,/^after /d' "$texts/streams.txt" >streams_after.txt
one_pass() { "$AMPTRAIN" plan --program streams.txt --pass streams | sed -n '/^program/,$p' |
    cmp - streams_after.txt; }
ok "plan --program --pass" one_pass
again() { "$AMPTRAIN" plan --program dump1 --pass relu_mask >dump4 && cmp dump1 dump4; }
ok "... with what --dump prints" again
again_after() { "$AMPTRAIN" plan -c run.ini --dump=saved >dump5 &&
    "$AMPTRAIN" plan --program dump5 --pass relu_mask >dump4 && sed 1d dump5 | cmp - dump4; }
ok "... and --dump=PASS" again_after
ok "... with an unknown pass" says 2 "--pass: no such pass: stream; did you mean streams?" \
    "$AMPTRAIN" plan --program streams.txt --pass stream
ok "... with one rule of a pass" sh -c \
    '"$AMPTRAIN" plan --program dump1 --pass share_sums >dump4 && cmp dump1 dump4'
ok "... with an unknown rule" says 2 "no such pass: shared_sums; did you mean share_sums?" \
    "$AMPTRAIN" plan --program dump1 --pass shared_sums
ok "... with a pass that has nothing to do" says 2 "the pass fold_conv_batchnorm does not run with these options" \
    "$AMPTRAIN" plan --program streams.txt --pass fold_conv_batchnorm
sed 's/d_y "d conv2"/y "d conv2"/' streams.txt >wrong.txt
ok "... with a text that is wrong" says 2 "wrong.txt:38: it has two values for y[0]" \
    "$AMPTRAIN" plan --program wrong.txt --pass streams
ok "... with another that is" says 2 "wrong.txt:1: streams must be between 1 and 100" sh -c \
    'sed "1s/=2/=0/" streams.txt >wrong.txt; "$AMPTRAIN" plan --program wrong.txt --pass streams'
ok "... without a file" says 3 "none.txt: " "$AMPTRAIN" plan --program none.txt --pass streams
truncate -s 100G sparse.txt
ok "... with a file that no program is" says 3 "sparse.txt: too large" \
    "$AMPTRAIN" plan --program sparse.txt --pass streams
ok "... with a device" says 3 "/dev/zero: " "$AMPTRAIN" plan --program /dev/zero --pass streams
ok "plan --program without --pass" says 2 "needs --pass" "$AMPTRAIN" plan --program streams.txt
ok "plan without its data" "$AMPTRAIN" plan -c run.ini -s data.format=mnist -s data.train=nowhere
ok "--check" "$AMPTRAIN" -c run.ini --check
ok "--check -v" "$AMPTRAIN" -v -c run.ini --check
ok "--check with data missing" says 3 "nowhere" "$AMPTRAIN" -c run.ini --check -s data.format=mnist \
    -s data.train=nowhere
ok "--print-config" sh -c '"$AMPTRAIN" -c run.ini --print-config | grep -q "^epochs = 4"'
printf 'id,lower,upper,size\na,0,2,10\nb,1,3,20\nc,2,4,10\n' >spans.csv
ok "plan --spans" sh -c '"$AMPTRAIN" plan --spans spans.csv | grep -q "^peak 30"'
echo '^{"spans":\[{"id":"a","offset":[0-9]*},.*\],"peak":30,"live_bytes_bound":30,"seconds":[0-9.e-]*}$' \
    >pattern
ok "plan --spans --json" json plan --spans spans.csv
ok "plan --spans, capacity too small" says 4 "capacity" "$AMPTRAIN" plan --spans spans.csv --capacity 29
ok "plan --spans, invalid capacity" says 2 "--capacity" "$AMPTRAIN" plan --spans spans.csv --capacity much
echo '^{"images_per_s":.*"start_seconds":[0-9.]*}$' >pattern
ok "bench --json" json bench -q -c run.ini --steps 3
ok "bench --data" json bench -q -c run.ini --steps 3 --data
ok "bench --json --layers is one document" sh -c \
    '"$AMPTRAIN" bench -q -c run.ini --steps 3 --json --layers >out.json
    cat out.json; [ "$(wc -l <out.json)" = 1 ] && grep -q "^{.*\"layers\":\[{\"name\":\".*}\]}$" out.json'
ok "bench of mixed images" json bench -q -c run.ini --steps 3 -s augment.mixup=0.2
for list in ops models formats devices; do ok "$list" "$AMPTRAIN" $list; done
ok "--version" "$AMPTRAIN" --version
ok "--help" "$AMPTRAIN" --help
# fits COMMAND...: its help is no larger than a terminal of 80 columns and 28 lines.
fits() { "$AMPTRAIN" "$@" --help |
    awk 'length > 80 { print; wide = 1 } END { exit wide || NR < 5 || NR > 28 }'; }
ok "--help fits into 80 columns and 28 lines" fits
for command in $("$AMPTRAIN" --help | sed -n 's/^  \([a-z][a-z]*\)  *.*/\1/p'); do
    ok "... of $command" fits "$command"
done
ok "--help of a command" sh -c '"$AMPTRAIN" eval --help | grep -q logits'
ok "... as help COMMAND" sh -c '"$AMPTRAIN" help eval | grep -q logits'
ok "... of none" says 2 "did you mean 'eval'?" "$AMPTRAIN" help evla

ok "-r without a folder" says 2 "-o" run -r
ok "early stopping" sh -c '
    "$AMPTRAIN" -q -c run.ini -o early -s optimizer.lr=0 -s train.epochs=50 -s train.early_stop=2 &&
    grep -q "\"event\":\"end\",\"reason\":\"early_stop\"" early/metrics.jsonl'
patient() {
    before=$(grep -c '"event":"epoch"' early/metrics.jsonl)
    "$AMPTRAIN" -q -c run.ini -o early -r -s optimizer.lr=0 -s train.epochs=50 -s train.early_stop=4 ||
        return 1
    epochs=$(grep -c '"event":"epoch"' early/metrics.jsonl)
    echo "$before, then $epochs epochs"
    [ "$epochs" = $((before + 2)) ]
}
ok "... a run resumed with a larger early_stop continues" patient
ok "evaluation on images of another size" "$AMPTRAIN" -q -c run.ini -s model.file= -s model.arch=resnet20 \
    -s augment.val_crop=12 -s train.epochs=1 -s data.limit=64
exits "... which the classifier must support" 2 "$AMPTRAIN" -q -c run.ini -s augment.val_crop=12

# Numbers that are not finite: skipped and named, or the end.
ok "a NaN is diagnosed" says 1 "gradients are not finite" "$AMPTRAIN" -q -c run.ini -s amp.precision=fp32 \
    -s amp.loss_scale=1e30 -s optimizer.lr=1e30 -s train.clip_norm=0 -s train.epochs=1
ok "... and that no evaluation was finite" grep -q "no evaluation was finite: 359 of 359 images" err
ok "a NaN after a finite evaluation is no failure" says 0 "gradients are not finite" "$AMPTRAIN" -q -c run.ini \
    -s amp.precision=fp32 -s amp.loss_scale=1e30 -s schedule.name=step -s schedule.milestones=1.5 \
    -s schedule.gamma=1e31 -s train.clip_norm=0 -s train.epochs=2
ok "on_nan=stop" says 1 "gradients are not finite" "$AMPTRAIN" -q -c run.ini -s amp.precision=fp32 \
    -s amp.loss_scale=1e30 -s optimizer.lr=1e30 -s train.clip_norm=0 -s train.on_nan=stop

# How long libgomp's threads spin: short, unless the user says it.
spins() { # COUNT [NAME=VALUE]: the count that the commands run with
    wanted=$1; shift
    env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$@" "$AMPTRAIN" -V 2>spins
    cat spins
    [ "$(sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'.*/\1/p" spins | tail -n 1)" = "$wanted" ]
}
if OMP_DISPLAY_ENV=verbose "$AMPTRAIN" -V 2>&1 | grep -q GOMP_SPINCOUNT; then
    ok "OpenMP threads spin briefly" spins 1000
    ok "... or as the user's environment says" spins 7 GOMP_SPINCOUNT=7
    ok "... or not at all" spins 0 OMP_WAIT_POLICY=passive
else
    skip "OpenMP threads spin briefly" "this OpenMP is not GNU's"
fi

# Paths below the home folder, where a shell leaves them as they are.
homely() {
    rm -rf home && mkdir home && cp tiny.ini run.ini home &&
        HOME=$PWD/home "$AMPTRAIN" -q --config='~/run.ini' -s model.file='~/tiny.ini' -s train.epochs=1 \
            -o '~/run' &&
        HOME=$PWD/home "$AMPTRAIN" eval -q --weights='~/run' -c run.ini --logits='~/logits.npy' &&
        HOME=$PWD/home "$AMPTRAIN" -q -o home/run -r='~/run/checkpoint-last.safetensors' &&
        [ -s home/logits.npy ] && [ ! -e '~' ] && grep "^file = $PWD/home/tiny.ini" home/run/config.ini
}
ok "~ is the home folder in paths" homely
nothing_saved() { says 0 "there is no run folder (-o): nothing will be saved" \
    "$AMPTRAIN" -q -c run.ini -s train.epochs=1; }
ok "-q without -o says that nothing is saved" nothing_saved

bestless() {
    rm -rf bestless && cp -r run bestless && rm bestless/checkpoint-best.safetensors || return 1
    for command in "$@"; do
        # shellcheck disable=SC2086 # words
        says 0 "bestless/checkpoint-last.safetensors is used, which is not the best one" \
            "$AMPTRAIN" $command --weights bestless || return 1
    done
}
ok "a deleted best checkpoint: what is used instead is said" bestless "eval -q -c run.ini" \
    "export -q -o bestless.safetensors"

check_answers() {
    "$AMPTRAIN" -q -c run.ini --check >out 2>err || return 1
    head -n 5 out
    head -n 1 out | grep -q '^network     tiny, 3826 parameters, in fp16$' &&
        sed -n 2p out | grep -q '^images      1438 of 10 classes for training, 359 for validation$' &&
        sed -n 3p out | grep -q '^training    [0-9]* epochs, [0-9]* steps of 64 images$' &&
        sed -n 4p out | grep -q '^time        .*, estimated' &&
        sed -n 5p out | grep -q '^memory      [0-9.]* [KM]iB of the .*: it fits$' &&
        [ "$(wc -l <out)" -le 20 ] && ! grep -q "^layer " out &&
        "$AMPTRAIN" -v -c run.ini --check 2>/dev/null | grep -q "^layer "
}
ok "--check answers first what will be trained, on what, for how long, and whether it fits" check_answers
stacks() { (ulimit -s 100 && says 1 "the stack is limited to 100 KiB" "$AMPTRAIN" plan -q -c run.ini); }
ok "a small stack is an error message" stacks

# Files that a command reads are not written over.
mkdir -p kept && cp run.ini tiny.ini kept && cp "$last" kept/in.safetensors &&
    cp "$top_srcdir/tests/golden/version-1/images.pack" kept
untouched() { (cd kept && cksum ./*); }
untouched >before.txt
overwrite() {
    which=$1; shift
    says 2 "is an input of this command ($which)" "$AMPTRAIN" "$@" || return 1
    untouched | diff before.txt -
}
ln kept/in.safetensors kept/linked.safetensors && untouched >before.txt
ok "eval --logits refuses to overwrite the weights" overwrite --weights eval -c kept/run.ini --weights \
    kept/in.safetensors \
    --logits kept/in.safetensors
ok "export refuses to overwrite its input" overwrite --weights export --weights kept/in.safetensors -o \
    kept/in.safetensors
ok "... under another name" overwrite --weights export --weights kept/in.safetensors -o \
    kept/linked.safetensors
ok "pack refuses to overwrite the configuration" overwrite --config pack -c kept/run.ini -o kept/run.ini
ok "... the model" overwrite file pack -c kept/run.ini -o kept/tiny.ini
ok "... its data" overwrite train pack -c kept/run.ini -s data.format=packed -s data.train=kept/images.pack \
    -o kept/images.pack
# Nor is a file of another kind than the command writes, nor a checkpoint.
kind() {
    output=$1; shift
    cp "$output" kind.before
    says 2 "$output: exists and is not a file as '$1' writes it" "$AMPTRAIN" "$@" || return 1
    cmp "$output" kind.before
}
echo mine >mine && cp mine mine.onnx && cp mine mine.svg && cp mine mine.safetensors &&
    cp $last copied.safetensors
ok "average refuses another file" kind mine average run -o mine
ok "... a checkpoint of a run" kind run/checkpoint-4.safetensors average run -o run/checkpoint-4.safetensors
ok "... and a copy of one" kind copied.safetensors average run -o copied.safetensors
ok "export refuses another file" kind mine.safetensors export --weights run -o mine.safetensors
ok "... as ONNX" kind mine.onnx export --weights run -o mine.onnx
ok "... a checkpoint of a run" kind run/checkpoint-4.safetensors export --weights run -o \
    run/checkpoint-4.safetensors
ok "pack refuses another file" kind mine pack -c run.ini -o mine
ok "compare refuses another file" kind mine compare run run -o mine
ok "... and a run's report" kind run/report.html compare run run -o run/report.html
ok "eval --logits refuses another file" kind mine eval -c run.ini --weights run --logits mine
ok "lr refuses another picture" kind mine.svg lr -c run.ini -o mine.svg
kinds() {
    for _ in 1 2; do
        : >empty.npy
        "$AMPTRAIN" average -q run -o own.safetensors &&
            "$AMPTRAIN" export -q --weights run -o own.safetensors &&
            "$AMPTRAIN" export -q --weights run -o own.onnx && "$AMPTRAIN" pack -q -c run.ini -o own.pack &&
            "$AMPTRAIN" compare -q run run -o own.html >/dev/null &&
            "$AMPTRAIN" eval -q -c run.ini --weights run --logits empty.npy || return 1
    done
}
ok "a file of the same kind, or an empty one, is replaced" kinds
replaced() {
    "$AMPTRAIN" export --weights kept/in.safetensors -o out.safetensors 2>/dev/null
    says 0 "out.safetensors: exists and is overwritten" "$AMPTRAIN" export \
        --weights kept/in.safetensors -o out.safetensors
}
ok "the reason names the file" replaced
ok "pack refuses to replace a device" says 2 "/dev/null: cannot be replaced: not a regular file" "$AMPTRAIN" \
    pack -c run.ini \
    -o /dev/null

# Pipes and devices are neither waited for nor read without end.
mkfifo pipe
quick() { timeout 20 "$AMPTRAIN" -q "$@"; }
ok "a configuration that is a pipe" says 2 "cannot read pipe: not a regular file" quick -c pipe
ok "... or a device" says 2 "cannot read /dev/zero: not a regular file" quick -c /dev/zero
ok "a model that is a pipe" says 2 "pipe: not a regular file" quick -c run.ini -s model.file=pipe
ok "plan --spans of a pipe" says 3 "cannot read pipe: not a regular file" timeout 20 "$AMPTRAIN" plan \
    --spans pipe
ok "... or a device" says 3 "cannot read /dev/zero: not a regular file" timeout 20 "$AMPTRAIN" plan --spans \
    /dev/zero
endless() { truncate -s 1T endless.csv &&
    says 3 "too large" timeout 20 "$AMPTRAIN" plan --spans endless.csv; }
ok "... or a huge file" endless
ok "weights that are a pipe" says 5 "not a regular file" timeout 20 "$AMPTRAIN" eval -c run.ini --weights pipe

# The configuration becomes a pipe while a run is under way.
hung_up() {
    cp run.ini later.ini
    "$AMPTRAIN" -c later.ini -o later -s train.epochs=1000000 2>later.log &
    process=$!
    wait_for grep -q "epoch 1/" later.log || return 1
    rm later.ini && mkfifo later.ini
    kill -HUP $process
    wait_for grep -q "cannot reread the configuration" later.log
    found=$?
    kill -TERM $process
    wait $process
    [ $? = 75 ] && [ $found = 0 ]
}
ok "SIGHUP after the configuration became a pipe" hung_up
finish
