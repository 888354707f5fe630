/* partition_search.c: dynamic programming from the last stage to the first. Of all ways to compute the blocks
 * from i on with g ranks in the stages from s on, the Pareto-optimal ones are kept: the time is a sum and two
 * maxima, which cannot be traded against each other before the preceding stages are known. Those are left
 * out that with the least time of the preceding blocks take longer than an even division does.
 *
 * Planning a stage is slow, so memory is checked last: if a stage of the best division does not fit, it is
 * excluded with all that need more, and the search is repeated. */
#include "compile/parallel/partition_search.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

#define ROUNDING (1 + 1e-9)

/* A division of the blocks into the stages from one on: its times, its first stage, and the label of the
 * rest. */
struct label {
    double fill, drain, exchange;
    struct partition_stage stage;
    int behind;
};

struct labels {
    struct label *label;
    int count;
};

/* The cached memory of a stage. */
struct known {
    struct partition_stage stage;
    int number;              /* of the stage */
    bool fits;
};

struct search {
    const struct partition_problem *problem;
    struct partition_sums sums;
    struct labels *table;               /* by stage, ranks and first block */
    double *least;                      /* [count + 1] by which the blocks before one add to fill */
    double enough;                      /* the seconds of a division; infinite: none is known */
    struct known *known;
    int known_count;
};

/* Of all replicas the least, summed over the blocks before each. */
static double *least_fill(const struct partition_problem *problem)
{
    double *least = memory_new((size_t)problem->count + 1, sizeof *least);
    for (int i = 0; i < problem->count; i++) {
        double fill = INFINITY;
        for (int r = 1; r <= problem->replicas_max; r++) {
            const struct partition_block *block = &problem->blocks[r - 1][i];
            double late = problem->schedule == PIPELINE_ZERO_BUBBLE ? 2 * block->weights : 0;
            fill = fmin(fill, block->forward + block->data + block->weights - late);
        }
        least[i + 1] = least[i] + fill;
    }
    return least;
}

static struct search search_open(const struct partition_problem *problem)
{
    size_t stages = (size_t)problem->stages + 1, ranks = (size_t)problem->ranks + 1;
    return (struct search){
        .problem = problem, .sums = partition_sums_make(problem), .least = least_fill(problem),
        .table = memory_new(stages * ranks * ((size_t)problem->count + 1), sizeof(struct labels)),
    };
}

static struct labels *labels_at(const struct search *search, int stage, int ranks, int first)
{
    const struct partition_problem *problem = search->problem;
    return &search->table[((size_t)stage * (size_t)(problem->ranks + 1) + (size_t)ranks) *
                              (size_t)(problem->count + 1) + (size_t)first];
}

static void table_clear(struct search *search)
{
    const struct partition_problem *problem = search->problem;
    for (int c = 0; c < (problem->stages + 1) * (problem->ranks + 1) * (problem->count + 1); c++) {
        free(search->table[c].label);
        search->table[c] = (struct labels){0};
    }
}

static void search_close(struct search *search)
{
    table_clear(search);
    partition_sums_free(&search->sums);
    free(search->least);
    free(search->table);
    free(search->known);
}

/* `stage` prepended to the stages of a label. */
static struct label label_before(const struct search *search, const struct partition_stage *stage,
                                 const struct label *behind)
{
    const struct partition_problem *problem = search->problem;
    struct partition_times t = partition_times(&search->sums, stage, behind->stage.replicas);
    double c = t.forward + t.data + t.weights;
    double late = problem->schedule == PIPELINE_ZERO_BUBBLE ? 2 * t.weights : 0;
    return (struct label){
        .fill = behind->fill + c - late + 2 * t.message,
        .drain = fmax(behind->drain, (problem->micro_batches - 1) * fmax(c, t.message) + late),
        .exchange = fmax(behind->exchange, t.exchange),
        .stage = *stage,
    };
}

/* Not worse in any respect, including the size of the boundary in front. */
static bool label_dominates(const struct label *a, const struct label *b)
{
    return a->fill <= b->fill && a->drain <= b->drain && a->exchange <= b->exchange &&
           a->stage.replicas >= b->stage.replicas;
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

/* Seconds of stages with equal numbers of seconds, if each has one rank; infinite if there are none such. */
static double even_seconds(const struct search *search)
{
    const struct partition_problem *problem = search->problem;
    const struct partition_stage all = {0, problem->count, 1};
    struct partition_times sum = partition_times(&search->sums, &all, 1);
    double share = (sum.forward + sum.data + sum.weights) / problem->stages;
    struct label label = {.stage = {problem->count, problem->count, 1}};
    if (problem->ranks != problem->stages) return INFINITY;
    for (int s = problem->stages - 1; s >= 0; s--) {
        struct partition_stage stage = {label.stage.first, label.stage.first, 1};
        struct partition_times own = {0};
        while (stage.first > s && (s == 0 || own.forward + own.data + own.weights < share ||
                                   !partition_may_end(problem, stage.first))) {
            stage.first--;
            own = partition_times(&search->sums, &stage, 1);
        }
        if (stage.first == stage.end || (s > 0 && !partition_may_end(problem, stage.first))) return INFINITY;
        label = label_before(search, &stage, &label);
    }
    return label_seconds(&label);
}

static bool ruled_out(const struct search *search, const struct partition_stage *stage, int number)
{
    for (int k = 0; k < search->known_count; k++) {
        const struct known *at = &search->known[k];
        if (!at->fits && at->number == number && stage->first <= at->stage.first &&
            stage->end >= at->stage.end && stage->replicas <= at->stage.replicas) return true;
    }
    return false;
}

/* The labels of stages from `number` on, with that many ranks, from block `first` on. */
static void labels_find(struct search *search, int number, int ranks, int first)
{
    const struct partition_problem *problem = search->problem;
    struct labels *labels = labels_at(search, number, ranks, first);
    int after = problem->stages - number - 1;
    for (int end = first + 1; end <= problem->count - after; end++) {
        if (!partition_may_end(problem, end)) continue;
        for (int replicas = 1; replicas <= problem->replicas_max && replicas <= ranks - after; replicas++) {
            const struct partition_stage stage = {first, end, replicas};
            const struct labels *behind = labels_at(search, number + 1, ranks - replicas, end);
            if (behind->count == 0 || ruled_out(search, &stage, number)) continue;
            for (int k = 0; k < behind->count; k++) {
                struct label label = label_before(search, &stage, &behind->label[k]);
                label.behind = k;
                if (label_seconds(&label) + search->least[first] > search->enough) continue;
                labels_add(labels, &label);
            }
        }
    }
}

/* The best division that is not excluded; false if there is none. */
static bool chain_divide(struct search *search, struct partition_stage *stages, double *seconds)
{
    const struct partition_problem *problem = search->problem;
    table_clear(search);
    search->enough = search->known_count == 0 ? ROUNDING * even_seconds(search) : INFINITY;
    const struct label none = {.stage.replicas = INT_MAX};
    labels_add(labels_at(search, problem->stages, 0, problem->count), &none);
    for (int s = problem->stages - 1; s >= 0; s--)
        for (int g = s > 0 ? 1 : problem->ranks; g <= problem->ranks; g++)
            for (int i = s > 0 ? s : 0; i < (s > 0 ? problem->count : 1); i++) labels_find(search, s, g, i);
    const struct labels *all = labels_at(search, 0, problem->ranks, 0);
    int best = -1;
    for (int k = 0; k < all->count; k++) {
        double time = label_seconds(&all->label[k]);
        if (best >= 0 && time >= *seconds) continue;
        best = k;
        *seconds = time;
    }
    if (best < 0) return false;
    for (int s = 0, g = problem->ranks, i = 0; s < problem->stages; s++) {
        const struct label *label = &labels_at(search, s, g, i)->label[best];
        stages[s] = label->stage;
        best = label->behind;
        g -= label->stage.replicas;
        i = label->stage.end;
    }
    return true;
}

static bool stage_fits(struct search *search, const struct partition_stage *stage, int number)
{
    const struct partition_problem *problem = search->problem;
    for (int k = 0; k < search->known_count; k++) {
        const struct known *at = &search->known[k];
        if (at->fits && at->number == number && at->stage.first == stage->first &&
            at->stage.end == stage->end && at->stage.replicas == stage->replicas) return true;
    }
    bool fits = problem->bytes(problem->context, stage, number) <= problem->limit;
    *array_push(search->known, search->known_count) = (struct known){*stage, number, fits};
    return fits;
}

static bool all_fit(struct search *search, const struct partition_stage *stages)
{
    bool fit = true;
    for (int s = 0; s < search->problem->stages && search->problem->limit > 0; s++)
        fit = stage_fits(search, &stages[s], s) && fit;
    return fit;
}

bool partition_search(const struct partition_problem *problem, struct partition_stage *stages,
                      double *seconds)
{
    struct search search = search_open(problem);
    bool found;
    do
        found = chain_divide(&search, stages, seconds);
    while (found && !all_fit(&search, stages));
    search_close(&search);
    return found;
}
