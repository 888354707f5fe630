#!/bin/sh
# A page of training images as the network gets them.
. "$top_srcdir/tests/support/tap.sh"

cd "$scratch" || exit 1
draw() { # OPTION... : page.html of digits
    rm -f page.html && "$AMPTRAIN" pictures -q -s data.format=digits -s model.arch=resnet20 "$@" -o page.html
}
pictures() { sed -n 's/.*base64,\([^"]*\)".*/\1/p' page.html; }
ok "images are drawn" draw
pictures >plain
ok "... 64 of them" [ "$(wc -l <plain)" = 64 ]
ok "... with their classes" [ "$(grep -c '<figcaption>[0-9]</figcaption>' page.html)" = 64 ]
ok "... as PNG files" [ "$(head -n 1 plain | base64 -d | dd bs=1 skip=1 count=3 2>/dev/null)" = PNG ]
again() { draw && pictures | cmp - plain; }
ok "... the same ones the next time" again
changed() { draw "$@" && ! pictures | cmp -s - plain; }
key() { changed -s "augment.$1" && grep -q "<td>${1%=*}</td><td>" page.html; }
for one in shear=20 translate=0.2 rotate=20 gamma=1 blur=1 noise=1 random_erasing=1; do
    ok "augment.$one is named, and changes them" key "$one"
done
ok "another epoch has other images" changed --epoch 3
ok "two classes are mixed" draw -s augment.mixup=1
ok "... and both are named" grep -q '<figcaption>[0-9] [0-9]* %, [0-9] [0-9]* %</figcaption>' page.html
mkdir -p cells/images cells/masks && "$top_builddir/tests/support/make_masks" cells two 8 40 40 || exit 1
ok "masks are drawn over images" "$AMPTRAIN" pictures -q -s data.format=folder -s data.train=cells \
    -s data.task=segment -s augment.crop=32 \
    -s model.arch=unet_resnet18 -s augment.rotate=30 -o masks.html
ok "... over several epochs, if there are few" [ "$(grep -c '<figure title="[^"]*images/' masks.html)" = 64 ]
ok "grey images have no colour" says 2 "augment.gray: needs images of 3 channels, not 1" \
    draw -s augment.gray=0.5
ok "limits rise" says 2 "augment.blur" draw -s augment.blur=0.5,2,1
ok "... within reason" says 2 "augment.noise" draw -s augment.noise=0.5,0,2
ok "a probability is at most 1" says 2 "begins with a probability" draw -s augment.gamma=2
ok "a page is HTML" says 2 "must end in .html" "$AMPTRAIN" pictures -q -s data.format=digits -o page.png
echo mine >mine.html
ok "other files are not replaced" says 2 mine.html "$AMPTRAIN" pictures -q -s data.format=digits \
    -s model.arch=resnet20 -o mine.html
finish
