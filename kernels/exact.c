/* exact.c: convolution, and inner product as its 1x1 case, as products of tiles,
 * 8 rows by 16 columns, in double.
 *
 *   forward          y[p, k]      = sum over taps and c   of x[p at tap, c]   * w[k, c, tap]  (+ b[k])
 *   backward data    d_x[i, c]    = sum over taps and k   of d_y[i at tap, k] * w[k, c, tap]
 *   backward params  d_w[k, c, t] = sum over p            of x[p at tap, c]   * d_y[p, k]
 *
 * p counts output pixels, i input pixels, a tap is a place of the window. The first two gather
 * rows of images, a tap after the other, and multiply them by weights rearranged as a matrix; in
 * the third each task owns some channels of one tap and walks over all pixels. */
#include "exact.h"

#include <string.h>

#include "kernels/cpu.h"

#define ROWS 8             /* of a tile: with two vectors each they fill the registers */
#define COLUMNS 16
#define BLOCK_ROWS 32      /* rows gathered at a time */
#define TASK_COLUMNS 64    /* of the result, a task */
#define DEPTH 256          /* of a row, gathered at a time */
#define PARAM_CHANNELS 32  /* of one tap, a task of backward params */

/* Inner products shorter than this stay with the library: small dense layers are fast there. */
#define LONG_INNER_PRODUCT 512

/* Beyond this work (a multiplication and an addition count as two) double would be felt: it takes
 * about four times as long as fp32. */
#define MUCH_WORK 0.25e9

static int64_t taps(const struct onednn_problem *p)
{
    return p->kernel[0] * p->kernel[1];
}

static int64_t padded(int64_t count)
{
    return pieces(count, COLUMNS) * COLUMNS;
}

/* Channels that fill vectors, or a picture's three. */
static bool fills_vectors(int64_t channels)
{
    return channels % 8 == 0 || channels == 3;
}

bool exact_wanted(const struct onednn_problem *p, enum dtype dtype)
{
    double pixels = (double)(p->n * p->output[0] * p->output[1]);
    bool suits = p->inner_product ? p->c >= LONG_INNER_PRODUCT
                                  : p->groups == 1 && fills_vectors(p->c) && fills_vectors(p->k);
    return dtype == F32 && suits &&
           2 * pixels * (double)(p->k * p->c * taps(p)) <= MUCH_WORK;
}

/* What a phase multiplies, as rows and a matrix. `from` is the image that rows are gathered from,
 * `to` the one whose pixels the rows of the result are. */
struct product_shape {
    int64_t from_h, from_w, from_c;
    int64_t to_h, to_w, to_c;
    int64_t depth;            /* length of a row: taps * from_c */
    bool backwards;           /* a tap leads from an input pixel to the output pixel that it fed */
};

static struct product_shape shape_of(const struct onednn_problem *p, enum phase phase)
{
    const int64_t *in = p->input, *out = p->output;
    if (phase == PHASE_BACKWARD_DATA)
        return (struct product_shape){out[0], out[1], p->k, in[0], in[1], p->c, taps(p) * p->k, true};
    return (struct product_shape){in[0], in[1], p->c, out[0], out[1], p->k, taps(p) * p->c, false};
}

size_t exact_workspace(const struct onednn_problem *p, enum phase phase)
{
    struct product_shape s = shape_of(p, phase);
    if (phase != PHASE_BACKWARD_PARAMS)
        return onednn_align((size_t)(s.depth * padded(s.to_c)) * sizeof(float));
    int64_t channels = pieces(p->c, PARAM_CHANNELS) * PARAM_CHANNELS;
    return onednn_align((size_t)(taps(p) * channels * padded(p->k)) * sizeof(double));
}

/* Eight doubles; the compiler takes as many registers for them as the machine needs. */
typedef double lanes __attribute__((vector_size(64)));
typedef float half_lanes __attribute__((vector_size(32)));

INLINE void widen(const float *from, lanes *to)
{
    half_lanes narrow;
    memcpy(&narrow, from, sizeof narrow);
    *to = __builtin_convertvector(narrow, lanes);
}

/* GCC fuses within a function by attribute; elsewhere two instructions do as well. */
#if defined(__GNUC__) && !defined(__clang__)
#define FUSED __attribute__((optimize("fp-contract=fast")))
#else
#define FUSED
#endif

/* c[row * c_row + column] += sum over i < count of a[row * a_row + i * a_step] * b[i * b_step + column]
 * for a tile of ROWS x COLUMNS. A product is exact, so fusing it with the addition changes nothing. */
FUSED EVERY_MACHINE static void tile(int64_t count, const double *a, int64_t a_row, int64_t a_step,
                                     const float *b, int64_t b_step, double *c, int64_t c_row)
{
    lanes sum[ROWS][2];
#pragma GCC unroll 8
    for (int m = 0; m < ROWS; m++) memcpy(sum[m], c + m * c_row, sizeof sum[m]);
    for (int64_t i = 0; i < count; i++) {
        lanes left, right;
        widen(b + i * b_step, &left);
        widen(b + i * b_step + 8, &right);
#pragma GCC unroll 8
        for (int m = 0; m < ROWS; m++) {
            double factor = a[m * a_row + i * a_step];
            sum[m][0] += factor * left;
            sum[m][1] += factor * right;
        }
    }
#pragma GCC unroll 8
    for (int m = 0; m < ROWS; m++) memcpy(c + m * c_row, sum[m], sizeof sum[m]);
}

EVERY_MACHINE static void widen_row(double *to, const float *from, int64_t count)
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) to[i] = from[i];
}

/* Where along one axis a tap leads from position `at`; false when it falls outside `size`. */
static bool tap_lands(const struct onednn_problem *p, bool backwards, int axis, int64_t at, int64_t tap,
                      int64_t size, int64_t *landed)
{
    int64_t stride = p->stride[axis], reach = tap * p->dilation[axis] - p->pad[axis];
    if (!backwards) {
        *landed = at * stride + reach;
    } else {
        if ((at - reach) % stride) return false;
        *landed = (at - reach) / stride;
    }
    return *landed >= 0 && *landed < size;
}

/* The pixel that tap r, q leads to from the result's pixel `at` (h, w) of the same image; NULL: outside. */
static const float *pixel_at(const struct onednn_problem *p, const struct product_shape *s,
                             const float *image, const int64_t at[2], int64_t r, int64_t q)
{
    int64_t y, x;
    if (!tap_lands(p, s->backwards, 0, at[0], r, s->from_h, &y) ||
        !tap_lands(p, s->backwards, 1, at[1], q, s->from_w, &x))
        return NULL;
    return image + (y * s->from_w + x) * s->from_c;
}

static void gather_pixel(const float *pixel, int64_t count, double *to)
{
    if (pixel) widen_row(to, pixel, count);
    else memset(to, 0, (size_t)count * sizeof *to);
}

/* Weights as a matrix [depth][padded(to_c)], zeros where it is padded. */
static void pack_weights(const struct onednn_problem *p, const struct product_shape *s, const float *weight,
                         float *matrix)
{
    int64_t width = padded(s->to_c), count = taps(p);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < s->depth; row++) {
        int64_t tap = row / s->from_c, in = row % s->from_c;
        float *to = matrix + row * width;
        for (int64_t out = 0; out < s->to_c; out++) {
            int64_t k = s->backwards ? in : out, c = s->backwards ? out : in;
            to[out] = weight[(k * p->c + c) * count + tap];
        }
        for (int64_t out = s->to_c; out < width; out++) to[out] = 0;
    }
}

/* Taps of one line of the window lie side by side in the image when they are not spread and lead
 * forwards: elements begin .. begin + length - 1 of such a line, zeros where it leaves the image. */
static bool gather_line(const struct onednn_problem *p, const struct product_shape *s, const float *image,
                        const int64_t at[2], int64_t r, int64_t begin, int64_t length, double *to)
{
    int64_t y, left = at[1] * p->stride[1] - p->pad[1];
    int64_t first = left < 0 ? -left * s->from_c : 0, last = (s->from_w - left) * s->from_c;
    if (first < begin) first = begin;
    if (last > begin + length) last = begin + length;
    if (!tap_lands(p, false, 0, at[0], r, s->from_h, &y) || first >= last) {
        memset(to, 0, (size_t)length * sizeof *to);
        return false;
    }
    memset(to, 0, (size_t)(first - begin) * sizeof *to);
    widen_row(to + (first - begin), image + (y * s->from_w + left) * s->from_c + first, last - first);
    memset(to + (last - begin), 0, (size_t)(begin + length - last) * sizeof *to);
    return true;
}

/* Elements begin .. begin + length - 1 of the row of values that result pixel `row` is made of;
 * false if all of them lie outside the image. */
static bool gather_row(const struct onednn_problem *p, const struct product_shape *s, const float *from,
                       int64_t row, int64_t begin, int64_t length, double *to)
{
    int64_t at[2] = {row / s->to_w % s->to_h, row % s->to_w};
    const float *image = from + row / (s->to_w * s->to_h) * s->from_h * s->from_w * s->from_c;
    bool side_by_side = !s->backwards && p->dilation[1] == 1, any = false;
    int64_t unit = side_by_side ? p->kernel[1] * s->from_c : s->from_c;
    for (int64_t done = 0; done < length;) {
        int64_t part = (begin + done) / unit, offset = (begin + done) % unit;
        int64_t count = min_count(unit - offset, length - done);
        if (side_by_side) {
            any |= gather_line(p, s, image, at, part, offset, count, to + done);
        } else {
            const float *pixel = pixel_at(p, s, image, at, part / p->kernel[1], part % p->kernel[1]);
            gather_pixel(pixel ? pixel + offset : NULL, count, to + done);
            any |= pixel != NULL;
        }
        done += count;
    }
    return any;
}

/* Result rows first .. first + BLOCK_ROWS - 1, a task's columns. */
static void product_task(const struct onednn_problem *p, const struct product_shape *s, int64_t rows,
                         int64_t first, int64_t column, const float *from, const float *matrix,
                         const float *bias, float *to)
{
    double gathered[BLOCK_ROWS][DEPTH], sums[BLOCK_ROWS][TASK_COLUMNS];
    int64_t width = padded(s->to_c), columns = min_count(TASK_COLUMNS, width - column);
    int64_t count = min_count(BLOCK_ROWS, rows - first);
    memset(sums, 0, sizeof sums);
    memset(gathered, 0, sizeof gathered);
    for (int64_t begin = 0; begin < s->depth; begin += DEPTH) {
        int64_t length = min_count(DEPTH, s->depth - begin);
        bool any = false;
        for (int64_t i = 0; i < count; i++)
            any |= gather_row(p, s, from, first + i, begin, length, gathered[i]);
        if (!any) continue;
        const float *weights = matrix + begin * width + column;
        for (int64_t i = 0; i < count; i += ROWS)
            for (int64_t j = 0; j < columns; j += COLUMNS)
                tile(length, gathered[i], DEPTH, 1, weights + j, width, sums[i] + j, TASK_COLUMNS);
    }
    int64_t kept = min_count(columns, s->to_c - column);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < kept; j++)
            to[(first + i) * s->to_c + column + j] = (float)(sums[i][j] + (bias ? bias[column + j] : 0));
}

static void product_by_rows(const struct onednn_problem *p, enum phase phase, const float *from,
                            const float *weight, const float *bias, float *to, float *matrix)
{
    struct product_shape s = shape_of(p, phase);
    int64_t rows = p->n * s.to_h * s.to_w;
    int64_t row_tasks = pieces(rows, BLOCK_ROWS), column_tasks = pieces(padded(s.to_c), TASK_COLUMNS);
    pack_weights(p, &s, weight, matrix);
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t column = 0; column < column_tasks; column++)
        for (int64_t row = 0; row < row_tasks; row++)
            product_task(p, &s, rows, row * BLOCK_ROWS, column * TASK_COLUMNS, from, matrix, bias, to);
}

/* The gradient of some channels of one tap, for every filter: sums[channel][padded(k)]. */
static void params_task(const struct onednn_problem *p, const struct product_shape *s, int64_t tap,
                        int64_t channel, const float *x, const float *d_y, double *sums, float *d_weight)
{
    double gathered[BLOCK_ROWS][PARAM_CHANNELS];
    float gradients[BLOCK_ROWS][COLUMNS];
    int64_t rows = p->n * s->to_h * s->to_w, width = padded(p->k);
    int64_t channels = min_count(PARAM_CHANNELS, p->c - channel);
    memset(gathered, 0, sizeof gathered);
    memset(sums, 0, (size_t)(PARAM_CHANNELS * width) * sizeof *sums);
    for (int64_t first = 0; first < rows; first += BLOCK_ROWS) {
        int64_t count = min_count(BLOCK_ROWS, rows - first);
        bool any = false;
        for (int64_t i = 0; i < count; i++) {
            int64_t row = first + i, at[2] = {row / s->to_w % s->to_h, row % s->to_w};
            const float *image = x + row / (s->to_w * s->to_h) * s->from_h * s->from_w * s->from_c;
            const float *pixel = pixel_at(p, s, image, at, tap / p->kernel[1], tap % p->kernel[1]);
            any = any || pixel;
            gather_pixel(pixel ? pixel + channel : NULL, channels, gathered[i]);
        }
        if (!any) continue;
        for (int64_t k = 0; k < width; k += COLUMNS) {
            const float *b = d_y + first * p->k + k;
            int64_t step = p->k, kept = min_count(COLUMNS, p->k - k);
            if (kept < COLUMNS) {
                memset(gradients, 0, sizeof gradients);
                for (int64_t i = 0; i < count; i++)
                    memcpy(gradients[i], b + i * p->k, (size_t)kept * sizeof(float));
                b = gradients[0];
                step = COLUMNS;
            }
            for (int64_t c = 0; c < channels; c += ROWS)
                tile(count, &gathered[0][c], 1, PARAM_CHANNELS, b, step, sums + c * width + k, width);
        }
    }
    for (int64_t k = 0; k < p->k; k++)
        for (int64_t c = 0; c < channels; c++)
            d_weight[(k * p->c + channel + c) * taps(p) + tap] = (float)sums[c * width + k];
}

static void bias_gradient(const struct onednn_problem *p, const struct product_shape *s, const float *d_y,
                          float *d_bias)
{
    int64_t rows = p->n * s->to_h * s->to_w;
#pragma omp parallel for schedule(static) if (rows * p->k > PARALLEL)
    for (int64_t k = 0; k < p->k; k++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++) sum += d_y[row * p->k + k];
        d_bias[k] = (float)sum;
    }
}

static void product_of_params(const struct onednn_problem *p, const float *x, const float *d_y,
                              float *d_weight, float *d_bias, double *workspace)
{
    struct product_shape s = shape_of(p, PHASE_BACKWARD_PARAMS);
    int64_t groups = pieces(p->c, PARAM_CHANNELS), width = padded(p->k);
#pragma omp parallel for collapse(2) schedule(static)
    for (int64_t tap = 0; tap < taps(p); tap++)
        for (int64_t group = 0; group < groups; group++)
            params_task(p, &s, tap, group * PARAM_CHANNELS, x, d_y,
                        workspace + (tap * groups + group) * PARAM_CHANNELS * width, d_weight);
    if (d_bias) bias_gradient(p, &s, d_y, d_bias);
}

void exact_run(const struct onednn_problem *p, enum phase phase, void *const data[ONEDNN_OPERANDS],
               void *workspace)
{
    float *x = data[ONEDNN_X], *w = data[ONEDNN_WEIGHT], *b = data[ONEDNN_BIAS], *y = data[ONEDNN_Y];
    switch (phase) {
    case PHASE_FORWARD: product_by_rows(p, phase, x, w, b, y, workspace); return;
    case PHASE_BACKWARD_DATA: product_by_rows(p, phase, y, w, NULL, x, workspace); return;
    case PHASE_BACKWARD_PARAMS: product_of_params(p, x, y, w, b, workspace); return;
    case PHASE_BACKWARD:
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: return;
    }
}
