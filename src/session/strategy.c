#include "session/strategy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/offload.h"
#include "compile/plan.h"
#include "compile/recompute.h"
#include "session/step.h"

#define TRIES 6              /* limits in a row that are handed to the choice of what is made again */
#define CLOSE 0.97           /* a plan on several streams that misses by less is worth another try */
#define PACK_SECONDS 0.05    /* at first: a slightly lower limit is met sooner
                              * than a better packing is found ... */
#define PACK_LONG 0.4        /* ... and when nothing else is left */
#define LEAST_WORK 4500000   /* of recompute_choose, for the choice of the least ... */
#define LEAST_TRIES 4        /* ... in which no try takes more than one part */
#define LEAST_NEAR 1.02      /* and which is over when there is no more to be had */

/* What is moved to the host. */
struct moves {
    bool any;
    struct offload_options options;
};

/* What is made again, what is moved, and on how many streams: a way to make the step. */
struct way {
    enum remake *remake;
    int64_t merged;              /* backward makes things by the way where no more than this is alive then */
    struct moves moves;
    int streams;
};

/* A program being fitted. */
struct fitting {
    const struct setup *setup;
    struct program *program;     /* as lowered, workspaces and all */
    struct engines engines;
    struct way tried;
    struct way best;             /* the smallest so far ... */
    int64_t arena;               /* ... and what it takes ... */
    int64_t *places;             /* ... by value of the program that is made so */
    int place_count;
    int64_t room;                /* for the arena */
    double pack_seconds;
};

static enum status make(const struct engines *engines, struct program *program, const struct way *way)
{
    struct offload_forecast forecast;
    recompute(program, way->remake);
    recompute_merge(program, way->merged);
    if (way->moves.any) offload(program, &way->moves.options, &forecast);
    if (way->streams > 1) TRY(streams_assign(program, way->streams));
    if (engines) engines_ask(engines, program);
    return OK;
}

/* Remembers what was tried if nothing smaller is known. Takes the plan's places. */
static void keep_way(struct fitting *f, struct plan *plan)
{
    if (f->places && plan->arena_bytes >= f->arena) return;
    enum remake *remake = f->best.remake;
    memcpy(remake, f->tried.remake, (size_t)f->program->count * sizeof *remake);
    f->best = f->tried;
    f->best.remake = remake;
    free(f->places);
    f->arena = plan->arena_bytes;
    f->places = plan->offsets;
    f->place_count = plan->value_count;
    plan->offsets = NULL;
}

/* The arena that a choice leads to; where it cannot fit, however well it is packed:
 * the least that it takes. */
static enum status try_streams(struct fitting *f, int stream_count, int64_t *arena)
{
    struct program copy = program_copy(f->program);
    struct plan plan = {0};
    f->tried.streams = stream_count;
    enum status status = make(&f->engines, &copy, &f->tried);
    if (status == OK) status = plan_fit(&copy, f->room, f->pack_seconds, &plan);
    if (status == OK) {
        *arena = plan.live_bytes_bound > f->room ? plan.live_bytes_bound : plan.arena_bytes;
        keep_way(f, &plan);
    }
    plan_free(&plan);
    program_free(&copy);
    return status;
}

/* The smaller of the arenas on all streams and, where that could make it fit, on one. */
static enum status try_choice(struct fitting *f, int64_t *arena)
{
    int all = setup_streams(f->setup);
    TRY(try_streams(f, all, arena));
    if (*arena <= f->room || all == 1 || (double)f->room >= CLOSE * (double)*arena) return OK;
    int64_t narrow;
    TRY(try_streams(f, 1, &narrow));
    if (narrow < *arena) *arena = narrow;
    return OK;
}

static bool fits(const struct fitting *f)
{
    return f->places && f->arena <= f->room;
}

/* One choice within `limit`, tried. `bytes`: what it counts on. */
static enum status try_limit(struct fitting *f, int64_t limit, bool light, bool *met, int64_t *bytes,
                             int64_t *arena)
{
    struct recompute_forecast forecast;
    const struct recompute_goal goal = {.limit = limit, .light = light, .work = RECOMPUTE_WORK};
    *met = recompute_choose(f->program, &goal, f->tried.remake, &forecast);
    *bytes = forecast.bytes;
    f->tried.merged = limit;
    return try_choice(f, arena);
}

/* The choice of the least does not depend on the room: so what is said to be needed is enough. */
static enum status try_least(struct fitting *f)
{
    struct least least;
    int64_t arena;
    TRY(strategy_least(f->setup, &least));
    enum status status = OK;
    if (least.count == f->program->count) {
        memcpy(f->tried.remake, least.remake, (size_t)least.count * sizeof *f->tried.remake);
        f->tried.merged = 0;
        status = try_choice(f, &arena);
    }
    strategy_forget(&least);
    return status;
}

/* A choice counts on one stream, on perfect packing and on forward's workspaces: what that misses by comes
 * off its limit. `can`: whether the room itself is a limit that can be met. */
static enum status search_packing(struct fitting *f, bool light, double seconds, bool *can)
{
    int64_t limit = f->room, bytes, arena;
    bool met = true;
    f->pack_seconds = seconds;
    for (int t = 0; t < TRIES && limit > 0 && met && !fits(f); t++) {
        TRY(try_limit(f, limit, light, &met, &bytes, &arena));
        limit -= arena - f->room + f->room / 1000;
        if (t == 0) *can = met;
    }
    f->pack_seconds = PACK_SECONDS;
    return OK;
}

static enum status search(struct fitting *f, bool light)
{
    bool can = false;
    TRY(search_packing(f, light, PACK_SECONDS, &can));
    if (!fits(f) && can) TRY(search_packing(f, light, PACK_LONG, &can));
    return fits(f) ? OK : try_least(f);
}

static void keep_all(struct fitting *f)
{
    for (int i = 0; i < f->program->count; i++) f->tried.remake[i] = REMAKE_NOT;
}

/* Off-loading on top of a choice of what is made again that may take `more` than there is room for. */
static enum status try_moves(struct fitting *f, int64_t more, bool hidden, int64_t *arena)
{
    int64_t bytes;
    bool met;
    if (more > 0) {
        TRY(try_limit(f, f->room + more, false, &met, &bytes, arena));
        if (fits(f)) return OK;
    } else {
        keep_all(f);
    }
    f->tried.moves = (struct moves){true, {.limit = f->room, .hidden = hidden}};
    enum status status = OK;
    for (int t = 0; status == OK && t < TRIES && !fits(f) && f->tried.moves.options.limit > 0; t++) {
        status = try_choice(f, arena);
        f->tried.moves.options.limit -= *arena - f->room + f->room / 1000;
    }
    f->tried.moves.any = false;
    return status;
}

/* How much less is alive at once with all moved that can be behind computing. */
static int64_t bytes_hidden(const struct fitting *f)
{
    struct offload_forecast none, all;
    struct program copy = program_copy(f->program);
    offload(&copy, &(struct offload_options){.limit = INT64_MAX, .hidden = true}, &none);
    offload(&copy, &(struct offload_options){.limit = 0, .hidden = true}, &all);
    program_free(&copy);
    return none.bytes - all.bytes;
}

/* As much moved as is hidden, and the rest made again; if that is not enough, what is waited for, too. */
static enum status fit_moving(struct fitting *f)
{
    int64_t arena, hidden = bytes_hidden(f);
    TRY(try_moves(f, 0, true, &arena));
    for (int part = 2; !fits(f) && part > 0; part--) TRY(try_moves(f, hidden * part / 2, true, &arena));
    if (!fits(f)) TRY(search(f, false));
    for (int part = 1; !fits(f) && part <= 4; part *= 2) TRY(try_moves(f, f->room * part / 4, false, &arena));
    return OK;
}

static enum status fit(struct fitting *f)
{
    int64_t arena;
    if (plan_least_bytes(f->program) > f->room) return try_least(f);
    switch (f->setup->settings->memory.strategy) {
    case STRATEGY_AUTO:
        keep_all(f);
        TRY(try_choice(f, &arena));
        return fits(f) ? OK : search(f, false);
    case STRATEGY_KEEP:
        recompute_cheap(f->program, f->tried.remake);
        TRY(try_choice(f, &arena));
        return fits(f) ? OK : search(f, true);
    case STRATEGY_RECOMPUTE: return search(f, false);
    case STRATEGY_OFFLOAD: return fit_moving(f);
    }
    return OK;
}

static enum status without_limit(struct fitting *f)
{
    int strategy = f->setup->settings->memory.strategy;
    struct way *way = &f->tried;
    way->merged = INT64_MAX;
    way->moves = (struct moves){strategy == STRATEGY_OFFLOAD, {.hidden = true}};
    way->streams = setup_streams(f->setup);
    if (strategy == STRATEGY_AUTO || strategy == STRATEGY_OFFLOAD) keep_all(f);
    else recompute_cheap(f->program, f->tried.remake);
    return make(NULL, f->program, way);
}

/* Makes the program in the best way. */
static enum status make_best(struct fitting *f)
{
    struct program *program = f->program;
    TRY(make(&f->engines, program, &f->best));
    program->places = f->places;
    program->place_count = f->place_count;
    f->places = NULL;
    return OK;
}

static enum status prepare(struct fitting *f, struct device *device)
{
    const struct setup *setup = f->setup;
    const struct engine_options options = {
        .code_of = engines_code(setup_device_kind(setup)), .device = device,
        .tf32 = setup->precision->tf32, .deterministic = setup->settings->run.deterministic,
    };
    return engines_prepare(f->program, &options, &f->engines);
}

/* What the run takes besides the arena. */
static int64_t rest_of(const struct fitting *f)
{
    const struct plan nothing = {0};
    return step_bytes(f->setup, f->program, &nothing, step_store_bytes(f->setup)).total;
}

/* Workspaces are known when engines are. */
static enum status within_limit(struct fitting *f)
{
    TRY(prepare(f, f->setup->device));
    f->room = f->tried.merged = setup_limit(f->setup) - rest_of(f);
    enum status status = fit(f);
    if (status == OK) status = make_best(f);
    engines_release(&f->engines);
    return status;
}

static struct fitting fitting_open(const struct setup *setup, struct program *program)
{
    size_t count = (size_t)program->count;
    struct fitting f = {.setup = setup, .program = program, .pack_seconds = PACK_SECONDS};
    f.tried.remake = memory_new(count, sizeof *f.tried.remake);
    f.best.remake = memory_new(count, sizeof *f.best.remake);
    return f;
}

static void fitting_close(struct fitting *f)
{
    free(f->tried.remake);
    free(f->best.remake);
    free(f->places);
}

enum status strategy_apply(const struct setup *setup, struct program *program)
{
    struct fitting f = fitting_open(setup, program);
    enum status status = setup_limit(setup) > 0 ? within_limit(&f) : without_limit(&f);
    fitting_close(&f);
    return status;
}

/* The search for the choice that takes the least. */
struct leasts {
    const struct program *program;
    struct recompute_goal goal;
    struct least *least;
    enum remake *remake;
    int64_t bytes;               /* of the smallest so far */
    int64_t work;
};

/* A choice for a limit, which may be smaller than the smallest so far though it misses that; whether it does
 * not. */
static bool choose_less(struct leasts *l, double limit)
{
    struct recompute_forecast forecast;
    l->goal.limit = (int64_t)limit;
    bool met = recompute_choose(l->program, &l->goal, l->remake, &forecast);
    l->work += forecast.work;
    if (forecast.bytes >= l->bytes) return met;
    l->bytes = forecast.bytes;
    memcpy(l->least->remake, l->remake, (size_t)l->program->count * sizeof *l->remake);
    return met;
}

/* Limits between what no choice goes below and what the smallest so far takes; and then some that are surely
 * missed: how far below leads to a smaller one is not known. */
static void choose_least(const struct setup *setup, const struct program *program, struct least *least)
{
    static const double shares[] = {0.85, 0.7, 0.5, 0.93};
    const int count = sizeof shares / sizeof *shares;
    struct recompute_forecast forecast;
    struct leasts l = {.program = program, .least = least};
    l.goal = (struct recompute_goal){.light = setup->settings->memory.strategy == STRATEGY_KEEP, .any = true,
                                     .work = LEAST_WORK / LEAST_TRIES};
    l.remake = memory_new((size_t)program->count, sizeof *l.remake);
    recompute_measure(program, least->remake, &forecast);
    l.bytes = forecast.bytes;
    double low = (double)plan_least_bytes(program);
    while ((double)l.bytes > LEAST_NEAR * low && l.work < LEAST_WORK) {
        double limit = sqrt(low * (double)l.bytes);
        if (!choose_less(&l, limit)) low = limit;
    }
    for (int i = 0; i < count && l.work < LEAST_WORK; i++) {
        int64_t before = l.bytes;
        choose_less(&l, shares[i] * (double)before);
        if ((double)l.bytes < 0.98 * (double)before) i = -1;
    }
    free(l.remake);
}

int strategy_octave(const struct setup *setup)
{
    int images = 1;
    while (images <= setup->batch / setup->slices / 2) images *= 2;
    return images;
}

/* `remake` is all zero to begin with: REMAKE_NOT. */
enum status strategy_least(const struct setup *setup, struct least *least)
{
    struct setup like = *setup;
    struct program program;
    like.batch = setup->slices * strategy_octave(setup);
    TRY(step_lower(&like, STEP_TRAINING, &program));
    *least = (struct least){.count = program.count};
    least->remake = memory_new((size_t)program.count, sizeof *least->remake);
    choose_least(&like, &program, least);
    program_free(&program);
    return OK;
}

void strategy_forget(struct least *least)
{
    free(least->remake);
    *least = (struct least){0};
}

static enum status bytes_of(struct fitting *f, bool packed, struct step_bytes *bytes)
{
    struct recompute_forecast forecast;
    int64_t rest = rest_of(f);
    f->room = setup_limit(f->setup) - rest;
    recompute_measure(f->program, f->tried.remake, &forecast);
    struct step_bytes found = {.arena = forecast.bytes};
    if (packed) TRY(try_choice(f, &found.arena));
    found.total = rest + found.arena;
    *bytes = found;
    return OK;
}

enum status strategy_least_bytes(const struct setup *setup, const struct least *least, bool packed,
                                 struct step_bytes *bytes)
{
    struct program program;
    TRY(step_lower(setup, STEP_TRAINING, &program));
    struct fitting f = fitting_open(setup, &program);
    if (least->count == program.count)
        memcpy(f.tried.remake, least->remake, (size_t)program.count * sizeof *f.tried.remake);
    enum status status = prepare(&f, NULL);
    if (status == OK) status = bytes_of(&f, packed, bytes);
    engines_release(&f.engines);
    fitting_close(&f);
    program_free(&program);
    return status;
}

const char *strategy_name(const struct setup *setup, const struct program *program)
{
    bool keep = setup->settings->memory.strategy == STRATEGY_KEEP || recompute_count(program) == 0;
    if (offload_bytes(program) > 0) return "offload";
    return keep ? "keep" : "recompute";
}
