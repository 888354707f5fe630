#!/bin/sh
# README: "Your own images", as it says, on synthetic images and in two epochs.
. "$top_srcdir/tests/tap.sh"
sanitizers_find_nothing_here "its commands are tested elsewhere"

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

# Weights of the network that README names, of a run on small images; a file is known by its contents.
"$AMPTRAIN" -q -s data.format=digits -s model.arch=resnet18 -s augment.crop=32 -s augment.resize=32 \
    -s run.max_steps=1 -s train.batch=4 -s data.limit=4 -o small &&
    cp small/checkpoint-last.safetensors resnet18.pth
sed -n 's/^    \(build\/amptrain .*tuned.*\)/\1/p' "$top_srcdir/README" >commands
ok "README shows two commands for pretrained weights" [ "$(wc -l <commands)" = 2 ]
while read -r command; do
    ok "$command" sh -c "$command"
    sed -i 's/^epochs = .*/epochs = 2/' tuned.ini
done <commands
finish
