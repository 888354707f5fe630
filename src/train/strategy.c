#include "train/strategy.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/plan.h"
#include "graph/recompute.h"
#include "train/step.h"

#define TRIES 4              /* limits handed to the search, each lower by what the last missed */
#define CLOSE 0.97           /* a plan on several lanes that misses by less is worth another try */
#define PACK_SECONDS 0.2

/* A program being fitted. */
struct fitting {
    const struct setup *setup;
    struct program *program;     /* as lowered, workspaces and all */
    enum remake *remake;
    int lanes;
    int64_t room;                /* for the arena */
};

static enum status make(struct program *program, const enum remake *remake, int lane_count)
{
    recompute(program, remake);
    return lane_count > 1 ? lanes(program, lane_count) : OK;
}

/* The arena that a choice leads to. */
static enum status arena_of(const struct fitting *f, int lane_count, int64_t *bytes)
{
    struct program copy = program_copy(f->program);
    struct plan plan = {0};
    enum status status = make(&copy, f->remake, lane_count);
    if (status == OK) status = plan_make(&copy, true, PACK_SECONDS, &plan);
    *bytes = plan.arena_bytes;
    plan_free(&plan);
    program_free(&copy);
    return status;
}

/* Whether the choice fits, on fewer lanes if need be. `arena`: with all lanes. */
static enum status try_lanes(struct fitting *f, int64_t *arena, bool *fits)
{
    f->lanes = setup_lanes(f->setup);
    TRY(arena_of(f, f->lanes, arena));
    *fits = *arena <= f->room;
    if (*fits || f->lanes == 1) return OK;
    if ((double)f->room >= CLOSE * (double)*arena) return OK;
    int64_t narrow;
    TRY(arena_of(f, 1, &narrow));
    if (narrow >= *arena) return OK;
    f->lanes = 1;
    *arena = narrow;
    *fits = narrow <= f->room;
    return OK;
}

static void keep_all(struct fitting *f)
{
    for (int i = 0; i < f->program->count; i++) f->remake[i] = REMAKE_NOT;
}

/* The search counts on one lane and on perfect packing; what that misses by comes off its limit. When
 * no try fits, the smallest is what remains. */
static enum status search(struct fitting *f, bool light)
{
    size_t bytes = (size_t)f->program->count * sizeof *f->remake;
    enum remake *best = memory_new(1, bytes);
    int64_t limit = f->room, arena, least = INT64_MAX;
    int best_lanes = 1;
    enum status status = OK;
    bool enough = false, fits = true;
    for (int t = 0; status == OK && t < TRIES && limit > 0 && fits && !enough; t++) {
        struct recompute_forecast forecast;
        fits = recompute_choose(f->program, limit, light, f->remake, &forecast);
        status = try_lanes(f, &arena, &enough);
        limit -= arena - f->room + f->room / 1000;
        if (status != OK || arena >= least) continue;
        least = arena;
        best_lanes = f->lanes;
        memcpy(best, f->remake, bytes);
    }
    if (least < INT64_MAX) {
        memcpy(f->remake, best, bytes);
        f->lanes = best_lanes;
    }
    free(best);
    return status;
}

static enum status fit(struct fitting *f)
{
    int64_t arena;
    bool fits;
    switch (f->setup->settings->memory.strategy) {
    case STRATEGY_AUTO:
        keep_all(f);
        TRY(try_lanes(f, &arena, &fits));
        return fits ? OK : search(f, false);
    case STRATEGY_KEEP:
        recompute_cheap(f->program, f->remake);
        TRY(try_lanes(f, &arena, &fits));
        return fits ? OK : search(f, true);
    case STRATEGY_RECOMPUTE: return search(f, false);
    case STRATEGY_OFFLOAD: break;
    }
    return OK;
}

static void without_limit(struct fitting *f)
{
    f->lanes = setup_lanes(f->setup);
    if (f->setup->settings->memory.strategy == STRATEGY_AUTO) keep_all(f);
    else recompute_cheap(f->program, f->remake);
}

/* Workspaces are known when engines are: the program keeps them as values, the engines go. */
static enum status ask_workspaces(const struct setup *setup, struct program *program)
{
    const struct engine_options options = {
        .code_of = engines_code(setup_device_kind(setup)), .device = setup->device,
        .tf32 = setup->precision->tf32, .deterministic = setup->settings->run.deterministic,
    };
    struct engines engines;
    TRY(engines_prepare(program, &options, &engines));
    engines_release(&engines);
    return OK;
}

static enum status within_limit(struct fitting *f)
{
    const struct plan nothing = {0};
    TRY(ask_workspaces(f->setup, f->program));
    struct step_bytes rest = step_bytes(f->setup, f->program, &nothing, step_store_bytes(f->setup));
    f->room = f->setup->settings->memory.limit - rest.total;
    return fit(f);
}

enum status strategy_apply(const struct setup *setup, struct program *program)
{
    struct fitting f = {.setup = setup, .program = program};
    enum status status = OK;
    f.remake = memory_new((size_t)program->count, sizeof *f.remake);
    if (setup->settings->memory.limit > 0) status = within_limit(&f);
    else without_limit(&f);
    if (status == OK) status = make(program, f.remake, f.lanes);
    free(f.remake);
    return status;
}

const char *strategy_name(const struct setup *setup, const struct program *program)
{
    bool keep = setup->settings->memory.strategy == STRATEGY_KEEP || recompute_count(program) == 0;
    return keep ? "keep" : "recompute";
}
