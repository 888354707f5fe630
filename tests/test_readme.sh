#!/bin/sh
# README: "Your own images", as it says, on synthetic images and with a smaller image size.
# Two epochs of few images want a smaller learning rate: with the real one activations leave fp16.
. "$top_srcdir/tests/tap.sh"

cd "$scratch" || exit 1
mkdir build && ln -s "$AMPTRAIN" build/amptrain
ok "images in class folders" "$top_builddir/tests/make_pictures" images
cp images/apple/3.png some.jpg

# The example configuration, with README's [data] in place of its own.
{
    sed -e '/^\[data\]/,/^$/d' -e 's/^\(crop\|val_crop\) .*/\1 = 32/' -e 's/^val_resize .*/val_resize = 36/' \
        -e 's/^epochs .*/epochs = 2/' -e 's/^batch .*/batch = 8/' -e 's/^lr .*/lr = 0.01/' "$top_srcdir/conf/imagenette.ini"
    sed -n '/^    \[data\]/,/^$/s/^    //p' "$top_srcdir/README" | sed "s|/home/me|$scratch|"
} >mine.ini

# Lines that end in a backslash go on in the next one.
sed -n '/^Your own images/,/^On a GPU/p' "$top_srcdir/README" |
    sed -e ':join' -e '/\\$/{N;s/\\\n *//;b join' -e '}' |
    sed -n 's/^    \(build\/amptrain .*mine.*\)/\1/p' >commands
ok "README shows four commands" [ "$(wc -l <commands)" = 4 ]
while read -r command; do
    ok "$command" sh -c "$command"
done <commands
finish
