#include "measure/libraries.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/time/cost.h"

/* A library, and the variants of conv that belong to it, terminated by NULL. "chosen" has one: any. */
struct library {
    const char *name;
    const char *variants[5];
};

static const struct library on_cuda[] = {
    {"cuDNN", {"cudnn"}}, {"gemm", {"gemm"}}, {"own", {"direct", "stem", "depthwise"}},
    {"chosen", {NULL}}, {NULL, {NULL}},
};
static const struct library on_cpu[] = {
    {"oneDNN", {"native", "widened"}}, {"gemm", {"gemm"}}, {"own", {"winograd", "shifted"}},
    {"chosen", {NULL}}, {NULL, {NULL}},
};

static const struct library *libraries_of(const struct session *session)
{
    switch (session->device->backend->kind) {
    case DEVICE_CPU: return on_cpu;
    case DEVICE_CUDA: return on_cuda;
    }
    return NULL;
}

static const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
static const char *const phase_names[] = {"forward", "data gradient", "weight gradient"};
#define PHASES 3

static int64_t weight_bytes(const struct graph *graph, const struct node *node, enum dtype dtype)
{
    int64_t elements = 0;
    for (int i = 0; i < node->param_count; i++)
        elements += shape_count(graph->params[node->param_first + i].spec.shape);
    return elements * (int64_t)dtype_bytes(dtype);
}

/* True if two nodes do the same work. */
static bool nodes_equal(const struct graph *graph, const struct node *a, const struct node *b)
{
    return a->op == b->op && memcmp(a->settings, b->settings, a->op->settings_size) == 0 &&
           shape_equal(graph->nodes[a->inputs[0]].shape, graph->nodes[b->inputs[0]].shape);
}

/* The rows of an earlier layer, which then count this one as well. */
static bool counted(const struct graph *graph, struct libraries *made, const struct node *node)
{
    bool found = false;
    for (int i = 0; i < made->row_count; i++) {
        struct library_row *row = &made->rows[i];
        if (!nodes_equal(graph, &graph->nodes[graph_find(graph, row->name)], node)) continue;
        row->layers++;
        found = true;
    }
    return found;
}

#define DIRECT_MOST 2e8      /* operations above which kernels/conv/conv_direct.cu is no candidate */

/* The fastest of the library's variants, by phase. */
static enum status measure_library(const struct op_problem *layer, const struct library *library,
                                   double flops, unsigned wanted, struct library_time of[PHASES])
{
    struct op_problem problem = *layer;
    for (int p = 0; p < PHASES; p++) of[p] = (struct library_time){.ms = NAN};
    for (int v = 0; v == 0 || library->variants[v]; v++) {
        struct op_time times[PHASE_COUNT];
        bool fits;
        problem.variant = library->variants[v];
        if (flops > DIRECT_MOST && problem.variant && strcmp(problem.variant, "direct") == 0) continue;
        TRY(op_time_measure(&problem, wanted, times, &fits));
        for (int p = 0; p < PHASES; p++) {
            const struct op_time *time = &times[phases[p]];
            if (!time->there || of[p].ms <= 1e3 * time->seconds) continue;
            of[p].ms = 1e3 * time->seconds;
            of[p].workspace_bytes = (int64_t)time->workspace;
            memcpy(of[p].algorithm, time->algorithm, sizeof of[p].algorithm);
        }
    }
    return OK;
}

static enum status measure_layer(const struct session *session, int index, struct libraries *made)
{
    const struct graph *graph = &session->graphs.training;
    const struct node *node = &graph->nodes[index], *input = &graph->nodes[node->inputs[0]];
    bool first = node->inputs[0] == 0, conv = node->op == op_find("conv");
    unsigned wanted = 1u << PHASE_FORWARD | 1u << PHASE_BACKWARD_PARAMS;
    struct op_problem problem = {.session = session, .op = node->op, .settings = node->settings,
                                 .x = input->shape};
    struct library_time times[LIBRARIES_MAX][PHASES];
    if (!first) wanted |= 1u << PHASE_BACKWARD_DATA;
    problem.x.n = made->batch;
    double flops = cost_node_flops(graph, index, made->batch);
    for (int l = 0; l < made->count; l++) {
        const struct library *library = &libraries_of(session)[l];
        for (int p = 0; p < PHASES; p++) times[l][p] = (struct library_time){.ms = NAN};
        if (conv || !library->variants[0]) TRY(measure_library(&problem, library, flops, wanted, times[l]));
    }
    enum dtype dtype = session->hyper.precision->storage;
    for (int p = 0; p < PHASES; p++) {
        if (!(wanted & 1u << phases[p])) continue;
        struct library_row row = {
            .name = node->name, .op = node->op->name, .phase = phase_names[p], .layers = 1,
            .flops = flops,
            .weight_bytes = weight_bytes(graph, node, dtype),
            .activation_bytes = made->batch * shape_count(node->shape) * (int64_t)dtype_bytes(dtype),
        };
        for (int l = 0; l < made->count; l++) {
            row.of[l] = times[l][p];
            made->peaks.tflops = fmax(made->peaks.tflops, 1e-9 * row.flops / row.of[l].ms);
        }
        *array_push(made->rows, made->row_count) = row;
    }
    return OK;
}

enum status libraries_measure(const struct session *session, int batch, struct libraries *made)
{
    const struct graph *graph = &session->graphs.training;
    struct text device = {0};
    size_t left, total;
    session->device->backend->describe(session->device->index, &device);
    session->device->backend->memory.info(session->device, &left, &total);
    *made = (struct libraries){.batch = batch, .precision = session->hyper.precision->name,
                               .device = device.data, .card_bytes = (int64_t)total};
    for (const struct library *library = libraries_of(session); library->name; library++)
        made->names[made->count++] = library->name;
    TRY(peaks_find(session, &made->peaks));
    for (int i = 1; i < graph->count; i++) {
        const struct op *op = graph->nodes[i].op;
        bool wanted = op == op_find("conv") || op == op_find("linear");
        if (wanted && !counted(graph, made, &graph->nodes[i])) TRY(measure_layer(session, i, made));
    }
    return OK;
}

void libraries_free(struct libraries *libraries)
{
    free(libraries->device);
    free(libraries->rows);
    *libraries = (struct libraries){0};
}

struct library_sum libraries_sum(const struct libraries *libraries, const char *op, int library, int both)
{
    struct library_sum sum = {0};
    for (int i = 0; i < libraries->row_count; i++) {
        const struct library_row *row = &libraries->rows[i];
        if (strcmp(row->op, op) != 0 || isnan(row->of[library].ms) || isnan(row->of[both].ms)) continue;
        sum.ms += row->layers * row->of[library].ms;
        sum.flops += row->layers * row->flops;
        sum.rows++;
    }
    return sum;
}
