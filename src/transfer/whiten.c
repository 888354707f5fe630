#include "transfer/whiten.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/conv/conv.h"

#define IMAGES 1024            /* number of images, and of patches of each: a quarter of a million in total */
#define IMAGE_PATCHES 256
#define EPS 5e-4               /* added to eigenvalues, so that directions without contrast are not
                                * amplified */
#define SWEEPS 60
#define SMALLEST 1e-30         /* tolerance: squares off the diagonal relative to all */

/* One rotation of Jacobi's method (1846), which zeroes a[p][q], applied to the rows of `vectors` as well. */
static void turn(int n, double *a, double *vectors, int p, int q)
{
    double *row_p = a + (size_t)p * (size_t)n, *row_q = a + (size_t)q * (size_t)n;
    if (row_p[q] == 0) return;
    double theta = (row_q[q] - row_p[p]) / (2 * row_p[q]);
    double t = copysign(1, theta) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {
        double *row = a + (size_t)k * (size_t)n, at_p = row[p], at_q = row[q];
        row[p] = c * at_p - s * at_q;
        row[q] = s * at_p + c * at_q;
    }
    for (int k = 0; k < n; k++) {
        double at_p = row_p[k], at_q = row_q[k];
        row_p[k] = c * at_p - s * at_q;
        row_q[k] = s * at_p + c * at_q;
    }
    double *v_p = vectors + (size_t)p * (size_t)n, *v_q = vectors + (size_t)q * (size_t)n;
    for (int k = 0; k < n; k++) {
        double at_p = v_p[k], at_q = v_q[k];
        v_p[k] = c * at_p - s * at_q;
        v_q[k] = s * at_p + c * at_q;
    }
}

static bool is_diagonal(int n, const double *a)
{
    double all = 0, off = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            double square = a[(size_t)(i * n + k)] * a[(size_t)(i * n + k)];
            all += square;
            if (i != k) off += square;
        }
    return off <= SMALLEST * all;
}

static void swap_rows(int n, double *values, double *vectors, int a, int b)
{
    double value = values[a];
    values[a] = values[b];
    values[b] = value;
    for (int k = 0; k < n; k++) {
        double *x = &vectors[(size_t)(a * n + k)], *y = &vectors[(size_t)(b * n + k)];
        double number = *x;
        *x = *y;
        *y = number;
    }
}

void whiten_eigenvectors(int n, double *a, double *values, double *vectors)
{
    size_t size = (size_t)n;
    memset(vectors, 0, size * size * sizeof *vectors);
    for (size_t i = 0; i < size; i++) vectors[i * size + i] = 1;
    for (int sweep = 0; sweep < SWEEPS && !is_diagonal(n, a); sweep++)
        for (int p = 0; p < n; p++)
            for (int q = p + 1; q < n; q++) turn(n, a, vectors, p, q);
    for (size_t i = 0; i < size; i++) values[i] = a[i * size + i];
    for (int i = 0; i < n; i++) {
        int most = i;
        for (int k = i + 1; k < n; k++)
            if (values[k] > values[most]) most = k;
        if (most != i) swap_rows(n, values, vectors, i, most);
    }
}

/* A convolution's patches, in the order of its weights: c, r, s. */
struct patches {
    struct conv_geometry geometry;
    int64_t channels, rows, columns;        /* of a patch; and its numbers */
    int size;
    struct shape shape;                     /* of the convolution's output, of a batch of 1 */
    float *values;                          /* [IMAGE_PATCHES][size], of one image */
    double *moments;                        /* [size][size]: sums of products */
    int64_t count;
};

static void patch_read(const struct patches *patches, const float *image, struct shape input, int64_t place,
                       float *out)
{
    const struct conv_geometry *g = &patches->geometry;
    int64_t top = place / patches->shape.w * g->stride[0] - g->pad[0];
    int64_t left = place % patches->shape.w * g->stride[1] - g->pad[1];
    for (int64_t c = 0; c < patches->channels; c++)
        for (int64_t r = 0; r < patches->rows; r++)
            for (int64_t s = 0; s < patches->columns; s++) {
                int64_t y = top + r * g->dilation[0], x = left + s * g->dilation[1];
                bool inside = y >= 0 && y < input.h && x >= 0 && x < input.w;
                *out++ = inside ? image[(y * input.w + x) * input.c + c] : 0;
            }
}

/* Each sum in a fixed order, whatever the number of threads. */
static void patches_add(struct patches *patches, const float *image, struct shape input)
{
    int64_t places = patches->shape.h * patches->shape.w;
    int64_t count = places < IMAGE_PATCHES ? places : IMAGE_PATCHES, size = patches->size;
    for (int64_t i = 0; i < count; i++)
        patch_read(patches, image, input, i * places / count, patches->values + i * size);
#pragma omp parallel for schedule(static) if (size > 64)
    for (int64_t a = 0; a < size; a++)
        for (int64_t i = 0; i < count; i++) {
            const float *values = patches->values + i * size;
            for (int64_t b = 0; b < size; b++)
                patches->moments[a * size + b] += (double)values[a] * (double)values[b];
        }
    patches->count += count;
}

static enum status patches_gather(const struct data *data, struct loader *loader, struct patches *patches)
{
    const struct images *train = &data->train;
    struct shape input = {.rank = 4, .n = 1, .h = train->h, .w = train->w, .c = data->channels};
    int64_t left = IMAGES;
    enum status status = loader_start(loader, 0, 0);
    while (status == OK && left > 0) {
        struct batch *batch;
        status = loader_next(loader, &batch, NULL);
        if (status != OK || !batch) break;
        for (int i = 0; i < batch->count && left > 0; i++, left--)
            patches_add(patches, (const float *)batch->images + i * shape_count(input), input);
        loader_return(loader, batch);
    }
    return status;
}

static void fill_filters(const struct patches *patches, int64_t filters, float *weight)
{
    int size = patches->size;
    double *values = memory_new((size_t)size, sizeof *values);
    double *vectors = memory_new((size_t)(size * size), sizeof *vectors);
    for (int i = 0; i < size * size; i++) patches->moments[i] /= (double)patches->count;
    whiten_eigenvectors(size, patches->moments, values, vectors);
    for (int64_t k = 0; k < filters; k++) {
        double scale = (k < size ? 1 : -1) / sqrt(values[k % size] + EPS);
        for (int i = 0; i < size; i++) weight[k * size + i] = (float)(scale * vectors[k % size * size + i]);
    }
    free(values);
    free(vectors);
}

static enum status check_layer(const struct graph *graph, const struct node *node)
{
    const struct shape weight = graph->params[node->param_first].spec.shape;
    int64_t size = weight.dim[1] * weight.dim[2] * weight.dim[3], filters = weight.dim[0];
    bool whole = weight.dim[1] == graph->nodes[0].shape.c;
    if (strcmp(node->op->name, "conv") != 0 || node->inputs[0] != 0 || !whole)
        return fail(USAGE, "%s: %s: init=whiten needs a convolution of the input, over all its channels",
                    node->where, node->name);
    if (filters <= 2 * size) return OK;
    return fail(USAGE, "%s: %s: init=whiten makes at most %lld filters from patches of %lld values, not %lld",
                node->where, node->name, 2 * (long long)size, (long long)size, (long long)filters);
}

static enum status whiten_layer(const struct data *data, struct loader *loader, const struct node *node,
                                struct store *store)
{
    const struct shape weight = store->graph->params[node->param_first].spec.shape;
    struct patches patches = {
        .geometry = conv_geometry(node->settings, weight.dim[1]),
        .channels = weight.dim[1], .rows = weight.dim[2], .columns = weight.dim[3],
        .size = (int)(weight.dim[1] * weight.dim[2] * weight.dim[3]),
        .shape = node->shape,
    };
    size_t size = (size_t)patches.size;
    patches.values = memory_new(IMAGE_PATCHES * size, sizeof *patches.values);
    patches.moments = memory_new(size * size, sizeof *patches.moments);
    float *filters = memory_new((size_t)shape_count(weight), sizeof *filters);
    enum status status = patches_gather(data, loader, &patches);
    if (status == OK) {
        fill_filters(&patches, weight.dim[0], filters);
        status = store_write(store, node->param_first, STORE_MASTER, filters);
    }
    if (status == OK && store_has(store, node->param_first, STORE_AVERAGE))
        status = store_write(store, node->param_first, STORE_AVERAGE, filters);
    free(filters);
    free(patches.moments);
    free(patches.values);
    return status;
}

static bool is_whitened(const struct graph *graph, const struct node *node)
{
    return node->param_count > 0 && graph->params[node->param_first].spec.init == INIT_WHITEN;
}

bool whiten_is_needed(const struct graph *graph)
{
    for (int i = 0; i < graph->count; i++)
        if (is_whitened(graph, &graph->nodes[i])) return true;
    return false;
}

enum status whiten_check(const struct graph *graph)
{
    for (int i = 0; i < graph->count; i++)
        if (is_whitened(graph, &graph->nodes[i])) TRY(check_layer(graph, &graph->nodes[i]));
    return OK;
}

enum status whiten_store(const struct data *data, struct loader *loader, struct store *store)
{
    for (int i = 0; i < store->graph->count; i++) {
        const struct node *node = &store->graph->nodes[i];
        if (is_whitened(store->graph, node)) TRY(whiten_layer(data, loader, node, store));
    }
    return store_refresh(store);
}
