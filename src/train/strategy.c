#include "train/strategy.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/plan.h"
#include "graph/recompute.h"
#include "train/step.h"

#define TRIES 6              /* limits in a row that are handed to the choice of what is made again */
#define CLOSE 0.97           /* a plan on several lanes that misses by less is worth another try */
#define PACK_SECONDS 0.2

/* What is made again, on how many lanes, and where all then lies: a way to make the step. */
struct way {
    enum remake *remake;
    int lanes;
    int64_t arena;
    int64_t *places;             /* by value of the program that is made so */
    int place_count;
};

/* A program being fitted. */
struct fitting {
    const struct setup *setup;
    struct program *program;     /* as lowered, workspaces and all */
    struct engines engines;
    enum remake *remake;         /* being tried */
    struct way best;             /* the smallest so far */
    int64_t room;                /* for the arena */
};

static enum status make(const struct engines *engines, struct program *program, const enum remake *remake,
                        int lane_count)
{
    recompute(program, remake);
    if (lane_count > 1) TRY(lanes(program, lane_count));
    if (engines) engines_ask(engines, program);
    return OK;
}

/* Remembers what was tried if nothing smaller is known. Takes the plan's places. */
static void keep_way(struct fitting *f, int lane_count, struct plan *plan)
{
    if (f->best.places && plan->arena_bytes >= f->best.arena) return;
    free(f->best.places);
    memcpy(f->best.remake, f->remake, (size_t)f->program->count * sizeof *f->remake);
    f->best.lanes = lane_count;
    f->best.arena = plan->arena_bytes;
    f->best.places = plan->offsets;
    f->best.place_count = plan->value_count;
    plan->offsets = NULL;
}

/* The arena that a choice leads to. */
static enum status try_lanes(struct fitting *f, int lane_count, int64_t *arena)
{
    struct program copy = program_copy(f->program);
    struct plan plan = {0};
    enum status status = make(&f->engines, &copy, f->remake, lane_count);
    if (status == OK) status = plan_fit(&copy, f->room, PACK_SECONDS, &plan);
    if (status == OK) {
        *arena = plan.arena_bytes;
        keep_way(f, lane_count, &plan);
    }
    plan_free(&plan);
    program_free(&copy);
    return status;
}

/* The smaller of the arenas on all lanes and, where that could make it fit, on one. */
static enum status try_choice(struct fitting *f, int64_t *arena)
{
    int all = setup_lanes(f->setup);
    TRY(try_lanes(f, all, arena));
    if (*arena <= f->room || all == 1 || (double)f->room >= CLOSE * (double)*arena) return OK;
    int64_t narrow;
    TRY(try_lanes(f, 1, &narrow));
    if (narrow < *arena) *arena = narrow;
    return OK;
}

static bool fits(const struct fitting *f)
{
    return f->best.places && f->best.arena <= f->room;
}

/* One choice within `limit`, tried. `bytes`: what it counts on. */
static enum status try_limit(struct fitting *f, int64_t limit, bool light, bool *met, int64_t *bytes, int64_t *arena)
{
    struct recompute_forecast forecast;
    *met = recompute_choose(f->program, limit, light, f->remake, &forecast);
    *bytes = forecast.bytes;
    return try_choice(f, arena);
}

/* What fits into the room, or else the smallest of a row of choices that does not depend on it: so that
 * what is said to be needed is enough. */
static enum status search_least(struct fitting *f, bool light)
{
    int64_t low = 0, high = INT64_MAX, limit = 1, bytes, arena;
    for (int t = 0; t < TRIES && !fits(f) && limit > low; t++) {
        bool met;
        TRY(try_limit(f, limit, light, &met, &bytes, &arena));
        if (!met) low = limit;
        if (bytes < high) high = bytes;
        limit = low + (high - low) / 2;
    }
    return OK;
}

/* A choice counts on one lane, on perfect packing and on forward's workspaces: what that misses by comes
 * off its limit. */
static enum status search(struct fitting *f, bool light)
{
    int64_t limit = f->room, bytes, arena;
    bool met = true;
    for (int t = 0; t < TRIES && limit > 0 && met && !fits(f); t++) {
        TRY(try_limit(f, limit, light, &met, &bytes, &arena));
        limit -= arena - f->room + f->room / 1000;
    }
    return fits(f) ? OK : search_least(f, light);
}

static void keep_all(struct fitting *f)
{
    for (int i = 0; i < f->program->count; i++) f->remake[i] = REMAKE_NOT;
}

static enum status fit(struct fitting *f)
{
    int64_t arena;
    switch (f->setup->settings->memory.strategy) {
    case STRATEGY_AUTO:
        keep_all(f);
        TRY(try_choice(f, &arena));
        return fits(f) ? OK : search(f, false);
    case STRATEGY_KEEP:
        recompute_cheap(f->program, f->remake);
        TRY(try_choice(f, &arena));
        return fits(f) ? OK : search(f, true);
    case STRATEGY_RECOMPUTE: return search(f, false);
    case STRATEGY_OFFLOAD: break;
    }
    return OK;
}

static enum status without_limit(struct fitting *f)
{
    if (f->setup->settings->memory.strategy == STRATEGY_AUTO) keep_all(f);
    else recompute_cheap(f->program, f->remake);
    return make(NULL, f->program, f->remake, setup_lanes(f->setup));
}

/* Makes the program in the best way. */
static enum status make_best(struct fitting *f)
{
    struct program *program = f->program;
    TRY(make(&f->engines, program, f->best.remake, f->best.lanes));
    program->places = f->best.places;
    program->place_count = f->best.place_count;
    f->best.places = NULL;
    return OK;
}

/* Workspaces are known when engines are. */
static enum status within_limit(struct fitting *f)
{
    const struct setup *setup = f->setup;
    const struct engine_options options = {
        .code_of = engines_code(setup_device_kind(setup)), .device = setup->device,
        .tf32 = setup->precision->tf32, .deterministic = setup->settings->run.deterministic,
    };
    const struct plan nothing = {0};
    TRY(engines_prepare(f->program, &options, &f->engines));
    struct step_bytes rest = step_bytes(setup, f->program, &nothing, step_store_bytes(setup));
    f->room = setup_limit(setup) - rest.total;
    enum status status = fit(f);
    if (status == OK) status = make_best(f);
    engines_release(&f->engines);
    return status;
}

enum status strategy_apply(const struct setup *setup, struct program *program)
{
    struct fitting f = {.setup = setup, .program = program};
    size_t count = (size_t)program->count;
    f.remake = memory_new(count, sizeof *f.remake);
    f.best.remake = memory_new(count, sizeof *f.best.remake);
    enum status status = setup_limit(setup) > 0 ? within_limit(&f) : without_limit(&f);
    free(f.remake);
    free(f.best.remake);
    free(f.best.places);
    return status;
}

const char *strategy_name(const struct setup *setup, const struct program *program)
{
    bool keep = setup->settings->memory.strategy == STRATEGY_KEEP || recompute_count(program) == 0;
    return keep ? "keep" : "recompute";
}
