#!/bin/sh
# Labels from tables (data.format=csv): they are those of a folder, in every command; groups; files that are
# missing.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
sed -e 's/^format.*/format = folder/' -e '/^format/a train = pictures\nval = pictures' \
    -e 's/^crop.*/crop = 16/' -e 's/^batch.*/batch = 8/' -e 's/^epochs.*/epochs = 2/' \
    -e 's/^precision.*/precision = fp32/' -e '/^init_scale/d' -e '/^growth/d' -e 's/tiny.ini/coloured.ini/' \
    -e 's/^pad.*/resize = 20/' run.ini >folder.ini
sed -e 's/^channels.*/channels = 3/' -e 's/^size.*/size = 16/' tiny.ini >coloured.ini
sed -e 's/^format.*/format = csv/' -e 's/= pictures/= labels.csv/' folder.ini >csv.ini

# In the order of a folder's images.
table() {
    echo path,label
    find pictures -name '*.png' | LC_ALL=C sort | sed -E 's,pictures/([a-z]*)/.*,&\,\1,'
}
table >labels.csv
csv() { # FOLDER [OPTION...]
    folder=$1; shift
    "$AMPTRAIN" -q -c csv.ini -o "$folder" "$@"
}

### A table is as good as a folder

"$AMPTRAIN" -q -c folder.ini -o a || exit 1
csv b || exit 1
ok "a table trains as the folder does" same a b
windows() {
    sed -e 's/$/\r/' -e '1s/^/\xef\xbb\xbf/' -e 's/,/;/' labels.csv >windows.csv
    csv c -s data.train=windows.csv -s data.val=windows.csv && same a c
}
ok "... also with a byte order mark, semicolons, and CR LF" windows
columns() {
    sed -e '1s/.*/path,apple,pear/' -e '2,$s/apple$/1,0/' -e '2,$s/pear$/0,1/' labels.csv >columns.csv
    csv d -s data.train=columns.csv -s data.val=columns.csv -s data.task=classify && same a d
}
ok "... and as columns of 0 and 1" columns
stopped() {
    exits_with 75 csv e -s run.max_time=0.0001 && csv e -r -s run.max_time=0 && same a e
}
ok "it goes on exactly after a stop" stopped
elsewhere() {
    mkdir -p far && cp -r pictures far && cp labels.csv far &&
        csv f -s data.train=far/labels.csv -s data.val=far/labels.csv && same a f
}
ok "paths begin at the table's folder" elsewhere
changed() {
    sed 's,3.png.apple,3.png\,pear,' labels.csv >changed.csv
    says 3 "was of class 'apple' and is now of 'pear'" csv b -r -s data.train=changed.csv -s train.epochs=3
}
ok "a label that has changed since is named" changed
packs() {
    "$AMPTRAIN" pack -q -c csv.ini -o table.pack && "$AMPTRAIN" pack -q -c folder.ini -o folder.pack &&
        cmp table.pack folder.pack
}
ok "pack writes the same file" packs
evaluates() {
    "$AMPTRAIN" eval --weights a --val labels.csv --json >one.json &&
        "$AMPTRAIN" eval --weights a --val pictures --json >two.json && cmp one.json two.json
}
ok "eval knows a table by its name" evaluates
inits() {
    "$AMPTRAIN" init labels.csv -o new.ini && grep -q '^format = csv' new.ini &&
        grep -q '48 training images in 2 classes' new.ini && "$AMPTRAIN" -q --check -c new.ini
}
ok "init writes a configuration for it" inits

### Tables as people have them: they train as the folder does

mkdir -p theirs/train_images && for file in pictures/*/*.png; do
    cp "$file" "theirs/train_images/$(echo "${file#pictures/}" | tr / _)"
done
sed -e '1s/.*/,id_code,kind,age/' -e '2,$s|pictures/\(.*\)/\(.*\).png.\(.*\)|7,\1_\2,\3,31.5|' labels.csv >theirs/train.csv
kaggle() { csv "$@" -s data.train=theirs/train.csv -s data.val=theirs/train.csv -s data.root=theirs/train_images \
    -s data.extension=.png -s data.columns=image:id_code,label:kind; }
kaggle_trains() { kaggle kg && same a kg; }
ok "columns, extension and root of a table" kaggle_trains
ok "... resumed where it lies elsewhere" sh -c 'cp -r theirs moved && rm -rf theirs.gone && mv theirs theirs.gone &&
    "$AMPTRAIN" -q -c csv.ini -o kg -r -s data.train=moved/train.csv -s data.val=moved/train.csv \
        -s data.root=moved/train_images -s data.extension=.png -s data.columns=image:id_code,label:kind; status=$?
    mv theirs.gone theirs; exit $status'
inits_theirs() {
    "$AMPTRAIN" init theirs/train.csv -o theirs.ini && cat theirs.ini && grep -q '^columns = image:id_code,label:kind' theirs.ini &&
        grep -q '^extension = .png' theirs.ini && grep -q '^root = theirs/train_images' theirs.ini &&
        grep -q '48 training images in 2 classes' theirs.ini && "$AMPTRAIN" -q --check -c theirs.ini
}
ok "init finds all of it" inits_theirs
sed -e '1s/$/,site/' -e '2,$s/$/,north/' -e '3,9s/north/south/' theirs/train.csv >theirs/sites.csv
ok "... or asks" says 2 "which column is the label? It may be 'kind', 'site'; --columns image:id_code,label:NAME" \
    "$AMPTRAIN" init theirs/sites.csv
asked() { "$AMPTRAIN" init theirs/sites.csv --columns image:id_code,label:site | grep -q "^columns = image:id_code,label:site"; }
ok "... and is told" asked
sed -e '1s/.*/path,apple,pear,taken/' -e '2,$s/apple$/1,0,morning/' -e '2,$s/pear$/0,1,evening/' labels.csv >wide.csv
ok "a column that is no label is left out" says 0 "wide.csv: columns left out, which are no labels: 'taken'" \
    "$AMPTRAIN" -c csv.ini --check -s data.train=wide.csv -s data.val=wide.csv
ok "... which is said once" sh -c '[ "$(grep -c "left out" err)" = 1 ]'
sed -e 1d -e 's/\(.*\),\(.*\)/{"file_name": "\1", "label": "\2"}/' labels.csv >labels.jsonl
lines_train() { csv jl -s data.train=labels.jsonl -s data.val=labels.jsonl && same a jl; }
ok "lines of JSON" lines_train
sed 1d labels.csv | awk -F , '
    { images = images (NR > 1 ? "," : "") "{\"id\":" NR ",\"file_name\":\"" $1 "\"}"
      links = links (NR > 1 ? "," : "") "{\"image_id\":" NR ",\"category_id\":" ($2 == "pear") "}" }
    END { print "{\"images\":[" images "],\"annotations\":[" links "],\"categories\":[{\"id\":1,\"name\":\"pear\"}," \
        "{\"id\":0,\"name\":\"apple\"}]}" }' >labels.json
coco_trains() { csv co -s data.train=labels.json -s data.val=labels.json && same a co; }
ok "COCO's file" coco_trains
ok "no such column" says 3 "train.csv:1: data.columns: there is no column kin; the header has" \
    csv w -s data.train=theirs/train.csv -s data.columns=image:id_code,label:kin
ok "no such role" says 2 "data.columns: 'lable' is not ROLE:COLUMN" \
    csv w -s data.train=theirs/train.csv -s data.columns=image:id_code,lable:kind

### Groups: three apples and three pears of the same number, each

sed -E -e '1s/$/,group/' -e '2,$s,.*/([0-9]*)\.png.*,&\,\1,' labels.csv |
    awk -F, -v OFS=, 'NR > 1 {$3 = int($3 / 3)} {print}' >groups.csv
held() { # OPTION...: paths of the images held out, by the groups in them
    rm -rf g
    csv g -s data.train=groups.csv -s data.val= "$@" -s run.max_steps=1 &&
        grep -o '"val_images":[0-9]*' g/metrics.jsonl
}
fractions() { [ "$(held -s data.val_fraction=0.25)" = '"val_images":12' ]; }
ok "a fourth of the groups is held out" fractions
folds() {
    for fold in 1 2 3 4; do [ "$(held -s data.fold=$fold/4)" = '"val_images":12' ] || return 1; done
}
ok "folds have as many" folds
ok "more folds than groups" says 2 "too few images to split, or all are of one group" \
    csv g2 -s data.train=groups.csv -s data.val= -s data.fold=1/9

### Tables that are wrong

ok "no such table" says 3 "none.csv: No such file" csv h -s data.train=none.csv
ok "a folder" says 3 "pictures: is a folder; name the table in it" csv h -s data.train=pictures
sed 's,pictures,photos,' labels.csv >photos.csv
ok "no file is there" says 3 "photos.csv:2: photos/apple/0.png: No such file or directory; nor is any other \
file there: paths are relative to the table's folder or data.root, and data.extension is added" csv h -s data.train=photos.csv
sed '5s,pictures,photos,' labels.csv >some.csv
ok "a missing file is a warning" says 0 "some.csv:5: photos/apple/11.png: No such file or directory; 1 of 48 \
files are missing" csv i -s data.train=some.csv
ok "... or an error" says 3 "photos/apple/11.png" csv j -s data.train=some.csv -s data.on_error=stop
ok "labels of another kind" says 3 "labels.csv:1: no column 'value' for data.task = regress" sh -c \
    "sed -e s/label/value/ -e 's/apple$/1/' -e 's/pear$/2/' labels.csv >value.csv &&
     exec '$AMPTRAIN' -q -c csv.ini -o k -s data.train=value.csv"
ok "another class in the validation images" says 3 "class 'plum' is not one of the 2 known ones" sh -c \
    "sed 's/pear$/plum/' labels.csv >plums.csv && exec '$AMPTRAIN' -q -c csv.ini -o k -s data.val=plums.csv"
finish
