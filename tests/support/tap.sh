# tap.sh: what the shell tests share; each begins with `. "$top_srcdir/tests/support/tap.sh"`.
# The environment (see Makefile.am) has AMPTRAIN, top_srcdir and top_builddir. Tests work in $scratch.

cases=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' INT TERM

# ok NAME COMMAND...: a case that passes if the command succeeds; if not, its words are shown.
ok() {
    name=$1; shift
    cases=$((cases + 1))
    if "$@" >"$scratch/words" 2>&1 </dev/null; then
        echo "ok $cases - $name"
    else
        echo "not ok $cases - $name"
        sed 's/^/# /' "$scratch/words"
    fi
}

# exits NAME STATUS COMMAND...: a case that passes if the command exits with STATUS.
exits() {
    name=$1 wanted=$2; shift 2
    ok "$name" exits_with "$wanted" "$@"
}
exits_with() {
    wanted=$1; shift
    got=0
    "$@" || got=$?
    [ "$got" = "$wanted" ] || { echo "exit status $got, not $wanted"; return 1; }
}

# says STATUS WORDS COMMAND...: it exits with STATUS and its standard error has WORDS.
says() {
    wanted=$1 words=$2; shift 2
    got=0
    "$@" >out 2>err || got=$?
    cat err
    [ "$got" = "$wanted" ] || { echo "exit status $got, not $wanted"; return 1; }
    grep -qF -e "$words" err || { echo "not said: $words"; return 1; }
}

# skip NAME REASON: a case that cannot be tried here.
skip() {
    cases=$((cases + 1))
    echo "ok $cases - $1 # SKIP $2"
}

# rounds SHORT LONG: how often a test is to try something: what AMPTRAIN_ROUNDS says, LONG under `make
# torture` (tests/torture.mk), or SHORT, of which sanitizers take half.
rounds() {
    if [ -n "${AMPTRAIN_ROUNDS-}" ]; then echo "$AMPTRAIN_ROUNDS"
    elif [ -n "${AMPTRAIN_TORTURE-}" ]; then echo "$2"
    elif [ -n "${AMPTRAIN_SANITIZED-}" ]; then echo "$((($1 + 1) / 2))"
    else echo "$1"
    fi
}

# figure WORD...: a figure for whoever reads the results: a comment of TAP's.
figure() { echo "# $*"; }

finish() { echo "1..$cases"; }

# sanitizers_find_nothing_here WHY: ends the script in a build with sanitizers.
sanitizers_find_nothing_here() {
    [ -n "${AMPTRAIN_SANITIZED-}" ] || return 0
    skip "all cases" "$1"
    finish
    exit
}
