/* partition_search.c: dynamic programming from the last chunk to the first. Of all ways to compute the blocks
 * from i on in the chunks from c on, the Pareto-optimal ones are kept: the time is a sum and two maxima,
 * which cannot be traded against each other before the preceding chunks are known. Those are left out that
 * with the least time of the preceding blocks take longer than an even division does.
 *
 * Planning a stage is slow, so memory is checked last: if a stage of the best division does not fit, it is
 * excluded with all that need more, and the search is repeated. */
#include "compile/parallel/partition_search.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

#define ROUNDING (1 + 1e-9)

/* A division of the blocks into the chunks from one on: its times, its first chunk, and the label of the
 * rest. */
struct label {
    double fill, drain, exchange;
    struct partition_chunk chunk;
    int behind;
};

struct labels {
    struct label *label;
    int count;
};

/* The cached memory of a stage. */
struct known {
    struct partition_chunk chunk;
    int number;              /* of the stage */
    bool fits;
};

struct search {
    const struct partition_problem *problem;
    int chunks;
    struct partition_sums sums;
    struct labels *table;               /* by chunk and first block */
    double enough;                      /* the seconds of a division; infinite: none is known */
    struct known *known;
    int known_count;
};

static struct search search_open(const struct partition_problem *problem)
{
    int chunks = partition_chunks(problem);
    return (struct search){
        .problem = problem, .chunks = chunks, .sums = partition_sums_make(problem),
        .table = memory_new((size_t)(chunks + 1) * (size_t)(problem->count + 1), sizeof(struct labels)),
    };
}

static struct labels *labels_at(const struct search *search, int number, int first)
{
    return &search->table[(size_t)number * (size_t)(search->problem->count + 1) + (size_t)first];
}

static void table_clear(struct search *search)
{
    for (int c = 0; c < (search->chunks + 1) * (search->problem->count + 1); c++) {
        free(search->table[c].label);
        search->table[c] = (struct labels){0};
    }
}

static void search_close(struct search *search)
{
    table_clear(search);
    partition_sums_free(&search->sums);
    free(search->table);
    free(search->known);
}

/* The seconds by which separate weight gradients lengthen drain, and shorten fill. */
static double late(const struct partition_problem *problem, double weights)
{
    return pipeline_weights_apart(problem->schedule, 1) ? 2 * weights : 0;
}

/* How many chunks the stage of a chunk has. */
static int chunks_beside(const struct search *search, int number)
{
    return pipeline_interleaves(search->problem->schedule) && number != search->problem->stages - 1 ? 2 : 1;
}

/* Chunk `number` prepended to the chunks of a label. */
static struct label label_before(const struct search *search, const struct partition_chunk *chunk, int number,
                                 const struct label *behind)
{
    const struct partition_problem *problem = search->problem;
    struct partition_times t = partition_times(&search->sums, chunk);
    double c = t.forward + t.data + t.weights, more = late(problem, t.weights);
    double busy = chunks_beside(search, number) * c;
    return (struct label){
        .fill = behind->fill + c - more + 2 * t.message,
        .drain = fmax(behind->drain, (problem->micro_batches - 1) * fmax(busy, t.message) + more),
        .exchange = fmax(behind->exchange, t.exchange),
        .chunk = *chunk,
    };
}

/* Not worse in any respect. */
static bool label_dominates(const struct label *a, const struct label *b)
{
    return a->fill <= b->fill && a->drain <= b->drain && a->exchange <= b->exchange;
}

static void labels_add(struct labels *labels, const struct label *label)
{
    for (int k = 0; k < labels->count; k++)
        if (label_dominates(&labels->label[k], label)) return;
    int kept = 0;
    for (int k = 0; k < labels->count; k++)
        if (!label_dominates(label, &labels->label[k])) labels->label[kept++] = labels->label[k];
    labels->count = kept;
    *array_push(labels->label, labels->count) = *label;
}

static double label_seconds(const struct label *label)
{
    return label->fill + label->drain + label->exchange;
}

/* Seconds of chunks with which stages have equal numbers of seconds; infinite if there are none such. */
static double even_seconds(const struct search *search)
{
    const struct partition_problem *problem = search->problem;
    const struct partition_block *all = &search->sums.before[problem->count];
    double share = (all->forward + all->data + all->weights) / problem->stages;
    struct label label = {.chunk = {problem->count, problem->count}};
    for (int c = search->chunks - 1; c >= 0; c--) {
        struct partition_chunk chunk = {label.chunk.first, label.chunk.first};
        struct partition_times own = {0};
        while (chunk.first > c &&
               (c == 0 || chunks_beside(search, c) * (own.forward + own.data + own.weights) < share ||
                !partition_may_end(problem, chunk.first))) {
            chunk.first--;
            own = partition_times(&search->sums, &chunk);
        }
        if (chunk.first == chunk.end || (c > 0 && !partition_may_end(problem, chunk.first))) return INFINITY;
        label = label_before(search, &chunk, c, &label);
    }
    return label_seconds(&label);
}

static bool ruled_out(const struct search *search, const struct partition_chunk *chunk, int number)
{
    for (int k = 0; k < search->known_count; k++) {
        const struct known *at = &search->known[k];
        if (!at->fits && at->number == number && chunk->first <= at->chunk.first &&
            chunk->end >= at->chunk.end) return true;
    }
    return false;
}

/* The least by which the blocks before one add to fill. */
static double least_fill(const struct search *search, int first)
{
    const struct partition_block *sum = &search->sums.before[first];
    return sum->forward + sum->data + sum->weights - late(search->problem, sum->weights);
}

/* The labels of chunks from `number` on, from block `first` on. */
static void labels_find(struct search *search, int number, int first)
{
    const struct partition_problem *problem = search->problem;
    struct labels *labels = labels_at(search, number, first);
    for (int end = first + 1; end <= problem->count - (search->chunks - number - 1); end++) {
        const struct partition_chunk chunk = {first, end};
        const struct labels *behind = labels_at(search, number + 1, end);
        if (!partition_may_end(problem, end) || ruled_out(search, &chunk, number)) continue;
        for (int k = 0; k < behind->count; k++) {
            struct label label = label_before(search, &chunk, number, &behind->label[k]);
            label.behind = k;
            if (label_seconds(&label) + least_fill(search, first) <= search->enough)
                labels_add(labels, &label);
        }
    }
}

/* The best division that is not excluded; false if there is none. */
static bool chain_divide(struct search *search, struct partition_chunk *chunks, double *seconds)
{
    const struct partition_problem *problem = search->problem;
    table_clear(search);
    search->enough = search->known_count == 0 ? ROUNDING * even_seconds(search) : INFINITY;
    labels_add(labels_at(search, search->chunks, problem->count), &(struct label){0});
    for (int c = search->chunks - 1; c >= 0; c--)
        for (int i = c; i < (c > 0 ? problem->count : 1); i++) labels_find(search, c, i);
    const struct labels *all = labels_at(search, 0, 0);
    int best = -1;
    for (int k = 0; k < all->count; k++) {
        double time = label_seconds(&all->label[k]);
        if (best >= 0 && time >= *seconds) continue;
        best = k;
        *seconds = time;
    }
    if (best < 0) return false;
    for (int c = 0, i = 0; c < search->chunks; c++) {
        const struct label *label = &labels_at(search, c, i)->label[best];
        chunks[c] = label->chunk;
        best = label->behind;
        i = label->chunk.end;
    }
    return true;
}

static bool stage_fits(struct search *search, const struct partition_chunk *chunk, int number)
{
    const struct partition_problem *problem = search->problem;
    for (int k = 0; k < search->known_count; k++) {
        const struct known *at = &search->known[k];
        if (at->fits && at->number == number && at->chunk.first == chunk->first &&
            at->chunk.end == chunk->end) return true;
    }
    bool fits = problem->bytes(problem->context, chunk, number) <= problem->limit;
    *array_push(search->known, search->known_count) = (struct known){*chunk, number, fits};
    return fits;
}

static bool all_fit(struct search *search, const struct partition_chunk *chunks)
{
    bool fit = true;
    for (int s = 0; s < search->chunks && search->problem->limit > 0; s++)
        fit = stage_fits(search, &chunks[s], s) && fit;
    return fit;
}

bool partition_search(const struct partition_problem *problem, struct partition_chunk *chunks,
                      double *seconds)
{
    struct search search = search_open(problem);
    bool found;
    do
        found = chain_divide(&search, chunks, seconds);
    while (found && !all_fit(&search, chunks));
    search_close(&search);
    return found;
}
