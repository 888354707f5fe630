/* cut.c: keeps the instructions of one stage of a pipeline, in the order of a schedule, with messages to and
 * from the other stages. partition.h assigns nodes, and with them their instructions, to stages.
 *
 * The forward pass of a micro-batch is a block of instructions, its backward pass another one, from which the
 * weight gradients may be separate. A value is sent as soon as it is written. A CPU receives a block's inputs
 * when the block begins; a GPU, whose streams wait for messages by themselves, during the preceding block.
 * Forward blocks are in the order of micro-batches, and so are backward blocks: messages between two stages
 * arrive in the order in which they are received. */
#include "compile/cut.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"

/* The block of the update, which comes after all others. */
static const struct pipeline_block no_block = {BLOCK_WEIGHTS, -1};

struct cutting {
    struct program *program;
    const struct cut_options *options;
    struct instruction *from;        /* of the whole program ... */
    int count;
    int *stages;                     /* ... by instruction; -1: of all stages */
    struct pipeline_block *blocks;
    int *writer_stages;              /* by value; -1: none writes it */
    bool *reads;                     /* by value and stage: whether the stage reads it */
};

static bool is_weight_gradient(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_BACKWARD_PARAMS ||
           (at->phase == PHASE_FORWARD && at->y >= 0 && program->values[at->y].kind == KIND_PARAM_GRADIENT);
}

static enum block_kind block_kind(const struct cutting *c, const struct instruction *at, bool after)
{
    bool apart = pipeline_weights_apart(c->options->schedule, c->options->stage);
    if (!after) return BLOCK_FORWARD;
    return apart && is_weight_gradient(c->program, at) ? BLOCK_WEIGHTS : BLOCK_BACKWARD;
}

/* Forward of each micro-batch precedes its backward, in which sums and casts are also forward calls. */
static void find_blocks(struct cutting *c)
{
    bool after = false;
    for (int i = 0; i < c->count; i++) {
        const struct instruction *at = &c->from[i];
        if (i > 0 && at->micro_batch != c->from[i - 1].micro_batch) after = false;
        if (at->phase != PHASE_FORWARD) after = true;
        c->blocks[i] = (struct pipeline_block){block_kind(c, at, after), at->micro_batch};
        if (at->phase == PHASE_UPDATE) c->blocks[i] = no_block;
    }
}

/* Sums and casts are in the stage of all their inputs, or else of the node of their output. */
static int stage_of(const struct cutting *c, const struct instruction *at)
{
    const struct program *program = c->program;
    if (at->kind == INSTRUCTION_UPDATE) return -1;
    if (at->node >= 0) return program->node_stages[at->node];
    int stage = -1;
    bool same = true;
    for (int k = 0; k < at->read_count; k++) {
        int writer = c->writer_stages[at->reads[k]];
        same = same && (stage < 0 || writer < 0 || writer == stage);
        if (writer >= 0) stage = writer;
    }
    int node = program->values[at->y].node;
    return same && stage >= 0 ? stage : program->node_stages[node < 0 ? program->graph->output : node];
}

static void find_stages(struct cutting *c)
{
    for (int v = 0; v < c->program->value_count; v++) c->writer_stages[v] = -1;
    for (int i = 0; i < c->count; i++) {
        const struct instruction *at = &c->from[i];
        int stage = c->stages[i] = stage_of(c, at);
        for (int k = 0; k < at->write_count; k++)
            if (c->program->values[at->writes[k]].home == HOME_ARENA) c->writer_stages[at->writes[k]] = stage;
        for (int k = 0; stage >= 0 && k < at->read_count; k++)
            c->reads[at->reads[k] * c->options->stages + stage] = true;
    }
}

static void push_message(struct cutting *c, enum instruction_kind kind, int value, int peer,
                         const struct instruction *writer)
{
    bool sends = kind == INSTRUCTION_SEND;
    bool forward = c->blocks[writer - c->from].kind == BLOCK_FORWARD;
    char *name = text_format("%s %s", sends ? "send" : "receive", c->program->values[value].name);
    struct instruction at = instruction_transfer(kind, forward ? PHASE_FORWARD : PHASE_BACKWARD, name,
                                                 sends ? value : -1, sends ? -1 : value);
    at.micro_batch = writer->micro_batch;
    at.peer = peer;
    build_push(c->program, at);
}

/* Sends the values that instruction i writes to all other stages that read them, or receives them. */
static void push_messages(struct cutting *c, int i, enum instruction_kind kind)
{
    const struct instruction *at = &c->from[i];
    int stages = c->options->stages, own = c->options->stage;
    for (int k = 0; k < at->write_count; k++) {
        const bool *reads = &c->reads[at->writes[k] * stages];
        if (c->writer_stages[at->writes[k]] < 0) continue;
        for (int stage = 0; stage < stages; stage++) {
            if (!reads[stage] || stage == c->stages[i]) continue;
            if (kind == INSTRUCTION_SEND) push_message(c, kind, at->writes[k], stage, at);
            else if (stage == own) push_message(c, kind, at->writes[k], c->stages[i], at);
        }
    }
}

static bool is_in(const struct cutting *c, int i, const struct pipeline_block *block)
{
    return c->blocks[i].kind == block->kind && c->blocks[i].micro_batch == block->micro_batch;
}

static void push_receives(struct cutting *c, const struct pipeline_block *block)
{
    for (int i = 0; i < c->count; i++)
        if (is_in(c, i, block) && c->stages[i] != c->options->stage && c->stages[i] >= 0)
            push_messages(c, i, INSTRUCTION_RECEIVE);
}

static void push_block(struct cutting *c, const struct pipeline_block *block)
{
    int own = c->options->stage;
    for (int i = 0; i < c->count; i++) {
        if (!is_in(c, i, block) || (c->stages[i] >= 0 && c->stages[i] != own)) continue;
        *array_push(c->program->instructions, c->program->count) = c->from[i];
        push_messages(c, i, INSTRUCTION_SEND);
    }
}

static void push_blocks(struct cutting *c)
{
    const struct cut_options *options = c->options;
    int micro_batches = c->program->micro_batches;
    struct pipeline_block *blocks = memory_new((size_t)(3 * micro_batches), sizeof *blocks);
    int count = pipeline_blocks(options->schedule, options->stages, options->stage, micro_batches, blocks);
    int ahead = options->on_cpu ? 0 : 1;
    for (int k = 0; k < ahead && k < count; k++) push_receives(c, &blocks[k]);
    for (int k = 0; k < count; k++) {
        if (k + ahead < count) push_receives(c, &blocks[k + ahead]);
        push_block(c, &blocks[k]);
    }
    push_block(c, &no_block);
    free(blocks);
}

static void free_others(struct cutting *c)
{
    for (int i = 0; i < c->count; i++)
        if (c->stages[i] >= 0 && c->stages[i] != c->options->stage) instruction_free(&c->from[i]);
    free(c->from);
}

/* Restricts the update to this stage's parameters. */
static void keep_gradients(struct program *program)
{
    const struct graph *graph = program->graph;
    for (int p = 0; p < graph->param_count; p++)
        if (program->node_stages[graph->params[p].node] != program->stage) program->gradients[p] = -1;
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].kind == INSTRUCTION_UPDATE)
            optimizer_link(program, &program->instructions[i]);
}

void cut_at(struct program *program, const struct cut_options *options, int *stage)
{
    program->node_stages = stage;
    program->stages = options->stages;
    program->stage = options->stage;
    program->schedule = options->schedule;
    struct cutting c = {.program = program, .options = options, .from = program->instructions,
                        .count = program->count};
    c.stages = memory_new((size_t)c.count, sizeof *c.stages);
    c.blocks = memory_new((size_t)c.count, sizeof *c.blocks);
    c.writer_stages = memory_new((size_t)program->value_count, sizeof *c.writer_stages);
    c.reads = memory_new((size_t)(program->value_count * options->stages), sizeof *c.reads);
    find_blocks(&c);
    find_stages(&c);
    program->instructions = NULL;
    program->count = 0;
    push_blocks(&c);
    free_others(&c);
    keep_gradients(program);
    free(c.stages);
    free(c.blocks);
    free(c.writer_stages);
    free(c.reads);
    program->first_backward = 0;
    while (program->instructions[program->first_backward].phase == PHASE_FORWARD) program->first_backward++;
}

struct program cut_stage(const struct program *program, const struct cut_options *options, const int *stage)
{
    struct program copy = program_copy(program);
    cut_at(&copy, options, ids_copy(stage, program->graph->count));
    return copy;
}
