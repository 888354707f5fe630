/* pixel_loss: the loss of a class for every pixel. With p the softmax over c at a pixel, g its class, w[c]
 * the weights that are given, and sums over the pixels that are not `ignore`:
 *
 *     ce       y of image i = sum over its pixels of -w[g] log p[g]
 *     focal    y of image i = sum over its pixels of -w[g] (1 - p[g])^gamma log p[g]
 *              (Lin, Goyal, Girshick, He, Dollar 2017)
 *     dice     y = 1 - mean over classes of (2 sum(p g) + 1e-5) / (sum p + sum g + 1e-5)
 *              (Milletari, Navab, Ahmadi 2016)
 *     tversky  y = 1 - mean of TP / (TP + a FP + b FN), TP = sum(p g), FP = sum p - TP, FN = sum g - TP
 *              (Salehi, Erdogmus, Gholipour 2017)
 *     dice_ce  the sum of dice and ce
 *
 * dice and tversky are of all pixels of the call together, of the classes that occur among their labels, and
 * the same for each image; 0 without any. The caller divides w by what the whole batch has, so that ce and
 * focal do not depend on its division. All is multiplied by `weight`. Where the logits have 1/k of the
 * labels' height and width, those at pixels 0, k, 2k are compared. Backward is that of the mean over the n
 * images of the call, times loss_weight and the loss scale. */
#include "kernels/loss/pixel_loss.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/memory.h"
#include "kernels/codes_cuda.h"
#include "kernels/loss/loss_targets.h"

static bool fits(int64_t labels, int64_t logits)
{
    int64_t stride = pixel_loss_stride(labels, logits);
    return labels >= logits && (labels + stride - 1) / stride == logits;
}

static bool pixel_loss_shape(const void *settings, int x_count, const struct shape *x, struct shape *y,
                             struct reason *reason)
{
    const struct shape *logits = &x[PIXEL_INPUT_LOGITS], *labels = &x[PIXEL_INPUT_LABELS];
    char one[SHAPE_TEXT], other[SHAPE_TEXT];
    bool good = labels->n == logits->n && labels->c == 1 && fits(labels->h, logits->h) &&
                fits(labels->w, logits->w) &&
                pixel_loss_stride(labels->h, logits->h) == pixel_loss_stride(labels->w, logits->w);
    if (!good)
        return because(reason, "labels of shape %s do not match logits of shape %s", shape_text(*labels, one),
                       shape_text(*logits, other));
    if (shape_count(x[PIXEL_INPUT_WEIGHTS]) != logits->c)
        return because(reason, "%lld weights do not match %lld classes",
                       (long long)shape_count(x[PIXEL_INPUT_WEIGHTS]), (long long)logits->c);
    if (logits->c > PIXEL_CLASSES_MAX)
        return because(reason, "%lld classes are more than the %d that labels of a byte can name",
                       (long long)logits->c, PIXEL_CLASSES_MAX);
    *y = shape_nhwc(logits->n, 1, 1, 1);
    return true;
}

static int pixel_loss_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                            struct op_saved out[OP_MAX_SAVED])
{
    struct shape pixels = x[0].shape;
    if (!training) return 0;
    pixels.c = 1;
    out[PIXEL_LSE] = (struct op_saved){"logsumexp", F32, pixels};
    out[PIXEL_SLOPES] = (struct op_saved){"slopes", F32, {.rank = 2, .dim = {2, x[0].shape.c, 1, 1}}};
    return PIXEL_SAVED;
}

static unsigned pixel_loss_reads(const void *settings, enum phase phase)
{
    return READS_X | READS_SAVED;
}

static bool pixel_loss_in_place(const void *settings, enum phase phase, int x_count, const struct shape *x)
{
    return phase == PHASE_BACKWARD;
}

static bool pixel_loss_no_gradient(int input) { return input != PIXEL_INPUT_LOGITS; }

/* The class of a pixel of the logits; -1: it does not count; -2: no class has this number. */
static int64_t class_of(const struct call *call, int64_t pixel)
{
    const struct pixel_loss *s = call->settings;
    struct shape logits = call->x[0].shape, labels = call->x[PIXEL_INPUT_LABELS].shape;
    int64_t stride = pixel_loss_stride(labels.h, logits.h), w = pixel % logits.w, row = pixel / logits.w;
    int64_t h = row % logits.h, n = row / logits.h;
    int64_t label = (int64_t)tensor_get(&call->x[PIXEL_INPUT_LABELS],
                                        (n * labels.h + h * stride) * labels.w + w * stride);
    return label == s->ignore ? -1 : label < logits.c ? label : -2;
}

static double log_sum(const struct call *call, int64_t pixel)
{
    int64_t classes = call->x[0].shape.c;
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++) max = fmax(max, tensor_get(&call->x[0], pixel * classes + c));
    for (int64_t c = 0; c < classes; c++) sum += exp(tensor_get(&call->x[0], pixel * classes + c) - max);
    return max + log(sum);
}

static double log_p(const struct call *call, int64_t pixel, int64_t c, double lse)
{
    return tensor_get(&call->x[0], pixel * call->x[0].shape.c + c) - lse;
}

/* Counts a pixel in the loss of its image, and in the sums of the classes. */
static void count_pixel(const struct call *call, int64_t pixel, double *loss, struct pixel_sums *sums)
{
    const struct pixel_loss *s = call->settings;
    int64_t own = class_of(call, pixel);
    double lse = log_sum(call, pixel);
    if (call->saved_count > 0) tensor_set(&call->saved[PIXEL_LSE], pixel, lse);
    if (own == -2) *loss = NAN;
    if (own < 0) return;
    if (pixel_loss_has_pixels(s))
        *loss += tensor_get(&call->x[PIXEL_INPUT_WEIGHTS], own) *
                 pixel_loss_value(s, log_p(call, pixel, own, lse));
    for (int64_t c = 0; c < call->x[0].shape.c; c++) sums[c].p += exp(log_p(call, pixel, c, lse));
    sums[own].g++;
    sums[own].both += exp(log_p(call, pixel, own, lse));
}

/* Returns the loss of the regions, and saves its derivatives. */
static double conclude_regions(const struct call *call, const struct pixel_sums *sums)
{
    const struct pixel_loss *s = call->settings;
    int64_t classes = call->x[0].shape.c, first = s->background ? 0 : 1, counted = 0;
    double mean = 0;
    for (int64_t c = first; c < classes; c++) counted += sums[c].g > 0;
    for (int64_t c = 0; c < classes; c++) {
        bool counts = pixel_loss_has_regions(s) && c >= first && sums[c].g > 0;
        struct pixel_ratio ratio = {0};
        if (counts) ratio = pixel_loss_ratio(s, sums[c]);
        if (counts) mean += ratio.value / (double)counted;
        if (call->saved_count == 0) continue;
        tensor_set(&call->saved[PIXEL_SLOPES], c, counts ? -ratio.other / (double)counted : 0);
        tensor_set(&call->saved[PIXEL_SLOPES], classes + c, counts ? -ratio.own / (double)counted : 0);
    }
    return pixel_loss_has_regions(s) && counted > 0 ? 1 - mean : 0;
}

static enum status pixel_loss_forward(const struct call *call)
{
    const struct pixel_loss *s = call->settings;
    struct shape x = call->x[0].shape;
    struct pixel_sums *sums = memory_new((size_t)x.c, sizeof *sums);
    double *losses = memory_new((size_t)x.n, sizeof *losses);
    for (int64_t pixel = 0; pixel < x.n * x.h * x.w; pixel++)
        count_pixel(call, pixel, &losses[pixel / (x.h * x.w)], sums);
    double regions = conclude_regions(call, sums);
    for (int64_t n = 0; n < x.n; n++) tensor_set(&call->y, n, s->weight * (losses[n] + regions));
    free(losses);
    free(sums);
    return OK;
}

/* The derivative of the mean over images by log p[g], and by p[c]. */
static void backward_pixel(const struct call *call, int64_t pixel, double factor)
{
    const struct pixel_loss *s = call->settings;
    int64_t classes = call->x[0].shape.c, own = class_of(call, pixel);
    double lse = tensor_get(&call->saved[PIXEL_LSE], pixel), slope = 0, mean = 0;
    if (own >= 0 && pixel_loss_has_pixels(s))
        slope = tensor_get(&call->x[PIXEL_INPUT_WEIGHTS], own) *
                pixel_loss_slope(s, log_p(call, pixel, own, lse)) / (double)call->x[0].shape.n;
    if (own == -2) slope = NAN;
    for (int64_t c = 0; own >= 0 && c < classes; c++)
        mean += exp(log_p(call, pixel, c, lse)) *
                tensor_get(&call->saved[PIXEL_SLOPES], (c == own) * classes + c);
    for (int64_t c = 0; c < classes; c++) {
        double p = exp(log_p(call, pixel, c, lse)), d_x = slope * ((c == own) - p);
        if (own >= 0) d_x += p * (tensor_get(&call->saved[PIXEL_SLOPES], (c == own) * classes + c) - mean);
        tensor_set(&call->d_x[0], pixel * classes + c, own == -1 ? 0 : d_x * factor);
    }
}

static enum status pixel_loss_backward(const struct call *call)
{
    const struct pixel_loss *s = call->settings;
    if (!call->d_x[0].data) return OK;
    struct shape x = call->x[0].shape;
    double factor = (double)call->loss_weight * (double)*call->loss_scale * s->weight;
    for (int64_t pixel = 0; pixel < x.n * x.h * x.w; pixel++) backward_pixel(call, pixel, factor);
    return OK;
}

static const char *const kinds[] = {"ce", "focal", "dice", "dice_ce", "tversky", NULL};
#define AT(member) offsetof(struct pixel_loss, member)
static const struct field fields[] = {
    {.name = "kind", .type = FIELD_CHOICE, .offset = AT(kind), .initial = "ce", .choices = kinds,
     .help = "The loss."},
    {.name = "gamma", .type = FIELD_REAL, .offset = AT(gamma), .initial = "2", .min = 0, .max = 100,
     .help = "Exponent of focal."},
    {.name = "false_positives", .type = FIELD_REAL, .offset = AT(false_positives), .initial = "0.5", .min = 0,
     .max = 100, .help = "Their weight in tversky."},
    {.name = "false_negatives", .type = FIELD_REAL, .offset = AT(false_negatives), .initial = "0.5", .min = 0,
     .max = 100, .help = "Their weight in tversky."},
    {.name = "background", .type = FIELD_BOOL, .offset = AT(background), .initial = "yes",
     .help = "The first class counts in dice and tversky."},
    {.name = "ignore", .type = FIELD_INT, .offset = AT(ignore), .initial = "255", .min = 0, .max = 255,
     .word = "none", .word_value = -1, .help = "Label of pixels that do not count."},
    {.name = "weight", .type = FIELD_REAL, .offset = AT(weight), .initial = "1", .min = 0, .max = 1e6,
     .help = "Factor of the loss."},
    {0},
};

static const struct op_code reference = {.forward = pixel_loss_forward, .backward = pixel_loss_backward};

#define SHAPE(n_, h_, w_, c_) {.rank = 4, .n = n_, .h = h_, .w = w_, .c = c_}
static const struct op_example examples[] = {
    {"", 3, {SHAPE(2, 7, 5, 3), SHAPE(2, 7, 5, 1), SHAPE(1, 1, 1, 3)}},
    {"ignore=none", 3, {SHAPE(1, 9, 9, 21), SHAPE(1, 17, 18, 1), SHAPE(1, 1, 1, 21)}},
    {"kind=focal", 3, {SHAPE(2, 6, 5, 4), SHAPE(2, 24, 20, 1), SHAPE(1, 1, 1, 4)}},
    {"kind=focal gamma=0.5 weight=0.4", 3, {SHAPE(1, 5, 9, 2), SHAPE(1, 5, 9, 1), SHAPE(1, 1, 1, 2)}},
    {"kind=dice", 3, {SHAPE(2, 7, 5, 3), SHAPE(2, 7, 5, 1), SHAPE(1, 1, 1, 3)}},
    {"kind=dice background=no", 3, {SHAPE(3, 4, 4, 2), SHAPE(3, 8, 8, 1), SHAPE(1, 1, 1, 2)}},
    {"kind=dice_ce weight=0.5", 3, {SHAPE(2, 16, 16, 16), SHAPE(2, 16, 16, 1), SHAPE(1, 1, 1, 16)}},
    {"kind=dice_ce", 3, {SHAPE(1, 3, 3, 70), SHAPE(1, 3, 3, 1), SHAPE(1, 1, 1, 70)}},
    {"", 3, {SHAPE(1, 7, 9, 133), SHAPE(1, 7, 9, 1), SHAPE(1, 1, 1, 133)}},
    {"kind=tversky false_positives=0.3 false_negatives=0.7", 3,
     {SHAPE(2, 7, 5, 3), SHAPE(2, 7, 5, 1), SHAPE(1, 1, 1, 3)}},
    {0},
};

static const struct op_example large[] = {
    {"kind=dice_ce", 3, {SHAPE(3, 96, 96, 21), SHAPE(3, 96, 96, 1), SHAPE(1, 1, 1, 21)}},
    {0},
};

const struct op pixel_loss_op = {
    .name = "pixel_loss",
    .help = "Cross entropy, focal, Dice or Tversky loss of a class for every pixel.",
    .settings_size = sizeof(struct pixel_loss),
    .fields = fields,
    .min_inputs = PIXEL_INPUTS,
    .max_inputs = PIXEL_INPUTS,
    .internal = true,
    .root = true,
    .labels_pixels = true,
    .shape = pixel_loss_shape,
    .output_dtype = targets_loss_dtype,
    .saved = pixel_loss_saved,
    .reads = pixel_loss_reads,
    .in_place = pixel_loss_in_place,
    .backward_over_x = true,
    .no_gradient = pixel_loss_no_gradient,
    .reference = &reference,
    .cpu = &pixel_loss_cpu,
    .cuda = ON_CUDA(pixel_loss_cuda),
    .examples = examples,
    .large = large,
};
