#!/bin/sh
# Small files that promise, or become, more than a machine has: they are refused at once, in little memory.
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

"$top_builddir/tests/support/make_pictures" pictures || exit 1
# 4 GiB of address space are a hundred times what is needed; sanitizers take terabytes.
limited() (
    [ -n "${AMPTRAIN_SANITIZED-}" ] || ulimit -v 4194304
    exec timeout -k 5 60 "$AMPTRAIN" -q -c run.ini -s train.batch=2 -s run.max_steps=1 "$@"
)
refused() { # WORDS FORMAT FILE
    says 3 "$1" limited -s data.format="$2" -s data.train="$3"
}
number() { # N: four bytes, the highest first
    for shift in 24 16 8 0; do printf "\\$(printf %03o $(($1 >> shift & 255)))"; done
}

### gzip

mkdir mnist
images=mnist/train-images-idx3-ubyte.gz
# 256 images of 8192 x 8192 in 16 MB, so that the length is possible.
promise() { { number 2051; number 256; number 8192; number 8192; head -c "$1" /dev/zero; } | gzip -1; }
promise 1000 >$images
ok "images that cannot be in a file of its size" refused "$images: truncated: its header promises" mnist mnist
truncate -s 64M $images
if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
    skip "... or would not be in memory" "sanitizers need more than the limit"
else
    ok "... or would not be in memory" refused "$images: not enough memory for its 17179869184 bytes" mnist mnist
fi
{ number 2051; number 4; number 8; number 8; head -c 300000000 /dev/zero; } | gzip -1 >$images
ok "more than a header claims is not unpacked" refused "$images: longer than its header claims" mnist mnist
head -c 200000000 /dev/zero | tr '\0' 7 | gzip -1 >digits.csv.gz
ok "text without an end" refused "digits.csv.gz: over 64 MiB of text" digits digits.csv.gz

### tar

for name in 1 2 3; do
    cp pictures/apple/$name.png $name.png && echo $((name % 2)) >$name.cls || exit 1
done
tar cf good.tar 1.png 1.cls 2.png 2.cls
cp good.tar hole.tar
if truncate -s 200G hole.tar 2>said; then
    ok "an archive that ends in a hole of 200 GB" refused "hole.tar: more than 32 MiB of zeros before byte" \
        packed hole.tar
    cp good.tar member.tar
    # the size of the first member becomes 100 GiB, by GNU's numbers of base 256
    printf '\200\0\0\0\0\0\0\31\0\0\0\0' | dd of=member.tar bs=1 seek=124 conv=notrunc 2>said
    ok "a member whose header is damaged" refused "member.tar: the tar header at byte 0 is damaged" packed \
        member.tar
else
    skip "an archive that ends in a hole of 200 GB" "$(cat said)"
fi
finish
