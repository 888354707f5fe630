/* conv_cudnn.cu: convolution by cuDNN's engines, on tensors as they are or copied into a layout on which
 * engines are faster: channels padded, pixels folded into channels (space to depth), or channels
 * outermost. */
#include "kernels/conv/conv_layout.cuh"

extern "C" {
#include "base/memory.h"
#include "device/cuda_dnn.h"
}

#define LAYOUT_NAME 24
#define LAYOUTS 18
#define ENGINES 12                       /* of one layout, worth timing */

/* A problem as it is passed to cuDNN. Tensors that differ from the problem's are in the workspace. */
struct layout {
    char name[LAYOUT_NAME];
    int most;                            /* engines worth timing */
    int c, k;
    int fold[2];                         /* pixels of x folded into one; 1, 1: none */
    int in[2], kernel[2], stride[2], pad[2];
    bool planar;                         /* channels outermost */
    bool adds_bias;                      /* the engine adds it; else it is added when y is converted */
    bool applies_relu;                   /* the engine, behind the bias */
    bool gives_sums;
    enum dtype weight_type, y_type;      /* of what the engine writes */
};

static int round_up(int value, int multiple)
{
    return div_up(value, multiple) * multiple;
}

/* Channels of whole 16-byte packs. */
static int whole_packs(const struct conv_call *p)
{
    return p->dtype == F32 ? 4 : 8;
}

static struct layout plain_layout(const struct conv_call *p, const char *name, int most)
{
    struct layout layout = {.most = most, .c = p->c, .k = p->k, .fold = {1, 1}};
    snprintf(layout.name, sizeof layout.name, "%s", name);
    for (int i = 0; i < 2; i++) {
        layout.in[i] = p->in[i];
        layout.kernel[i] = p->kernel[i];
        layout.stride[i] = p->stride[i];
        layout.pad[i] = p->pad[i];
    }
    layout.weight_type = layout.y_type = p->dtype;
    return layout;
}

static struct layout padded_layout(const struct conv_call *p, int channels, int filters)
{
    struct layout layout = plain_layout(p, "padded", 4);
    snprintf(layout.name, sizeof layout.name, "padded%d", channels);
    layout.c = p->groups * round_up(p->c / p->groups, channels);
    layout.k = p->groups * round_up(p->k / p->groups, filters);
    return layout;
}

/* The offset of pixel 0 of x in folded pixels: taps move by `shift`, so that the first one is at a whole
 * pixel. */
static int fold_shift(const struct conv_call *p, const struct layout *layout, int i)
{
    int over = p->pad[i] % layout->fold[i];
    return over ? layout->fold[i] - over : 0;
}

static struct layout folded_layout(const struct conv_call *p, int down, int across)
{
    struct layout layout = padded_layout(p, 1, whole_packs(p));
    snprintf(layout.name, sizeof layout.name, "folded%dx%d", down, across);
    layout.fold[0] = down;
    layout.fold[1] = across;
    layout.c = round_up(p->c * down * across, whole_packs(p));
    for (int i = 0; i < 2; i++) {
        layout.stride[i] = p->stride[i] / layout.fold[i];
        layout.kernel[i] = div_up(p->kernel[i] + fold_shift(p, &layout, i), layout.fold[i]);
        layout.in[i] = layout.stride[i] * (p->out[i] - 1) + layout.kernel[i];
        layout.pad[i] = 0;
    }
    return layout;
}

static struct layout_fold layout_fold(const struct conv_call *p, const struct layout *layout)
{
    struct layout_fold fold = {.n = p->n, .c = p->c, .channels = layout->c, .filters = p->k};
    for (int i = 0; i < 2; i++) {
        fold.in[i] = p->in[i];
        fold.out[i] = layout->in[i];
        fold.fold[i] = layout->fold[i];
        fold.shift[i] = fold_shift(p, layout, i);
        fold.lead[i] = p->pad[i] + fold.shift[i];
        fold.kernel[i] = p->kernel[i];
        fold.taps[i] = layout->kernel[i];
    }
    return fold;
}

static bool is_folded(const struct layout *layout)
{
    return layout->fold[0] > 1 || layout->fold[1] > 1;
}

static bool can_fold(const struct conv_call *p)
{
    return p->phase != PHASE_BACKWARD_DATA && p->groups == 1 && p->dilation[0] == 1 && p->dilation[1] == 1 &&
           p->stride[1] > 1 && p->c * p->stride[0] * p->stride[1] <= 32;
}

/* Layouts by what they do to x and y. */
static int image_layouts(const struct conv_call *p, struct layout out[LAYOUTS])
{
    int count = 0, packs = whole_packs(p), channels = p->c / p->groups, filters = p->k / p->groups;
    bool even = channels % packs == 0 && filters % packs == 0;
    bool exact = p->dtype == F32 && !p->call->tf32;
    out[count++] = plain_layout(p, "plain", even ? 8 : 4);
    if (!even && !exact && (p->groups == 1 || channels > 2)) out[count++] = padded_layout(p, packs, packs);
    if (p->groups == 1 && channels < 4 && packs == 8) out[count++] = padded_layout(p, 4, packs);
    if (can_fold(p)) {
        out[count++] = folded_layout(p, 1, p->stride[1]);
        if (p->stride[0] > 1) out[count++] = folded_layout(p, p->stride[0], p->stride[1]);
    }
    if (exact) {
        out[count] = plain_layout(p, "planar", 12);
        out[count++].planar = true;
    }
    return count;
}

static void layout_rename(struct layout *layout, const char *extra)
{
    size_t length = strlen(layout->name);
    snprintf(layout->name + length, sizeof layout->name - length, "%s", extra);
}

/* The variants of an image layout's results. Gradients of weights, and sums to which a bias is still added,
 * are best in fp32, which not every engine supports. */
static int weight_layouts(const struct conv_call *p, const struct layout *image, struct layout *out)
{
    int count = 0;
    out[count] = *image;
    out[count++].weight_type = F32;
    if (p->dtype == F32 || conv_is_small(p)) return count;
    out[count] = *image;
    layout_rename(&out[count++], "+narrow");
    return count;
}

/* Engines that add the bias to filters which are no whole packs round the sums to y's type before: in bf16
 * that is off by a few steps. */
static bool can_add_bias(const struct conv_call *p, const struct layout *image)
{
    bool rounds = p->dtype == BF16 && p->k % whole_packs(p) != 0;
    return conv_adds_bias(p->call) && image->k == p->k && !rounds;
}

static int forward_layouts(const struct conv_call *p, const struct layout *image, struct layout *out)
{
    int count = 0;
    out[count] = *image;
    if (conv_adds_bias(p->call)) {
        out[count].y_type = F32;
        layout_rename(&out[count], "+late");
    }
    count++;
    if (can_add_bias(p, image)) {
        out[count] = *image;
        out[count].adds_bias = true;
        layout_rename(&out[count++], "+bias");
    }
    if (can_add_bias(p, image) && conv_applies_relu(p->call)) {
        out[count] = *image;
        out[count].adds_bias = out[count].applies_relu = true;
        layout_rename(&out[count++], "+relu");
    }
    /* Adds its sums in the order in which blocks end, whatever its behaviour notes say. */
    bool sums = conv_gives_moments(p->call) && !p->call->deterministic && !conv_adds_bias(p->call) &&
                !conv_is_small(p);
    if (sums && !image->planar && image->k == p->k && p->k % 4 == 0) {
        out[count] = *image;
        out[count].gives_sums = true;
        layout_rename(&out[count++], "+sums");
    }
    return count;
}

/* All layouts for a problem, always in the same order, so that a cached name is found again. */
static int all_layouts(const struct conv_call *p, struct layout out[LAYOUTS])
{
    struct layout image[LAYOUTS];
    int images = image_layouts(p, image), count = 0;
    for (int i = 0; i < images; i++) {
        if (p->phase == PHASE_BACKWARD_PARAMS) count += weight_layouts(p, &image[i], out + count);
        else if (p->phase == PHASE_FORWARD) count += forward_layouts(p, &image[i], out + count);
        else out[count++] = image[i];    /* fused with a bias it is compiled at run time, for seconds */
    }
    return count;
}

/* Numbers of a graph's tensors. */
enum { X, WEIGHT, Y, BIAS, UNBIASED, BIASED, SUMS = BIAS, SQUARES };

/* y with a bias, and relu if the layout says so, fused by the engine. */
static void describe_biased(const struct conv_call *p, const struct layout *l, struct dnn_graph *graph,
                            const struct dnn_convolution *convolution)
{
    struct dnn_tensor on_chip = {.dtype = F32, .dim = {p->n, l->k, p->out[0], p->out[1]},
                                 .planar = l->planar, .on_chip = true};
    dnn_graph_tensor(graph, {.dtype = p->dtype, .dim = {1, l->k, 1, 1}});
    dnn_graph_tensor(graph, on_chip);
    if (l->applies_relu) dnn_graph_tensor(graph, on_chip);
    dnn_graph_forward(graph, convolution, X, WEIGHT, UNBIASED);
    dnn_graph_binary(graph, DNN_ADD, UNBIASED, BIAS, l->applies_relu ? BIASED : Y);
    if (l->applies_relu) dnn_graph_relu(graph, BIASED, Y);
}

static struct dnn_graph *describe(const struct conv_call *p, const struct layout *l, cudnnHandle_t handle)
{
    struct dnn_graph *graph = dnn_graph_new();
    struct dnn_convolution convolution = {.pad = {l->pad[0], l->pad[1]},
                                          .stride = {l->stride[0], l->stride[1]},
                                          .dilation = {p->dilation[0], p->dilation[1]}};
    dnn_graph_tensor(graph,
                     {.dtype = p->dtype, .dim = {p->n, l->c, l->in[0], l->in[1]}, .planar = l->planar});
    dnn_graph_tensor(graph, {.dtype = l->weight_type,
                             .dim = {l->k, l->c / p->groups, l->kernel[0], l->kernel[1]},
                             .planar = l->planar});
    dnn_graph_tensor(graph,
                     {.dtype = l->y_type, .dim = {p->n, l->k, p->out[0], p->out[1]}, .planar = l->planar});
    if (l->adds_bias) {
        describe_biased(p, l, graph, &convolution);
    } else if (p->phase == PHASE_BACKWARD_DATA) {
        dnn_graph_backward_data(graph, &convolution, Y, WEIGHT, X);
    } else if (p->phase == PHASE_BACKWARD_PARAMS) {
        dnn_graph_backward_weight(graph, &convolution, X, Y, WEIGHT);
    } else {
        dnn_graph_forward(graph, &convolution, X, WEIGHT, Y);
    }
    if (l->gives_sums) {
        dnn_graph_tensor(graph, {.dtype = F32, .dim = {1, l->k, 1, 1}});
        dnn_graph_tensor(graph, {.dtype = F32, .dim = {1, l->k, 1, 1}});
        dnn_graph_statistics(graph, Y, SUMS, SQUARES);
    }
    if (dnn_graph_finish(graph, handle)) return graph;
    dnn_graph_free(graph);
    return NULL;
}

/* Sums in the order of arrival are only faster in large fp32 problems, and lose digits in 16 bits. Engines
 * that are compiled at run time, for seconds, are 30 times as slow as the best where they write fp32 from 16
 * bits, but five times as fast for weights of large kernels in groups; what they would fuse a sweep does. */
static struct dnn_rules rules_of(const struct conv_call *p, const struct layout *l)
{
    bool small = conv_is_small(p), widens = p->dtype != F32 && l->weight_type == F32;
    bool fuses = l->adds_bias || l->gives_sums;
    bool large = p->phase == PHASE_BACKWARD_PARAMS && p->groups > 1 && p->kernel[0] * p->kernel[1] > 25;
    return {.tensor_cores = p->call->tf32,
            .deterministic = p->call->deterministic || p->dtype != F32 || small,
            .compiled = large                        ? DNN_COMPILED_TOO
                        : fuses || (widens && !small) ? DNN_COMPILED_NEVER
                                                      : DNN_COMPILED_FOR_WANT_OF_OTHERS};
}

static int cudnn_candidates(const struct call *call, int most, char names[][PLAN_NAME])
{
    const struct conv_call p = conv_call_of(call);
    struct layout layouts[LAYOUTS];
    char engines[ENGINES][DNN_ENGINE_TEXT];
    cudnnHandle_t handle;
    int count = 0, layout_count = all_layouts(&p, layouts);
    if (call_cudnn(call, &handle) != OK) return 0;
    for (int i = 0; i < layout_count; i++) {
        char name[LAYOUT_NAME + 8];
        snprintf(name, sizeof name, "cudnn %.23s", layouts[i].name);
        bool wanted = !call->variant || op_variant_is(name, call->variant);
        struct dnn_graph *graph = wanted ? describe(&p, &layouts[i], handle) : NULL;
        if (!graph) continue;
        struct dnn_rules rules = rules_of(&p, &layouts[i]);
        int found = dnn_graph_engines(graph, &rules, conv_is_small(&p) ? 2 : layouts[i].most, engines);
        for (int e = 0; e < found && count < most; e++)
            snprintf(names[count++], PLAN_NAME, "%s %.191s", name, engines[e]);
        dnn_graph_free(graph);
    }
    return count;
}

struct cudnn_plan {
    struct layout layout;
    struct dnn_plan *plan;
    bool copies[3];                      /* offsets of X, WEIGHT, Y in the workspace */
    size_t offset[3], scratch;           /* ... and of the plan's own workspace */
};

static size_t operand_bytes(const struct conv_call *p, const struct layout *l, int operand)
{
    if (operand == X) return (size_t)p->n * l->in[0] * l->in[1] * l->c * dtype_bytes(p->dtype);
    if (operand == Y) return (size_t)p->n * p->out[0] * p->out[1] * l->k * dtype_bytes(l->y_type);
    return (size_t)l->k * (l->c / p->groups) * l->kernel[0] * l->kernel[1] * dtype_bytes(l->weight_type);
}

static bool operand_is_copied(const struct conv_call *p, const struct layout *l, int operand)
{
    if (operand == X) return l->planar || l->c != p->c || is_folded(l);
    if (operand == Y) return l->planar || l->k != p->k || l->y_type != p->dtype;
    bool narrow = p->phase == PHASE_BACKWARD_PARAMS && l->weight_type != F32;
    bool turned = l->planar && l->kernel[0] * l->kernel[1] > 1 && p->c > p->groups;
    return narrow || turned || l->c != p->c || l->k != p->k || is_folded(l);
}

/* "plain 37 2=5": the layout's name, then the engine. */
static const char *engine_text(const char *name, const struct layout *layout)
{
    size_t length = strlen(layout->name);
    return strncmp(name, layout->name, length) == 0 && name[length] == ' ' ? name + length + 1 : NULL;
}

static bool plan_layout(const struct conv_call *p, const char *name, cudnnHandle_t handle,
                        struct cudnn_plan *made)
{
    struct layout layouts[LAYOUTS];
    int count = all_layouts(p, layouts);
    for (int i = 0; i < count; i++) {
        const char *engine = engine_text(name, &layouts[i]);
        if (!engine) continue;
        struct dnn_graph *graph = describe(p, &layouts[i], handle);
        if (!graph) return false;
        made->layout = layouts[i];
        made->plan = dnn_plan_make(graph, handle, engine);
        dnn_graph_free(graph);
        return made->plan != NULL;
    }
    return false;
}

static bool cudnn_make(const struct call *call, struct kernel_plan *plan)
{
    const struct conv_call p = conv_call_of(call);
    struct cudnn_plan made = {};
    cudnnHandle_t handle;
    const char *name = plan->name + strlen("cudnn");
    if (*name++ != ' ' || call_cudnn(call, &handle) != OK || !plan_layout(&p, name, handle, &made))
        return false;
    size_t bytes = 0;
    for (int i = X; i <= Y; i++) {
        made.copies[i] = operand_is_copied(&p, &made.layout, i);
        if (!made.copies[i]) continue;
        made.offset[i] = bytes;
        bytes += workspace_align(operand_bytes(&p, &made.layout, i));
    }
    made.scratch = bytes;
    plan->workspace = bytes + dnn_plan_workspace(made.plan);
    struct cudnn_plan *state = (struct cudnn_plan *)memory_new(1, sizeof *state);
    *state = made;
    plan->state = state;
    bool late = made.layout.y_type != p.dtype;
    if (made.layout.gives_sums) plan->epilogues |= AS_BIT(EPILOGUE_MOMENTS);
    if (made.layout.applies_relu || late) plan->epilogues |= AS_BIT(EPILOGUE_RELU);
    return true;
}

static void cudnn_release(struct kernel_plan *plan)
{
    struct cudnn_plan *made = (struct cudnn_plan *)plan->state;
    dnn_plan_free(made->plan);
    free(made);
}

/* Pixels times groups: the rows of channels that are padded. */
static struct layout_resize image_view(const struct conv_call *p, const int size[2], int from, int to)
{
    return {.blocks = 1, .rows = {1, 1}, .middle = (int64_t)p->n * size[0] * size[1] * p->groups,
            .width = {from / p->groups, to / p->groups}};
}

static struct layout_resize weight_view(const struct conv_call *p, int from_c, int to_c, int from_k,
                                        int to_k)
{
    return {.blocks = p->groups, .rows = {from_k / p->groups, to_k / p->groups},
            .middle = (int64_t)p->kernel[0] * p->kernel[1], .width = {from_c / p->groups, to_c / p->groups}};
}

static enum status copy_x_in(const struct conv_call *p, const struct layout *l, const struct call *call,
                             void *to, const void *x)
{
    if (l->planar)
        return layout_transpose(call, p->n, p->in[0] * p->in[1], p->c, (float *)to, (const float *)x);
    if (is_folded(l)) {
        struct layout_fold fold = layout_fold(p, l);
        return layout_fold_x(call, &fold, p->dtype, to, x);
    }
    return layout_resize(call, image_view(p, p->in, p->c, l->c), p->dtype, to, p->dtype, x);
}

static enum status copy_x_out(const struct conv_call *p, const struct layout *l, const struct call *call,
                              void *x, const void *from)
{
    if (l->planar)
        return layout_transpose(call, p->n, p->c, p->in[0] * p->in[1], (float *)x, (const float *)from);
    return layout_resize(call, image_view(p, p->in, l->c, p->c), p->dtype, x, p->dtype, from);
}

static enum status copy_y_in(const struct conv_call *p, const struct layout *l, const struct call *call,
                             void *to, const void *y)
{
    if (l->planar)
        return layout_transpose(call, p->n, p->out[0] * p->out[1], p->k, (float *)to, (const float *)y);
    return layout_resize(call, image_view(p, p->out, p->k, l->k), p->dtype, to, p->dtype, y);
}

static enum status copy_weight_in(const struct conv_call *p, const struct layout *l,
                                  const struct call *call, void *to, const void *weight)
{
    if (l->planar)
        return layout_transpose(call, p->k, p->kernel[0] * p->kernel[1], p->c / p->groups, (float *)to,
                                (const float *)weight);
    if (is_folded(l)) {
        struct layout_fold fold = layout_fold(p, l);
        return layout_fold_weight(call, &fold, p->dtype, to, weight);
    }
    return layout_resize(call, weight_view(p, p->c, l->c, p->k, l->k), p->dtype, to, p->dtype, weight);
}

static enum status copy_weight_out(const struct conv_call *p, const struct layout *l,
                                   const struct call *call, float *weight, const void *from)
{
    if (l->planar)
        return layout_transpose(call, p->k, p->c / p->groups, p->kernel[0] * p->kernel[1], weight,
                                (const float *)from);
    if (is_folded(l)) {
        struct layout_fold fold = layout_fold(p, l);
        return layout_unfold_weight(call, &fold, weight, l->weight_type, from);
    }
    return layout_resize(call, weight_view(p, l->c, p->c, l->k, p->k), F32, weight, l->weight_type, from);
}

/* Converts y from the layout, and adds the bias and applies relu if the engine did not. */
static enum status finish_y(const struct conv_call *p, const struct kernel_plan *plan, const void *from)
{
    const struct call *call = p->call;
    const struct layout *l = &((const struct cudnn_plan *)plan->state)->layout;
    const void *bias = l->adds_bias ? NULL : conv_bias(call);
    void *y = conv_y(call);
    bool relu = conv_applies_relu(call) && (plan->epilogues & AS_BIT(EPILOGUE_RELU));
    if (l->planar) {
        TRY(layout_transpose(call, p->n, p->k, p->out[0] * p->out[1], (float *)y, (const float *)from));
        from = y;
    }
    if (from == y && !bias) return OK;
    return layout_output(call, {.rows = (int64_t)p->n * p->out[0] * p->out[1],
                                .groups = p->groups,
                                .filters = p->k / p->groups,
                                .wide = l->k / p->groups,
                                .y_type = p->dtype,
                                .from_type = l->y_type,
                                .y = y,
                                .from = from,
                                .bias = bias,
                                .relu = relu});
}

static enum status cudnn_run(const struct call *call, const struct kernel_plan *plan)
{
    const struct cudnn_plan *made = (const struct cudnn_plan *)plan->state;
    const struct conv_call own = conv_call_of(call), *p = &own;
    const struct layout *l = &made->layout;
    void *x = conv_x(call), *weight = conv_weight(call), *y = conv_y(call);
    char *workspace = (char *)call->workspace;
    void *data[DNN_TENSORS] = {x, weight, y, conv_bias(call)};
    cudnnHandle_t handle;
    TRY(call_cudnn(call, &handle));
    if (l->gives_sums) {
        data[SUMS] = call_data(call, OPERAND_Y_MOMENTS);
        data[SQUARES] = (float *)data[SUMS] + p->k;
    }
    for (int i = X; i <= Y; i++)
        if (made->copies[i]) data[i] = workspace + made->offset[i];
    bool forward = p->phase == PHASE_FORWARD, params = p->phase == PHASE_BACKWARD_PARAMS;
    if (made->copies[X] && p->phase != PHASE_BACKWARD_DATA) TRY(copy_x_in(p, l, call, data[X], x));
    if (made->copies[WEIGHT] && !params) TRY(copy_weight_in(p, l, call, data[WEIGHT], weight));
    if (made->copies[Y] && !forward) TRY(copy_y_in(p, l, call, data[Y], y));
    cudnnStatus_t error = dnn_plan_run(made->plan, handle, data, workspace + made->scratch);
    if (error != CUDNN_STATUS_SUCCESS)
        return plan->trusted ? cuda_cudnn_status(call->device, error, "a convolution") : NO_DEVICE;
    if (forward) return finish_y(p, plan, data[Y]);
    if (params && made->copies[WEIGHT]) return copy_weight_out(p, l, call, (float *)weight, data[WEIGHT]);
    if (!params && made->copies[X]) return copy_x_out(p, l, call, x, data[X]);
    return OK;
}

const struct algorithm conv_by_cudnn = {
    .name = "cudnn",
    .supports = conv_is_usual,
    .candidates = cudnn_candidates,
    .make = cudnn_make,
    .run = cudnn_run,
    .release = cudnn_release,
};
