#!/bin/sh
# Every example in the manual and in README is run as its text stands, in a folder with small data. An
# example of a kind that this does not know is a failure.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "its commands are tested elsewhere"

python=${PYTHON:-python3}
manual=$top_srcdir/man
built=$top_builddir/man
[ -f "$built/amptrain.ini.5" ] || built=$manual

# The folder: configurations, and the data that they name.
mkdir -p "$scratch/box/bin" "$scratch/box/runs" && cd "$scratch/box" || exit 1
cp -R "$top_srcdir/conf" conf && cp conf/imagenet.ini conf/digits.ini . && mv digits.ini my.ini || exit 1
"$top_builddir/tests/support/make_pictures" images || exit 1
cp images/apple/3.png some.jpg
mkdir -p datasets/imagenet datasets/imagenette datasets/cifar10
for name in imagenet/train imagenet/val imagenette/train imagenette/val; do
    ln -s "$PWD/images" "datasets/$name"
done
ln -s box/datasets "$scratch/datasets"      # those of the configurations that are not in conf/
for name in data_batch_1 data_batch_2 data_batch_3 data_batch_4 data_batch_5 test_batch; do
    head -c $((3073 * 20)) /dev/zero >"datasets/cifar10/$name.bin"
done

# Weights of a network for other images, and of 5 classes; a file is known by its contents.
small() { # CLASSES
    rm -rf small && "$AMPTRAIN" -q -s run.device=cpu -s data.format=synthetic -s model.classes="$1" \
        -s model.arch=resnet18 -s augment.crop=32 -s run.max_steps=1 -s train.batch=4 -s data.limit=8 -o small
}
ok "weights" small 10
cp small/checkpoint-last.safetensors resnet18.safetensors
ok "weights of 5 classes" small 5
ok "... exported" "$AMPTRAIN" export -q --weights small -o mine.safetensors

# The commands of examples: amptrain with less to do, on the CPU where there is no GPU, and what starts ranks.
# When CIFAR-10 is trained first, time is up before the end.
cat >bin/amptrain <<'END_OF_SCRIPT'
#!/bin/sh
case "$*" in *cuda*) "$AMPTRAIN" devices | grep -q '^cuda:' || set -- "$@" -s run.device=cpu ;; esac
case "$*" in
init* | average* | --check* | 'plan -c conf'*) ;;
*mine.ini* | *tuned.ini*) set -- "$@" -s augment.crop=64 ;;
*imagenette*) set -- "$@" -s augment.crop=32 -s train.batch=4 ;;
*memory.limit=*maps/*) set -- "$@" -s train.batch=1 ;;
'plan -c imagenet.ini'*) set -- "$@" -s augment.crop=32 -s model.arch=resnet20 ;;
*imagenet*) set -- "$@" -s augment.crop=32 -s model.arch=resnet20 -s train.batch=4 ;;
*cifar10*) set -- "$@" -s model.arch=resnet20 -s train.batch=4 ;;
esac
case "$*" in
'-c conf/cifar10.ini -o runs/cifar10 -s'*) set -- "$@" -s train.epochs=2 -s data.limit=80 -s run.max_time=1s ;;
'-c conf/cifar10.ini'*) set -- "$@" -s train.epochs=2 -s data.limit=80 ;;
-c*) set -- "$@" -s train.epochs=2 -s data.limit=200 -s run.max_steps=3 ;;
bench*) set -- "$@" --steps 2 --warmup 1 ;;
esac
exec "$AMPTRAIN" "$@"
END_OF_SCRIPT
printf '#!/bin/sh\nrm -rf run\nshift 2\nexec "$@"\n' >bin/mpirun
printf '#!/bin/sh\nrm -rf run\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n' >bin/srun
chmod +x bin/amptrain bin/mpirun bin/srun
PATH=$PWD/bin:$PATH
export PATH

# PAGE.N: the Nth block of a page: everything in .EX, and what in .nf is commands.
blocks() { # PAGE
    awk -v to="$scratch/$(basename "$1")." '
        function close_block() {
            if (text != "" && (example || text ~ /(^|\n)(amptrain|mpirun|srun) /))
                printf "%s", text >(to (++count))
            inside = 0; text = ""
        }
        /^\.SH/ { section = $2 }
        /^\.(EE|fi)/ { close_block() }
        inside {
            gsub(/\\-/, "-"); gsub(/\\e/, "\\"); gsub(/\\&/, ""); gsub(/\\\(dq/, "\"")
            text = text $0 "\n"
        }
        section != "SYNOPSIS" && /^\.(EX|nf)/ { inside = 1; example = /EX/ }' "$1"
}

commands() { # FILE: stops at the first that fails, unless the commands look at that themselves
    # shellcheck disable=SC2016 # the words of the example
    if grep -qF '$?' "$1"; then sh "$1"; else sh -e "$1"; fi
}
understood() { # FILE: a network, of which what is left out before or behind is added
    cp "$1" model.ini
    grep -q '^\[input\]' model.ini || printf '[input]\nchannels = 3\nsize = 32\nclasses = 10\n' >>model.ini
    "$AMPTRAIN" summary -s data.format=synthetic -s augment.crop=32 -s model.file=model.ini
}
# answers MESSAGE: the network before it is answered with the message, if it has the mistake.
answers() {
    said=$(cat "$1")
    case $said in
    *"'filter'"*) sed 's/conv input filters/conv input filter/' "$network" ;;
    *"'cov'"*) sed 's/conv2 = conv/conv2 = cov/' "$network" ;;
    *) return 1 ;;
    esac >"${said%%:*}"
    says 2 "$said" "$AMPTRAIN" summary -s data.format=synthetic -s augment.crop=32 \
        -s model.file="${said%%:*}"
}
table() { # a CSV file with the images that it names
    mkdir -p scans && cp images/apple/1.png scans/17.png && cp images/pear/1.png 'scans/18, left.png' &&
        cp "$1" table.csv && "$AMPTRAIN" --check -s data.format=csv -s data.train=table.csv \
        -s augment.crop=32 -s model.arch=resnet20 -s train.batch=2 >out && grep "^images  *2 of 2 classes" out
}
instructions() { # folded in the page; part of what a pass's test expects
    tr '\n' ' ' <"$top_srcdir/tests/dumps/streams.txt" | grep -qF -e "$(tr '\n' ' ' <"$1")"
}
torchvision() { # FILE: with weights that need no network
    { echo 'import torchvision, safetensors.torch' && sed 's/weights="DEFAULT"/weights=None/' "$1"; } \
        >program.py && "$python" program.py
}
# The program for ONNX Runtime, beside predict: the same class unless two are as probable, with the same
# probability but for what a grey level makes of it.
odd=$top_srcdir/tests/build/odd_pictures.py
program() { # FILE
    "$python" "$odd" odd && "$python" "$1" digits.onnx odd/* >/dev/null
}
beside() { # PROGRAM CHANNELS RATE OPTION...
    program=$1 channels=$2 rate=$3; shift 3
    cat >flat.ini <<END_OF_MODEL
[input]
channels = $channels
size = 24
[layers]
flat = flatten input
fc = linear flat units=\$classes
END_OF_MODEL
    rm -rf flat && "$AMPTRAIN" -q -s run.device=cpu -s data.format=folder -s data.train=images \
        -s model.file=flat.ini -s optimizer.name=sgd -s optimizer.lr="$rate" -s optimizer.momentum=0 \
        -s augment.mean=0.4 -s augment.std=0.2 -s train.batch=8 -s train.epochs=1 -s log.tensorboard=no \
        -s run.report=no "$@" -o flat &&
        "$AMPTRAIN" export -q --weights flat --softmax -o flat.onnx &&
        "$AMPTRAIN" predict -q --weights flat odd/* >ours && "$python" "$program" flat.onnx odd/* >theirs &&
        "$python" "$odd" compare ours theirs
}
has() { "$python" -c "import $1" 2>/dev/null; }

example() { # FILE
    name="$(basename "$1"): $(grep -v '^\[\|^#' "$1" | head -n 1)"
    case $(head -n 1 "$1") in
    'amptrain '* | 'mpirun '* | '#!/bin/sh') ok "$name" commands "$1" ;;
    'torchrun '*) skip "$name" "it takes several hosts: test_ranks_tcp.sh" ;;
    'find '*)
        if command -v mogrify >/dev/null; then ok "$name" commands "$1"; else
            skip "$name" "there is no mogrify"; fi ;;
    '[input]' | '[layers]' | '[block:'*) network=$1; ok "$name" understood "$1" ;;
    *.ini:[0-9]*:*) ok "$name" answers "$1" ;;
    '[data]' | '# A network '*) ok "$name" "$AMPTRAIN" --check -c "$1" ;;
    path,label,*) ok "$name" table "$1" ;;
    [0-9]*' op '*) ok "$name" instructions "$1" ;;
    'import json, sys') if has numpy,onnxruntime,PIL; then ok "$name" program "$1" && onnx=$1; else
        skip "$name" "python has no numpy, onnxruntime and PIL"; fi ;;
    *torchvision*) if has torchvision,safetensors; then ok "$name" torchvision "$1"; else
        skip "$name" "python has no torchvision and safetensors"; fi ;;
    *) ok "$name: what is this?" false ;;
    esac
}
for page in "$manual/amptrain.1" "$built/amptrain.ini.5" "$built/amptrain-model.5" "$manual/amptrain-ir.7" \
    "$manual/amptrain-json.5" "$manual/amptrain-pack.5" "$manual/amptrain-parallel.7"; do
    blocks "$page"
    for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24; do
        block=$scratch/$(basename "$page").$number
        [ ! -f "$block" ] || example "$block"
    done
    [ ! -f "$scratch/$(basename "$page").25" ] || ok "$page has more examples than this looks at" false
done
if [ -n "${onnx-}" ]; then
    # Channels, a learning rate after which probabilities still differ, crop, val_resize or -, another option.
    while read -r channels rate crop resize other; do
        [ "$resize" = - ] || other="augment.val_resize=$resize $other"
        # shellcheck disable=SC2046 # one word each
        ok "amptrain(1)'s program beside predict: $channels channels, crop $crop, resize $resize, $other" \
            beside "$onnx" "$channels" "$rate" -s augment.crop="$crop" $(printf -- '-s %s ' $other)
        figure "$(tail -n 1 "$scratch/words")"
    done <<'END_OF_CASES'
3 0.1 24 28 augment.flip=0
1 0.1 24x37 27x40 augment.flip=0
3 0.01 24x37 - augment.fit=letterbox
1 0.01 31 - augment.fit=letterbox
3 0.01 24x37 - augment.fit=stretch
3 0.1 25 0 data.orientation=ignore
3 0.1 24 28 augment.interpolation=bicubic
1 0.1 24x37 27x40 augment.interpolation=bicubic
1 0.1 24x37 0 augment.flip=0
END_OF_CASES
fi

# README's commands, in order, in a folder of their own. Lines that end in a backslash go on in the next one;
# two blanks are followed by an explanation.
mkdir "$scratch/readme" && cd "$scratch/readme" || exit 1
ln -s ../box/bin build && cp -R ../box/images ../box/some.jpg . && cp ../box/resnet18.safetensors resnet18.pth
sed -e ':join' -e '/\\$/{N;s/\\\n *//;b join' -e '}' "$top_srcdir/README" |
    sed -n 's/^    \(build\/amptrain .*\)/\1/p' | sed 's/  .*//' >commands
mkdir -p cells/images cells/masks && "$top_builddir/tests/support/make_masks" cells two 8 96 96 || exit 1
cp -r cells/images new-photographs
ok "README shows its commands" [ "$(wc -l <commands)" -ge 13 ]
while read -r command; do ok "README: $command" sh -c "$command"; done <commands

# The tutorials' commands, likewise, with the library and the module as they are before they are installed.
mkdir "$scratch/tutorials" && cd "$scratch/tutorials" || exit 1
mv ../readme/images ../readme/cells ../readme/new-photographs ../readme/some.jpg ../readme/resnet18.pth . &&
    cp "$top_srcdir"/examples/*.c . || exit 1
cat >../box/bin/pkg-config <<END_OF_SCRIPT
#!/bin/sh
echo "-I$(cd "$top_srcdir" && pwd)/src/api -L$(cd "$top_builddir" && pwd) -lamptrain" \
    "-Wl,-rpath,$(cd "$top_builddir" && pwd)"
END_OF_SCRIPT
chmod +x ../box/bin/pkg-config
PYTHONPATH=$top_srcdir/python AMPTRAIN_LIBRARY=$(echo "$top_builddir"/libamptrain.so.?)
export PYTHONPATH AMPTRAIN_LIBRARY PYTHONDONTWRITEBYTECODE=yes
for page in photographs masks questions; do
    sed -n '/<pre class="commands">/,/<\/pre>/{/pre>/d;/^<pre/d;s/&gt;/>/g;p;}' "$top_srcdir/site/$page.html" >commands
    ok "the tutorial has commands: $page" [ "$(wc -l <commands)" -ge 8 ]
    while read -r command; do
        case $command in
        cc*) command -v cc >/dev/null || { skip "$page: $command" "no compiler"; continue; } ;;
        ./*) [ -x "${command%% *}" ] || { skip "$page: $command" "no compiler"; continue; } ;;
        python3*) command -v python3 >/dev/null || { skip "$page: $command" "no python3"; continue; } ;;
        esac
        ok "$page: $command" sh -c "$command"
    done <commands
done

# The site, whose page on memory runs its own commands (here without limits that are hard to meet). Every link
# within it leads somewhere, and every element is closed.
linked() {
    (cd html && grep -oE '(href|src)="[^"]*"' ./*.html | sed 's/.*="//; s/"$//' | sort -u) >links
    [ "$(wc -l <links)" -gt 20 ] || return 1
    while read -r link; do
        case $link in http* | \#*) ;; *) [ -s "html/${link%%#*}" ] || { echo "missing: $link"; return 1; } ;; esac
    done <links
}
closed() {
    awk '
        BEGIN { split("meta link img br hr col", names); for (i in names) empty[names[i]] = 1 }
        FNR == 1 { if (depth) exit 1; }
        {
            while (match($0, /<\/?[a-z][a-z0-9]*/)) {
                name = substr($0, RSTART + 1, RLENGTH - 1); $0 = substr($0, RSTART + RLENGTH)
                if (name ~ /^\//) {
                    if (stack[depth--] != substr(name, 2)) { print FILENAME ": " name; exit bad = 1 }
                } else if (!(name in empty)) stack[++depth] = name
            }
        }
        END { exit bad || depth }' html/*.html
}
if command -v mandoc >/dev/null; then
    ok "make html" sh "$top_srcdir/site/make" "$top_srcdir" "$top_builddir" html "$scratch/box/bin/amptrain"
    ok "... all of its links lead somewhere" linked
    ok "... and its elements are closed" closed
    ok "... with six memory maps" [ "$(ls html/maps/*.svg | wc -l)" = 6 ]
    ok "... the measurements, and the manual" grep -qF '<h2>Training steps on one GPU</h2>' html/speed.html
else
    skip "make html" "mandoc is not installed"
fi
finish
