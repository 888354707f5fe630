#!/bin/sh
# predict: a record for each image, in the order in which they were named, in batches of any size.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
cat >pictures.ini <<'END'
[data]
format = folder
train = pictures
[model]
arch = resnet20
[train]
batch = 16
epochs = 1
[loader]
workers = 3
[log]
tensorboard = no
END
"$AMPTRAIN" -q -c pictures.ini -o run -s run.report=no || exit 1
predict() { "$AMPTRAIN" predict -q --weights run "$@"; }
count=$(find pictures -name '*.png' | wc -l)

predict --batch 1 pictures >alone
ok "every image of a folder has a line" sh -c 'test "$(wc -l <alone)" = '"$count"
named() { cut -d : -f 1 "$1"; }
# The network's sums may differ in their last bits between batches; the order may not.
in_order() {
    predict --batch "$1" pictures >some || return 1
    named alone >one; named some | cmp - one &&
        paste -d ' ' alone some | awk '{ d = $3 - $6; if (d > 0.0002 || d < -0.0002 || $2 != $5) exit 1 }'
}
for batch in 2 5 7 64 1000; do ok "in batches of $batch: the same, in the same order" in_order $batch; done
ok "a batch of no images" says 2 "--batch" predict --batch 0 pictures

# Images that cannot be read are records in their places.
one=pictures/apple/1.png two=pictures/pear/2.png
head -c 60 $one >half.png
mkdir none
mixed="$one half.png nowhere.png none $two"
fields() { sed 's/[{}"]//g; s/^.*image://; s/,.*//' | tr '\n' ' '; }
ok "unreadable images are records in text" sh -c '
    "$AMPTRAIN" predict -q --weights run --batch 2 '"$mixed"' >out 2>err; [ $? = 3 ] || exit 1
    cat out err
    test "$(cut -d : -f 1 out | tr "\n" " ")" = "'"$mixed"' " && sed -n 3p out |
        grep -qx "nowhere.png: error: No such file or directory" && grep -c ": error: " out | grep -qx 3 &&
        grep -qF "half.png: " err && grep -qF "; 2 more of 5 images" err'
ok "... in JSON" sh -c '
    "$AMPTRAIN" predict -q --weights run --json '"$mixed"' >out 2>err; [ $? = 3 ] || exit 1
    cat out
    grep -qxF " {\"image\":\"nowhere.png\",\"error\":\"No such file or directory\"}," out &&
        grep -c "\"error\":" out | grep -qx 3 && grep -c "\"class\":" out | grep -qx 2'
ok "... in CSV" sh -c '
    "$AMPTRAIN" predict -q --weights run --csv --top 2 '"$mixed"' >out 2>err; [ $? = 3 ] || exit 1
    cat out
    head -1 out | grep -qx "image,rank,class,index,probability,error" &&
        grep -qxF "\"nowhere.png\",,,,,\"No such file or directory\"" out &&
        grep -c "^\"'$one'\",[12],\"[a-z]*\",[01],[0-9.e-]*,\$" out | grep -qx 2 && test "$(wc -l <out)" = 8'
ok "an exit code of 0 says that all are classified" predict $one $two
ok "--json or --csv" says 2 "exclude" predict --json --csv $one

# A folder leaves no image out in silence: what has an image's name is a record, as when it is named singly,
# and other files are counted.
mkdir -p odd/deep && cp $one odd/good.png && cp $one "odd/upper.PNG"
echo '<!DOCTYPE html><title>404</title>' >odd/page.jpg
head -c 3000 "$AMPTRAIN" >odd/bytes.png
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n' >odd/deep/pointer.jpeg
{ echo; cat $one; } >odd/newline.webp
: >odd/empty.jpg
echo notes >odd/notes.txt && printf 'GIF89a' >odd/picture.gif
each_of() { # COMMAND...: its records of the folder are those of the files named one by one
    "$@" odd >folder.out 2>folder.err
    a=$?
    find odd -type f ! -name '*.txt' ! -name '*.gif' | LC_ALL=C sort >names
    # shellcheck disable=SC2046
    "$@" $(cat names) >files.out 2>files.err
    b=$?
    LC_ALL=C sort folder.out | sed 's/^[[ ]//; s/[],]$//' >one; LC_ALL=C sort files.out | sed 's/^[[ ]//; s/[],]$//' >two
    cat one folder.err
    [ $a = 3 ] && [ $b = 3 ] && [ "$(grep -c 'rror' one)" = 5 ] && cmp one two &&
        grep -q "odd: images that are neither PNG, JPEG, WebP nor TIFF are skipped: 1, such as picture.gif (GIF)" \
            folder.err && grep -q ", and other files: 1$" folder.err
}
ok "unreadable images of a folder are records" each_of "$AMPTRAIN" predict --weights run
explains() { rm -rf explained && "$AMPTRAIN" explain --weights run -o explained "$@"; }
ok "... of explain" each_of explains
embedded() {
    exits_with 3 "$AMPTRAIN" embed --weights run odd -o odd.npy 2>err || true
    cat err; grep -q "odd/bytes.png: .*; 4 more of 7 images cannot be used" err && [ "$(od -An -c -j 10 -N 100 odd.npy | tr -d ' \n' | grep -o "(7,")" = "(7," ]
}
ok "... of embed" embedded
ln -s . odd/loop && ln -s .. odd/deep/up && ln -s self.png odd/self.png
loops() {
    "$AMPTRAIN" predict --weights run odd >out 2>err
    cat err out
    [ "$(grep -c : out)" = 8 ] && grep -q "odd/loop: links to a folder that it is in, and is skipped" err &&
        grep -q "^odd/self.png: error: .*symbolic links" out
}
ok "links that loop do not fail a folder" loops

# Names in CSV are no formulas, and their records are one line.
formula="=cmd|'x'!A0.png"
cp $one "$formula"
broken=$(printf 'a\nb\033[31m,"q".png')
cp $one "./$broken"
ok "names in CSV are harmless" sh -c '
    "$AMPTRAIN" predict -q --weights run --csv "$1" "$2" >out && cat -v out
    test "$(wc -l <out)" = 3 && grep -qF "\"'"'"'=cmd|" out &&
        grep -qF "\"a\\x0ab\\x1b[31m,\"\"q\"\".png\"," out' sh "$formula" "$broken"

# Standard input.
ok "two files on standard input are not one in silence" says 0 "bytes follow the image" sh -c '
    cat '"$one $two"' | "$AMPTRAIN" predict -q --weights run -'
ok "... one is one" sh -c '"$AMPTRAIN" predict -q --weights run - <'"$one"' 2>err && ! [ -s err ]'
ok "... it is read once" says 2 "2 times" predict - -
ok "... for lists, too" says 2 "2 times" predict - @-
ok "... it may be closed" says 3 "-: " sh -c '"$AMPTRAIN" predict -q --weights run - <&-'

# Lists.
predict $one $two pictures/apple >wanted
printf '%s\r\n\n%s\npictures/apple' $one $two >list
ok "a list of files" sh -c '"$AMPTRAIN" predict -q --weights run @list | cmp - wanted'
ok "... with a byte order mark" sh -c '{ printf "\357\273\277"; cat list; } >marked &&
    "$AMPTRAIN" predict -q --weights run @marked | cmp - wanted'
ok "... on standard input" sh -c '"$AMPTRAIN" predict -q --weights run @- <list | cmp - wanted'
ok "... that is not there" says 3 "nothing: No such file" predict @nothing $one
ok "... without a line" says 3 "none/empty: names no image" sh -c '
    : >none/empty; "$AMPTRAIN" predict -q --weights run @none/empty'
ok "... that is a folder" says 3 "pictures: " predict @pictures
ok "... with zero bytes" says 3 "one path a line" sh -c '
    find pictures -name "1.png" -print0 | "$AMPTRAIN" predict -q --weights run @-'
finish
