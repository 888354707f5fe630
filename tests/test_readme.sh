#!/bin/sh
# README: "Your own images", as it says, on synthetic images and in two epochs.
. "$top_srcdir/tests/tap.sh"

cd "$scratch" || exit 1
mkdir build && ln -s "$AMPTRAIN" build/amptrain
ok "images in class folders" "$top_builddir/tests/make_pictures" images
cp images/apple/3.png some.jpg

# Lines that end in a backslash go on in the next one.
sed -n '/^Your own images/,/^On a GPU/p' "$top_srcdir/README" |
    sed -e ':join' -e '/\\$/{N;s/\\\n *//;b join' -e '}' |
    sed -n 's/^    \(build\/amptrain .*mine.*\)/\1/p' >commands
ok "README shows six commands" [ "$(wc -l <commands)" = 6 ]
while read -r command; do
    ok "$command" sh -c "$command"
    sed -i 's/^epochs = .*/epochs = 2/' mine.ini
done <commands
finish
