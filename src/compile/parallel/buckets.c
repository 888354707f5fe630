/* buckets.c: places the gradients of parameters in a few contiguous buckets, in the order in which they
 * become ready. The buckets of all ranks are summed while the backward pass continues.
 *
 * An exchange has a fixed cost, so there should be few; and nothing overlaps with the last one, which should
 * be small. The optimum is found by dynamic programming over the modelled times: D(q, j), when the first j
 * gradients have been exchanged in q buckets, is the minimum over k < j of max(D(q - 1, k), ready(j)) + the
 * time for gradients k to j. */
#include "compile/parallel/buckets.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/time/cost.h"
#include "compile/memory/plan.h"

#define BUCKETS_MAX 8
#define SECONDS_WORTH_A_BUCKET 5e-6

/* An exchange shares the memory's bandwidth with backward: on two H200s 102 MB take 1.2 ms beside
 * ResNet-50's, 0.55 ms alone. Finishing early has no benefit, finishing late costs time: hence twice that
 * ratio. */
#define SLOWER_BESIDE 4

/* A parameter's gradient, all micro-batches of the rank included. */
struct gradient {
    int value, sum;          /* of this rank; of all */
    int writer;              /* the instruction that writes it */
    double ready;            /* seconds from the beginning of the step */
};

struct bucket {
    int end;                 /* behind its last gradient */
    int own, sum;            /* values: of this rank; of all ranks */
};

struct bucketing {
    struct program *program;
    const struct bucket_options *options;
    int ranks;
    struct gradient *gradients;     /* in the order in which they are ready */
    int64_t *before;                /* [count + 1]: bytes of all preceding ones, with alignment */
    int count;
    double end;                     /* of backward, in seconds */
    struct bucket buckets[BUCKETS_MAX];
    int bucket_count;
};

static int gradient_compare(const void *a, const void *b)
{
    const struct gradient *left = a, *right = b;
    return left->writer != right->writer ? left->writer - right->writer : left->value - right->value;
}

static void find_gradients(struct bucketing *b)
{
    const struct program *program = b->program;
    struct gradient *written = memory_new((size_t)program->value_count, sizeof *written);
    double seconds = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->kind == INSTRUCTION_UPDATE) break;
        if (at->op) seconds += cost_seconds(program, at);
        FOR_WRITES(o, at) written[o->value] = (struct gradient){o->value, -1, i, seconds};
    }
    for (int p = 0; p < program->graph->param_count; p++)
        if (program->gradients[p] >= 0)
            *array_push(b->gradients, b->count) = written[program->gradients[p]];
    b->end = seconds;
    free(written);
    if (b->count > 0) qsort(b->gradients, (size_t)b->count, sizeof *b->gradients, gradient_compare);
    b->before = memory_new((size_t)b->count + 1, sizeof *b->before);
    for (int g = 0; g < b->count; g++)
        b->before[g + 1] = b->before[g] + plan_bytes(&program->values[b->gradients[g].value]);
}

/* The values of D by number of buckets and of gradients, and the k of each. */
struct bucket_table {
    double *done[BUCKETS_MAX + 1];
    int *from[BUCKETS_MAX + 1];
};

static void table_fill(const struct bucketing *b, struct bucket_table *table)
{
    int64_t wire = (int64_t)dtype_bytes(b->program->wire);
    for (int q = 0; q <= BUCKETS_MAX; q++) {
        table->done[q] = memory_new((size_t)b->count + 1, sizeof(double));
        table->from[q] = memory_new((size_t)b->count + 1, sizeof(int));
        for (int j = 0; j <= b->count; j++) table->done[q][j] = INFINITY;
    }
    table->done[0][0] = 0;
    for (int q = 1; q <= BUCKETS_MAX; q++)
        for (int j = q; j <= b->count; j++)
            for (int k = q - 1; k < j; k++) {
                double start = fmax(table->done[q - 1][k], b->gradients[j - 1].ready);
                int64_t bytes = (b->before[j] - b->before[k]) * wire / (int64_t)sizeof(float);
                double done = start + SLOWER_BESIDE * cost_exchange(b->program, (double)bytes, b->ranks);
                if (done >= table->done[q][j]) continue;
                table->done[q][j] = done;
                table->from[q][j] = k;
            }
}

/* The smallest number with nearly the minimal exposed time. */
static int fewest(const struct bucketing *b, const struct bucket_table *table)
{
    double best = INFINITY;
    for (int q = 1; q <= BUCKETS_MAX; q++) best = fmin(best, fmax(table->done[q][b->count], b->end));
    int q = 1;
    while (fmax(table->done[q][b->count], b->end) > best + SECONDS_WORTH_A_BUCKET) q++;
    return q;
}

static void divide_by_time(struct bucketing *b)
{
    struct bucket_table table;
    table_fill(b, &table);
    b->bucket_count = fewest(b, &table);
    for (int q = b->bucket_count, j = b->count; q > 0; j = table.from[q--][j]) b->buckets[q - 1].end = j;
    for (int q = 0; q <= BUCKETS_MAX; q++) {
        free(table.done[q]);
        free(table.from[q]);
    }
}

/* The last bucket takes everything beyond BUCKETS_MAX. */
static void divide_by_size(struct bucketing *b)
{
    int first = 0;
    for (int g = 1; g < b->count; g++) {
        bool full = b->before[g + 1] - b->before[first] > b->options->bytes;
        if (!full || b->bucket_count + 1 == BUCKETS_MAX) continue;
        b->buckets[b->bucket_count++].end = first = g;
    }
    b->buckets[b->bucket_count++].end = b->count;
}

static int add_whole(struct bucketing *b, int bucket, const char *what, enum dtype dtype, int64_t count)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_PARAM_GRADIENT, .dtype = dtype, .node = -1,
                          .index = -1, .divided = true, .shape = shape_vector(count)};
    return build_value(b->program, value, text_format("bucket %d%s", bucket, what));
}

static void become_part(struct value *value, int whole, int64_t offset)
{
    value->home = HOME_PART;
    value->whole = whole;
    value->offset = offset;
}

/* A new part like `of`. */
static int add_part(struct program *program, int of, int whole, int64_t offset)
{
    struct value value = program->values[of];
    become_part(&value, whole, offset);
    return build_value(program, value, text_copy(program->values[of].name));
}

static int flags_new(struct program *program)
{
    struct value value = {.home = HOME_FLAGS, .kind = KIND_EXCHANGE, .dtype = F32, .node = -1, .index = -1,
                          .shape = shape_nhwc(1, 1, 1, FLAG_COUNT)};
    return build_value(program, value, text_copy("flags"));
}

/* Lays out a bucket, this rank's and the sum: gradients `first` and following; in the last one, flags. */
static void lay_out(struct bucketing *b, int bucket, int first)
{
    struct program *program = b->program;
    struct bucket *at = &b->buckets[bucket];
    bool last = bucket == b->bucket_count - 1;
    int64_t base = b->before[first], flags = b->before[at->end] - base;
    int64_t bytes = flags + (last ? FLAG_COUNT * (int64_t)sizeof(float) : 0);
    bytes = (int64_t)align_up((size_t)bytes, (size_t)b->ranks * PLAN_ALIGNMENT);
    at->own = add_whole(b, bucket, "", F32, bytes / (int64_t)sizeof(float));
    at->sum = add_whole(b, bucket, " sum", F32, bytes / (int64_t)sizeof(float));
    for (int g = first; g < at->end; g++) {
        struct gradient *gradient = &b->gradients[g];
        become_part(&program->values[gradient->value], at->own, b->before[g] - base);
        gradient->sum = add_part(program, gradient->value, at->sum, b->before[g] - base);
    }
    if (last) program->flags_sum = add_part(program, program->flags, at->sum, flags);
}

static void push_collective(struct bucketing *b, enum instruction_kind kind, char *name, int from, int to)
{
    struct instruction at = instruction_transfer(kind, PHASE_BACKWARD, name, from, to);
    at.micro_batch = b->program->micro_batches - 1;
    build_push(b->program, at);
}

/* Values of an op with one input or, unless from[1] is -1, two. */
struct ends {
    int from[2], to;
};

/* The settings become the program's. */
static void push_op(struct bucketing *b, const char *op_name, char *settings, char *name,
                    struct ends ends)
{
    struct program *program = b->program;
    const struct op *op = build_op(op_name);
    struct instruction at = instruction_new(PHASE_FORWARD, op, build_settings(program, op, settings), name);
    at.micro_batch = program->micro_batches - 1;
    operand_set(&at, OPERAND_X, 0, ends.from[0]);
    operand_set(&at, OPERAND_X, 1, ends.from[1]);
    operand_set(&at, OPERAND_Y, 0, ends.to);
    build_push(program, at);
}

static void push_cast(struct bucketing *b, enum dtype dtype, char *name, int from, int to)
{
    struct ends ends = {{from, -1}, to};
    push_op(b, "cast", text_format("to=%s", dtype_table[dtype].name), name, ends);
}

/* Each rank sums one share of the bucket. Its own part of it is read, and written, where it lies. */
static void push_shares(struct bucketing *b, int bucket, int from, int to)
{
    struct program *program = b->program;
    const struct value *whole = &program->values[from];
    int rank = program->first_micro_batch / program->micro_batches;
    int64_t count = shape_count(whole->shape) / b->ranks, offset = whole->bytes / b->ranks * rank;
    struct value value = {.home = HOME_ARENA, .kind = KIND_EXCHANGE, .dtype = whole->dtype, .node = -1,
                          .index = -1};
    value.shape = shape_nhwc(b->ranks, 1, 1, count);
    int of_all = build_value(program, value, text_format("bucket %d shares", bucket));
    value.shape.n = 1;
    become_part(&value, from, offset);
    int own = build_value(program, value, text_format("bucket %d own share", bucket));
    value.whole = to;
    int share = build_value(program, value, text_format("bucket %d share", bucket));
    push_collective(b, INSTRUCTION_ALL_TO_ALL, text_format("bucket %d all-to-all", bucket), from, of_all);
    push_op(b, "sum_ranks", text_format("rank=%d", rank), text_format("bucket %d sum", bucket),
            (struct ends){{of_all, own}, share});
    push_collective(b, INSTRUCTION_ALL_GATHER, text_format("bucket %d all-gather", bucket), share, to);
}

static void push_sum(struct bucketing *b, int bucket, int from, int to)
{
    if (b->program->values[from].bytes >= b->options->all_reduce_bytes) push_shares(b, bucket, from, to);
    else push_collective(b, INSTRUCTION_ALL_REDUCE, text_format("bucket %d all-reduce", bucket), from, to);
}

/* Rounded to 16 bits, and the sum back to fp32. */
static void push_rounded(struct bucketing *b, int bucket, int from, int to)
{
    struct program *program = b->program;
    int64_t count = shape_count(program->values[from].shape);
    int sent = add_whole(b, bucket, " rounded", program->wire, count);
    int sum = add_whole(b, bucket, " rounded sum", program->wire, count);
    program->values[sent].kind = program->values[sum].kind = program->values[to].kind = KIND_EXCHANGE;
    push_cast(b, program->wire, text_format("bucket %d rounded", bucket), from, sent);
    push_sum(b, bucket, sent, sum);
    push_cast(b, F32, text_format("bucket %d sum in fp32", bucket), sum, to);
}

static void push_exchange(struct bucketing *b, int bucket)
{
    struct program *program = b->program;
    const struct bucket *at = &b->buckets[bucket];
    if (bucket == b->bucket_count - 1) {
        int64_t offset = program->values[program->flags_sum].offset;
        int part = add_part(program, program->flags, at->own, offset);
        push_cast(b, F32, text_copy("flags"), program->flags, part);
    }
    if (program->wire == F32) push_sum(b, bucket, at->own, at->sum);
    else push_rounded(b, bucket, at->own, at->sum);
}

/* Exchanges follow the instruction that completes the bucket. */
static void push_exchanges(struct bucketing *b)
{
    struct program *program = b->program;
    struct instruction *from = program->instructions;
    int count = program->count, bucket = 0;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        *array_push(program->instructions, program->count) = from[i];
        for (; bucket < b->bucket_count && b->gradients[b->buckets[bucket].end - 1].writer == i; bucket++)
            push_exchange(b, bucket);
    }
    free(from);
}


/* The update reads sums. */
static void use_sums(const struct bucketing *b)
{
    struct program *program = b->program;
    int *sums = memory_new((size_t)program->value_count, sizeof *sums);
    for (int v = 0; v < program->value_count; v++) sums[v] = -1;
    for (int g = 0; g < b->count; g++) sums[b->gradients[g].value] = b->gradients[g].sum;
    for (int p = 0; p < program->graph->param_count; p++)
        if (program->gradients[p] >= 0) program->gradients[p] = sums[program->gradients[p]];
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].kind == INSTRUCTION_UPDATE)
            operands_replace(&program->instructions[i], sums, program->value_count);
    free(sums);
}

void buckets(struct program *program, const struct bucket_options *options)
{
    struct bucketing b = {.program = program, .options = options,
                          .ranks = program->all_micro_batches / program->micro_batches};
    find_gradients(&b);
    if (b.count > 0) {
        program->flags = flags_new(program);
        if (options->bytes > 0) divide_by_size(&b);
        else divide_by_time(&b);
        for (int bucket = 0, first = 0; bucket < b.bucket_count; first = b.buckets[bucket++].end)
            lay_out(&b, bucket, first);
        push_exchanges(&b);
        use_sums(&b);
    }
    free(b.gradients);
    free(b.before);
}
