# two.sh: for tests of runs on two GPUs, in place of tap.sh and tiny.sh; skips all of them on machines with
# fewer. With AMPTRAIN_DEVICE=cpu they run on CPU ranks. Makes run.ini repeatable, on $device.
device=${AMPTRAIN_DEVICE:-cuda}
if [ "$device" != cpu ] && [ "$("$AMPTRAIN" devices | grep -c '^cuda.*capability')" -lt 2 ]; then
    echo "1..0 # SKIP there are not two GPUs"
    exit 0
fi
. "$top_srcdir/tests/support/tap.sh"
. "$top_srcdir/tests/support/tiny.sh"

export XDG_CACHE_HOME="$scratch/cache"
sed -i "s/^device = .*/device = $device\ndeterministic = yes/; s/^every = 3 steps/every = 10 steps/" run.ini
