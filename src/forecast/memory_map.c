#include "forecast/memory_map.h"

#include <stdlib.h>

#include "base/memory.h"

/* Colours that are distinguishable with most kinds of colour blindness. */
const struct map_kind map_kinds[MAP_KINDS] = {
    [KIND_ACTIVATION] = {"activations", 0x4c86c6},
    [KIND_SAVED] = {"kept for backward", 0x35a79c},
    [KIND_GRADIENT] = {"gradients of activations", 0xf0913a},
    [KIND_PARAM_GRADIENT] = {"gradients of parameters", 0xd6495b},
    [KIND_WORKSPACE] = {"workspaces", 0x9a7bc0},
    [KIND_EXCHANGE] = {"exchanges among ranks", 0x6fae4e},
    [KIND_OTHER] = {"other", 0x8d99a6},
    [MAP_AGAIN] = {"recomputed activations", 0x9cc9ee},
};

/* True if recomputation writes a value, by value. */
static bool *find_again(const struct program *program)
{
    bool *again = memory_new((size_t)program->value_count + 1, sizeof *again);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool recomputes = at->phase == PHASE_RECOMPUTE && !instruction_is_copy(at);
        FOR_WRITES(o, at)
            if ((recomputes && o->role != OPERAND_WORKSPACE) || o->role == OPERAND_Y_RECOMPUTED)
                again[o->value] = true;
    }
    return again;
}

/* The time of a value in an address range that it may share. */
struct turn {
    int group, born, value;
    int until;               /* the begin of the next one; for the last, the end of the range's lifetime */
};

static int compare_turns(const void *a, const void *b)
{
    const struct turn *left = a, *right = b;
    if (left->group != right->group) return left->group < right->group ? -1 : 1;
    if (left->born != right->born) return left->born < right->born ? -1 : 1;
    return left->value < right->value ? -1 : 1;
}

static struct turn *take_turns(const struct plan *plan, int *count)
{
    struct turn *turns = memory_new((size_t)plan->value_count + 1, sizeof *turns);
    *count = 0;
    for (int v = 0; v < plan->value_count; v++)
        if (plan->lifetimes[v].born >= 0)
            turns[(*count)++] = (struct turn){plan->lifetimes[v].group, plan->lifetimes[v].born, v, 0};
    qsort(turns, (size_t)*count, sizeof *turns, compare_turns);
    int dead = 0;
    for (int t = 0; t < *count; t++) {
        bool first = t == 0 || turns[t].group != turns[t - 1].group;
        bool last = t + 1 == *count || turns[t].group != turns[t + 1].group;
        int own = plan->lifetimes[turns[t].value].dead;
        dead = first || own > dead ? own : dead;
        turns[t].until = last ? dead : turns[t + 1].born;
    }
    return turns;
}

static int64_t *alive_at(const struct memory_map *map, int instruction)
{
    return &map->alive[(size_t)instruction * MAP_KINDS];
}

static int compare_boxes(const void *a, const void *b)
{
    const struct map_box *left = a, *right = b;
    if (left->bytes != right->bytes) return left->bytes > right->bytes ? -1 : 1;
    return (left->value > right->value) - (left->value < right->value);
}

/* `alive` is how much it changes from one instruction to the next until alive_sum. */
static void add_turn(struct memory_map *map, const struct turn *turn, bool again)
{
    const struct plan *plan = &map->forecast->compiled.plan;
    const struct value *values = map->forecast->compiled.program.values;
    int own = plan->lifetimes[turn->value].dead;
    struct map_box box = {.value = turn->value, .kind = again ? MAP_AGAIN : (int)values[turn->value].kind,
                          .born = turn->born, .dead = own < turn->until ? own : turn->until,
                          .offset = plan->offsets[turn->value], .bytes = plan_bytes(&values[turn->value])};
    *array_push(map->boxes, map->count) = box;
    /* The range has the size of the group's first value. */
    box.bytes = plan_bytes(&values[turn->group]);
    alive_at(map, turn->born)[box.kind] += box.bytes;
    alive_at(map, turn->until)[box.kind] -= box.bytes;
    if (turn->born <= plan->peak && plan->peak < turn->until) *array_push(map->peak, map->peak_count) = box;
}

static void alive_sum(struct memory_map *map, int instructions)
{
    for (int i = 1; i <= instructions; i++)
        for (int kind = 0; kind < MAP_KINDS; kind++) alive_at(map, i)[kind] += alive_at(map, i - 1)[kind];
}

struct memory_map memory_map_make(const struct forecast *forecast)
{
    struct memory_map map = {.forecast = forecast};
    map.alive = memory_new((size_t)(forecast->compiled.program.count + 1) * MAP_KINDS, sizeof *map.alive);
    bool *again = find_again(&forecast->compiled.program);
    int count;
    struct turn *turns = take_turns(&forecast->compiled.plan, &count);
    for (int t = 0; t < count; t++) add_turn(&map, &turns[t], again[turns[t].value]);
    alive_sum(&map, forecast->compiled.program.count);
    qsort(map.peak, (size_t)map.peak_count, sizeof *map.peak, compare_boxes);
    free(turns);
    free(again);
    return map;
}

void memory_map_free(struct memory_map *map)
{
    free(map->boxes);
    free(map->alive);
    free(map->peak);
    *map = (struct memory_map){0};
}
