/* attention_cudnn.cu: attention of whole images in 16 bits by cuDNN's engines. They know it by its graph of
 * products and softmax, as NVIDIA's frontend describes it (github.com/NVIDIA/cudnn-frontend, 1.15,
 * node/scaled_dot_product_flash_attention.h): matrices of each image and head are [tokens, size], keys and,
 * backward, values are read turned. */
#include "kernels/attention/attention_library.cuh"

extern "C" {
#include "base/memory.h"
#include "device/cuda_dnn.h"
}

#define PREFIX "cudnn "

namespace attention_parts {

/* Numbers of a graph's tensors; those from D_Y on are backward's. SUM, by row, is the sum of d_y * y;
 * D_Q_SUM is d_q in fp32. */
enum { Q, K, V, SCALE, Y, LSE, D_Y, ONE, SUM, D_Q_SUM, D_Q, D_K, D_V };

struct library_attention {
    struct dnn_plan *plan;
    float scale, one;
    size_t d_q_sum, scratch;             /* offsets in the workspace */
};

bool library_takes(const struct call *call, const layout &l)
{
    enum dtype dtype = call->x[0].dtype;
    return (dtype == F16 || dtype == BF16) && l.window == 0 && l.size % 8 == 0 && l.size <= 128;
}

/* Describes tensors of a graph: images, heads, and matrices of them. */
struct describer {
    struct dnn_graph *graph;
    const layout &l;
    enum dtype dtype;

    int matrix(int64_t rows, int64_t columns, int64_t row, int64_t column, int64_t image, int64_t head) const
    {
        return dnn_graph_tensor(graph, {.dtype = dtype, .dim = {l.groups, l.heads, rows, columns},
                                        .stride = {image, head, row, column}});
    }
    /* A part of x, d_x (three a token), y or d_y (one). */
    int part(int parts, bool turned) const
    {
        int64_t pitch = (int64_t)parts * l.heads * l.size, image = l.tokens * pitch;
        return turned ? matrix(l.size, l.tokens, 1, pitch, image, l.size)
                      : matrix(l.tokens, l.size, pitch, 1, image, l.size);
    }
    int number() const
    {
        return dnn_graph_tensor(graph, {.dtype = F32, .dim = {1, 1, 1, 1}, .planar = true, .by_value = true});
    }
    int lse() const
    {
        return dnn_graph_tensor(graph, {.dtype = F32, .dim = {l.groups, l.heads, l.tokens, 1},
                                        .stride = {l.tokens, l.pixels, 1, 1}});
    }
    /* The offset of a tensor with so many fp32 numbers for each token. */
    int rows(int64_t columns, bool on_chip) const
    {
        return dnn_graph_tensor(graph, {.dtype = F32, .dim = {l.groups, l.heads, l.tokens, columns},
                                        .planar = true, .on_chip = on_chip});
    }
    int scores() const { return rows(l.tokens, true); }
    /* Scores that are a factor of a product: in 16 bits, and turned or not. */
    int factor(bool turned) const
    {
        int64_t image = (int64_t)l.heads * l.tokens * l.tokens, head = (int64_t)l.tokens * l.tokens;
        return dnn_graph_tensor(graph, {.dtype = dtype, .dim = {l.groups, l.heads, l.tokens, l.tokens},
                                        .stride = {image, head, turned ? 1 : l.tokens,
                                                   turned ? l.tokens : 1}, .on_chip = true});
    }
    int binary(enum dnn_binary op, int a, int b, int y) const
    {
        dnn_graph_binary(graph, op, a, b, y);
        return y;
    }
    int unary(enum dnn_unary op, int x, int y) const
    {
        dnn_graph_unary(graph, op, x, y);
        return y;
    }
    int reduce(enum dnn_reduction op, int x, int y) const
    {
        dnn_graph_reduce(graph, op, x, y);
        return y;
    }
    int matmul(int a, int b, int c) const
    {
        dnn_graph_matmul(graph, a, b, c);
        return c;
    }
    int reshape(int x, int y) const
    {
        dnn_graph_reshape(graph, x, y);
        return y;
    }
};

static void describe_operands(const describer &d, bool backward)
{
    d.part(3, false), d.part(3, true), d.part(3, backward);              /* Q, K, V */
    d.number();
    d.part(1, false);
    d.lse();
    if (!backward) return;
    d.part(1, false);
    d.number();
    d.rows(1, false), d.rows(d.l.size, false);                           /* SUM, D_Q_SUM */
    for (int i = 0; i < 3; i++) d.part(3, false);
}

static void describe_forward(const describer &d)
{
    int scores = d.binary(DNN_MULTIPLY, d.matmul(Q, K, d.scores()), SCALE, d.scores());
    int max = d.reduce(DNN_MAXIMUM, scores, d.rows(1, true));
    int exps = d.unary(DNN_EXP, d.binary(DNN_SUBTRACT, scores, max, d.scores()), d.scores());
    int sum = d.reduce(DNN_SUM, exps, d.rows(1, true));
    d.binary(DNN_ADD, max, d.unary(DNN_LOG, sum, d.rows(1, true)), LSE);
    d.matmul(d.binary(DNN_DIVIDE, exps, sum, d.factor(false)), V, Y);
}

static void describe_backward(const describer &d)
{
    int sums = d.reduce(DNN_SUM, d.binary(DNN_MULTIPLY, D_Y, Y, d.rows(d.l.size, true)), d.rows(1, true));
    d.binary(DNN_MULTIPLY, sums, ONE, SUM);
    int scores = d.binary(DNN_MULTIPLY, d.matmul(Q, K, d.scores()), SCALE, d.scores());
    int p = d.unary(DNN_EXP, d.binary(DNN_SUBTRACT, scores, LSE, d.scores()), d.scores());
    d.matmul(d.reshape(p, d.factor(true)), D_Y, D_V);
    int d_p = d.binary(DNN_SUBTRACT, d.matmul(D_Y, V, d.scores()), SUM, d.scores());
    int d_s = d.binary(DNN_MULTIPLY, d.binary(DNN_MULTIPLY, d_p, p, d.scores()), SCALE, d.scores());
    d.matmul(d.reshape(d_s, d.factor(true)), Q, D_K);
    int64_t pitch = (int64_t)3 * d.l.heads * d.l.size;
    struct dnn_tensor keys = {.dtype = d.dtype, .dim = {d.l.groups, d.l.heads, d.l.tokens, d.l.size},
                              .stride = {d.l.tokens * pitch, d.l.size, pitch, 1}, .on_chip = true};
    d.unary(DNN_COPY, d.matmul(d_s, d.reshape(K, dnn_graph_tensor(d.graph, keys)), D_Q_SUM), D_Q);
}

/* NULL: cuDNN does not know it. */
static struct dnn_graph *describe(const struct call *call, const layout &l, bool backward,
                                  cudnnHandle_t handle)
{
    describer d = {dnn_graph_new(), l, call->x[0].dtype};
    describe_operands(d, backward);
    if (backward) describe_backward(d);
    else describe_forward(d);
    if (dnn_graph_finish(d.graph, handle)) return d.graph;
    dnn_graph_free(d.graph);
    return NULL;
}

static int library_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    constexpr int worth = 4;
    char engines[worth][DNN_ENGINE_TEXT];
    const struct dnn_rules rules = {.tensor_cores = true, .deterministic = call->deterministic,
                                    .compiled = DNN_COMPILED_TOO};
    cudnnHandle_t handle;
    if (call_cudnn(call, &handle) != OK) return 0;
    struct dnn_graph *graph = describe(call, layout_of(call), call->phase == PHASE_BACKWARD, handle);
    int count = graph ? dnn_graph_engines(graph, &rules, most < worth ? most : worth, engines) : 0;
    for (int i = 0; i < count; i++) snprintf(names[i], PLAN_NAME, PREFIX "%.191s", engines[i]);
    dnn_graph_free(graph);
    return count;
}

static bool library_make(const struct call *call, struct kernel_plan *made)
{
    const layout l = layout_of(call);
    bool backward = call->phase == PHASE_BACKWARD;
    cudnnHandle_t handle;
    if (strncmp(made->name, PREFIX, strlen(PREFIX)) != 0 || call_cudnn(call, &handle) != OK) return false;
    struct dnn_graph *graph = describe(call, l, backward, handle);
    struct dnn_plan *plan = graph ? dnn_plan_make(graph, handle, made->name + strlen(PREFIX)) : NULL;
    dnn_graph_free(graph);
    if (!plan) return false;
    struct library_attention *state = (struct library_attention *)memory_new(1, sizeof *state);
    size_t rows = (size_t)l.heads * l.pixels * sizeof(float);
    *state = {.plan = plan, .scale = l.scale / log2_e, .one = 1, .d_q_sum = workspace_align(rows)};
    state->scratch = state->d_q_sum + (backward ? workspace_align(rows * l.size) : 0);
    made->workspace = state->scratch + dnn_plan_workspace(plan);
    made->state = state;
    return true;
}

static void library_release(struct kernel_plan *made)
{
    dnn_plan_free(((struct library_attention *)made->state)->plan);
    free(made->state);
}

/* Forward without a place for lse, and recompute, leave it in the workspace. */
static enum status library_run(const struct call *call, const struct kernel_plan *plan)
{
    struct library_attention *made = (struct library_attention *)plan->state;
    bool backward = call->phase == PHASE_BACKWARD;
    size_t part = (size_t)call->x[0].shape.c / 3 * dtype_bytes(call->x[0].dtype);
    char *x = (char *)call->x[0].data, *workspace = (char *)call->workspace;
    bool saves = call->saved_count > 0 && call->phase != PHASE_RECOMPUTE;
    void *lse = saves ? call->saved[ATTENTION_LSE].data : workspace;
    void *data[DNN_TENSORS] = {x, x + part, x + 2 * part, &made->scale, call->y.data, lse};
    cudnnHandle_t handle;
    TRY(call_cudnn(call, &handle));
    if (backward) {
        char *d_x = (char *)call->d_x[0].data;
        void *more[] = {call->d_y.data, &made->one, workspace, workspace + made->d_q_sum, d_x, d_x + part,
                        d_x + 2 * part};
        memcpy(data + D_Y, more, sizeof more);
    }
    cudnnStatus_t error = dnn_plan_run(made->plan, handle, data, workspace + made->scratch);
    if (error != CUDNN_STATUS_SUCCESS && !plan->trusted) return NO_DEVICE;
    return cuda_cudnn_status(call->device, error, "attention");
}

extern const struct algorithm by_library = {
    .name = "cudnn", .candidates = library_candidates, .make = library_make, .run = library_run,
    .release = library_release,
};

}
