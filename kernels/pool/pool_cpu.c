/* pool_cpu.c: averages and maxima over windows, with rows distributed over threads. A row is computed in
 * segments whose results are contiguous in fp32, and each input row of a segment's windows is read once. The
 * backward pass gathers: each input sums the gradients of the windows that contain it, in one order, so that
 * no two threads write the same element. */
#include <math.h>
#include <string.h>

#include "kernels/cpu.h"
#include "kernels/pool/pool.h"

#define SEGMENT 64             /* pixels at most in a segment */
#define STRIP (4 * BLOCK)      /* elements of a strip copied, as fp32 */
#define LANES 16               /* what inner loops do at least: an AVX-512 register's worth */

/* Pixels w .. w + pixels - 1 of row h of image n, channels c .. c + count - 1, of what is made; and for
 * each pixel, along its row, where it reads. When pixels > 1 all channels are in it. Results lie
 * `lanes` apart: with few channels each pixel's are padded, and what is read is copied to where one
 * may read beyond it, since loops over six elements cost more than loops over sixteen. */
struct segment {
    int64_t n, h, w, c, pixels, count, lanes;
    struct pool_span spans[SEGMENT];
    int64_t first, end;        /* what the spans cover; dilated ones need not begin in order */
};

/* A stretch of a row that is read: columns first .. end - 1, `pitch` apart. */
struct strip {
    const float *values;
    int64_t first, end, pitch;
};

typedef struct pool_span spans_of(const struct pool_axis *axis, int64_t at);

static struct segment segment_open(const struct pool_axis *axis, spans_of *spans, struct shape made,
                                   int64_t row, int64_t w, int64_t c)
{
    struct segment s = {.n = row / made.h, .h = row % made.h, .w = w, .c = c};
    s.count = min_count(BLOCK, made.c - c);
    s.lanes = s.count < LANES ? LANES : s.count;
    s.pixels = min_count(BLOCK / s.lanes, SEGMENT);
    s.pixels = min_count(s.count < made.c ? 1 : s.pixels, made.w - w);
    s.first = INT64_MAX;
    for (int64_t i = 0; i < s.pixels; i++) {
        s.spans[i] = spans(axis, w + i);
        s.first = min_count(s.first, s.spans[i].first);
        s.end = s.spans[i].end > s.end ? s.spans[i].end : s.end;
    }
    return s;
}

static void segment_store(const struct segment *s, const struct tensor *made, float *values)
{
    if (s->lanes > s->count)
        for (int64_t p = 1; p < s->pixels; p++)
            memmove(values + p * s->count, values + p * s->lanes, (size_t)s->count * sizeof *values);
    dtype_convert(made->dtype, block_address(made, tensor_at(made, s->n, s->h, s->w, s->c)), F32, values,
                  (size_t)(s->pixels * s->count));
}

/* `count` elements as fp32, and something to read behind them when the lanes are padded. */
static const float *lanes_load(const struct segment *s, const struct tensor *read, int64_t at, int64_t count,
                               float *buffer)
{
    if (s->lanes == s->count) return block_load(read, at, count, buffer);
    dtype_convert(F32, buffer, read->dtype, block_address(read, at), (size_t)count);
    memset(buffer + count, 0, LANES * sizeof *buffer);
    return buffer;
}

/* All that the segment reads of row i, or as much of it as fits, from column `first` on. */
static struct strip strip_load(const struct segment *s, const struct tensor *read, int64_t i, int64_t first,
                               float *buffer)
{
    struct shape shape = read->shape;
    struct strip strip = {.first = first, .end = s->end, .pitch = shape.c};
    bool whole = s->count == shape.c && shape.c <= STRIP;
    strip.end = min_count(strip.end, first + (whole ? STRIP / shape.c : 1));
    strip.values = lanes_load(s, read, tensor_at(read, s->n, i, first, s->c),
                              whole ? (strip.end - first) * shape.c : s->count, buffer);
    return strip;
}

/* Columns of a span that lie in the strip begin here. */
INLINE int64_t first_in(const struct pool_span *span, const struct strip *strip)
{
    if (span->first >= strip->first) return span->first;
    return span->first + (strip->first - span->first + span->step - 1) / span->step * span->step;
}

static EVERY_MACHINE(void, add_strip, (const struct segment *s, const struct strip *strip, float *sums),
                     (s, strip, sums))
{
    for (int64_t p = 0; p < s->pixels; p++) {
        const struct pool_span *span = &s->spans[p];
        float *sum = sums + p * s->lanes;
        for (int64_t j = first_in(span, strip); j < min_count(span->end, strip->end); j += span->step) {
            const float *x = strip->values + (j - strip->first) * strip->pitch;
#pragma omp simd
            for (int64_t k = 0; k < s->lanes; k++) sum[k] += x[k];
        }
    }
}

static EVERY_MACHINE(void, multiply, (float *values, float factor, int64_t count), (values, factor, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) values[i] *= factor;
}

static void average_segment(const struct call *call, const struct pool_plane *plane, const struct segment *s)
{
    float buffer[STRIP + LANES], sums[BLOCK];
    struct pool_span rows = pool_inputs(&plane->h, s->h);
    memset(sums, 0, sizeof sums);
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = s->first; j < s->end;) {
            struct strip strip = strip_load(s, &call->x[0], i, j, buffer);
            add_strip(s, &strip, sums);
            j = strip.end;
        }
    for (int64_t p = 0; p < s->pixels; p++)
        multiply(sums + p * s->lanes, (float)(1 / pool_divisor(plane, s->h, s->w + p)), s->lanes);
    segment_store(s, &call->y, sums);
}

/* Averages of averages: each output's share of its gradient, by how many inputs it has. */
static EVERY_MACHINE(void, add_shares, (const struct segment *s, const struct strip *strip,
                     const struct pool_plane *plane, int64_t i, float *sums), (s, strip, plane, i, sums))
{
    for (int64_t p = 0; p < s->pixels; p++) {
        const struct pool_span *span = &s->spans[p];
        float *sum = sums + p * s->lanes;
        for (int64_t j = first_in(span, strip); j < min_count(span->end, strip->end); j++) {
            const float *d_y = strip->values + (j - strip->first) * strip->pitch;
            float share = (float)(1 / pool_divisor(plane, i, j));
#pragma omp simd
            for (int64_t k = 0; k < s->lanes; k++) sum[k] += share * d_y[k];
        }
    }
}

static void spread_segment(const struct call *call, const struct pool_plane *plane, const struct segment *s)
{
    float buffer[STRIP + LANES], sums[BLOCK];
    struct pool_span rows = pool_outputs(&plane->h, s->h);
    memset(sums, 0, sizeof sums);
    for (int64_t i = rows.first; i < rows.end; i++)
        for (int64_t j = s->first; j < s->end;) {
            struct strip strip = strip_load(s, &call->d_y, i, j, buffer);
            add_shares(s, &strip, plane, i, sums);
            j = strip.end;
        }
    segment_store(s, &call->d_x[0], sums);
}

/* A NaN takes over, the last of several, as in torch. `number` is that of the first column of the
 * windows in this row. */
static EVERY_MACHINE(void, take_greater, (const struct segment *s, const struct strip *strip,
                     int32_t number, float *bests, int32_t *numbers), (s, strip, number, bests, numbers))
{
    for (int64_t p = 0; p < s->pixels; p++) {
        const struct pool_span *span = &s->spans[p];
        float *best = bests + p * s->lanes;
        int32_t *best_number = numbers + p * s->lanes;
        for (int64_t j = first_in(span, strip); j < min_count(span->end, strip->end); j += span->step) {
            const float *x = strip->values + (j - strip->first) * strip->pitch;
            int32_t here = number + (int32_t)(span->skipped + (j - span->first) / span->step);
#pragma omp simd
            for (int64_t k = 0; k < s->lanes; k++) {
                int take = (x[k] > best[k]) | (x[k] != x[k]);
                best[k] = take ? x[k] : best[k];
                best_number[k] = take ? here : best_number[k];
            }
        }
    }
}

static EVERY_MACHINE(void, narrow, (const int32_t *numbers, uint8_t *bytes, int64_t count),
                     (numbers, bytes, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) bytes[i] = (uint8_t)numbers[i];
}

static void save_numbers(const struct segment *s, const struct tensor *saved, int32_t *numbers)
{
    if (s->lanes > s->count)
        for (int64_t p = 1; p < s->pixels; p++)
            memmove(numbers + p * s->count, numbers + p * s->lanes, (size_t)s->count * sizeof *numbers);
    int64_t at = tensor_at(saved, s->n, s->h, s->w, s->c), count = s->pixels * s->count;
    if (saved->dtype == U8) narrow(numbers, (uint8_t *)saved->data + at, count);
    else memcpy((int32_t *)saved->data + at, numbers, (size_t)count * sizeof *numbers);
}

/* In a window of minus infinities, the maximum is the first input. */
static void maximum_start(const struct pool_plane *plane, const struct segment *s, struct pool_span rows,
                          float *bests, int32_t *numbers)
{
    for (int64_t p = 0; p < s->pixels; p++) {
        int64_t first = rows.skipped * pool_row_length(plane) + s->spans[p].skipped;
        for (int64_t k = 0; k < s->lanes; k++) {
            bests[p * s->lanes + k] = -INFINITY;
            numbers[p * s->lanes + k] = (int32_t)first;
        }
    }
}

static void maximum_relu(const struct segment *s, float *bests, int32_t *numbers)
{
    for (int64_t k = 0; k < s->pixels * s->lanes; k++) {
        if (!(bests[k] <= 0)) continue;
        bests[k] = 0;
        numbers[k] = POOL_NOWHERE;
    }
}

static void maximum_segment(const struct call *call, const struct pool_plane *plane, const struct segment *s)
{
    float buffer[STRIP + LANES], bests[BLOCK];
    int32_t numbers[BLOCK];
    struct pool_span rows = pool_inputs(&plane->h, s->h);
    maximum_start(plane, s, rows, bests, numbers);
    for (int64_t i = rows.first; i < rows.end; i += rows.step)
        for (int64_t j = s->first; j < s->end;) {
            struct strip strip = strip_load(s, &call->x[0], i, j, buffer);
            int64_t row = pool_position(&plane->h, s->h, i);
            take_greater(s, &strip, (int32_t)(row * pool_row_length(plane)), bests, numbers);
            j = strip.end;
        }
    if (plane->relu) maximum_relu(s, bests, numbers);
    segment_store(s, &call->y, bests);
    if (call->saved_count) save_numbers(s, &call->saved[0], numbers);
}

static EVERY_MACHINE(void, widen, (const uint8_t *bytes, int32_t *numbers, int64_t count),
                     (bytes, numbers, count))
{
#pragma omp simd
    for (int64_t i = 0; i < count; i++) numbers[i] = bytes[i];
}

/* The numbers that go with a strip of d_y. */
static void numbers_load(const struct segment *s, const struct strip *strip, const struct tensor *saved,
                         int64_t i, int32_t *numbers)
{
    int64_t at = tensor_at(saved, s->n, i, strip->first, s->c), columns = strip->end - strip->first;
    int64_t count = columns == 1 ? s->count : columns * saved->shape.c;
    if (saved->dtype == U8) widen((const uint8_t *)saved->data + at, numbers, count);
    else memcpy(numbers, (const int32_t *)saved->data + at, (size_t)count * sizeof *numbers);
    memset(numbers + count, 0, LANES * sizeof *numbers);
}

/* Adds the gradients of those maxima in an output row that lie in the segment; `row` is the number
 * of the first input of the segment's row in that row's windows. */
static EVERY_MACHINE(void, collect, (const struct segment *s, const struct strip *strip,
                     const struct pool_axis *axis, const int32_t *numbers, int64_t row, float *sums),
                     (s, strip, axis, numbers, row, sums))
{
    for (int64_t p = 0; p < s->pixels; p++) {
        const struct pool_span *span = &s->spans[p];
        float *sum = sums + p * s->lanes;
        int64_t end = min_count(span->end, strip->end);
        for (int64_t j = first_in(span, strip); j < end; j++) {
            int64_t column = pool_position(axis, j, s->w + p), at = (j - strip->first) * strip->pitch;
            if (column < 0) continue;
            const float *d_y = strip->values + at;
            const int32_t *theirs = numbers + at;
            int32_t mine = (int32_t)(row + column);
#pragma omp simd
            for (int64_t k = 0; k < s->lanes; k++) sum[k] += theirs[k] == mine ? d_y[k] : 0;
        }
    }
}

static void collect_segment(const struct call *call, const struct pool_plane *plane, const struct segment *s)
{
    float buffer[STRIP + LANES], sums[BLOCK];
    int32_t numbers[STRIP + LANES];
    struct pool_span rows = pool_outputs(&plane->h, s->h);
    memset(sums, 0, sizeof sums);
    for (int64_t i = rows.first; i < rows.end; i++) {
        int64_t row = pool_position(&plane->h, i, s->h);
        for (int64_t j = row < 0 ? s->end : s->first; j < s->end;) {
            struct strip strip = strip_load(s, &call->d_y, i, j, buffer);
            numbers_load(s, &strip, &call->saved[0], i, numbers);
            collect(s, &strip, &plane->w, numbers, row * pool_row_length(plane), sums);
            j = strip.end;
        }
    }
    segment_store(s, &call->d_x[0], sums);
}

/* The output, the windows that its pixels read, and the code for a row. */
struct pool_job {
    struct shape made;
    spans_of *spans;
    void (*make)(const struct call *call, const struct pool_plane *plane, const struct segment *s);
};

/* Computes row `row` of all rows of all images. */
static void make_row(const struct call *call, const struct pool_plane *plane, const struct pool_job *job,
                     int64_t row)
{
    for (int64_t c = 0; c < job->made.c; c += BLOCK)
        for (int64_t w = 0; w < job->made.w;) {
            struct segment s = segment_open(&plane->w, job->spans, job->made, row, w, c);
            job->make(call, plane, &s);
            w += s.pixels;
        }
}

static enum status pool_cpu_make(const struct call *call, const struct pool_plane *plane, struct pool_job job)
{
    int64_t rows = job.made.n * job.made.h;
#pragma omp parallel for schedule(static) if (shape_count(call->x[0].shape) > PARALLEL)
    for (int64_t row = 0; row < rows; row++) make_row(call, plane, &job, row);
    return OK;
}

enum status pool_average_cpu(const struct call *call, const struct pool_plane *plane)
{
    return pool_cpu_make(call, plane, (struct pool_job){call->y.shape, pool_inputs, average_segment});
}

enum status pool_average_backward_cpu(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    return pool_cpu_make(call, plane, (struct pool_job){call->d_x[0].shape, pool_outputs, spread_segment});
}

enum status pool_maximum_cpu(const struct call *call, const struct pool_plane *plane)
{
    return pool_cpu_make(call, plane, (struct pool_job){call->y.shape, pool_inputs, maximum_segment});
}

enum status pool_maximum_backward_cpu(const struct call *call, const struct pool_plane *plane)
{
    if (!call->d_x[0].data) return OK;
    return pool_cpu_make(call, plane, (struct pool_job){call->d_x[0].shape, pool_outputs, collect_segment});
}
