/* cut.c: keeps the instructions of one stage of a pipeline, in the order of a schedule, with messages to and
 * from the other stages. partition.h assigns nodes, and with them their instructions, to stages.
 *
 * The forward pass of a micro-batch in a chunk is a block of instructions, its backward pass another one,
 * from which the weight gradients may be separate. A CPU receives a block's inputs when the block begins; a
 * GPU, whose streams wait for messages by themselves, during the preceding block.
 *
 * A message may have to wait until it can be received, and holds up those behind it on its stream. Stages
 * never wait for each other in a ring, because all of them have their messages in one order: that in which
 * they are due when all blocks of all stages run one after another (pipeline_sequence). A message is due
 * before the block that reads it, and before those sent later to the same stage; it is sent as soon as its
 * value is written and all that are due earlier, of those in its direction, have been sent. */
#include "compile/parallel/cut.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "comm/comm.h"
#include "compile/ir/program_parts.h"

/* The block of the update, which comes after all others. */
static const struct pipeline_block no_block = {BLOCK_WEIGHTS, -1, -1};

/* A value that goes to another stage, or comes from it. */
struct message {
    int writer;                      /* instruction */
    int value, peer;
    int due;                         /* place in the sequence of all blocks ... */
    int number;                      /* ... and among the messages that are due there */
};

/* In the order in which they are due. */
struct messages {
    struct message *list;
    int count, next;                 /* the first not sent, or received, yet */
};

struct cutting {
    struct program *program;
    const struct cut_options *options;
    struct instruction *from;        /* of the whole program ... */
    int count;
    struct pipeline_block *blocks;   /* ... by instruction; chunk -1: of all stages */
    int *chunks;                     /* by node */
    int *writer_chunks;              /* by value; -1: none writes it */
    bool *reads;                     /* by value and chunk: whether the chunk reads it */
    int *sorted, *starts;            /* instructions by block, and where those of each block begin */
    int *turns;                      /* by block: its place in the sequence of all */
    struct messages out[2], in[2];   /* to and from lower stages, and higher ones */
    bool *told;                      /* by stage */
    bool *made;                      /* by instruction: this stage's, so far */
    size_t *received;                /* by stage: bytes */
};

static bool is_weight_gradient(const struct program *program, const struct instruction *at)
{
    int y = operand_y(at);
    return at->phase == PHASE_BACKWARD_PARAMS ||
           (at->phase == PHASE_FORWARD && y >= 0 && program->values[y].kind == KIND_PARAM_GRADIENT);
}

/* Behind the first node of the first stage, chunks are in the second half of PIPELINE_V. */
static void number_chunks(struct cutting *c)
{
    const int *stages = c->program->node_stages;
    int turn = c->options->stages - 1;
    bool v = pipeline_interleaves(c->options->schedule), rises = false;
    for (int node = 0; node < c->program->graph->count; node++) {
        rises = rises || stages[node] == 0;
        c->chunks[node] = !v ? stages[node] : rises ? turn + stages[node] : turn - stages[node];
    }
}

/* -1: no stage. */
static int stage_of(const struct cutting *c, int chunk)
{
    return chunk < 0 ? -1 : pipeline_stage(c->options->schedule, c->options->stages, chunk);
}

static int chunk_count(const struct cutting *c)
{
    return pipeline_chunks(c->options->schedule, c->options->stages);
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
    FOR_READS(o, at) {
        int writer = c->writer_chunks[o->value];
        same = same && (chunk < 0 || writer < 0 || writer == chunk);
        if (writer >= 0) chunk = writer;
    }
    int node = program->values[operand_y(at)].node;
    return same && chunk >= 0 ? chunk : c->chunks[node < 0 ? program->graph->output : node];
}

/* Forward of each micro-batch precedes its backward, in which sums and casts are also forward calls. */
static void find_blocks(struct cutting *c)
{
    bool after = false;
    for (int v = 0; v < c->program->value_count; v++) c->writer_chunks[v] = -1;
    for (int i = 0; i < c->count; i++) {
        const struct instruction *at = &c->from[i];
        int chunk = chunk_of(c, at);
        if (i > 0 && at->micro_batch != c->from[i - 1].micro_batch) after = false;
        if (at->phase != PHASE_FORWARD) after = true;
        c->blocks[i] = (struct pipeline_block){block_kind(c, at, after, chunk), at->micro_batch, chunk};
        if (at->phase == PHASE_UPDATE) c->blocks[i] = (struct pipeline_block){no_block.kind, -1, chunk};
        FOR_WRITES(o, at)
            if (c->program->values[o->value].home == HOME_ARENA) c->writer_chunks[o->value] = chunk;
        FOR_READS(o, at)
            if (chunk >= 0) c->reads[o->value * chunk_count(c) + chunk] = true;
    }
}

static void push_message(struct cutting *c, enum instruction_kind kind, const struct message *message)
{
    bool sends = kind == INSTRUCTION_SEND;
    const struct pipeline_block *from = &c->blocks[message->writer];
    char *name = text_format("%s %s", sends ? "send" : "receive", c->program->values[message->value].name);
    struct instruction at =
        instruction_transfer(kind, from->kind == BLOCK_FORWARD ? PHASE_FORWARD : PHASE_BACKWARD, name,
                             sends ? message->value : -1, sends ? -1 : message->value);
    at.micro_batch = from->micro_batch;
    at.peer = message->peer;
    build_push(c->program, at);
}

static int key(const struct cutting *c, const struct pipeline_block *block)
{
    int chunk = block->micro_batch < 0 ? -1 : block->chunk;
    return ((chunk + 1) * (c->program->micro_batches + 1) + block->micro_batch + 1) * (BLOCK_WEIGHTS + 1) +
           (int)block->kind;
}

static int key_count(const struct cutting *c)
{
    return (chunk_count(c) + 1) * (c->program->micro_batches + 1) * (BLOCK_WEIGHTS + 1);
}

/* Sorts instructions by their blocks, and in these by their order. */
static void sort_by_block(struct cutting *c)
{
    int keys = key_count(c);
    c->starts = memory_new((size_t)keys + 1, sizeof *c->starts);
    c->sorted = memory_new((size_t)c->count, sizeof *c->sorted);
    for (int i = 0; i < c->count; i++) c->starts[key(c, &c->blocks[i]) + 1]++;
    for (int k = 0; k < keys; k++) c->starts[k + 1] += c->starts[k];
    int *next = ids_copy(c->starts, keys);
    for (int i = 0; i < c->count; i++) c->sorted[next[key(c, &c->blocks[i])]++] = i;
    free(next);
}

/* Lists a message, from the stage of its writer to another one, if this stage sends or receives it. */
static void list_message(struct cutting *c, int writer, int value, int to, int due)
{
    int own = c->options->stage, from = stage_of(c, c->blocks[writer].chunk);
    if (own != from && own != to) return;
    int peer = own == from ? to : from;
    struct messages *messages = own == from ? &c->out[peer > own] : &c->in[peer > own];
    int number = messages->count;
    *array_push(messages->list, messages->count) = (struct message){writer, value, peer, due, number};
}

/* A value goes to a stage once: to the first of its chunks that reads it, in the direction of the pass. */
static void list_value(struct cutting *c, int writer, int value)
{
    const struct pipeline_block *block = &c->blocks[writer];
    struct pipeline_block by = *block;
    int own = stage_of(c, block->chunk), chunks = chunk_count(c), step = by.kind == BLOCK_FORWARD ? 1 : -1;
    if (by.kind == BLOCK_WEIGHTS) by.kind = BLOCK_BACKWARD;
    memset(c->told, 0, (size_t)c->options->stages * sizeof *c->told);
    for (by.chunk += step; by.chunk >= 0 && by.chunk < chunks; by.chunk += step) {
        int to = stage_of(c, by.chunk);
        if (to == own || c->told[to] || !c->reads[value * chunks + by.chunk]) continue;
        c->told[to] = true;
        list_message(c, writer, value, to, c->turns[key(c, &by)]);
    }
}

static int by_due(const void *a, const void *b)
{
    const struct message *x = a, *y = b;
    return x->due != y->due ? x->due - y->due : x->number - y->number;
}

/* Messages between the same two stages keep their order. */
static void sort_messages(const struct cutting *c, struct messages *messages)
{
    int *least = memory_new((size_t)c->options->stages, sizeof *least);
    for (int s = 0; s < c->options->stages; s++) least[s] = INT_MAX;
    for (int k = messages->count - 1; k >= 0; k--) {
        struct message *at = &messages->list[k];
        if (at->due > least[at->peer]) at->due = least[at->peer];
        least[at->peer] = at->due;
    }
    free(least);
    if (messages->count > 0) qsort(messages->list, (size_t)messages->count, sizeof *messages->list, by_due);
}

static void list_messages(struct cutting *c, const struct pipeline_order *sequence)
{
    for (int t = 0; t < sequence->count; t++) c->turns[key(c, &sequence->blocks[t])] = t;
    for (int t = 0; t < sequence->count; t++) {
        int first = key(c, &sequence->blocks[t]);
        for (int n = c->starts[first]; n < c->starts[first + 1]; n++) {
            const struct instruction *at = &c->from[c->sorted[n]];
            FOR_WRITES(o, at)
                if (c->writer_chunks[o->value] >= 0) list_value(c, c->sorted[n], o->value);
        }
    }
    for (int higher = 0; higher < 2; higher++) {
        sort_messages(c, &c->out[higher]);
        sort_messages(c, &c->in[higher]);
    }
}

static void push_receive(struct cutting *c, const struct message *message)
{
    struct value *value = &c->program->values[message->value];
    size_t *received = &c->received[message->peer];
    push_message(c, INSTRUCTION_RECEIVE, message);
    if (c->options->in_mail) {
        value->home = HOME_MAIL;
        value->index = message->peer;
        value->offset = (int64_t)*received;
    }
    *received += comm_mail_room((size_t)value->bytes);
}

/* Receives everything that is due before the block. */
static void push_receives(struct cutting *c, const struct pipeline_block *block)
{
    for (int higher = 0; higher < 2; higher++) {
        struct messages *in = &c->in[higher];
        while (in->next < in->count && in->list[in->next].due <= c->turns[key(c, block)])
            push_receive(c, &in->list[in->next++]);
    }
}

static void push_sends(struct cutting *c)
{
    for (int higher = 0; higher < 2; higher++) {
        struct messages *out = &c->out[higher];
        while (out->next < out->count && c->made[out->list[out->next].writer])
            push_message(c, INSTRUCTION_SEND, &out->list[out->next++]);
    }
}

static void push_block(struct cutting *c, const struct pipeline_block *block)
{
    int own = c->options->stage;
    for (int n = c->starts[key(c, block)]; n < c->starts[key(c, block) + 1]; n++) {
        int i = c->sorted[n], stage = stage_of(c, c->blocks[i].chunk);
        if (stage >= 0 && stage != own) continue;
        *array_push(c->program->instructions, c->program->count) = c->from[i];
        c->made[i] = true;
        push_sends(c);
    }
}

static void push_blocks(struct cutting *c)
{
    const struct cut_options *options = c->options;
    struct pipeline_order *orders = pipeline_orders(options->schedule, options->stages,
                                                    c->program->micro_batches);
    struct pipeline_order all = pipeline_sequence(orders, options->schedule, options->stages,
                                                  c->program->micro_batches);
    const struct pipeline_order *own = &orders[options->stage];
    int ahead = options->on_cpu ? 0 : 1;
    list_messages(c, &all);
    for (int k = 0; k < ahead && k < own->count; k++) push_receives(c, &own->blocks[k]);
    for (int k = 0; k < own->count; k++) {
        if (k + ahead < own->count) push_receives(c, &own->blocks[k + ahead]);
        push_block(c, &own->blocks[k]);
    }
    push_block(c, &no_block);
    free(all.blocks);
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
    for (int higher = 0; higher < 2; higher++) {
        free(c->out[higher].list);
        free(c->in[higher].list);
    }
    free(c->turns);
    free(c->told);
    free(c->made);
    free(c->received);
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
    c.reads = memory_new((size_t)(program->value_count * chunk_count(&c)), sizeof *c.reads);
    c.turns = memory_new((size_t)key_count(&c), sizeof *c.turns);
    c.told = memory_new((size_t)options->stages, sizeof *c.told);
    c.made = memory_new((size_t)c.count, sizeof *c.made);
    c.received = memory_new((size_t)options->stages, sizeof *c.received);
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
