# Code for each instruction set, our own and oneDNN's, on a CPU that pretends to have no more: the ops,
# images, and whole networks. The most that this CPU has is what all other tests use; what it has not is
# skipped by name.
. "$top_srcdir/tests/support/tap.sh"

has() { grep -m 1 '^flags' /proc/cpuinfo | grep -qw "$1"; }

run_under() {
    echo "ONEDNN_MAX_CPU_ISA=$1 AMPTRAIN_CASE=${AMPTRAIN_CASE-} AMPTRAIN_OP=${AMPTRAIN_OP-} $2"
    env ONEDNN_MAX_CPU_ISA="$1" AMPTRAIN_DEVICE=cpu "$top_builddir"/tests/*/"$2"
}

# under LEVEL FLAG PROGRAM...: on a CPU that has FLAG, and with it more than LEVEL.
under() {
    level=$1 flag=$2; shift 2
    if ! has "$flag"; then
        skip "$level" "this CPU has no $flag"
        return
    fi
    for program; do ok "$program under $level" run_under "$level" "$program"; done
}

# The vectors of our own code and of oneDNN's. Gradients by differences are those of the reference code alone.
# For the sanitizers, one run of each kernel is enough.
vectors() {
    AMPTRAIN_CASE='!gradient'
    programs='test_machine test_ops test_known_ops test_loss test_product test_conv_batchnorm test_optimizers
        test_images test_image test_augment test_mix test_policy test_golden test_traces'
    if [ -n "${AMPTRAIN_SANITIZED-}" ]; then
        AMPTRAIN_CASE=variants
        programs='test_ops test_product test_optimizers test_images test_image'
    fi
    export AMPTRAIN_CASE
    # shellcheck disable=SC2086 # one word a program
    under "$@" $programs
}

# Products in bf16.
products() {
    AMPTRAIN_CASE=bf16 AMPTRAIN_OP=conv,linear
    export AMPTRAIN_CASE AMPTRAIN_OP
    under "$@" test_ops test_product test_traces
}

case $(uname -m) in
    x86_64)
        [ -n "${AMPTRAIN_SANITIZED-}" ] || vectors SSE41 avx2
        vectors AVX2 avx512bw
        products AVX512_CORE avx512_bf16
        products AVX512_CORE_BF16 amx_bf16 ;;
    *) skip "instruction sets" "there is one on this machine" ;;
esac
finish
