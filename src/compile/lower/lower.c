/* lower.c: turns a graph into a forward program with loss and rank; autocast.c and differentiate.c add
 * dtypes, backward pass and update. */
#include "compile/lower/lower.h"

#include <assert.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "data/loader/mask_targets.h"
#include "kernels/loss/loss_targets.h"
#include "kernels/loss/pixel_loss.h"

struct lowering {
    struct program *program;
    const struct graph *graph;
    const struct lower_options *options;
    struct shape *shapes;        /* of the nodes, for one micro-batch */
    bool *needed, *teaches;      /* nodes that lead to the output, and to a teacher's */
    int *param_values;           /* by parameter: what ops read */
    int images;                  /* in a micro-batch */
    const struct op *loss;
    const void *loss_settings;
    int loss_inputs;             /* logits, labels, a teacher's logits, logits of a head for it */
    int heads[2];                /* the nodes of the logits: for the labels, for the teacher */
    struct pixel_output *pixel_outputs;      /* [pixel_output_count] with masks, in training */
    int pixel_output_count;
};

/* An output of a network for pixels. */
struct pixel_output {
    int node, weights;           /* the value of the weights of classes */
    const void *settings;        /* of its loss */
    const char *name;            /* NULL: it is the only one */
};

/* Kernel plans of instructions without a node come after those of nodes. */
enum { KERNEL_PLAN_LOSS, KERNEL_PLAN_RANK, KERNEL_PLAN_LOGITS, KERNEL_PLAN_MORE };

static int value_batch(struct lowering *l, enum value_home home, enum dtype dtype, const char *name)
{
    struct value value = {.home = home, .kind = KIND_OTHER, .dtype = dtype, .node = -1,
                          .index = -1, .shape = shape_nhwc(l->program->batch, 1, 1, 1)};
    return build_value(l->program, value, text_copy(name));
}

/* The results of all images together, one after another in the results block. */
static void lower_results(struct lowering *l)
{
    struct program *program = l->program;
    int *ids[] = {&program->loss, &program->rank, &program->logits};
    program->loss = program->rank = program->logits = -1;
    bool masks = l->options->pixel_loss, losses = !l->options->features && (!masks || program->training);
    if (losses) program->loss = value_batch(l, HOME_RESULT, F32, "loss");
    if (losses && !masks) program->rank = value_batch(l, HOME_RESULT, I32, "rank");
    if (l->options->logits && !program->training) {
        program->logits = value_batch(l, HOME_RESULT, F32, "logits");
        struct value *logits = &program->values[program->logits];
        logits->shape = l->graph->nodes[l->graph->output].shape;
        logits->shape.n = program->batch;
        logits->bytes = shape_count(logits->shape) * (int64_t)sizeof(float);
    }
    for (int i = 0; i < 3; i++) {
        if (*ids[i] < 0) continue;
        struct value *value = &program->values[*ids[i]];
        value->offset = program->results_bytes;
        program->results_bytes += (value->bytes + 255) / 256 * 256;
    }
}

/* The part of a value over the whole batch that belongs to a micro-batch. */
static int value_micro_batch(struct lowering *l, int whole, int micro_batch)
{
    struct value value = l->program->values[whole];
    char *name = text_copy(value.name);
    value.offset += value.bytes / l->program->micro_batches * micro_batch;
    value.shape.n = l->images;
    return build_value(l->program, value, name);
}

static void lower_params(struct lowering *l)
{
    for (int p = 0; p < l->graph->param_count; p++) {
        const struct parameter *param = &l->graph->params[p];
        enum dtype dtype = program_param_dtype(l->graph, p, l->options->storage);
        struct value value = {.home = HOME_PARAM, .kind = KIND_OTHER, .dtype = dtype,
                              .shape = param->spec.shape, .node = param->node, .index = p,
                              .low = dtype != param->spec.dtype};
        l->param_values[p] = build_value(l->program, value, text_copy(param->name));
    }
}

static int lower_activation(struct lowering *l, int node)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_ACTIVATION, .dtype = F32,
                          .shape = l->shapes[node], .node = node, .index = -1};
    return build_value(l->program, value, text_copy(l->graph->nodes[node].name));
}

static void lower_node(struct lowering *l, int node, int micro_batch, int *outputs)
{
    const struct node *at = &l->graph->nodes[node];
    struct instruction forward = instruction_new(PHASE_FORWARD, at->op, at->settings,
                                                 instruction_name(l->program, node, PHASE_FORWARD));
    forward.node = node;
    forward.kernel_plan = node;
    forward.micro_batch = micro_batch;
    for (int i = 0; i < at->input_count; i++) operand_set(&forward, OPERAND_X, i, outputs[at->inputs[i]]);
    for (int i = 0; i < at->param_count; i++)
        operand_set(&forward, OPERAND_PARAM, i, l->param_values[at->param_first + i]);
    outputs[node] = lower_activation(l, node);
    operand_set(&forward, OPERAND_Y, 0, outputs[node]);
    build_push(l->program, forward);
}

/* An op that reads the logits, and for loss and rank the labels, and writes a result. */
struct result_op {
    const char *name;
    const void *settings;
    int kernel_plan;
    int x_count;
    int result;                /* the value of the whole batch */
};

/* Returns y. */
static int push_forward(struct lowering *l, struct instruction forward, const int *x, int x_count, int y)
{
    for (int i = 0; i < x_count; i++) operand_set(&forward, OPERAND_X, i, x[i]);
    operand_set(&forward, OPERAND_Y, 0, y);
    build_push(l->program, forward);
    return y;
}

static void lower_result(struct lowering *l, const struct result_op *op, const int *x, int micro_batch)
{
    struct instruction forward = instruction_new(PHASE_FORWARD, build_op(op->name), op->settings,
                                                 text_copy(l->program->values[op->result].name));
    forward.kernel_plan = l->graph->count + op->kernel_plan;
    forward.micro_batch = micro_batch;
    forward.loss_weight = 1.0f / (float)l->program->all_micro_batches;
    push_forward(l, forward, x, op->x_count, value_micro_batch(l, op->result, micro_batch));
}

/* A number for each image, which is added to others. */
static int value_part(struct lowering *l, char *name)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_OTHER, .dtype = F32, .node = -1, .index = -1,
                          .shape = shape_nhwc(l->images, 1, 1, 1)};
    return build_value(l->program, value, name);
}

static void lower_pixel_losses(struct lowering *l, const int *outputs, int micro_batch)
{
    struct program *program = l->program;
    int labels = value_micro_batch(l, program->labels, micro_batch), sum = -1;
    int loss = value_micro_batch(l, program->loss, micro_batch), count = l->pixel_output_count;
    for (int i = 0; i < count; i++) {
        const struct pixel_output *output = &l->pixel_outputs[i];
        const int x[] = {outputs[output->node], labels, output->weights};
        char *name = output->name ? text_format("loss of %s", output->name) : text_copy("loss");
        struct instruction forward = instruction_new(PHASE_FORWARD, l->loss, output->settings, name);
        forward.kernel_plan = l->graph->count + KERNEL_PLAN_MORE + i;
        forward.micro_batch = micro_batch;
        forward.loss_weight = 1.0f / (float)program->all_micro_batches;
        int y = push_forward(l, forward, x, PIXEL_INPUTS, count == 1 ? loss : value_part(l, text_copy(name)));
        const int both[] = {sum, y};
        if (i == 0) sum = y;
        if (i == 0) continue;
        struct instruction add = instruction_new(PHASE_FORWARD, build_op("sum"), NULL, text_copy("loss"));
        add.micro_batch = micro_batch;
        int result = i + 1 == count ? loss : value_part(l, text_copy("sum of losses"));
        sum = push_forward(l, add, both, 2, result);
    }
}

static void lower_loss_and_rank(struct lowering *l, const int *outputs, int micro_batch)
{
    struct program *program = l->program;
    int labels = value_micro_batch(l, program->labels, micro_batch), logits = outputs[l->graph->output];
    const int x[] = {outputs[l->heads[0]], labels, outputs[l->graph->teacher], outputs[l->heads[1]]};
    const int rank_x[] = {logits, labels};
    const struct result_op loss = {l->loss->name, l->loss_settings, KERNEL_PLAN_LOSS, l->loss_inputs,
                                   program->loss};
    const struct result_op rank = {"topk", NULL, KERNEL_PLAN_RANK, 2, program->rank};
    lower_result(l, &loss, x, micro_batch);
    lower_result(l, &rank, rank_x, micro_batch);
}

#define IMAGES_ALIGNMENT 16     /* bytes: what loads of kernels and libraries ask for */

/* The images of a micro-batch; a copy of them if they begin at no multiple of IMAGES_ALIGNMENT. */
static int lower_images(struct lowering *l, int micro_batch)
{
    int images = value_micro_batch(l, l->program->images, micro_batch);
    if (l->program->values[images].offset % IMAGES_ALIGNMENT == 0) return images;
    return build_cast(l->program, images, l->program->storage, micro_batch);
}

/* A teacher comes first: none of the activations that backward reads are there yet. */
static void lower_micro_batch(struct lowering *l, int micro_batch)
{
    struct program *program = l->program;
    int *outputs = memory_new((size_t)l->graph->count, sizeof *outputs);
    outputs[0] = lower_images(l, micro_batch);
    for (int node = 1; node < l->graph->count; node++)
        if (l->teaches[node]) lower_node(l, node, micro_batch, outputs);
    for (int node = 1; node < l->graph->count; node++)
        if (l->needed[node]) lower_node(l, node, micro_batch, outputs);
    if (l->pixel_output_count > 0) lower_pixel_losses(l, outputs, micro_batch);
    else if (program->loss >= 0) lower_loss_and_rank(l, outputs, micro_batch);
    if (program->logits >= 0) {
        const void *settings = build_settings(program, build_op("cast"), text_copy("to=fp32"));
        struct result_op logits = {"cast", settings, KERNEL_PLAN_LOGITS, 1, program->logits};
        lower_result(l, &logits, &outputs[l->graph->output], micro_batch);
    }
    free(outputs);
}

static void lower_labels(struct lowering *l)
{
    struct program *program = l->program;
    bool soft = l->options->soft_targets;
    program->labels = value_batch(l, HOME_TARGETS, soft ? F32 : I32, "labels");
    struct value *labels = &program->values[program->labels];
    int64_t outputs = l->graph->nodes[l->graph->output].shape.c;
    if (soft) labels->shape.c = target_row(outputs, l->options->weighted_targets);
    value_set_bytes(labels);
    program->targets_bytes = labels->bytes;
}

/* The weights of output i, which loaders make from the pixels of all images. */
static int value_weights(struct lowering *l, int i, const char *output)
{
    int64_t classes = l->graph->nodes[l->graph->output].shape.c;
    struct value value = {.home = HOME_TARGETS, .kind = KIND_OTHER, .dtype = F32, .node = -1, .index = -1,
                          .shape = shape_nhwc(1, 1, 1, classes)};
    size_t labels = (size_t)l->program->values[l->program->labels].bytes;
    value.offset = (int64_t)mask_targets_table(labels) + i * classes * (int64_t)sizeof(float);
    l->program->targets_bytes = value.offset + classes * (int64_t)sizeof(float);
    return build_value(l->program, value, text_format("class weights%s%s", output ? " of " : "",
                                                      output ? output : ""));
}

static void lower_masks(struct lowering *l)
{
    struct program *program = l->program;
    const struct graph *graph = l->graph;
    program->labels = -1;
    if (!program->training) return;
    program->labels = value_batch(l, HOME_TARGETS, U8, "labels");
    struct value *labels = &program->values[program->labels];
    labels->shape = shape_nhwc(program->batch, graph->nodes[0].shape.h, graph->nodes[0].shape.w, 1);
    value_set_bytes(labels);
    for (int i = 0; i < l->pixel_output_count; i++)
        l->pixel_outputs[i].weights = value_weights(l, i, l->pixel_outputs[i].name);
}

static void lower_batch(struct lowering *l)
{
    struct program *program = l->program;
    program->images = value_batch(l, HOME_IMAGES, program->storage, "input");
    if (l->options->pixel_loss) lower_masks(l);
    else lower_labels(l);
    struct value *input = &program->values[program->images];
    input->shape = l->graph->nodes[0].shape;
    input->shape.n = program->batch;
    input->node = 0;
    value_set_bytes(input);
    program->images_bytes = input->bytes;
    lower_results(l);
    lower_params(l);
    for (int micro_batch = 0; micro_batch < program->micro_batches; micro_batch++)
        lower_micro_batch(l, micro_batch);
}

static void mark_leading(const struct graph *graph, int output, bool *lead)
{
    lead[output] = true;
    for (int node = output; node > 0; node--)
        for (int i = 0; lead[node] && i < graph->nodes[node].input_count; i++)
            lead[graph->nodes[node].inputs[i]] = true;
}

static bool *nodes_that_lead_to(const struct graph *graph, int output)
{
    bool *lead = memory_new((size_t)graph->count, sizeof *lead);
    mark_leading(graph, output, lead);
    return lead;
}

int lower_saves(const struct program *program, int i, struct op_saved saved[OP_MAX_SAVED])
{
    const struct instruction *at = &program->instructions[i];
    if (!at->op || !at->op->saved || at->phase != PHASE_FORWARD) return 0;
    struct call_storage storage;
    struct call call = program_call(program, i, &storage);
    return at->op->saved(at->settings, call.x_count, call.x, call.training, saved);
}

/* Results of forward besides its output, for backward, update or the host. Its sizes follow from
 * the inputs' dtypes, so this comes after autocast. */
void lower_saved(struct program *program)
{
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        struct op_saved saved[OP_MAX_SAVED];
        int count = lower_saves(program, i, saved);
        for (int k = 0; k < count; k++) {
            struct value value = {.home = HOME_ARENA, .kind = KIND_SAVED, .dtype = saved[k].dtype,
                                  .shape = saved[k].shape, .node = at->node, .index = -1};
            char *name = text_format("%s %s", program->values[operand_y(at)].name, saved[k].name);
            operand_set(at, OPERAND_SAVED, k, build_value(program, value, name));
        }
        if (count > 0) instruction_link(program, at);
    }
    program->first_backward = program->count;
}

/* Limit of a program's bytes, so that sums in passes and planning cannot overflow. */
#define BYTES_MAX (INT64_C(1) << 58)

enum status lower_check(const struct program *program)
{
    int64_t left = BYTES_MAX;
    for (int i = 0; i < program->value_count; i++) {
        left -= program->values[i].bytes;
        if (left < 0)
            return fail(NO_DEVICE, "%s: the tensors of a batch of %d exceed 2^58 bytes",
                        program->graph->arch, program->batch);
    }
    return OK;
}

struct program lower_nothing(const struct graph *graph, const struct lower_options *options)
{
    int all = options->all_micro_batches ? options->all_micro_batches : options->micro_batches;
    struct program program = {
        .graph = graph, .training = options->training, .sync_bn = options->sync_bn, .wire = options->wire,
        .batch = options->batch, .micro_batches = options->micro_batches,
        .first_micro_batch = options->first_micro_batch, .all_micro_batches = all,
        .storage = options->storage, .stages = 1, .streams = 1,
        .images = -1, .labels = -1, .loss = -1, .rank = -1, .logits = -1, .flags = -1, .flags_sum = -1,
        .machine = options->machine.name ? options->machine : machine_gpu(NULL, false),
        .kernel_plan_count = graph->count + KERNEL_PLAN_MORE +
                             (options->pixel_loss ? graph->output_count + 1 : 0),
    };
    program.gradients = memory_new((size_t)graph->param_count, sizeof *program.gradients);
    for (int p = 0; p < graph->param_count; p++) program.gradients[p] = -1;
    return program;
}

static void choose_loss(struct lowering *l)
{
    const struct lower_options *options = l->options;
    const struct loss_row *row = &loss_table[options->loss];
    bool distills = l->graph->teacher > 0 && options->distill;
    const char *settings = distills ? options->distill : row->settings;
    l->heads[0] = l->heads[1] = l->graph->output;
    l->loss = build_op(distills ? "distill" : row->op);
    l->loss_inputs = !distills ? l->loss->max_inputs : graph_heads(l->graph, l->heads) ? 4 : 3;
    l->loss_settings = build_settings(l->program, l->loss,
                                      text_format("%s%slabel_smoothing=%.17g", settings, *settings ? " " : "",
                                                  options->label_smoothing));
}

/* One output, or those of [outputs], with a loss each. */
static void choose_pixel_outputs(struct lowering *l)
{
    const struct graph *graph = l->graph;
    int count = graph->output_count > 0 ? graph->output_count : 1;
    if (!l->options->pixel_loss || !l->options->training) return;
    l->loss = build_op("pixel_loss");
    l->pixel_outputs = memory_new((size_t)count, sizeof *l->pixel_outputs);
    l->pixel_output_count = count;
    for (int i = 0; i < count; i++) {
        const struct graph_output *output = graph->output_count > 0 ? &graph->outputs[i] : NULL;
        char *settings = text_format("%s weight=%.17g", l->options->pixel_loss, output ? output->weight : 1);
        l->pixel_outputs[i] = (struct pixel_output){
            .node = output ? output->node : graph->output, .name = output ? output->name : NULL,
            .settings = build_settings(l->program, l->loss, settings),
        };
        mark_leading(graph, l->pixel_outputs[i].node, l->needed);
    }
}

enum status lower_forward(const struct graph *graph, const struct lower_options *options,
                          struct program *program)
{
    if (options->micro_batches < 1 || options->batch < 1 || options->batch % options->micro_batches != 0)
        return fail(USAGE, "a batch of %d images cannot be divided into %d equal micro-batches",
                    options->batch, options->micro_batches);
    struct program built = lower_nothing(graph, options);
    assert(built.first_micro_batch >= 0 &&
           built.first_micro_batch + built.micro_batches <= built.all_micro_batches);
    struct lowering l = {.program = &built, .graph = graph, .options = options,
                         .images = options->batch / options->micro_batches};
    l.shapes = memory_new((size_t)graph->count, sizeof *l.shapes);
    l.param_values = memory_new((size_t)graph->param_count, sizeof *l.param_values);
    if (!options->pixel_loss) choose_loss(&l);
    graph_shapes(graph, l.images, l.shapes);
    l.needed = nodes_that_lead_to(graph, graph->output);
    choose_pixel_outputs(&l);
    l.teaches = nodes_that_lead_to(graph, graph->teacher);
    lower_batch(&l);
    free(l.shapes);
    free(l.needed);
    free(l.teaches);
    free(l.pixel_outputs);
    free(l.param_values);
    *program = built;
    return OK;
}
