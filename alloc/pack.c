#include "pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/search.h"
#include "alloc/skyline_search.h"
#include "alloc/table.h"
#include "base/clock.h"
#include "base/memory.h"

/* Work is counted in blocks visited, so that the result does not depend on the machine; any current machine
 * visits more than this many per second. */
#define WORK_PER_SECOND 250e6

/* Extra seconds that the counted work may take on a slow or busy machine; a result that depends on this limit
 * is not reproducible. */
#define GRACE_SECONDS 2

/* Without a capacity, a result this much above the bound is good enough. Whether the exact search finds a
 * placement at once or never depends on its capacity, so several are tried in turn. */
#define EASY_SHARE 0.0048
static const double easy_shares[] = {0.0035, EASY_SHARE, 0.0030};
#define EASY_SHARES (int)(sizeof easy_shares / sizeof *easy_shares)
#define EASY_WORK 60000000
#define BOUND_WORK 36000000      /* that the bound itself is worth then */

/* The exact search handles tables of up to this many blocks. */
#define SEARCH_COUNT 3000

/* The share of the work spent on skylines first, and its maximum for tables that the exact search handles. */
#define SKYLINE_SHARE 0.5
#define SKYLINE_WORK 20000000

struct pack {
    struct table table;
    int64_t target;            /* what ends it */
    int64_t easy;              /* what ends it where there is nothing better at hand */
    bool eased;                /* there is no capacity to meet */
    int64_t *offsets;          /* being tried */
    int64_t *best_offsets;
    int64_t best_peak;
    int64_t visits, visit_limit;
    double deadline;
};

int64_t pack_bound(const struct span *spans, int count, int64_t alignment)
{
    struct table table = table_open(spans, count, alignment);
    int64_t bound = table.bound * alignment;
    table_close(&table);
    return bound;
}

static bool pack_done(const struct pack *pack)
{
    return pack->best_peak <= pack->target || pack->visits > pack->visit_limit ||
           clock_seconds() > pack->deadline;
}

/* True if the result is good enough to stop. */
static bool pack_easy(const struct pack *pack)
{
    return pack->best_peak <= pack->easy || pack_done(pack);
}

static void pack_aim(struct pack *pack, int64_t target)
{
    pack->target = target;
    pack->easy = pack->eased ? (int64_t)((1 + EASY_SHARE) * (double)target) : target;
}

static void pack_keep(struct pack *pack, int64_t peak)
{
    if (peak >= pack->best_peak) return;
    pack->best_peak = peak;
    memcpy(pack->best_offsets, pack->offsets, (size_t)pack->table.count * sizeof *pack->offsets);
}

static void try_skyline(struct pack *pack, struct skyline_search *skylines)
{
    int64_t before = skyline_search_visits(skylines);
    pack_keep(pack, skyline_search_turn(skylines, pack->best_peak, pack->offsets));
    pack->visits += skyline_search_visits(skylines) - before;
}

/* The plain iterations are always completed. */
static void try_skylines(struct pack *pack, struct skyline_search *skylines)
{
    bool small = pack->table.count <= SEARCH_COUNT;
    int64_t most = (int64_t)(SKYLINE_SHARE * (double)pack->visit_limit);
    if (small && most > SKYLINE_WORK) most = SKYLINE_WORK;
    for (int turn = 0; turn < SKYLINE_PLAIN && pack->best_peak > pack->target; turn++)
        try_skyline(pack, skylines);
    while (!pack_easy(pack) && pack->visits < most) try_skyline(pack, skylines);
}

/* Asks the exact search for a placement within `capacity`. A proof that there is none is another bound. */
static void try_search(struct pack *pack, struct search *search, int64_t capacity, int64_t work)
{
    if (pack->best_peak <= capacity) return;
    int64_t before = search_visits(search);
    const struct search_limits limits = {capacity, work, pack->deadline};
    if (search_place(search, &limits, pack->offsets))
        pack_keep(pack, table_peak(&pack->table, pack->offsets));
    pack->visits += search_visits(search) - before;
    if (search_excluded(search) < pack->target) return;
    pack_aim(pack, search_excluded(search) + 1);
    if (!pack->eased) pack->visit_limit = 0;
}

/* Tries the easy capacities with growing work, until one is met or `stop` visits are made; and where there is
 * no placement, the middle of what is left. */
static void try_search_easy(struct pack *pack, struct search *search, int64_t stop)
{
    for (int64_t work = EASY_WORK; !pack_easy(pack) && pack->visits < stop; work *= work < stop ? 4 : 1)
        for (int i = 0; i < EASY_SHARES && !pack_easy(pack) && pack->visits < stop; i++) {
            int64_t capacity = (int64_t)((1 + easy_shares[i]) * (double)pack->table.bound);
            int64_t left = stop - pack->visits, excluded = search_excluded(search);
            if (capacity <= excluded) capacity = excluded + (pack->best_peak - excluded) / 2;
            try_search(pack, search, capacity, work < left ? work : left);
        }
}

static void try_searches(struct pack *pack)
{
    struct search *search = search_open(&pack->table);
    int64_t left = pack->visit_limit - pack->visits;
    if (pack->eased) try_search_easy(pack, search, pack->visits + left / 10 * 7);
    left = pack->visit_limit - pack->visits;
    if (pack->eased && pack_easy(pack) && left > BOUND_WORK) left = BOUND_WORK;
    if (!pack_done(pack)) try_search(pack, search, pack->target, left);
    search_close(search);
}

/* The portfolio: algorithms that are fast and good on most tables come first. */
static void pack_run(struct pack *pack)
{
    struct skyline_search *skylines = skyline_search_open(&pack->table, pack->easy);
    try_skylines(pack, skylines);
    if (!pack_done(pack) && pack->table.count <= SEARCH_COUNT) try_searches(pack);
    while (!pack_easy(pack)) try_skyline(pack, skylines);
    skyline_search_close(skylines);
}

int64_t pack_spans(struct span *spans, int count, int64_t alignment, int64_t capacity, double seconds)
{
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    struct pack pack = {.table = table_open(spans, count, alignment), .eased = capacity <= 0,
                        .best_peak = INT64_MAX, .visit_limit = (int64_t)(seconds * WORK_PER_SECOND),
                        .deadline = clock_seconds() + seconds + GRACE_SECONDS};
    const struct table *table = &pack.table;
    for (int i = 0; i < count; i++) spans[i].offset = 0;
    if (table->count > 0) {
        pack_aim(&pack, capacity / alignment > table->bound ? capacity / alignment : table->bound);
        pack.offsets = memory_new((size_t)table->count, sizeof *pack.offsets);
        pack.best_offsets = memory_new((size_t)table->count, sizeof *pack.best_offsets);
        pack_run(&pack);
    }
    for (int i = 0; i < table->count; i++)
        spans[table->source[i]].offset = pack.best_offsets[i] * alignment;
    free(pack.offsets);
    free(pack.best_offsets);
    table_close(&pack.table);
    return pack.best_peak < INT64_MAX ? pack.best_peak * alignment : 0;
}
