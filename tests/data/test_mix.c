/* Mixup and cutmix: what is mixed with what, in which shares, and how often. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/augment/mix.h"
#include "tests/support/unit.h"

#define TRIALS 20000

static struct random stream(int i) { return random_open(5, PURPOSE_MIX, 1, (uint64_t)i); }

/* Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)), symmetric; and its known shares below 1/10. */
static void beta_has_the_right_distribution(void **state)
{
    static const struct {
        double alpha, below;   /* the distribution's value at 0.1 */
    } cases[] = {{0.2, 0.3493}, {0.5, 0.2048}, {1, 0.1}, {2, 0.028}, {8, 0.00003}};
    for (int k = 0; k < 5; k++) {
        double sum = 0, squares = 0, variance = 1 / (4 * (2 * cases[k].alpha + 1));
        int below = 0, above = 0;
        for (int i = 0; i < TRIALS; i++) {
            struct random random = stream(i);
            double x = mix_beta(cases[k].alpha, &random) - 0.5;
            assert_true(x >= -0.5 && x <= 0.5);
            sum += x, squares += x * x;
            below += x < -0.4, above += x > 0.4;
        }
        assert_true(fabs(sum / TRIALS) < 5 * sqrt(variance / TRIALS));
        assert_true(fabs(squares / TRIALS / variance - 1) < 0.05);
        double slack = 5 * sqrt(cases[k].below / TRIALS) + 1e-3;
        assert_true(fabs((double)below / TRIALS - cases[k].below) < slack);
        assert_true(fabs((double)above / TRIALS - cases[k].below) < slack);
    }
}

static void tiny_parameters_give_whole_images(void **state)
{
    for (int i = 0; i < 1000; i++) {
        struct random random = stream(i);
        double x = mix_beta(1e-7, &random);
        assert_true(x >= 0 && x <= 1 && fmin(x, 1 - x) < 1e-3);
    }
}

/* Element e of image i is 100 i + e. */
#define COUNT 4
#define H 5
#define W 7
#define ELEMENTS (H * W * 2)

static void number_images(float images[COUNT][ELEMENTS])
{
    for (int i = 0; i < COUNT; i++)
        for (int e = 0; e < ELEMENTS; e++) images[i][e] = (float)(100 * i + e);
}

static struct mix_batch batch_of(void *images, enum dtype dtype)
{
    return (struct mix_batch){.images = images, .dtype = dtype, .count = COUNT, .h = H, .w = W, .c = 2};
}

static void mixup_takes_the_image_before(void **state)
{
    struct mix mix = {.together = COUNT, .share = 0.75f};
    for (enum dtype dtype = F32; dtype <= BF16; dtype++) {
        float images[COUNT][ELEMENTS];
        char stored[sizeof images];
        number_images(images);
        dtype_convert(dtype, stored, F32, images, COUNT * ELEMENTS);
        struct mix_batch batch = batch_of(stored, dtype);
        for (int y = H - 1; y >= 0; y--) mix_rows(&mix, &batch, y, 1);
        for (int i = 0; i < COUNT; i++)
            for (int e = 0; e < ELEMENTS; e++) {
                double want = 0.75 * (100 * i + e) + 0.25 * (100 * ((i + COUNT - 1) % COUNT) + e);
                double got = dtype_get(dtype, stored, i * ELEMENTS + e);
                if (fabs(got - want) > (dtype == F32 ? 1e-4 : dtype == F16 ? 0.3 : 3))
                    fail_msg("%s: element %d,%d is %g, not %g", dtype_table[dtype].name, i, e, got, want);
            }
    }
}

static void cutmix_pastes_a_box(void **state)
{
    struct mix mix = {.together = COUNT, .pasted = true, .box = {.y = 1, .x = 2, .h = 3, .w = 4}};
    float images[COUNT][ELEMENTS];
    number_images(images);
    struct mix_batch batch = batch_of(images, F32);
    mix_rows(&mix, &batch, 0, 2);
    mix_rows(&mix, &batch, 2, 3);
    for (int i = 0; i < COUNT; i++)
        for (int e = 0; e < ELEMENTS; e++) {
            int y = e / (2 * W), x = e / 2 % W;
            bool pasted = y >= 1 && y < 4 && x >= 2 && x < 6;
            assert_int_equal(images[i][e], 100 * (pasted ? (i + COUNT - 1) % COUNT : i) + e);
        }
}

/* Each as it would be alone. */
static void micro_batches_are_apart(void **state)
{
    struct mix mix = {.together = COUNT / 2, .share = 0.75f};
    float images[2][COUNT][ELEMENTS];
    for (int apart = 0; apart < 2; apart++) {
        number_images(images[apart]);
        for (int i = 0; i < COUNT; i += apart ? COUNT / 2 : COUNT) {
            struct mix_batch batch = batch_of(images[apart][i], F32);
            if (apart) batch.count = COUNT / 2;
            mix_rows(&mix, &batch, 0, H);
        }
    }
    assert_true(images[0][0][0] == 0.25f * 100 && images[0][2][0] == 0.75f * 200 + 0.25f * 300);
    assert_memory_equal(images[0], images[1], sizeof images[0]);
}

/* The share of the image is 1 less the box's; before the edges cut it, that is Beta's. With alpha 1
 * a box's centre is any pixel: its mean row and column are the middle. */
static void cutmix_boxes_fit_their_share(void **state)
{
    struct mix_settings settings = {.cutmix = 1};
    double share = 0, middle = 0;
    for (int i = 0; i < TRIALS; i++) {
        struct random random = stream(i);
        struct mix mix = mix_draw(&settings, &random, 60, 40);
        assert_true(mix.pasted);
        assert_true(mix.box.y >= 0 && mix.box.x >= 0 && mix.box.h >= 0 && mix.box.w >= 0);
        assert_true(mix.box.y + mix.box.h <= 60 && mix.box.x + mix.box.w <= 40);
        assert_true(fabs(mix.share - (1 - mix.box.h * mix.box.w / 2400.0)) < 1e-6);
        share += mix.share, middle += mix.box.y + mix.box.h / 2.0;
    }
    /* A stretch of length s about a uniform centre keeps s - s^2 / 4 of it: with s = sqrt(1 - u), the
     * mean of (s - s^2/4)^2 over u is 1/2 - 1/5 + 1/48. */
    assert_true(fabs(share / TRIALS - (1 - (1 / 2.0 - 1 / 5.0 + 1 / 48.0))) < 0.015);
    assert_true(fabs(middle / TRIALS - 30) < 0.5);
}

static void both_come_up_equally_often(void **state)
{
    struct mix_settings settings = {.mixup = 0.2, .cutmix = 1};
    int pasted = 0;
    for (int i = 0; i < TRIALS; i++) {
        struct random random = stream(i);
        pasted += mix_draw(&settings, &random, 8, 8).pasted;
    }
    assert_in_range(pasted, TRIALS / 2 - 350, TRIALS / 2 + 350);
    assert_false(mix_is_on(&(struct mix_settings){0}));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beta_has_the_right_distribution),
        cmocka_unit_test(tiny_parameters_give_whole_images),
        cmocka_unit_test(mixup_takes_the_image_before),
        cmocka_unit_test(cutmix_pastes_a_box),
        cmocka_unit_test(micro_batches_are_apart),
        cmocka_unit_test(cutmix_boxes_fit_their_share),
        cmocka_unit_test(both_come_up_equally_often),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
