# two.sh: for tests of runs on two GPUs, in place of tap.sh and tiny.sh; skips all of them on machines with
# fewer than $least (2). With AMPTRAIN_DEVICE=cpu they run on CPU ranks. Makes run.ini repeatable, on $device,
# of which there are $gpus.
device=${AMPTRAIN_DEVICE:-cuda} least=${least:-2} gpus=2
[ "$device" = cpu ] || gpus=$("$AMPTRAIN" devices | grep -c '^cuda.*capability')
if [ "$gpus" -lt "$least" ]; then
    echo "1..0 # SKIP there are $gpus GPUs, not $least"
    exit 0
fi
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

export XDG_CACHE_HOME="$scratch/cache"
sed -i "s/^device = .*/device = $device\ndeterministic = yes/; s/^every = 3 steps/every = 10 steps/" run.ini
