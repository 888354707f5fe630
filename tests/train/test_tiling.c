/* test_tiling: whole images of any size in tiles give what plain loops over all tiles give, in batches that
 * images share; metrics are those of all pixels, whatever the ranks. Runs on the device of the test. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "evaluate/evaluate_masks.h"
#include "explain/tiling.h"
#include "graph/model.h"
#include "kernels/images/blend.h"
#include "tests/support/place.h"
#include "tests/support/unit.h"

#define C 3
#define CLASSES 4
#define H 12
#define W 16

/* Pictures and masks that are made up. */

static const struct image_size sizes[] = {
    {1, 1}, {1, 40}, {33, 1}, {H - 1, W - 1}, {H, W}, {H + 1, W + 1}, {5, 90}, {64, 48}, {12, 16}, {31, 70},
    {2, 8300}, {66000, 1},               /* several strips; more rows than come back at once */
};
#define IMAGES ((int64_t)(sizeof sizes / sizeof *sizes))
#define SMALL (IMAGES - 2)
#define BAD 3

static uint8_t byte_of(int64_t index, int place)
{
    return (uint8_t)(((uint32_t)place * 2654435761u + (uint32_t)index * 40503u) >> 21);
}

static uint8_t truth_of(int64_t index, int place)
{
    uint8_t truth = byte_of(index + 100, place) % (CLASSES + 1);
    return truth == CLASSES ? MASK_IGNORE : truth;
}

static bool read_picture(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                         struct image *image, int *label, struct reason *reason)
{
    struct box part;
    int h = sizes[index].h, w = sizes[index].w;
    if (dataset->state && index == BAD) return because(reason, "picture %d is bad", (int)index);
    if (index % 2 && !choice->choose(choice->context, h, w, &part, reason)) return false;
    if (!image_resize_buffer(image, h, w, C, reason)) return false;
    for (int i = 0; i < h * w * C; i++) image->pixels[i] = byte_of(index, i);
    *label = 0;
    return true;
}

static char *mask_path(const struct dataset *dataset, int64_t index) { return text_copy("mask"); }

static bool read_mask(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                      struct reason *reason)
{
    struct image mask = {0};
    bool good = image_resize_buffer(&mask, sizes[index].h, sizes[index].w, 1, reason);
    for (int i = 0; good && i < mask.h * mask.w; i++) mask.pixels[i] = truth_of(index, i);
    good = good && image_encode_png(&mask, bytes, count, reason);
    image_free(&mask);
    return good;
}

static const struct format_masks masks = {.path = mask_path, .read_file = read_mask};
static const struct format format = {.name = "pictures", .read = read_picture, .masks = &masks};

/* A network of one convolution. */

struct fixture {
    struct settings settings;
    struct session session;
    struct store store;
    struct step step;
    struct mask_classes classes;
    struct dataset dataset;
    float weights[CLASSES * C * 9], bias[CLASSES];
};

static void open_network(struct fixture *f, const char *model, int batch, struct image_size tile)
{
    static const struct augment augment = {.channels = C, .mean = {0.5, 0.4, 0.3}, .std = {0.2, 0.3, 0.4}};
    const char *sets[] = {"data.format=synthetic"};
    struct session *session = &f->session;
    *f = (struct fixture){0};
    assert_int_equal(settings_load(NULL, sets, 1, &f->settings), OK);
    mask_classes_numbers(CLASSES, NULL, 0, true, &f->classes);
    f->dataset = (struct dataset){.format = &format, .count = IMAGES, .classes = CLASSES, .c = C,
                                  .target = TARGET_MASK, .masks = &f->classes};
    *session = (struct session){
        .settings = &f->settings, .device = place_open(2), .tile_batch = batch,
        .data = {.channels = C, .classes = CLASSES, .target = TARGET_MASK, .augment = augment,
                 .val = {.dataset = &f->dataset, .count = SMALL, .h = tile.h, .w = tile.w}},
        .hyper = {.precision = &precision_table[PRECISION_FP32], .batch = 1, .stages = 1, .replicas = 1,
                  .micro_batches = 1},
    };
    struct model_options options = {.classes = CLASSES, .dropout = -1, .size_h = tile.h, .size_w = tile.w,
                                    .outputs = OUTPUTS_OF_PIXELS};
    assert_int_equal(model_load_text(&options, "net", model, &session->graphs.training), OK);
    session->graphs.evaluation = session->graphs.training;
    session->data.bad = bad_images_new(session->data.opened, false);
    struct store_options storing = {.low = F32};
    assert_int_equal(store_open(session->device, &session->graphs.training, &storing, &f->store), OK);
    assert_int_equal(store_init(&f->store, 3), OK);
    assert_int_equal(step_open(session, STEP_EVALUATION, &f->store, &f->step), OK);
}

static void open_fixture(struct fixture *f, int batch)
{
    static const char model[] = "[input]\nchannels = 3\nsize = 12\n[layers]\nhead = conv input filters=4 "
                                "kernel=3 pad=1\n";
    open_network(f, model, batch, (struct image_size){H, W});
    assert_int_equal(store_read(&f->store, 0, STORE_MASTER, f->weights), OK);
    assert_int_equal(store_read(&f->store, 1, STORE_MASTER, f->bias), OK);
    for (int i = 0; i < CLASSES * C * 9; i++) f->weights[i] *= 3;
    assert_int_equal(store_write(&f->store, 0, STORE_MASTER, f->weights), OK);
}

static void close_fixture(struct fixture *f)
{
    step_close(&f->step);
    store_close(&f->store);
    graph_free(&f->session.graphs.training);
    bad_images_free(f->session.data.bad);
    device_close(f->session.device);
    mask_classes_free(&f->classes);
    settings_free(&f->settings);
}

/* The input of the network, beyond whose tile lie zeros. */
static double input_of(const struct fixture *f, const struct image *image, int y, int x, int row, int column,
                       int c)
{
    if (row < 0 || row >= H || column < 0 || column >= W) return 0;
    int at = blend_reflect(y + row, image->h) * image->w + blend_reflect(x + column, image->w);
    return (image->pixels[at * C + c] / 255.0 - f->session.data.augment.mean[c]) /
           f->session.data.augment.std[c];
}

/* Adds the probabilities of a tile at y, x to the pixel of it. */
static void add_plainly(const struct fixture *f, const struct image *image, int y, int x, int row, int column,
                        bool mirrored, double weight, double *p)
{
    double logits[CLASSES], sum = 0;
    for (int k = 0; k < CLASSES; k++) {
        logits[k] = (double)f->bias[k];
        for (int i = 0; i < 9 * C; i++) {
            int dy = i / C / 3 - 1, dx = i / C % 3 - 1, c = i % C;
            logits[k] += (double)f->weights[((k * C + c) * 3 + dy + 1) * 3 + (mirrored ? -dx : dx) + 1] *
                         input_of(f, image, y, x, row + dy, column + dx, c);
        }
        sum += exp(logits[k]);
    }
    for (int k = 0; k < CLASSES; k++) p[k] += weight * exp(logits[k]) / sum;
}

static void blend_plainly(const struct fixture *f, const struct image *image, double overlap, bool mirrored,
                          int y, int x, double *p)
{
    int down = blend_count(image->h, H, overlap), across = blend_count(image->w, W, overlap);
    double weights = 0;
    for (int k = 0; k < CLASSES; k++) p[k] = 0;
    for (int i = 0; i < down * across; i++) {
        int top = blend_position(image->h, H, down, i / across);
        int left = blend_position(image->w, W, across, i % across);
        int row = y - top, column = x - left;
        if (row < 0 || row >= H || column < 0 || column >= W) continue;
        double v = (row - (H - 1) / 2.0) / H * 8, u = (column - (W - 1) / 2.0) / W * 8;
        double weight = fmax(exp(-(u * u + v * v) / 2), 0.001);
        for (int m = 0; m <= mirrored; m++)
            add_plainly(f, image, top, left, row, column, m, weight, p);
        weights += weight * (1 + mirrored);
    }
    for (int k = 0; k < CLASSES; k++) p[k] /= weights;
}

struct checked {
    const struct fixture *f;
    const struct tiling_options *options;
    int64_t taken, problems;
    _Atomic int64_t wrong;
    int64_t cells[CLASSES * CLASSES];
    double loss;
    int64_t counted;
};

/* On a thread that read it; asserts are the main thread's. */
static void check_image(void *context, const struct whole_image *image)
{
    struct checked *checked = context;
    double p[CLASSES], loss = 0;
    checked->taken++;
    if (image->problem) {
        checked->problems++;
        checked->wrong += image->place != BAD;
        return;
    }
    checked->wrong += image->left != 0;
    for (int i = 0; i < image->h * image->w; i++) {
        int best = 0;
        blend_plainly(checked->f, &image->image, 0.5, checked->options->mirrored,
                      (int)((i / image->w + 0.5) * image->image.h / image->h),
                      (int)((i % image->w + 0.5) * image->image.w / image->w), p);
        for (int k = 0; k < CLASSES; k++) {
            best = p[k] > p[best] ? k : best;
            if (image->probabilities)
                checked->wrong += fabs((double)image->probabilities[i * CLASSES + k] - p[k]) > 5e-6;
        }
        checked->wrong += p[best] - p[image->classes[i]] > 5e-6;
        uint8_t truth = image->mask.pixels ? image->mask.pixels[i] : MASK_IGNORE;
        if (truth >= CLASSES) continue;
        checked->cells[truth * CLASSES + image->classes[i]]++;
        loss -= log(p[truth]);
        checked->counted++;
    }
    checked->loss += loss;
    checked->wrong += fabs(image->loss - loss) > 1e-4 * (1 + loss);
}

static void run_tiles(struct fixture *f, int64_t count, struct image_size resize, bool mirrored,
                      bool with_masks)
{
    const struct tiling_options options = {.session = &f->session, .step = &f->step, .mirrored = mirrored};
    struct checked checked = {.f = f, .options = &options};
    const struct whole_images_options reading = {
        .dataset = &f->dataset, .count = count, .ranks = 1, .resize = resize, .masks = with_masks,
        .outputs = f->session.keeps_probabilities ? CLASSES : 0, .threads = 1, .take = check_image,
        .context = &checked};
    struct whole_images *images;
    struct tiling *tiling;
    assert_int_equal(whole_images_open(&reading, &images), OK);
    assert_int_equal(tiling_open(&options, &tiling), OK);
    assert_int_equal(tiling_run(tiling, images), OK);
    assert_int_equal(whole_images_close(images), OK);
    tiling_close(tiling);
    assert_int_equal(checked.taken, count);
    assert_int_equal(checked.problems, f->dataset.state != NULL);
    assert_int_equal(checked.wrong, 0);
}

static void test_images(void **state)
{
    static const int batches[] = {1, 3, 8};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        struct fixture f;
        open_fixture(&f, batches[i]);
        f.session.keeps_probabilities = i == 1;
        f.dataset.state = i == 2 ? &f : NULL;
        run_tiles(&f, i < 2 ? SMALL : IMAGES, (struct image_size){0}, i == 1, i != 1);
        close_fixture(&f);
    }
}

static void test_resized(void **state)
{
    struct fixture f;
    open_fixture(&f, 4);
    run_tiles(&f, SMALL, (struct image_size){9, 9}, false, true);
    run_tiles(&f, SMALL, (struct image_size){23, 23}, true, true);
    close_fixture(&f);
}

static void test_metrics(void **state)
{
    struct fixture f;
    struct evaluation evaluation;
    const struct evaluate_options options = {.views = {.mirrored = true}};
    const struct tiling_options tiles = {.mirrored = true};
    struct checked checked = {.f = &f, .options = &tiles};
    open_fixture(&f, 5);
    assert_int_equal(evaluate_masks(&f.session, &f.session.data.val, &f.step, &options, &evaluation), OK);
    for (int64_t i = 0; i < SMALL; i++) {
        struct whole_image image = {.h = sizes[i].h, .w = sizes[i].w, .image = {.h = sizes[i].h}};
        double p[CLASSES];
        image.image.w = image.w;
        image.image.pixels = memory_new((size_t)(image.h * image.w), C);
        for (int k = 0; k < image.h * image.w * C; k++) image.image.pixels[k] = byte_of(i, k);
        for (int k = 0; k < image.h * image.w; k++) {
            int best = 0, truth = truth_of(i, k);
            if (truth >= CLASSES) continue;
            blend_plainly(&f, &image.image, 0.5, true, k / image.w, k % image.w, p);
            for (int c = 1; c < CLASSES; c++) best = p[c] > p[best] ? c : best;
            checked.cells[truth * CLASSES + best]++;
            checked.loss -= log(p[truth]);
            checked.counted++;
        }
        free(image.image.pixels);
    }
    int64_t different = 0;
    double iou = 0, dice = 0, right = 0;
    for (int i = 0; i < CLASSES * CLASSES; i++) different += llabs(checked.cells[i] - evaluation.pixels[i]);
    assert_true(different <= 2);                 /* of pixels with two classes that are as probable */
    for (int c = 0; c < CLASSES; c++) {
        double truth = 0, predicted = 0, both = (double)evaluation.pixels[c * CLASSES + c];
        for (int i = 0; i < CLASSES; i++) {
            truth += (double)evaluation.pixels[c * CLASSES + i];
            predicted += (double)evaluation.pixels[i * CLASSES + c];
        }
        iou += both / (truth + predicted - both) / CLASSES;
        dice += 2 * both / (truth + predicted) / CLASSES;
        right += both;
    }
    assert_int_equal(evaluation.images, SMALL);
    assert_true(fabs(evaluation.loss - checked.loss / (double)checked.counted) < 1e-5);
    assert_true(fabs(evaluation.metrics[0] - iou) < 1e-12 && fabs(evaluation.metrics[1] - dice) < 1e-12);
    assert_true(fabs(evaluation.metrics[2] - right / (double)checked.counted) < 1e-12);
    evaluation_free(&evaluation);
    close_fixture(&f);
}

/* Seams: the whole picture as a single tile, beside tiles. A network sees so many pixels around each one, so
 * that a tile is right but near its edges within the picture; and each pixel's probabilities are off by no
 * more than the weight that such tiles have of all that are blended there. */

#define SEES 7                               /* two convolutions of 7x7, and one of 3x3 */
#define LARGE 7                              /* the picture of 64x48 pixels */

static const char seeing[] = "[input]\nchannels = 3\nsize = 12\n[layers]\n"
                             "first = conv input filters=8 kernel=7 pad=3\nrelu1 = relu first\n"
                             "second = conv relu1 filters=8 kernel=7 pad=3\nrelu2 = relu second\n"
                             "head = conv relu2 filters=4 kernel=3 pad=1\n";

static void keep_probabilities(void *context, const struct whole_image *image)
{
    size_t bytes = (size_t)image->h * (size_t)image->w * CLASSES * sizeof(float);
    float **kept = context;
    if (image->probabilities) *kept = memcpy(memory_new(1, bytes), image->probabilities, bytes);
}

/* [64][48][CLASSES] of the picture, for free. */
static float *see(struct image_size tile)
{
    struct fixture f;
    struct whole_images *images;
    struct tiling *tiling;
    float *kept = NULL;
    open_network(&f, seeing, 4, tile);
    for (int i = 0; i < f.session.graphs.training.param_count; i += 2) {     /* distinct classes */
        float values[8 * 8 * 49];
        assert_int_equal(store_read(&f.store, i, STORE_MASTER, values), OK);
        for (size_t k = 0; k < sizeof values / sizeof *values; k++) values[k] *= 3;
        assert_int_equal(store_write(&f.store, i, STORE_MASTER, values), OK);
    }
    f.session.keeps_probabilities = true;
    static const int64_t subset[] = {LARGE};
    const struct tiling_options options = {.session = &f.session, .step = &f.step};
    const struct whole_images_options reading = {
        .dataset = &f.dataset, .subset = subset, .count = 1, .ranks = 1, .outputs = CLASSES, .threads = 1,
        .take = keep_probabilities, .context = &kept};
    assert_int_equal(whole_images_open(&reading, &images), OK);
    assert_int_equal(tiling_open(&options, &tiling), OK);
    assert_int_equal(tiling_run(tiling, images), OK);
    assert_int_equal(whole_images_close(images), OK);
    tiling_close(tiling);
    close_fixture(&f);
    assert_non_null(kept);
    return kept;
}

/* The share of the weights at a place that tiles have whose edges within the picture are as near as SEES. */
static double wrong_share(struct image_size tile, int y, int x)
{
    int down = blend_count(sizes[LARGE].h, tile.h, 0.5), across = blend_count(sizes[LARGE].w, tile.w, 0.5);
    double all = 0, wrong = 0;
    for (int i = 0; i < down * across; i++) {
        int top = blend_position(sizes[LARGE].h, tile.h, down, i / across);
        int left = blend_position(sizes[LARGE].w, tile.w, across, i % across);
        int row = y - top, column = x - left;
        if (row < 0 || row >= tile.h || column < 0 || column >= tile.w) continue;
        double v = (row - (tile.h - 1) / 2.0) / tile.h * 8, u = (column - (tile.w - 1) / 2.0) / tile.w * 8;
        double weight = fmax(exp(-(u * u + v * v) / 2), 0.001);
        bool near = (top > 0 && row < SEES) || (top + tile.h < sizes[LARGE].h && row >= tile.h - SEES) ||
                    (left > 0 && column < SEES) ||
                    (left + tile.w < sizes[LARGE].w && column >= tile.w - SEES);
        all += weight;
        wrong += near ? weight : 0;
    }
    return wrong / all;
}

static int best_of(const float *p)
{
    int best = 0;
    for (int k = 1; k < CLASSES; k++) best = p[k] > p[best] ? k : best;
    return best;
}

static void check_seams(const float *whole, struct image_size tile, double *off, int *others)
{
    float *tiled = see(tile);
    int h = sizes[LARGE].h, w = sizes[LARGE].w;
    *off = *others = 0;
    for (int i = 0; i < h * w; i++) {
        double may = wrong_share(tile, i / w, i % w) + 5e-6;
        for (int k = 0; k < CLASSES; k++) {
            double is = fabs((double)tiled[i * CLASSES + k] - (double)whole[i * CLASSES + k]);
            assert_true(is <= may);
            *off += is / (h * w * CLASSES);
        }
        *others += best_of(tiled + i * CLASSES) != best_of(whole + i * CLASSES);
    }
    free(tiled);
}

static void test_seams(void **state)
{
    float *whole = see(sizes[LARGE]);
    static const struct image_size tiles[] = {{16, 16}, {24, 32}, {32, 32}, {48, 40}};
    double off[4];
    int others[4];
    for (int i = 0; i < 4; i++) {
        check_seams(whole, tiles[i], &off[i], &others[i]);
        print_message("tiles of %dx%d: |dp| %.2g in mean, %d of %d pixels of another class\n", tiles[i].h,
                      tiles[i].w, off[i], others[i], sizes[LARGE].h * sizes[LARGE].w);
    }
    /* Tiles four times as wide as what a network sees around a pixel. */
    assert_true(off[2] < 0.01 && others[2] < sizes[LARGE].h * sizes[LARGE].w / 50);
    free(whole);
}

/* A class that neither truth nor prediction has is left out. */
static void test_scores(void **state)
{
    static const int64_t pixels[] = {3, 1, 0, 2, 4, 0, 0, 0, 0};
    struct pixel_scores scores = pixel_scores_of(pixels, 3, 0);
    assert_true(scores.pixels == 4 && scores.iou == 0.5 && fabs(scores.dice - 6 / 9.0) < 1e-15);
    scores = pixel_scores_of(pixels, 3, 2);
    assert_true(scores.pixels == 0 && isnan(scores.iou) && isnan(scores.dice));
    assert_int_equal(pixel_scores_count(pixels, 3), 10);
}

/* Weights that are not finite: images are lost. */
static void test_lost(void **state)
{
    struct fixture f;
    struct evaluation evaluation;
    bool lost = true;
    const struct evaluate_options options = {.lost = &lost};
    open_fixture(&f, 2);
    f.bias[1] = NAN;
    assert_int_equal(store_write(&f.store, 1, STORE_MASTER, f.bias), OK);
    assert_int_equal(evaluate_masks(&f.session, &f.session.data.val, &f.step, &options, &evaluation), OK);
    assert_int_equal(evaluation.lost, SMALL);
    assert_true(isnan(evaluation.loss) && isnan(evaluation.metrics[0]) && lost);
    evaluation_free(&evaluation);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_images), cmocka_unit_test(test_resized), cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_scores), cmocka_unit_test(test_lost), cmocka_unit_test(test_seams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
