/* cut.c: keeps the instructions of one stage of a pipeline, in the order of a schedule, with messages to and
 * from the other stages. partition.h assigns nodes, and with them their instructions, to stages.
 *
 * The forward pass of a micro-batch in a chunk is a block of instructions, its backward pass another one,
 * from which the weight gradients may be separate. A value is sent as soon as it is written. A CPU receives a
 * block's inputs when the block begins; a GPU, whose streams wait for messages by themselves, during the
 * preceding block. Messages from one stage to another are received in the order in which they are sent. */
#include "compile/cut.h"

#include <stdlib.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "compile/program_parts.h"

/* The block of the update, which comes after all others. */
static const struct pipeline_block no_block = {BLOCK_WEIGHTS, -1, -1};

/* A value that another stage sends. */
struct message {
    const struct instruction *writer;
    int value;
    struct pipeline_block by;        /* the block of this stage that needs it first */
};

struct inbox {
    struct message *messages;
    int count, next;                 /* messages in the order of sending; the first not received yet */
    size_t bytes;                    /* of those received */
};

struct cutting {
    struct program *program;
    const struct cut_options *options;
    struct instruction *from;        /* of the whole program ... */
    int count;
    struct pipeline_block *blocks;   /* ... by instruction; chunk -1: of all stages */
    int *chunks;                     /* by node */
    int *writer_chunks;              /* by value; -1: none writes it */
    bool *reads;                     /* by value and stage: whether the stage reads it */
    int *sorted, *starts;            /* instructions by block, and where those of each block begin */
    struct inbox *inboxes;           /* by stage: what it sends to this one */
};

static bool is_weight_gradient(const struct program *program, const struct instruction *at)
{
    return at->phase == PHASE_BACKWARD_PARAMS ||
           (at->phase == PHASE_FORWARD && at->y >= 0 && program->values[at->y].kind == KIND_PARAM_GRADIENT);
}

/* Behind the first node of the first stage, chunks are in the second half of PIPELINE_V. */
static void number_chunks(struct cutting *c)
{
    const int *stages = c->program->node_stages;
    int turn = c->options->stages - 1;
    bool rises = c->options->schedule != PIPELINE_V;
    for (int node = 0; node < c->program->graph->count; node++) {
        rises = rises || stages[node] == 0;
        if (c->options->schedule != PIPELINE_V) c->chunks[node] = stages[node];
        else c->chunks[node] = rises ? turn + stages[node] : turn - stages[node];
    }
}

/* -1: no stage. */
static int stage_of(const struct cutting *c, int chunk)
{
    return chunk < 0 ? -1 : pipeline_stage(c->options->schedule, c->options->stages, chunk);
}

static enum block_kind block_kind(const struct cutting *c, const struct instruction *at, bool after,
                                  int chunk)
{
    bool apart = pipeline_weights_apart(c->options->schedule, chunk);
    if (!after) return BLOCK_FORWARD;
    return apart && is_weight_gradient(c->program, at) ? BLOCK_WEIGHTS : BLOCK_BACKWARD;
}

/* Sums and casts are in the chunk of all their inputs, or else of the node of their output. */
static int chunk_of(const struct cutting *c, const struct instruction *at)
{
    const struct program *program = c->program;
    if (at->kind == INSTRUCTION_UPDATE) return -1;
    if (at->node >= 0) return c->chunks[at->node];
    int chunk = -1;
    bool same = true;
    for (int k = 0; k < at->read_count; k++) {
        int writer = c->writer_chunks[at->reads[k]];
        same = same && (chunk < 0 || writer < 0 || writer == chunk);
        if (writer >= 0) chunk = writer;
    }
    int node = program->values[at->y].node;
    return same && chunk >= 0 ? chunk : c->chunks[node < 0 ? program->graph->output : node];
}

/* Forward of each micro-batch precedes its backward, in which sums and casts are also forward calls. */
static void find_blocks(struct cutting *c)
{
    bool after = false;
    for (int v = 0; v < c->program->value_count; v++) c->writer_chunks[v] = -1;
    for (int i = 0; i < c->count; i++) {
        const struct instruction *at = &c->from[i];
        int chunk = chunk_of(c, at), stage = stage_of(c, chunk);
        if (i > 0 && at->micro_batch != c->from[i - 1].micro_batch) after = false;
        if (at->phase != PHASE_FORWARD) after = true;
        c->blocks[i] = (struct pipeline_block){block_kind(c, at, after, chunk), at->micro_batch, chunk};
        if (at->phase == PHASE_UPDATE) c->blocks[i] = (struct pipeline_block){no_block.kind, -1, chunk};
        for (int k = 0; k < at->write_count; k++)
            if (c->program->values[at->writes[k]].home == HOME_ARENA) c->writer_chunks[at->writes[k]] = chunk;
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

static bool is_read(const struct cutting *c, int value, int to)
{
    return c->writer_chunks[value] >= 0 && c->reads[value * c->options->stages + to];
}

/* Sends the values that instruction i writes to all other stages that read them. */
static void push_sends(struct cutting *c, int i)
{
    const struct instruction *at = &c->from[i];
    for (int k = 0; k < at->write_count; k++)
        for (int stage = 0; stage < c->options->stages; stage++)
            if (stage != stage_of(c, c->blocks[i].chunk) && is_read(c, at->writes[k], stage))
                push_message(c, INSTRUCTION_SEND, at->writes[k], stage, at);
}

static int key(const struct cutting *c, const struct pipeline_block *block)
{
    int chunk = block->micro_batch < 0 ? -1 : block->chunk;
    return ((chunk + 1) * (c->program->micro_batches + 1) + block->micro_batch + 1) * (BLOCK_WEIGHTS + 1) +
           (int)block->kind;
}

/* Sorts instructions by their blocks, and in these by their order. */
static void sort_by_block(struct cutting *c)
{
    int keys = (pipeline_chunks(c->options->schedule, c->options->stages) + 1) *
               (c->program->micro_batches + 1) * (BLOCK_WEIGHTS + 1);
    c->starts = memory_new((size_t)keys + 1, sizeof *c->starts);
    c->sorted = memory_new((size_t)c->count, sizeof *c->sorted);
    for (int i = 0; i < c->count; i++) c->starts[key(c, &c->blocks[i]) + 1]++;
    for (int k = 0; k < keys; k++) c->starts[k + 1] += c->starts[k];
    int *next = ids_copy(c->starts, keys);
    for (int i = 0; i < c->count; i++) c->sorted[next[key(c, &c->blocks[i])]++] = i;
    free(next);
}

/* The chunk of this stage that comes first after `from`, in forward or in backward. */
static int receiver(const struct cutting *c, int from, bool forward)
{
    int own = c->options->stage, last = c->options->stages - 1;
    bool v = c->options->schedule == PIPELINE_V;
    int low = v ? last - own : own, high = v ? last + own : own;
    if (forward) return low > from ? low : high;
    return high < from ? high : low;
}

/* Lists what stage `peer` sends to this one, in the order in which it does. */
static void list_messages(struct cutting *c, int peer, const struct pipeline_order *order)
{
    struct inbox *inbox = &c->inboxes[peer];
    const struct pipeline_block *blocks = order->blocks;
    for (int b = 0; b < order->count; b++)
        for (int n = c->starts[key(c, &blocks[b])]; n < c->starts[key(c, &blocks[b]) + 1]; n++) {
            const struct instruction *at = &c->from[c->sorted[n]];
            bool forward = blocks[b].kind == BLOCK_FORWARD;
            for (int k = 0; k < at->write_count; k++) {
                if (!is_read(c, at->writes[k], c->options->stage)) continue;
                const struct pipeline_block by = {forward ? BLOCK_FORWARD : BLOCK_BACKWARD,
                                                  blocks[b].micro_batch,
                                                  receiver(c, blocks[b].chunk, forward)};
                *array_push(inbox->messages, inbox->count) = (struct message){at, at->writes[k], by};
            }
        }
}

/* Receives from each stage everything up to the last message that the block reads. */
static void push_receives(struct cutting *c, const struct pipeline_block *block)
{
    for (int peer = 0; peer < c->options->stages; peer++) {
        struct inbox *inbox = &c->inboxes[peer];
        int end = inbox->next;
        for (int n = inbox->next; n < inbox->count; n++)
            if (key(c, &inbox->messages[n].by) == key(c, block)) end = n + 1;
        for (; inbox->next < end; inbox->next++) {
            const struct message *at = &inbox->messages[inbox->next];
            struct value *value = &c->program->values[at->value];
            push_message(c, INSTRUCTION_RECEIVE, at->value, peer, at->writer);
            if (c->options->in_mail) {
                value->home = HOME_MAIL;
                value->index = peer;
                value->offset = (int64_t)inbox->bytes;
            }
            inbox->bytes += comm_mail_room((size_t)value->bytes);
        }
    }
}

static void push_block(struct cutting *c, const struct pipeline_block *block)
{
    int own = c->options->stage;
    for (int n = c->starts[key(c, block)]; n < c->starts[key(c, block) + 1]; n++) {
        int i = c->sorted[n], stage = stage_of(c, c->blocks[i].chunk);
        if (stage >= 0 && stage != own) continue;
        *array_push(c->program->instructions, c->program->count) = c->from[i];
        push_sends(c, i);
    }
}

static void push_blocks(struct cutting *c)
{
    const struct cut_options *options = c->options;
    struct pipeline_order *orders = pipeline_orders(options->schedule, options->stages,
                                                    c->program->micro_batches);
    const struct pipeline_order *own = &orders[options->stage];
    int ahead = options->on_cpu ? 0 : 1;
    for (int stage = 0; stage < options->stages; stage++)
        if (stage != options->stage) list_messages(c, stage, &orders[stage]);
    for (int k = 0; k < ahead && k < own->count; k++) push_receives(c, &own->blocks[k]);
    for (int k = 0; k < own->count; k++) {
        if (k + ahead < own->count) push_receives(c, &own->blocks[k + ahead]);
        push_block(c, &own->blocks[k]);
    }
    push_block(c, &no_block);
    pipeline_orders_free(orders, options->stages);
}

static void free_others(struct cutting *c)
{
    for (int i = 0; i < c->count; i++) {
        int stage = stage_of(c, c->blocks[i].chunk);
        if (stage >= 0 && stage != c->options->stage) instruction_free(&c->from[i]);
    }
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

static void cutting_free(struct cutting *c)
{
    for (int stage = 0; stage < c->options->stages; stage++) free(c->inboxes[stage].messages);
    free(c->inboxes);
    free(c->blocks);
    free(c->chunks);
    free(c->writer_chunks);
    free(c->reads);
    free(c->sorted);
    free(c->starts);
}

void cut_at(struct program *program, const struct cut_options *options, int *stage)
{
    program->node_stages = stage;
    program->stages = options->stages;
    program->stage = options->stage;
    program->schedule = options->schedule;
    struct cutting c = {.program = program, .options = options, .from = program->instructions,
                        .count = program->count};
    c.blocks = memory_new((size_t)c.count, sizeof *c.blocks);
    c.chunks = memory_new((size_t)program->graph->count, sizeof *c.chunks);
    c.writer_chunks = memory_new((size_t)program->value_count, sizeof *c.writer_chunks);
    c.reads = memory_new((size_t)(program->value_count * options->stages), sizeof *c.reads);
    c.inboxes = memory_new((size_t)options->stages, sizeof *c.inboxes);
    number_chunks(&c);
    find_blocks(&c);
    sort_by_block(&c);
    program->instructions = NULL;
    program->count = 0;
    push_blocks(&c);
    free_others(&c);
    keep_gradients(program);
    cutting_free(&c);
    program->first_backward = 0;
    while (program->instructions[program->first_backward].phase == PHASE_FORWARD) program->first_backward++;
}

struct program cut_stage(const struct program *program, const struct cut_options *options, const int *stage)
{
    struct program copy = program_copy(program);
    cut_at(&copy, options, ids_copy(stage, program->graph->count));
    return copy;
}
