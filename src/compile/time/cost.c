/* cost.c: a kernel begins by reading and ends by writing, so the times of its launch, its bytes and its
 * operations add up. The constants are fitted to steps of 19 networks on an H200, by class of kernel and in
 * total (bench/NOTES.md); what depends on the device is in machine.c. */
#include "compile/time/cost.h"

#include <string.h>

#include "compile/ir/program_parts.h"

/* A product's kernel fills and drains its pipeline; a weight gradient also adds up the parts of its sum. */
#define SECONDS_A_PRODUCT 2.3e-6
#define SECONDS_A_WEIGHT_GRADIENT 4.5e-6
#define KERNELS_FOLDED 3         /* products in an instruction that contains a batch norm, too */

/* Sweeps: how often the bytes of an instruction move, as far as the kernel's rate tells. */
#define SWEEPS_WEIGHT_GRADIENT 1.4
#define SWEEPS_DEPTHWISE 1.6
#define SWEEPS_GROUPED 3.8
#define SWEEPS_UNALIGNED 1.6     /* more, where rows are not multiples of 16 bytes */
static const struct {
    const char *op;                  /* the beginning of its name: the first that fits counts */
    double forward, backward;
} sweeps[] = {
    {"batchnorm_conv", 1, 1.6}, {"batchnorm", 1.1, 2.2}, {"maxpool", 2.5, 2.5}, {"avgpool", 2.5, 2.5},
    {"adaptive", 2.5, 2.5}, {"layernorm", 1, 1.8}, {"scale", 1, 1.8}, {"multiply", 1, 1.75},
    {"globalavgpool", 1, 1.75}, {"channel_shuffle", 1, 1.75},
};

/* Products reach less than the device's rate in weight gradients, and where few channels go in. */
#define WEIGHT_GRADIENT_SHARE_16 0.87
#define WEIGHT_GRADIENT_SHARE_32 0.5
#define NARROW 8
#define NARROW_SHARE 0.1
#define DEPTHWISE_SHARE 0.026    /* of the rate of 16-bit products: no tensor cores */
#define ATTENTION_SHARE 0.25

#define FUSED_SWEEPS 1.3         /* of bytes that a kernel writes in addition */

/* Bytes of the first operand in whose place the second one is read: a rank's own share
 * (kernels/exchange/sum_ranks.c). */
static int64_t bytes_replaced(const struct program *program, const struct instruction *at)
{
    int first = operand_x(at, 0), second = operand_x(at, 1);
    if (!at->op || second < 0 || program->values[first].kind != KIND_EXCHANGE) return 0;
    return program->values[second].bytes;
}

double cost_bytes(const struct program *program, const struct instruction *at)
{
    double reads = -(double)bytes_replaced(program, at), writes = 0;
    FOR_READS(o, at) reads += (double)program->values[o->value].bytes;
    FOR_WRITES(o, at)
        if (operand_rows[o->role].kind != OPERAND_KIND_SCRATCH)
            writes += (double)program->values[o->value].bytes;
    return at->kind == INSTRUCTION_UPDATE ? 5 * reads + writes : reads + writes;
}

/* Recomputed without x: no product of weights and x is computed. */
static bool is_from_saved(const struct instruction *at)
{
    return at->phase == PHASE_RECOMPUTE && !instruction_reads(at, operand_x(at, 0));
}

static bool is_weight(const struct program *program, int value)
{
    return program->graph->params[program->values[value].index].spec.role == ROLE_WEIGHT;
}

/* Products without weights, in forward. */
static double own_flops(const struct op *op, const void *settings, const struct shape *x)
{
    return op && op->macs ? 2 * op->macs(settings, x) : 0;
}

/* Their backward has as many again for each gradient, and repeats forward's. */
#define OP_BACKWARD 2.5
static double op_flops(const struct program *program, const struct instruction *at)
{
    int x = operand_x(at, 0);
    if (x < 0) return 0;
    double flops = own_flops(at->op, at->settings, &program->values[x].shape);
    return instruction_is_backward(at) ? OP_BACKWARD * flops : flops;
}

double cost_layer_flops(int64_t weights, struct shape output, int64_t images)
{
    return 2 * (double)weights * (double)(images * output.h * output.w);
}

double cost_node_flops(const struct graph *graph, int node, int64_t images)
{
    const struct node *at = &graph->nodes[node];
    int64_t weights = 0;
    for (int i = 0; i < at->param_count; i++) {
        const struct op_param *spec = &graph->params[at->param_first + i].spec;
        if (spec->role == ROLE_WEIGHT) weights += shape_count(spec->shape);
    }
    const struct shape *x = at->op ? &graph->nodes[at->inputs[0]].shape : NULL;
    double others = at->op ? own_flops(at->op, at->settings, x) : 0;
    struct shape pixels = at->op && at->op->products_by_input ? *x : at->shape;
    return cost_layer_flops(weights, pixels, images) + others * (double)images;
}

double cost_flops(const struct program *program, const struct instruction *at)
{
    int64_t weights = 0;
    if (at->phase == PHASE_UPDATE || is_from_saved(at)) return 0;
    FOR_OPERANDS(o, at)
        if (o->role == OPERAND_PARAM && is_weight(program, o->value))
            weights += shape_count(program->values[o->value].shape);
    if (weights == 0) return op_flops(program, at);
    bool by_input = at->op && at->op->products_by_input;
    const struct shape pixels = program->values[by_input ? operand_x(at, 0) : operand_y(at)].shape;
    return (at->phase == PHASE_BACKWARD ? 2 : 1) * cost_layer_flops(weights, pixels, pixels.n);
}

static double sweeps_of(const struct instruction *at)
{
    for (size_t i = 0; at->op && i < sizeof sweeps / sizeof *sweeps; i++)
        if (strncmp(at->op->name, sweeps[i].op, strlen(sweeps[i].op)) == 0)
            return instruction_is_backward(at) ? sweeps[i].backward : sweeps[i].forward;
    return 1;
}

/* The channels of x that a filter of a product reads, and the groups into which these divide x (of a product
 * by input: those of y, which it adds to); no groups: the instruction computes no product. */
struct filter {
    int64_t channels, groups;
};

static struct filter filter_of(const struct program *program, const struct instruction *at)
{
    FOR_OPERANDS(o, at) {
        if (o->role != OPERAND_PARAM || !at->op) continue;
        const struct shape weight = program->values[o->value].shape;
        if (!is_weight(program, o->value) || weight.rank % 2 != 0) continue;
        bool by_input = at->op->products_by_input;
        int64_t all = program->values[by_input ? operand_y(at) : operand_x(at, 0)].shape.c;
        if (by_input && operand_count(at, OPERAND_X) > 1)      /* of a concatenation */
            all -= program->values[operand_x(at, 1)].shape.c;
        int64_t groups = weight.rank == 4 && weight.dim[1] > 0 ? all / weight.dim[1] : 1;
        return (struct filter){weight.dim[1], groups > 1 ? groups : 1};
    }
    return (struct filter){0};
}

static double product_seconds(const struct program *program, const struct instruction *at,
                              struct filter filter)
{
    const struct machine *machine = &program->machine;
    bool fp32 = program->values[operand_x(at, 0)].dtype == F32, gradient = at->phase == PHASE_BACKWARD_PARAMS;
    double bytes = cost_bytes(program, at), flops = cost_flops(program, at);
    double rate = fp32 ? machine->flops_32 : machine->flops_16;
    double call = gradient ? SECONDS_A_WEIGHT_GRADIENT : SECONDS_A_PRODUCT, narrow = 0;
    double passes = sweeps_of(at);
    if (filter.groups > 1 && filter.channels == 1)
        return SWEEPS_DEPTHWISE * bytes / machine->bytes_per_second +
               flops / (DEPTHWISE_SHARE * machine->flops_16);
    if (operand_count(at, OPERAND_SAVED) > 0) call *= KERNELS_FOLDED;
    if (gradient) {
        rate *= fp32 ? WEIGHT_GRADIENT_SHARE_32 : WEIGHT_GRADIENT_SHARE_16;
        passes = SWEEPS_WEIGHT_GRADIENT;
    }
    if (filter.groups > 1) passes += SWEEPS_GROUPED - 1;
    else if (filter.channels < NARROW) narrow = flops / (NARROW_SHARE * machine->flops_16);
    return call + passes * bytes / machine->bytes_per_second + flops / rate + narrow;
}

/* Bytes of the 16-bit feature maps whose rows of channels cannot be read in whole vectors. */
static double bytes_unaligned(const struct program *program, const struct instruction *at)
{
    double bytes = 0;
    FOR_OPERANDS(o, at) {
        if (!operand_is_read(o) && !(o->access & ACCESS_WRITE)) continue;
        const struct value *value = &program->values[o->value];
        bool map = value->shape.rank == 4 && value->shape.h * value->shape.w > 1 && value->shape.c > NARROW;
        if (map && dtype_bytes(value->dtype) == 2 && value->shape.c % 8 != 0) bytes += (double)value->bytes;
    }
    return bytes;
}

static double gpu_seconds(const struct program *program, const struct instruction *at)
{
    const struct machine *machine = &program->machine;
    struct filter filter = filter_of(program, at);
    double pass = 1 / machine->bytes_per_second;
    double seconds = machine->launch + SWEEPS_UNALIGNED * bytes_unaligned(program, at) * pass;
    if (instruction_is_op_update(at)) return 0;      /* one kernel makes all of a step */
    if (filter.groups > 0) return seconds + product_seconds(program, at, filter);
    seconds += op_flops(program, at) / (ATTENTION_SHARE * machine->flops_16);
    return seconds + sweeps_of(at) * cost_bytes(program, at) * pass;
}

double cost_seconds(const struct program *program, const struct instruction *at)
{
    const struct machine *machine = &program->machine;
    if (machine->threads == 0) return gpu_seconds(program, at);
    return cost_flops(program, at) / machine->flops_32 + cost_bytes(program, at) / machine->bytes_per_second;
}

double cost_program(const struct program *program)
{
    double seconds = 0;
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].op) seconds += cost_seconds(program, &program->instructions[i]);
    return seconds;
}

double cost_recompute(const struct program *program, const struct instruction *forward)
{
    struct instruction at = instruction_after(program, forward, PHASE_RECOMPUTE);
    FOR_OPERANDS(o, forward)
        if (recompute_makes(forward, o))
            operand_set(&at, (enum operand_role)o->role, (int)o->index, o->value);
    instruction_link(program, &at);
    double seconds = cost_seconds(program, &at);
    instruction_free(&at);
    return seconds;
}

/* The next weight gradient reads what fits into the cache from there: the write then replaces a read. */
double cost_fused_recompute(const struct program *program, const struct instruction *forward)
{
    const struct machine *machine = &program->machine;
    double bytes = (double)program->values[operand_y(forward)].bytes;
    return FUSED_SWEEPS * bytes / machine->bytes_per_second * (bytes <= machine->cache_bytes ? 0.25 : 1);
}

double cost_exchange(const struct program *program, double bytes, int ranks)
{
    return link_seconds(&program->machine.sum, 2.0 * (ranks - 1) / ranks * bytes);
}

double cost_transfer(const struct program *program, double bytes)
{
    return link_seconds(&program->machine.host, bytes);
}
