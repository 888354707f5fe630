#!/bin/sh
# Bash completion: it offers what the program itself names.
. "$top_srcdir/tests/support/tap.sh"
sanitizers_find_nothing_here "a script of the shell"

if ! command -v bash >/dev/null; then
    echo "1..0 # SKIP there is no bash"
    exit
fi

# offers EXPECTED WORD...: completes the last of the words of a command line.
cat >"$scratch/complete" <<'END'
source "$top_srcdir/completions/amptrain"
compopt() { :; }
expected=$1; shift
COMP_WORDS=("$AMPTRAIN" "$@") COMP_CWORD=$#
_amptrain "$AMPTRAIN"
for word in "${COMPREPLY[@]}"; do
    [ "$word" != "$expected" ] || exit 0
done
printf 'offered: %s\n' "${COMPREPLY[*]}"
exit 1
END
offers() { bash "$scratch/complete" "$@"; }

ok "commands" offers predict pre
ok "... all of them" offers summary su
ok "long options" offers --config --co
ok "keys of the configuration" offers train.epochs= -s train.ep
ok "values of --split" offers val eval --split v
ok "passes for --dump=" offers streams plan --dump =
ok "... with a prefix" offers relu_mask plan --dump = rel
ok "... and all" offers all plan --dump = a
ok "passes for --pass" offers fold_maxpool plan --program x.txt --pass fold_m
ok "values of a configuration key" offers resnet20 -s model.arch = resn
ok "... of a choice" offers stop -s data.on_error = s
ok "... of a name" offers cosine -s schedule.name =
ok "... of a precision" offers bf16 -s amp.precision = b
ok "... of a yes/no key" offers yes -s data.shuffle = y
ok "... of --dtype" offers fp16 export --dtype f
ok "data set names for init" offers cifar10 init ci
cd "$top_srcdir" || exit 1
ok "... and folders" offers data init da
ok "configuration files" offers conf/digits.ini -c conf/dig
finish
