#!/bin/sh
# A checkpoint is enough: eval and predict take network, preprocessing and classes from it, export keeps them,
# and what contradicts them is said.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e \
    '/^format/a train = pictures\nval_fraction = 0.25\norientation = ignore' \
    -e 's/^crop.*/crop = 28/' -e 's/^pad.*/mean = 0.3,0.4,0.5\nstd = 0.2,0.2,0.3/' \
    -e 's/^batch.*/batch = 4/' -e 's/^every = 3 steps/every = 1/' -e 's/^precision.*/precision = fp32/' \
    -e 's/tiny.ini/coloured.ini/' run.ini >pictures.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 32/' tiny.ini >coloured.ini
"$AMPTRAIN" -q -c pictures.ini -o run || exit 1
"$AMPTRAIN" -q -c run.ini -s train.epochs=1 -o grey || exit 1
for weights in run run/checkpoint-last.safetensors; do
    "$AMPTRAIN" eval -q -c pictures.ini --weights $weights --json >"${weights##*/}.figures"
    "$AMPTRAIN" predict -q -c pictures.ini --weights $weights --json "$scratch"/pictures/*/?.png \
        >"${weights##*/}.classes"
done
mkdir elsewhere && cd elsewhere || exit 1
rm ../coloured.ini

figures() { "$AMPTRAIN" eval -q --json "$@" >figures && cmp figures "../$expected.figures"; }
# Threads are as many as the configuration has: sums of a batch depend on their number.
classes() {
    "$AMPTRAIN" predict -q --json -s run.threads=1 "$@" ../pictures/*/?.png >found &&
        sed "s,\.\./,$scratch/," found | cmp - "../$expected.classes"
}

expected=run
ok "eval of a run folder, without a configuration" figures --weights ../run
ok "... predict" classes --weights ../run
ok "... uses its best checkpoint" figures --weights ../run/checkpoint-best.safetensors
expected=checkpoint-last.safetensors
ok "eval of a checkpoint" figures --weights ../run/checkpoint-last.safetensors
ok "... predict" classes --weights ../run/checkpoint-last.safetensors
expected=run
ok "... with --check" says 0 "using the averaged" "$AMPTRAIN" eval --weights ../run --check
exits "a folder without a checkpoint" 5 "$AMPTRAIN" eval -q --weights .
printf '\2\0\0\0\0\0\0\0{}' >bare.safetensors
ok "weights of no network" says 5 "belongs to a network that is none of those" "$AMPTRAIN" eval -q --weights \
    bare.safetensors
whole() { "$AMPTRAIN" eval -q --json --weights ../run --val ../pictures | grep '^{"images":48,'; }
ok "eval of other images" whole
packed() { "$AMPTRAIN" pack -q -c ../pictures.ini -s model.file= -s data.val_fraction=0 -o ../pictures.pack &&
    "$AMPTRAIN" eval -q --json --weights ../run --val ../pictures.pack | grep '^{"images":48,'; }
ok "... packed" packed
mv ../pictures ../gone
ok "... must be named if the run's have gone" says 3 "pictures: the run's images are not there; --val PATH" \
    "$AMPTRAIN" eval --weights ../run
mv ../gone ../pictures
ok "... for a run of another format" says 3 "class 'apple' is not one of the 10 known ones (0, 1, 2, 3" \
    "$AMPTRAIN" eval --weights ../grey --val ../pictures
ok "... unless -s names the format" says 3 "pictures/digits.csv.gz: No such file" \
    "$AMPTRAIN" eval --weights ../grey --val ../pictures -s data.format=digits
ok "--val with a path that a configuration holds in quotation marks" says 3 "../pictures ;: No such file" \
    "$AMPTRAIN" eval --weights ../run --val "../pictures ;"
flipped() {
    "$AMPTRAIN" eval -q --json --flip --weights ../run --val ../pictures --logits flip.npy >flip &&
        "$AMPTRAIN" eval -q --json --weights ../run --val ../pictures --logits plain.npy >plain &&
        grep '^{"images":48,' flip && ! cmp flip.npy plain.npy &&
            [ "$(wc -c <flip.npy)" = "$(wc -c <plain.npy)" ]
}
ok "eval of images and their mirror images" flipped

# The configuration that the run wrote and one that leaves out how images are brought to the network say
# nothing else than the checkpoint.
cat >bare.ini <<'END'
[run]
seed = 3
[data]
format = folder
train = ../pictures
val_fraction = 0.25
[train]
batch = 4
END
quiet() { figures "$@" 2>said && cat said && [ ! -s said ]; }
ok "eval with a configuration without preprocessing" quiet -c bare.ini --weights ../run
ok "... predict" classes -c bare.ini --weights ../run
sed 's/^file = .*/file =/' ../run/config.ini >own.ini
ok "... with the run's own configuration" quiet -c own.ini --weights ../run
ok "... predict" classes -c own.ini --weights ../run

other() { "$AMPTRAIN" eval -q --weights ../run "$@"; }
trained=": the weights were trained with augment"
ok "a different mean is used, with a message" says 0 "$trained.mean = 0.3,0.4,0.5, not 0,0,0 (-s)" other \
    -s augment.mean=0,0,0
ok "... a different size" says 0 "$trained.val_resize = 32, not 40 (-s)" other -s augment.val_resize=40
figures_of_other() { figures --weights ../run -s model.arch=resnet20; }
ok "a different network is not used, with a message" says 0 "which is used instead: layer 'conv1'" \
    figures_of_other
exits "another number of classes" 2 other -s model.classes=7

printf 'PK\003\004 and so on' >network.pth
ok "half a file of PyTorch" says 5 "network.pth: is truncated: it has no end of a zip archive" "$AMPTRAIN" predict \
    --weights network.pth ../pictures
ok "export as ONNX" "$AMPTRAIN" export -q --weights ../run -o mine.onnx
ok "... which holds no weights for predict" says 5 "mine.onnx: is ONNX, not safetensors" "$AMPTRAIN" predict \
    --weights mine.onnx ../pictures
ok "export" "$AMPTRAIN" export -q --weights ../run -o lean.safetensors
ok "... can be used by predict" classes --weights lean.safetensors
ok "... and by eval with data" figures --weights lean.safetensors -s run.seed=3 -s data.format=folder \
    -s data.train=../pictures -s data.val_fraction=0.25 -s train.batch=4
names_of_timm() { # of a network that its rules for VGG fit
    cat >vgg_small.ini <<'END'
[input]
size = 8
channels = 1
[layers]
features.0   = conv input filters=2 kernel=3 pad=1
relu         = relu features.0
pool         = flatten relu
classifier.0 = linear pool units=4
classifier.6 = linear classifier.0 units=$classes
END
    "$AMPTRAIN" -q -s data.format=digits -s data.limit=40 -s train.epochs=1 -s train.batch=20 \
        -s model.file=vgg_small.ini -s run.device=cpu -o vgg &&
        "$AMPTRAIN" export -q --weights vgg --names timm -o timm.safetensors &&
        grep -aq '"head.fc.weight"' timm.safetensors && grep -aq '"pre_logits.fc1.bias"' timm.safetensors &&
        "$AMPTRAIN" eval -q --weights vgg --logits here.npy -s run.device=cpu >/dev/null &&
        "$AMPTRAIN" eval -q --weights timm.safetensors --logits there.npy -s run.device=cpu \
            -s data.format=digits >/dev/null && cmp here.npy there.npy
}
ok "export under timm's names, which eval translates back" names_of_timm
ok "... but not under those of a library that lacks the network" says 2 "does not have the network" \
    "$AMPTRAIN" export --weights vgg --names hf -o hf.safetensors
ok "... or is unknown" says 2 "must be torchvision, timm, hf, smp or nnunet, not 'keras'" "$AMPTRAIN" export \
    --weights vgg --names keras -o keras.safetensors
other_eps() { # of a network that its rules for MobileNetV3 fit
    cat >mobilenet_v3_none.ini <<'END'
[input]
size = 8
channels = 1
[layers]
features.0.0 = conv input filters=2 kernel=3 bias=no
features.0.1 = batchnorm features.0.0 eps=0.001
pool         = globalavgpool features.0.1
classifier.3 = linear pool units=$classes
END
    for eps in auto 1e-5; do
        "$AMPTRAIN" -q -s data.format=digits -s data.limit=20 -s train.epochs=1 -s train.batch=10 \
            -s model.file=mobilenet_v3_none.ini -s model.norm_eps=$eps -s run.device=cpu -o eps-$eps || return 1
    done
    says 0 "norms of this network have eps 0.001, those of timm's 1e-05: its results will differ" \
        "$AMPTRAIN" export --weights eps-auto --names timm -o eps.safetensors &&
        says 0 "8 tensors" "$AMPTRAIN" export --weights eps-1e-5 --names timm -o eps.safetensors &&
        ! grep "will differ" err
}
ok "a library whose norms have another eps" other_eps
whole_exported() {
    "$AMPTRAIN" eval -q --json --weights lean.safetensors --val ../pictures | grep '^{"images":48,'
}
ok "... a folder of them is recognised" whole_exported
ok "... without data, what is missing is said" says 2 "name them with --val PATH or -c FILE" \
    "$AMPTRAIN" eval --weights lean.safetensors

last=../run/checkpoint-last.safetensors
ok "average of one file" "$AMPTRAIN" average -q ../run/checkpoint-best.safetensors -o one.safetensors
"$AMPTRAIN" export -q --weights ../run -o lone.safetensors
ok "... gives its weights" same_tensors one.safetensors lone.safetensors
ok "average of a run folder" "$AMPTRAIN" average -q ../run -o one.safetensors
ok "... takes its best checkpoint" same_tensors one.safetensors lone.safetensors
ok "... which a folder must have" says 5 "there is no checkpoint in this folder" "$AMPTRAIN" average ../pictures \
    -o none.safetensors
ok "... of one file twice" "$AMPTRAIN" average -q lone.safetensors lone.safetensors -o two.safetensors
ok "... gives its weights as well" same_tensors two.safetensors lone.safetensors
"$AMPTRAIN" average -q lone.safetensors lone.safetensors $last -o three.safetensors
ok "... of different files differs" sh -c '! cmp -s three.safetensors lone.safetensors'
ok "... and can be evaluated" "$AMPTRAIN" eval -q --weights three.safetensors -s data.format=folder \
    -s data.train=../pictures -s data.val_fraction=0.25
ok "... of two networks" says 5 "averaged with lone.safetensors: there are 10 classes" \
    "$AMPTRAIN" average lone.safetensors ../grey/checkpoint-last.safetensors -o none.safetensors
ok "... refuses to overwrite an input" says 2 "is an input of this command" "$AMPTRAIN" average \
    one.safetensors \
    -o one.safetensors

# Folders, standard input, several classes.
in_folder() {
    "$AMPTRAIN" predict -q --weights ../run "$@" ../pictures >found &&
        "$AMPTRAIN" predict -q --weights ../run "$@" ../pictures/*/*.png | sort >each && sort found |
            cmp - each
}
ok "predict of a folder" in_folder
ok "... with --top" in_folder --top 2
ok "... in JSON" sh -c '"$AMPTRAIN" predict -q --weights ../run --json --top 2 ../pictures | tr -d "\n" |
    grep -q "^\[{.*,\"top\":\[{\"class\":.*}\]}\]$"'
ln -s ../../pictures/apple ../pictures/pear/link
ln -s nowhere.png ../pictures/pear/broken.png
linked() { [ "$("$AMPTRAIN" predict -q --weights ../run ../pictures/pear | grep -c /link/)" -gt 1 ]; }
ok "... follows links" linked
ok "... and reports those to nothing" says 3 "pear/broken.png: No such file" \
    "$AMPTRAIN" predict -q --weights ../run ../pictures/pear
rm ../pictures/pear/link ../pictures/pear/broken.png
mkdir none && echo text >none/text
ok "... without images" says 3 "contains no PNG, JPEG, WebP or TIFF images" "$AMPTRAIN" predict -q --weights \
    ../run none
from_input() {
    "$AMPTRAIN" predict -q --weights ../run - <../pictures/apple/1.png | sed 's/^-//' >one &&
        "$AMPTRAIN" predict -q --weights ../run ../pictures/apple/1.png | sed 's/^[^:]*//' | cmp - one
}
ok "predict of standard input" from_input
ok "... that cannot be read" says 3 "-: Is a directory" sh -c '
    "$AMPTRAIN" predict -q --weights ../run - <.'
ok "... that is not an image" says 3 "-: " sh -c 'echo nothing | "$AMPTRAIN" predict -q --weights ../run -'
ok "eval with a batch larger than the data set" "$AMPTRAIN" eval -q --weights ../run \
    -s train.batch=4000
(cd .. && sed 's/^file.*/&\nclasses = 12/' run.ini >twelve.ini &&
    "$AMPTRAIN" -q -c twelve.ini -s train.epochs=1 -s amp.precision=fp32 -o twelve) || exit 1
ok "eval of a network with more classes than the data have" "$AMPTRAIN" eval -q --weights ../twelve

# A picture that Exif says to turn, and the same without its Exif, which is 36 bytes long.
turned=$top_srcdir/tests/fuzz/corpus/jpeg/30a1fcf2
{ head -c 2 "$turned" && tail -c +39 "$turned"; } >stored.jpg
cp "$turned" turned.jpg
class_of() { "$AMPTRAIN" predict -q --json "$@" | sed 's/.*"class"//'; }
as_stored() { [ "$(class_of "$@" turned.jpg)" = "$(class_of "$@" stored.jpg)" ]; }
ok "Exif's orientation is ignored as in training" as_stored --weights ../run
ok "... with a configuration that leaves it out" as_stored -c bare.ini --weights ../run
ok "... after export" as_stored --weights lean.safetensors
exits "... otherwise not" 1 as_stored --weights ../run -s data.orientation=exif
ok "... with a message" says 0 "the weights were trained with data.orientation = ignore, not exif (-s)" \
    class_of --weights ../run -s data.orientation=exif turned.jpg
leaks() { tr '\\' '\n' <lean.safetensors | grep -aE "^n(train|lr|seed|output)|pictures"; }
exits "... and has no other metadata of the run" 1 leaks

cd "$scratch" && sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 32/' tiny.ini >coloured.ini
again() {
    "$AMPTRAIN" -q -r -o run -s train.epochs=5 &&
        tail -n 1 run/metrics.jsonl | grep '"reason":"done","epochs":5'
}
ok "-r -o DIR alone resumes a run" again
finish
