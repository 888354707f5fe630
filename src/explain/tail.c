#include "explain/tail.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/norm/batchnorm.h"

/* A layer behind the first node. */
struct tail_layer {
    struct tensor x[OP_MAX_INPUTS], d_x[OP_MAX_INPUTS];
    struct tensor params[OP_MAX_PARAMS], d_params[OP_MAX_PARAMS], saved[OP_MAX_SAVED];
    struct call call;
};

struct tail {
    const struct graph *graph;
    int node;                    /* whose output is given */
    bool *behind;                /* by node: it follows from that, and the logits from it */
    struct tensor *y, *d_y;      /* by node */
    struct tail_layer **layers;  /* by node; NULL: it is not behind */
    void **blocks;               /* all memory of tensors */
    int block_count;
};

/* ---- Which layers ---- */

/* Marks the nodes that follow from `node` and lead to the output. False: something else leads there, too. */
static bool find_behind(const struct graph *graph, int node, bool *behind)
{
    bool *needed = memory_new((size_t)graph->count, sizeof *needed), good = graph->output > node;
    needed[graph->output] = true;
    for (int i = graph->output; i > node && good; i--) {
        const struct node *at = &graph->nodes[i];
        if (!needed[i]) continue;
        behind[i] = true;
        for (int k = 0; k < at->input_count; k++) {
            good = good && at->inputs[k] >= node;
            needed[at->inputs[k]] = true;
        }
    }
    good = good && needed[node];
    free(needed);
    return good;
}

bool tail_can_begin(const struct graph *graph, int node)
{
    bool *behind = memory_new((size_t)graph->count, sizeof *behind);
    bool good = find_behind(graph, node, behind);
    free(behind);
    return good;
}

/* ---- Memory ---- */

static struct tensor new_tensor(struct tail *tail, enum dtype dtype, struct shape shape)
{
    void *data = memory_new((size_t)shape_count(shape) + 1, dtype_bytes(dtype));
    *array_push(tail->blocks, tail->block_count) = data;
    return (struct tensor){.data = data, .dtype = dtype, .shape = shape};
}

static size_t tensor_size(const struct tensor *tensor)
{
    return (size_t)shape_count(tensor->shape) * dtype_bytes(tensor->dtype);
}

static bool is_batchnorm(const struct op *op)
{
    return strcmp(op->name, "batchnorm") == 0;
}

static enum status open_params(struct tail *tail, const struct node *node, const struct store *store,
                               struct tail_layer *layer)
{
    for (int i = 0; i < node->param_count; i++) {
        const struct op_param *spec = &tail->graph->params[node->param_first + i].spec;
        layer->params[i] = new_tensor(tail, spec->dtype, spec->shape);
        if (spec->role != ROLE_STATISTIC) layer->d_params[i] = new_tensor(tail, F32, spec->shape);
        TRY(store_read(store, node->param_first + i, STORE_MASTER, layer->params[i].data));
    }
    return OK;
}

static void open_saved(struct tail *tail, const struct op *op, struct tail_layer *layer)
{
    struct op_saved saved[OP_MAX_SAVED];
    struct call *call = &layer->call;
    if (!op->saved) return;
    call->saved_count = op->saved(call->settings, call->x_count, call->x, call->training, saved);
    for (int i = 0; i < call->saved_count; i++)
        layer->saved[i] = new_tensor(tail, saved[i].dtype, saved[i].shape);
}

/* Batch norm alone computes something else in training, apart from layers that only act there. */
static enum status open_layer(struct tail *tail, int at, const struct store *store)
{
    const struct node *node = &tail->graph->nodes[at];
    struct tail_layer *layer = tail->layers[at] = memory_new(1, sizeof *layer);
    tail->y[at] = new_tensor(tail, F32, node->shape);
    tail->d_y[at] = new_tensor(tail, F32, node->shape);
    for (int i = 0; i < node->input_count; i++) {
        layer->x[i] = tail->y[node->inputs[i]];
        layer->d_x[i] = new_tensor(tail, F32, layer->x[i].shape);
    }
    layer->call = (struct call){
        .op = node->op, .settings = node->settings, .training = !is_batchnorm(node->op),
        .x_count = node->input_count, .x = layer->x, .d_x = layer->d_x,
        .y = tail->y[at], .d_y = tail->d_y[at],
        .param_count = node->param_count, .params = layer->params, .d_params = layer->d_params,
        .saved = layer->saved,
    };
    TRY(open_params(tail, node, store, layer));
    open_saved(tail, node->op, layer);
    return OK;
}

enum status tail_open(const struct graph *graph, int node, const struct store *store, struct tail **opened)
{
    size_t count = (size_t)graph->count;
    struct tail *tail = memory_new(1, sizeof *tail);
    *tail = (struct tail){
        .graph = graph, .node = node,
        .behind = memory_new(count, sizeof *tail->behind), .y = memory_new(count, sizeof *tail->y),
        .d_y = memory_new(count, sizeof *tail->d_y), .layers = memory_new(count, sizeof *tail->layers),
    };
    enum status status = OK;
    if (!find_behind(graph, node, tail->behind))
        status = fail(USAGE, "layer '%s' of %s is bypassed by another path", graph->nodes[node].name,
                      graph->arch);
    tail->y[node] = new_tensor(tail, F32, graph->nodes[node].shape);
    tail->d_y[node] = new_tensor(tail, F32, graph->nodes[node].shape);
    for (int i = node + 1; i < graph->count && status == OK; i++)
        if (tail->behind[i]) status = open_layer(tail, i, store);
    if (status == OK) *opened = tail;
    else tail_close(tail);
    return status;
}

void tail_close(struct tail *tail)
{
    if (!tail) return;
    for (int i = 0; i < tail->graph->count; i++) free(tail->layers[i]);
    for (int i = 0; i < tail->block_count; i++) free(tail->blocks[i]);
    free(tail->blocks);
    free(tail->layers);
    free(tail->behind);
    free(tail->y);
    free(tail->d_y);
    free(tail);
}

/* ---- Forward ---- */

static enum status forward_layer(const struct op *op, struct tail_layer *layer)
{
    struct call *call = &layer->call;
    call->phase = PHASE_FORWARD;
    if (!op->training_only) return op->reference->forward(call);
    memcpy(call->y.data, call->x[0].data, tensor_size(&call->y));
    return OK;
}

enum status tail_forward(struct tail *tail, const float *outputs, const float **logits)
{
    memcpy(tail->y[tail->node].data, outputs, tensor_size(&tail->y[tail->node]));
    for (int i = tail->node + 1; i < tail->graph->count; i++)
        if (tail->behind[i]) TRY(forward_layer(tail->graph->nodes[i].op, tail->layers[i]));
    *logits = tail->y[tail->graph->output].data;
    return OK;
}

/* ---- Backward ---- */

/* In an evaluation its statistics are constants. */
static void backward_batchnorm(const struct call *call)
{
    int64_t channels = call->y.shape.c;
    for (int64_t i = 0; i < shape_count(call->y.shape); i++) {
        struct batchnorm_channel channel = batchnorm_channel(call, i % channels);
        tensor_set(&call->d_x[0], i, tensor_get(&call->d_y, i) * channel.weight * channel.invstd);
    }
}

/* True if the gradient of every input is that of the output. */
static bool passes_gradient(const struct op *op, const struct call *call)
{
    struct shape x[OP_MAX_INPUTS];
    for (int i = 0; i < call->x_count; i++) x[i] = call->x[i].shape;
    if (op->training_only) return true;
    return op->passes_gradient && op->passes_gradient(call->settings, call->x_count, x);
}

static enum status backward_layer(const struct op *op, struct tail_layer *layer)
{
    struct call *call = &layer->call;
    bool together = op->reference->backward != NULL;
    call->phase = together ? PHASE_BACKWARD : PHASE_BACKWARD_DATA;
    if (is_batchnorm(op)) {
        backward_batchnorm(call);
        return OK;
    }
    if (!passes_gradient(op, call))
        return together ? op->reference->backward(call) : op->reference->backward_data(call);
    for (int i = 0; i < call->x_count; i++)
        memcpy(call->d_x[i].data, call->d_y.data, tensor_size(&call->d_y));
    return OK;
}

/* An input's gradient is the sum of those that its readers give it. */
static void add_gradients(struct tail *tail, const struct node *node, const struct tail_layer *layer)
{
    for (int i = 0; i < node->input_count; i++) {
        float *sum = tail->d_y[node->inputs[i]].data;
        const float *one = layer->d_x[i].data;
        for (int64_t k = 0; k < shape_count(layer->x[i].shape); k++) sum[k] += one[k];
    }
}

enum status tail_backward(struct tail *tail, int class, const float **gradient)
{
    const struct graph *graph = tail->graph;
    for (int i = tail->node; i < graph->count; i++)
        if (tail->d_y[i].data) memset(tail->d_y[i].data, 0, tensor_size(&tail->d_y[i]));
    ((float *)tail->d_y[graph->output].data)[class] = 1;
    for (int i = graph->output; i > tail->node; i--) {
        if (!tail->behind[i]) continue;
        TRY(backward_layer(graph->nodes[i].op, tail->layers[i]));
        add_gradients(tail, &graph->nodes[i], tail->layers[i]);
    }
    *gradient = tail->d_y[tail->node].data;
    return OK;
}
