/* fit_memory.c: how a training step meets its budget, in this order, until one of the choices fits:
 *
 *   1. If a single instruction needs more than the arena may have, nothing can fit: 4.
 *   2. All activations are kept; with strategy keep, all but those whose recomputation costs next to nothing.
 *   3. The cheapest recomputation whose live bytes fit is planned. While the arena exceeds the room, as
 *      packing and streams cost some, the limit is lowered by the excess.
 *   4. The minimum-memory choice (minimum.h), whatever it costs. The caller refuses it if that is too large.
 *
 * Each choice is planned on all streams, and on fewer if it does not fit. One that fits on fewer is at last
 * planned on all of them again, packed for longer. Strategy offload moves values to the host before 3, as far
 * as computation hides the copies, and after 4 also with waiting. */
#include "compile/memory/fit_memory.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/memory/plan.h"

#define TRIES 6              /* choices for one goal, each with a lower limit than the one before */
#define CLOSE 0.97           /* room / arena: above it a lower limit is tried, below it fewer streams */
#define WIDER 0.005          /* of the room, given up for all streams */
#define PACK_SECONDS 0.05    /* a slightly lower limit is met sooner than a better packing is found ... */
#define PACK_LONG 0.4        /* ... but not all streams */

/* A program being fitted. */
struct fitting {
    const struct compile_options *options;
    struct program *program;     /* as lowered, with workspaces */
    struct kernel_plans kernel_plans;
    struct memory_choice tried;
    struct memory_choice best;   /* the smallest so far ... */
    int64_t arena;               /* ... its arena, in bytes ... */
    int64_t *offsets;            /* ... and the offsets by value of its program; NULL: none so far */
    int offset_count;
    int64_t room;                /* for the arena */
    bool widens;                 /* any choice that fits is better than the best */
    double pack_seconds;
};

static struct fitting fitting_open(const struct compile_options *options, struct program *program)
{
    size_t count = (size_t)program->count;
    struct fitting f = {.options = options, .program = program, .arena = INT64_MAX,
                        .pack_seconds = PACK_SECONDS};
    f.tried.modes = memory_new(count, sizeof *f.tried.modes);
    f.best.modes = memory_new(count, sizeof *f.best.modes);
    return f;
}

static void fitting_close(struct fitting *f)
{
    free(f->tried.modes);
    free(f->best.modes);
    free(f->offsets);
}

/* Applies the tried choice to a copy of the program, and sets the copy's workspaces. */
static enum status make_copy(const struct fitting *f, struct program *copy)
{
    struct compile_options options = *f->options;
    options.after = NULL;
    TRY(passes_memory(&options, &f->tried, copy));
    kernel_plans_set_workspaces(&f->kernel_plans, copy);
    return OK;
}

/* Keeps the tried choice if it is the smallest so far, and moves the plan's offsets. */
static void keep_choice(struct fitting *f, struct plan *plan)
{
    if (plan->arena_bytes >= (f->widens ? f->room + 1 : f->arena)) return;
    enum recompute_mode *modes = f->best.modes;
    memcpy(modes, f->tried.modes, (size_t)f->program->count * sizeof *modes);
    f->best = f->tried;
    f->best.modes = modes;
    free(f->offsets);
    f->arena = plan->arena_bytes;
    f->offsets = plan->offsets;
    f->offset_count = plan->value_count;
    plan->offsets = NULL;
}

/* The arena of the tried choice; if it cannot fit, a lower bound of that. */
static enum status try_streams(struct fitting *f, int stream_count, int64_t *arena)
{
    struct program copy = program_copy(f->program);
    struct plan plan = {0};
    f->tried.streams = stream_count;
    enum status status = make_copy(f, &copy);
    if (status == OK) status = plan_fit(&copy, f->room > 0 ? f->room : 1, f->pack_seconds, &plan);
    if (status == OK) {
        *arena = plan.arena_bytes;
        keep_choice(f, &plan);
    }
    plan_free(&plan);
    program_free(&copy);
    return status;
}

/* The smallest of the arenas on all streams and, if it does not fit on these, on fewer: only with `narrow` if
 * it nearly fits, or if streams need not be used all the time. */
static enum status try_choice(struct fitting *f, bool narrow, int64_t *arena)
{
    int streams = f->options->streams;
    bool parts = streams_can_part(f->program) && !f->options->fit_any;
    double close = narrow || parts ? 1 : CLOSE;
    f->tried.stream_limit = parts ? f->room : 0;
    TRY(try_streams(f, streams, arena));
    while (streams > 1 && (double)f->room < close * (double)*arena) {
        int64_t fewer;
        TRY(try_streams(f, streams /= 2, &fewer));
        if (fewer < *arena) *arena = fewer;
    }
    return OK;
}

static bool choice_fits(const struct fitting *f)
{
    return f->arena <= f->room;
}

static void keep_all(struct fitting *f)
{
    for (int i = 0; i < f->program->count; i++) f->tried.modes[i] = RECOMPUTE_NEVER;
}

/* 2, unless the live bytes alone exceed the room. */
static enum status try_all(struct fitting *f, int64_t *arena)
{
    struct recompute_forecast forecast;
    keep_all(f);
    recompute_measure(f->program, f->tried.modes, &forecast);
    return forecast.bytes <= f->room ? try_choice(f, false, arena) : OK;
}

/* Chooses for a goal and tries that. */
static enum status try_limit(struct fitting *f, const struct recompute_goal *goal, bool narrow, bool *met,
                             int64_t *arena)
{
    struct recompute_forecast forecast;
    *met = recompute_choose(f->program, goal, f->tried.modes, &forecast);
    f->tried.fuse_limit = goal->limit;
    return try_choice(f, narrow, arena);
}

/* 3, for the cheapest choices, or with `fit_any` for any. A choice's forecast assumes one stream, perfect
 * packing and forward's workspaces. */
static enum status search_limits(struct fitting *f, bool light)
{
    struct recompute_goal goal = {.limit = f->room, .light = light, .any = f->options->fit_any,
                                  .work = RECOMPUTE_WORK};
    int64_t arena;
    bool met = true;
    for (int t = 0; t < TRIES && goal.limit > 0 && met && !choice_fits(f); t++) {
        TRY(try_limit(f, &goal, t + 1 == TRIES, &met, &arena));
        goal.limit -= arena - f->room + f->room / 1000;
    }
    return OK;
}

/* 4. This choice does not depend on the room, so the memory that a message says is needed is enough. */
static enum status try_minimum(struct fitting *f)
{
    struct minimum minimum;
    int64_t arena;
    TRY(minimum_find(f->program->graph, f->options, &minimum));
    recompute_unfold(f->program, minimum.modes, f->tried.modes);
    f->tried.fuse_limit = 0;
    enum status status = try_choice(f, true, &arena);
    minimum_free(&minimum);
    return status;
}

/* 3 and 4. */
static enum status fit_search(struct fitting *f, bool light)
{
    TRY(search_limits(f, light));
    return choice_fits(f) ? OK : try_minimum(f);
}

/* Offloads on top of a recomputation choice whose limit is `more` than the room. */
static enum status try_offload(struct fitting *f, int64_t more, bool hidden, int64_t *arena)
{
    bool met;
    if (more > 0) {
        const struct recompute_goal goal = {.limit = f->room + more, .work = RECOMPUTE_WORK};
        TRY(try_limit(f, &goal, false, &met, arena));
        if (choice_fits(f)) return OK;
    } else {
        keep_all(f);
    }
    f->tried.offloads = true;
    f->tried.offload = (struct offload_options){.limit = f->room, .hidden = hidden};
    enum status status = OK;
    for (int t = 0; status == OK && t < TRIES && !choice_fits(f) && f->tried.offload.limit > 0; t++) {
        status = try_choice(f, false, arena);
        f->tried.offload.limit -= *arena - f->room + f->room / 1000;
    }
    f->tried.offloads = false;
    return status;
}

/* The bytes by which the peak falls if all is offloaded whose copies computation hides. */
static int64_t bytes_hidden(const struct fitting *f)
{
    struct offload_forecast none, all;
    struct program copy = program_copy(f->program);
    offload(&copy, &(struct offload_options){.limit = INT64_MAX, .hidden = true}, &none);
    offload(&copy, &(struct offload_options){.limit = 0, .hidden = true}, &all);
    program_free(&copy);
    return none.bytes - all.bytes;
}

/* Offloads as much as computation hides and recomputes the rest; then also offloads with waiting. */
static enum status fit_offload(struct fitting *f)
{
    int64_t arena, hidden = bytes_hidden(f);
    TRY(try_offload(f, 0, true, &arena));
    for (int part = 2; !choice_fits(f) && part > 0; part--)
        TRY(try_offload(f, hidden * part / 2, true, &arena));
    if (!choice_fits(f)) TRY(fit_search(f, false));
    for (int part = 1; !choice_fits(f) && part <= 4; part *= 2)
        TRY(try_offload(f, f->room * part / 4, false, &arena));
    return OK;
}

static enum status fit_step(struct fitting *f)
{
    int64_t arena;
    if (plan_minimum_bytes(f->program) > f->room) return try_minimum(f);
    switch (f->options->fit) {
    case FIT_AUTO:
        TRY(try_all(f, &arena));
        return choice_fits(f) ? OK : fit_search(f, false);
    case FIT_KEEP:
        recompute_cheap(f->program, f->tried.modes);
        TRY(try_choice(f, false, &arena));
        return choice_fits(f) ? OK : fit_search(f, true);
    case FIT_RECOMPUTE: return fit_search(f, false);
    case FIT_OFFLOAD: return fit_offload(f);
    }
    return OK;
}

/* All streams for a choice that fits on fewer, packed for longer; if it does not fit on these, for one that
 * takes a little less. */
static enum status try_wider(struct fitting *f)
{
    struct recompute_forecast forecast;
    const struct recompute_goal goal = {.limit = f->best.fuse_limit - (int64_t)(WIDER * (double)f->room),
                                        .work = RECOMPUTE_WORK};
    enum recompute_mode *modes = f->tried.modes;
    int64_t arena;
    memcpy(modes, f->best.modes, (size_t)f->program->count * sizeof *modes);
    f->tried = f->best;
    f->tried.modes = modes;
    f->tried.stream_limit = f->room;
    f->widens = true;
    f->pack_seconds = PACK_LONG;
    TRY(try_streams(f, f->options->streams, &arena));
    if (f->best.streams == f->options->streams || f->options->fit == FIT_KEEP) return OK;
    if (!recompute_choose(f->program, &goal, modes, &forecast)) return OK;
    f->tried.fuse_limit = goal.limit;
    return try_streams(f, f->options->streams, &arena);
}

static bool can_widen(const struct fitting *f)
{
    return choice_fits(f) && f->best.streams < f->options->streams && !f->options->fit_any &&
           !f->best.offloads && streams_can_part(f->program);
}

/* Applies the best choice to the program. */
static enum status make_best(struct fitting *f)
{
    struct program *program = f->program;
    TRY(passes_memory(f->options, &f->best, program));
    kernel_plans_set_workspaces(&f->kernel_plans, program);
    program->offsets = f->offsets;
    program->offset_count = f->offset_count;
    f->offsets = NULL;
    return OK;
}

/* Kernel plans come first, since workspaces depend on them. */
static enum status within_limit(struct fitting *f)
{
    const struct compile_options *options = f->options;
    TRY(kernel_plans_prepare(f->program, &options->kernel_plans, &f->kernel_plans));
    f->room = f->tried.fuse_limit = budget_allowed(&options->budget, f->program).arena;
    enum status status = fit_step(f);
    if (status == OK && can_widen(f)) status = try_wider(f);
    if (status == OK) status = make_best(f);
    if (status != OK) kernel_plans_release(&f->kernel_plans);
    return status;
}

static enum status without_limit(struct fitting *f)
{
    enum fit_mode fit = f->options->fit;
    struct memory_choice *choice = &f->tried;
    choice->fuse_limit = INT64_MAX;
    choice->offloads = fit == FIT_OFFLOAD;
    choice->offload = (struct offload_options){.hidden = true};
    choice->streams = f->options->streams;
    if (fit == FIT_AUTO || fit == FIT_OFFLOAD) keep_all(f);
    else recompute_cheap(f->program, choice->modes);
    return passes_memory(f->options, choice, f->program);
}

enum status fit_memory(const struct compile_options *options, struct program *program,
                       struct kernel_plans *kernel_plans)
{
    if (!program->training)
        return passes_memory(options, &(struct memory_choice){.streams = options->streams}, program);
    struct fitting f = fitting_open(options, program);
    bool limited = options->budget.total > 0;
    enum status status = limited ? within_limit(&f) : without_limit(&f);
    if (status == OK && limited) *kernel_plans = f.kernel_plans;
    fitting_close(&f);
    return status;
}

enum status fit_memory_bound(const struct graph *graph, const struct compile_options *options,
                             int64_t *bytes)
{
    struct compile_options one = minimum_few(options, 1);
    struct program program;
    *bytes = 0;
    if (options->cut.stages > 1) return OK;
    one.after = NULL;
    TRY(passes_lower(graph, &one, &program));
    *bytes = budget_taken(&one.budget, &program, plan_minimum_bytes(&program)).total;
    program_free(&program);
    return OK;
}

static enum status taken_by(struct fitting *f, bool packed, struct budget *taken)
{
    struct recompute_forecast forecast;
    f->room = budget_allowed(&f->options->budget, f->program).arena;
    recompute_measure(f->program, f->tried.modes, &forecast);
    int64_t arena = forecast.bytes;
    if (packed) TRY(try_choice(f, false, &arena));
    *taken = budget_taken(&f->options->budget, f->program, arena);
    return OK;
}

enum status fit_memory_minimum_taken(const struct graph *graph, const struct compile_options *options,
                                     const struct minimum *minimum, bool packed, struct budget *taken)
{
    struct program program;
    TRY(passes_lower(graph, options, &program));
    struct fitting f = fitting_open(options, &program);
    if (minimum->count > 0) recompute_unfold(&program, minimum->modes, f.tried.modes);
    enum status status = kernel_plans_prepare(&program, &options->kernel_plans, &f.kernel_plans);
    if (status == OK) status = taken_by(&f, packed, taken);
    kernel_plans_release(&f.kernel_plans);
    fitting_close(&f);
    program_free(&program);
    return status;
}
