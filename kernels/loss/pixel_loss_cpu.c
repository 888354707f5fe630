/* pixel_loss_cpu.c: rows of pixels on threads, in fp32. Sums of a piece of rows are added in the order of
 * pieces, which depend on the shape only. */
#include <math.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/loss/pixel_loss.h"
#include "kernels/support/exp.h"

#define PIECES 64

/* The division of images into pieces of rows; each has `numbers` doubles of the workspace: loss, then three
 * sums for each class. */
struct cut {
    int64_t rows, each, pieces, numbers;    /* rows and pieces of an image */
};

static struct cut cut_of(struct shape x)
{
    struct cut cut = {.rows = x.h, .numbers = 1 + 3 * x.c};
    int64_t least = pieces(PARALLEL / 4, x.w * x.c), share = pieces(x.h, PIECES);
    cut.each = share > least ? share : least;
    cut.pieces = pieces(x.h, cut.each);
    return cut;
}

/* A row of pixels, and where they are kept; logits of a few pixels at a time as fp32. */
struct pixels {
    const struct call *call;
    const struct pixel_loss *s;
    const float *weights;
    const uint8_t *labels;     /* of the row */
    int64_t stride, classes;
};

static struct pixels pixels_of(const struct call *call, int64_t row)
{
    struct shape x = call->x[0].shape, labels = call->x[PIXEL_INPUT_LABELS].shape;
    struct pixels p = {.call = call, .s = call->settings, .classes = x.c,
                       .weights = call->x[PIXEL_INPUT_WEIGHTS].data,
                       .stride = pixel_loss_stride(labels.h, x.h)};
    p.labels = (const uint8_t *)call->x[PIXEL_INPUT_LABELS].data +
               (row / x.h * labels.h + row % x.h * p.stride) * labels.w;
    return p;
}

/* The function of pixel_loss.c. */
static int64_t class_of(const struct pixels *p, int64_t w)
{
    int64_t label = p->labels[w * p->stride];
    return label == p->s->ignore ? -1 : label < p->classes ? label : -2;
}

/* Exponentials of count numbers minus `less`, and their sum. */
static EVERY_MACHINE(float, exponentials, (const float *x, float less, float *p, int64_t count),
                     (x, less, p, count))
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < count; c++) {
        float difference = x[c] - less;
        p[c] = difference < -87 ? 0 : exp_of(difference);
        p[c] = difference != difference ? difference : p[c];
        sum += p[c];
    }
    return sum;
}

static float largest(const float *x, int64_t count)
{
    float max = -INFINITY;
    for (int64_t c = 0; c < count; c++) max = x[c] > max ? x[c] : max;
    return max;
}

/* The workspace behind the pieces' sums: lines of logits and of probabilities for each piece. */
static float *lines_of(const struct call *call, const struct cut *cut, int64_t piece)
{
    int64_t all = call->x[0].shape.n * cut->pieces;
    return (float *)((double *)call->workspace + all * cut->numbers) + piece * 2 * call->x[0].shape.c;
}

static void add_pixel(const struct pixels *p, int64_t pixel, int64_t own, double *numbers, float *lines)
{
    const float *x = block_load(&p->call->x[0], pixel * p->classes, p->classes, lines);
    float *prob = lines + p->classes, max = largest(x, p->classes);
    double lse = (double)max + log((double)exponentials(x, max, prob, p->classes));
    if (p->call->saved_count > 0) ((float *)p->call->saved[PIXEL_LSE].data)[pixel] = (float)lse;
    if (own == -2) numbers[0] = NAN;
    if (own < 0) return;
    if (pixel_loss_has_pixels(p->s))
        numbers[0] += (double)p->weights[own] * pixel_loss_value(p->s, fmin((double)x[own] - lse, 0));
    if (!pixel_loss_has_regions(p->s)) return;
    double factor = exp((double)max - lse), *sums = numbers + 1;
    for (int64_t c = 0; c < p->classes; c++) sums[c] += factor * (double)prob[c];
    sums[p->classes + own]++;
    sums[2 * p->classes + own] += factor * (double)prob[own];
}

static void forward_piece(const struct call *call, const struct cut *cut, int64_t piece)
{
    struct shape x = call->x[0].shape;
    int64_t n = piece / cut->pieces, first = piece % cut->pieces * cut->each;
    double *numbers = (double *)call->workspace + piece * cut->numbers;
    memset(numbers, 0, (size_t)cut->numbers * sizeof *numbers);
    for (int64_t h = first; h < min_count(first + cut->each, x.h); h++) {
        struct pixels p = pixels_of(call, n * x.h + h);
        for (int64_t w = 0; w < x.w; w++)
            add_pixel(&p, (n * x.h + h) * x.w + w, class_of(&p, w), numbers, lines_of(call, cut, piece));
    }
}

static struct pixel_sums sums_of(const double *numbers, int64_t classes, int64_t c)
{
    return (struct pixel_sums){numbers[1 + c], numbers[1 + classes + c], numbers[1 + 2 * classes + c]};
}

/* The loss of the regions by the sums of all pieces, which are in the first one's place. */
static double conclude_regions(const struct call *call, const double *numbers)
{
    const struct pixel_loss *s = call->settings;
    int64_t classes = call->x[0].shape.c, first = s->background ? 0 : 1, counted = 0;
    float *slopes = call->saved_count ? call->saved[PIXEL_SLOPES].data : NULL;
    double mean = 0;
    if (slopes) memset(slopes, 0, (size_t)(2 * classes) * sizeof *slopes);
    if (!pixel_loss_has_regions(s)) return 0;
    for (int64_t c = first; c < classes; c++) counted += sums_of(numbers, classes, c).g > 0;
    for (int64_t c = first; c < classes; c++) {
        struct pixel_sums sums = sums_of(numbers, classes, c);
        if (!(sums.g > 0)) continue;
        struct pixel_ratio ratio = pixel_loss_ratio(s, sums);
        mean += ratio.value / (double)counted;
        if (slopes) slopes[c] = (float)(-ratio.other / (double)counted);
        if (slopes) slopes[classes + c] = (float)(-ratio.own / (double)counted);
    }
    return counted > 0 ? 1 - mean : 0;
}

static enum status pixel_loss_cpu_forward(const struct call *call)
{
    const struct pixel_loss *s = call->settings;
    struct shape x = call->x[0].shape;
    struct cut cut = cut_of(x);
    double *numbers = call->workspace;
#pragma omp parallel for schedule(static) if (shape_count(x) > PARALLEL)
    for (int64_t piece = 0; piece < x.n * cut.pieces; piece++) forward_piece(call, &cut, piece);
    for (int64_t n = 0; n < x.n; n++) {
        double loss = 0;
        for (int64_t i = 0; i < cut.pieces; i++) loss += numbers[(n * cut.pieces + i) * cut.numbers];
        ((float *)call->y.data)[n] = (float)loss;
    }
    for (int64_t piece = 1; piece < x.n * cut.pieces; piece++)
        for (int64_t i = 1; i < cut.numbers; i++) numbers[i] += numbers[piece * cut.numbers + i];
    double regions = conclude_regions(call, numbers);
    for (int64_t n = 0; n < x.n; n++)
        ((float *)call->y.data)[n] = (float)(s->weight * ((double)((float *)call->y.data)[n] + regions));
    return OK;
}

/* d_x of a pixel from its probabilities: p (c == own ? slope : 0 ...), as pixel_loss.c has it. */
static EVERY_MACHINE(void, gradients, (const float *p, const float *slopes, float mean, float slope,
                     float *d_x, int64_t count), (p, slopes, mean, slope, d_x, count))
{
#pragma omp simd
    for (int64_t c = 0; c < count; c++) d_x[c] = p[c] * (slopes[c] - mean - slope);
}

static EVERY_MACHINE(float, product, (const float *a, const float *b, int64_t count), (a, b, count))
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < count; c++) sum += a[c] * b[c];
    return sum;
}

static void backward_pixel(const struct pixels *p, int64_t pixel, int64_t own, double factor, float *lines)
{
    const float *x = block_load(&p->call->x[0], pixel * p->classes, p->classes, lines);
    const float *slopes = p->call->saved[PIXEL_SLOPES].data;
    float *prob = lines + p->classes, lse = ((const float *)p->call->saved[PIXEL_LSE].data)[pixel];
    float *d_x = block_open(&p->call->d_x[0], pixel * p->classes, prob);
    if (own == -1) {
        memset(d_x, 0, (size_t)p->classes * sizeof *d_x);
    } else if (own == -2) {
        for (int64_t c = 0; c < p->classes; c++) d_x[c] = NAN;
    } else {
        double slope = 0, log_p = fmin((double)x[own] - (double)lse, 0);
        if (pixel_loss_has_pixels(p->s))
            slope = (double)p->weights[own] * pixel_loss_slope(p->s, log_p) / (double)p->call->x[0].shape.n;
        exponentials(x, lse, prob, p->classes);
        float p_own = prob[own], rest = slopes[p->classes + own] - slopes[own];
        float mean = product(prob, slopes, p->classes) + p_own * rest;
        gradients(prob, slopes, mean, (float)slope, d_x, p->classes);
        d_x[own] += p_own * rest + (float)slope;
        for (int64_t c = 0; c < p->classes; c++) d_x[c] *= (float)factor;
    }
    block_store(&p->call->d_x[0], pixel * p->classes, p->classes, d_x);
}

static enum status pixel_loss_cpu_backward(const struct call *call)
{
    const struct pixel_loss *s = call->settings;
    if (!call->d_x[0].data) return OK;
    struct shape x = call->x[0].shape;
    struct cut cut = cut_of(x);
    double factor = (double)call->loss_weight * (double)*call->loss_scale * s->weight;
#pragma omp parallel for schedule(static) if (shape_count(x) > PARALLEL)
    for (int64_t piece = 0; piece < x.n * cut.pieces; piece++) {
        int64_t n = piece / cut.pieces, first = piece % cut.pieces * cut.each;
        for (int64_t h = first; h < min_count(first + cut.each, x.h); h++) {
            struct pixels p = pixels_of(call, n * x.h + h);
            for (int64_t w = 0; w < x.w; w++)
                backward_pixel(&p, (n * x.h + h) * x.w + w, class_of(&p, w), factor,
                               lines_of(call, &cut, piece));
        }
    }
    return OK;
}

static size_t pixel_loss_cpu_workspace(const struct call *call)
{
    struct cut cut = cut_of(call->x[0].shape);
    size_t numbers = (size_t)(call->x[0].shape.n * cut.pieces);
    return numbers * ((size_t)cut.numbers * sizeof(double) + 2 * (size_t)call->x[0].shape.c * sizeof(float));
}

const struct op_code pixel_loss_cpu = {
    .workspace = pixel_loss_cpu_workspace,
    .forward = pixel_loss_cpu_forward,
    .backward = pixel_loss_cpu_backward,
};
