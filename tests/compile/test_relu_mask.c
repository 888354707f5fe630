/* test_relu_mask: masks that backward reads instead of activations change no bit of a step. */
#include "tests/support/net.h"
#include "tests/support/unit.h"

/* Two batch norms with a residual and relu, and one whose channels are no whole bytes of bits. */
static const char residuals[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=16 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=16 kernel=3 pad=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "add2 = add bn2 relu1\n"
    "relu2 = relu add2\n"
    "conv3 = conv relu2 filters=16 kernel=3 pad=1 bias=no\n"
    "bn3 = batchnorm conv3\n"
    "add3 = add bn3 relu2\n"
    "relu3 = relu add3\n"
    "conv4 = conv relu3 filters=12 kernel=1\n"
    "conv5 = conv conv4 filters=12 kernel=1 bias=no\n"
    "bn5 = batchnorm conv5\n"
    "add5 = add bn5 conv4\n"
    "relu5 = relu add5\n"
    "pool = globalavgpool relu5\n"
    "fc = linear pool units=5\n";
#define MICRO_BATCHES 2
#define MASKED 2

/* Forward writes the mask, and backward reads it and no y. */
static int count_masks(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int mask = operand(at, OPERAND_MASK, 0);
        if (mask < 0 || at->phase != PHASE_BACKWARD) continue;
        const struct value *bits = &program->values[mask], *y = &program->values[operand_y(at)];
        assert_int_equal(bits->bytes * 16, y->bytes);
        assert_false(instruction_reads(at, operand_y(at)));
        count++;
    }
    return count;
}

static void masked_is_plain(bool reference, struct net_options options, struct net_pass pass, int masks)
{
    struct net_pair pair;
    options.reference = reference;
    pass.name = "relu_mask";
    net_pair_open(&pair, residuals, &options, pass);
    int wanted = pair.pass.code_of(op_find("batchnorm"))->supports ? masks * MICRO_BATCHES : 0;
    assert_int_equal(count_masks(&pair.plain.program), 0);
    assert_int_equal(count_masks(&pair.changed.program), wanted);
    net_pair_compare(&pair);
}

static struct net_options options_of(enum dtype storage, int stream_count)
{
    return (struct net_options){.batch = 4, .micro_batches = MICRO_BATCHES, .storage = storage,
                                .training = true,
                                .streams = stream_count, .merged = true};
}

static void test_reference(void **state)
{
    masked_is_plain(true, options_of(F16, 1), (struct net_pass){0}, MASKED);
    masked_is_plain(true, options_of(BF16, 2), (struct net_pass){0}, MASKED);
    masked_is_plain(true, options_of(F32, 1), (struct net_pass){0}, 0);
}

static void test_on_device(void **state)
{
    masked_is_plain(false, options_of(BF16, 1), (struct net_pass){0}, MASKED);
    masked_is_plain(false, options_of(F16, 2), (struct net_pass){0}, MASKED);
}

/* Beside what is made again and what waits on the host. */
static void test_with_others(void **state)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct net_pass pass = {.others = true, .seed = seed};
        masked_is_plain(true, options_of(F16, 1 + (int)seed % 2), pass, MASKED);
        masked_is_plain(false, options_of(F16, 2), pass, MASKED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_on_device),
        cmocka_unit_test(test_with_others),
    };
    return cmocka_run_group_tests_name("relu_mask", tests, NULL, NULL);
}
